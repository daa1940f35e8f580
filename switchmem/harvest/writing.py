"""Which processes write a harvest: a new run must not look what is done while ranks of a killed one still write."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from switchmem.stages import lock_file, make_folder, unwritable, wait_for_lock

_WRITING: dict[Path, IO[str]] = {}
"""Shared locks of the harvests that this process writes; they go with it."""


def wait_for_writers(folder: Path) -> None:
    """Wait until no process of an earlier run writes into a harvest any more.

    When a rank is killed, the others write what they have and end; a new run that looked before would do the same
    steps again. One process per machine calls this before any rank looks, and `begin_writing` comes after.

    Raises:
        WriteError: if the lock cannot be made beside the folder.
    """
    end_writing(folder)  # a lock of this process's own earlier pass
    with _open_lock(folder) as handle:
        wait_for_lock(handle, f"still writes into {folder}")


def begin_writing(folder: Path) -> None:
    """Count this process as a writer of a harvest until `end_writing`, or until it ends.

    Raises:
        WriteError: if the lock cannot be made beside the folder.
    """
    end_writing(folder)
    handle = _open_lock(folder)
    lock_file(handle, fcntl.LOCK_SH)
    _WRITING[folder.absolute()] = handle


def end_writing(folder: Path) -> None:
    """Undo `begin_writing`."""
    handle = _WRITING.pop(folder.absolute(), None)
    if handle is not None:
        handle.close()


def _open_lock(folder: Path) -> IO[str]:
    make_folder(folder.parent)
    path = folder.with_name(f".{folder.name}.writers.lock")
    try:
        return path.open("a")
    except OSError as error:
        raise unwritable(path, error) from error
