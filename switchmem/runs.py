"""One folder per run: the resolved config, where the numbers come from, checkpoints, policy and results.

runs/pocket/
    config.yaml  provenance.json  data_report.json  checkpoints/  logs/  policy/  results.json  scores.parquet
    previous/1/ ...     what an earlier run with another config left here
"""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from switchmem.stages import lock_file, make_folder, unwritable, write_json, write_whole

PACKAGES = (
    "switchmem",
    "torch",
    "lightning",
    "jsonargparse",
    "transformers",
    "tokenizers",
    "safetensors",
    "torchmetrics",
    "numpy",
    "scikit-learn",
    "pillow",
)
PREVIOUS = "previous"


_HELD: dict[Path, IO[str]] = {}
"""Locks of the folders that this process writes; they go with it."""


class RunError(ValueError):
    """A run folder lacks what a command needs, or an argument contradicts it."""


class RunFolder:
    """Paths and bookkeeping of one run.

    Args:
        path: the folder, e.g. ``runs/pocket``; created by `start`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._provenance: tuple[Path, dict[str, Any]] | None = None
        self.checkpoints = self.path / "checkpoints"
        self.policy = self.path / "policy"
        self.results = self.path / "results.json"
        self.scores = self.path / "scores.parquet"
        self.data_report = self.path / "data_report.json"

    def file(self, stem: str, command: str, suffix: str) -> Path:
        """``config.yaml`` of `fit`; the other commands keep theirs beside it, as ``config.test.yaml``."""
        return self.path / (f"{stem}.{suffix}" if command == "fit" else f"{stem}.{command}.{suffix}")

    def hold(self) -> None:
        """Keep other processes from writing into the folder until `release_folders`, or until this one ends.

        Raises:
            RunError: if another process is at work in it.
            WriteError: if it cannot be written.
        """
        make_folder(self.path)
        if self.path in _HELD:
            return
        path = self.path / ".lock"
        try:
            handle = path.open("a")
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            lock_file(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise RunError(
                f"`run.name` must be a run that nothing else writes, got {self.path}, where another process is at "
                "work. Wait for it, or choose another name."
            ) from None
        _HELD[self.path] = handle

    def start(self, command: str, config: str) -> Path | None:
        """Create the folder and write the resolved config into it.

        A folder whose `fit` had another config is emptied into ``previous/<n>/`` first: nothing of an earlier run is
        overwritten, and nothing of it can be taken for this run's.

        Args:
            command: the command that runs.
            config: its resolved config, as YAML.

        Returns:
            Where the earlier run went, or None if nothing had to move.
        """
        make_folder(self.path)
        path = self.file("config", command, "yaml")
        moved = None
        if command == "fit" and path.is_file() and path.read_text(encoding="utf-8") != config:
            moved = self._set_aside()
        write_whole(path, config.encode())
        return moved

    def _set_aside(self) -> Path:
        target = self.path / PREVIOUS / str(max(self._numbers(), default=0) + 1)
        target.mkdir(parents=True)
        for entry in self.path.iterdir():
            if entry.name not in (PREVIOUS, ".lock"):
                entry.rename(target / entry.name)
        return target

    def find(self, path: Path) -> Path:
        """A file of this run, or of the run that was last set aside."""
        inside = path.absolute()
        if path.exists() or not inside.is_relative_to(self.path) or not self._numbers():
            return path
        return self.path / PREVIOUS / str(max(self._numbers())) / inside.relative_to(self.path)

    def _numbers(self) -> list[int]:
        return [int(p.name) for p in (self.path / PREVIOUS).glob("*") if p.name.isdigit()]

    def moved(self, path: str, aside: Path | None) -> str:
        """Where a file of this run lies after `start` returned `aside`."""
        inside = Path(path).absolute()
        if aside is None or inside.exists() or not inside.is_relative_to(self.path):
            return path
        return str(aside / inside.relative_to(self.path))

    def write_provenance(self, command: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``provenance.json`` of a command: `provenance` of this process, and `facts` about the actor."""
        self._provenance = self.file("provenance", command, "json"), {**provenance(), **facts}
        write_json(*self._provenance)
        return self._provenance[1]

    def add_provenance(self, facts: Mapping[str, Any]) -> None:
        """Add facts to what `write_provenance` wrote in this process; nothing, where it wrote nothing."""
        if self._provenance is not None:
            self._provenance[1].update(facts)
            write_json(*self._provenance)


def release_folders() -> None:
    """Let go of every folder that this process held."""
    while _HELD:
        _HELD.popitem()[1].close()


def provenance() -> dict[str, Any]:
    """Code, versions and machine of this process, as plain JSON values.

    ``git`` and ``dirty`` are None where the code is not in a git checkout.
    """
    commit, dirty = _git_state(Path(__file__).resolve().parent.parent)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "git": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git_state(folder: Path) -> tuple[str | None, bool | None]:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None, None
