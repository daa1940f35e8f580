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

import errno
import fcntl
import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import IO, Any

_log = logging.getLogger(__name__)

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk, or of a user's or a process's share of it."""
UNWRITABLE = FULL | {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
"""Errors of a place that cannot be written."""

PATIENCE_SECONDS = 10.0
"""How long a process waits for another one without saying so."""

CODE_FORMAT = 3
"""Version of what stages write. Raise it when a stage's files change meaning, and old stages are left alone."""


class StageError(ValueError):
    """A stage folder does not hold what its name promises."""


class WriteError(StageError):
    """Something cannot be written; nothing that was finished before is touched."""


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
    """Write readable JSON; see `write_whole`. A lone surrogate, which is no text, becomes a question mark."""
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, to the disk, and rename it: a reader sees all of it or nothing.

    Args:
        path: the file; its folder exists.
        data: its content.

    Raises:
        WriteError: if that fails, as on a full disk. What was at `path` before is still there.
    """
    # not by process id alone: on two machines that share the folder it may be the same
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # the folder itself may be what is missing
            partial.unlink(missing_ok=True)
        raise unwritable(path, error, len(data)) from error


def make_folder(path: Path) -> None:
    """Create a folder, unless it is there.

    Raises:
        WriteError: if that fails.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path | None, error: OSError, size: int | None = None) -> WriteError:
    """What to tell of a failed write, and what to do about it.

    Args:
        path: what was to be written; None if unknown.
        error: why it was not.
        size: of it, in bytes.
    """
    found = error.strerror or str(error)
    if error.errno in FULL:
        place, needed = "the disk of the run or of its stages", ""
        if path is not None:
            place, needed = str(path.parent), "" if size is None else f" for the {size:,} bytes of {path.name}"
            with suppress(OSError):
                found += f" ({shutil.disk_usage(path.parent).free:,} bytes free)"
        return WriteError(
            f"{place} must have space{needed}, got: {found}. Make space and run the same command again: what was "
            "finished is kept."
        )
    return WriteError(
        f"{path} must be writable, got: {found}. Let this user write there, or choose other folders with --run.dir and "
        "--run.stages_dir. What was finished is kept."
    )


def lock_file(handle: IO[Any], operation: int) -> None:
    """`fcntl.flock`; goes on without where the file system has no locks, and says so.

    Raises:
        BlockingIOError: if the lock is taken and `operation` does not wait.
    """
    try:
        fcntl.flock(handle, operation)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK):
            raise
        _log.warning(
            "%s lies on a file system without locks (%s): make sure that one command at a time works there.",
            Path(handle.name).parent,
            error.strerror,
        )


def wait_for_lock(handle: IO[Any], work: str) -> None:
    """Take a lock for this process alone, and say so where that takes long.

    Args:
        handle: the lock's file.
        work: what another process does; follows "another process that".
    """
    told = threading.Timer(PATIENCE_SECONDS, _log.warning, ("Waiting for another process that %s.", work))
    told.daemon = True
    told.start()
    try:
        lock_file(handle, fcntl.LOCK_EX)
    finally:
        told.cancel()


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
        make_folder(self.folder)
        write_json(self.folder / "stage.json", self._facts(complete=False))
        return self.folder

    def finish(self, *files: str, **facts: Any) -> None:
        """Mark the stage as complete, with some facts for the reader (counts, seconds).

        Args:
            *files: names of files in the folder whose content `check` is to vouch for.
            **facts: plain JSON values.
        """
        digests = {name: digest_of(self.folder / name) for name in files}
        write_json(self.folder / "stage.json", {**self._facts(complete=True), "digests": digests, "facts": facts})

    def check(self) -> None:
        """Whether the files that `finish` was given are as they were then.

        Raises:
            StageError: if one is missing or altered.
        """
        check_files(self.folder, self.read().get("digests", {}), f"Remove {self.folder}; it is made again.")

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
        make_folder(self.root)
        path = self.root / f".{self.key}.lock"
        try:
            handle = path.open("a")
        except OSError as error:
            raise unwritable(path, error) from error
        with handle:
            wait_for_lock(handle, f"works on {self.folder}")
            yield


def digest_of(path: Path) -> str:
    """32 hexadecimal digits that change with any byte of a file."""
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()[:32]


def check_files(folder: Path, digests: Mapping[str, str], advice: str) -> None:
    """Compare files with what `digest_of` gave when they were written.

    Args:
        folder: where they lie.
        digests: by name.
        advice: what to do if they differ; a sentence.

    Raises:
        StageError: if one is missing or altered.
    """
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file() or digest_of(path) != digest:
            found = "other content" if path.is_file() else "no file"
            raise StageError(f"{path} must be as it was written, got {found}. {advice}")


@dataclass(frozen=True)
class Stages:
    """The folder that holds the stages, shared by all runs."""

    root: Path

    def stage(self, name: str, inputs: Mapping[str, Any]) -> Stage:
        """The stage of that name for these inputs, finished or not."""
        return Stage(name, inputs, self.root)
