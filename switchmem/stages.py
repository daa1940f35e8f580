"""Work that is done once: a folder per stage, named by a hash of everything that the stage depends on.

    stages = Stages(Path("runs/stages"))
    stage = stages.stage("harvest", {"memory": memory.key, "actor": spec.fingerprint(), ...})
    with stage.lock():
        if not stage.complete:
            stage.begin()
            ...                      # write into stage.folder
            stage.finish(steps=1200)

A changed input is another hash, so a stale stage is never reused; an unfinished stage keeps its folder, so that a
killed run goes on where it stopped. `stage.json` names every input in clear.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

CODE_FORMAT = 1
"""Version of what stages write. Raise it when a stage's files change meaning, and old stages are left alone."""


class StageError(ValueError):
    """A stage folder does not hold what its name promises."""


def fingerprint(value: Any) -> str:
    """Sixteen hex digits of the canonical JSON of `value`.

    >>> fingerprint({"a": 1, "b": [2, 3]}) == fingerprint({"b": (2, 3), "a": 1})
    True
    >>> fingerprint({"a": 1}) == fingerprint({"a": 2})
    False

    Raises:
        TypeError: if `value` holds something that is not plain JSON, which would hash by its address.
        ValueError: if it holds NaN or an infinity.
    """
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write JSON under a temporary name and rename it, so that no reader ever sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


@dataclass(frozen=True)
class Stage:
    """One stage.

    Args:
        name: what it does, e.g. "harvest".
        inputs: everything that its output depends on, as plain JSON values.
        root: the folder that holds all stages.
    """

    name: str
    inputs: Mapping[str, Any]
    root: Path

    @property
    def key(self) -> str:
        """``<name>-<hash of the inputs>``; later stages name this one by it."""
        return f"{self.name}-{fingerprint({'format': CODE_FORMAT, 'inputs': self.inputs})}"

    @property
    def folder(self) -> Path:
        """Where the stage writes."""
        return self.root / self.key

    @property
    def complete(self) -> bool:
        """Whether the stage was finished.

        Raises:
            StageError: if its `stage.json` cannot be read.
        """
        return bool(self.read()["complete"])

    def read(self) -> dict[str, Any]:
        """What `stage.json` says; ``{"complete": False}`` where there is none.

        Raises:
            StageError: if the file cannot be read or is not JSON.
        """
        path = self.folder / "stage.json"
        if not path.is_file():
            return {"complete": False}
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise StageError(f"{path} must be JSON, got {error}. Remove {self.folder} and run again.") from error

    def begin(self) -> Path:
        """Create the folder and name the inputs in it; earlier unfinished work stays for resuming."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "stage.json", self._facts(complete=False))
        return self.folder

    def finish(self, **facts: Any) -> None:
        """Mark the stage as complete, with some facts for the reader (counts, seconds)."""
        write_json(self.folder / "stage.json", {**self._facts(complete=True), "facts": facts})

    def _facts(self, complete: bool) -> dict[str, Any]:
        return {
            "name": self.name,
            "complete": complete,
            "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "format": CODE_FORMAT,
            "inputs": dict(self.inputs),
        }

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process at a time work on the stage; the lock goes with the process that holds it.

        Runs of one sweep share stages, so the second one waits here and then finds the stage complete.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / f".{self.key}.lock", "a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def digest_of(path: Path) -> str:
    """32 hexadecimal digits that change with any byte of a file."""
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()[:32]


@dataclass(frozen=True)
class Stages:
    """The folder that holds the stages, shared by all runs."""

    root: Path

    def stage(self, name: str, inputs: Mapping[str, Any]) -> Stage:
        """The stage of that name for these inputs, finished or not."""
        return Stage(name, inputs, self.root)
