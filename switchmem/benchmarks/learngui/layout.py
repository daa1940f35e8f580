"""Where the files of LearnGUI lie, in the spellings that were published, and what to say where they do not.

The release is a dataset repository: JSON files and zip archives. The archives are unpacked by the user; some of them
unpack into a folder of their own name, so that both depths are found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from switchmem.benchmarks.base import DataError
from switchmem.steps import RecordError

GUIDE = """LearnGUI is laid out as its authors publish it, with the archives unpacked:
  DIR/offline/task_split.json              (task_spilit.json, its first name, is read too)
  DIR/offline/low_level_instructions.json
  DIR/offline/screenshot/                  from screenshot.z01 to .z05 and screenshot.zip (or screenshots/)
  DIR/offline/element_anno/                from element_anno.zip
  DIR/online/low_level_instructions/       JSON files, or one file low_level_instructions.json
  DIR/online/raw_data/                     the Online screenshots
It is published on Hugging Face as the dataset lgy0404/LearnGUI (about 27 GB):
  hf download lgy0404/LearnGUI --repo-type dataset --local-dir DIR
Say where it is with --data.init_args.root DIR. `--config pocket.yaml` runs without any data."""

_SPLITS = ("offline/task_split.json", "offline/task_spilit.json")
_INSTRUCTIONS = ("offline/low_level_instructions.json",)
_SCREENS = ("offline/screenshot", "offline/screenshots")
_ELEMENTS = ("offline/element_anno",)
_ONLINE = ("online/low_level_instructions", "online/low_level_instructions.json")
_RAW = ("online/raw_data",)

_ARCHIVES = {
    _SCREENS: (
        "offline/screenshot.zip",
        "zip -s 0 screenshot.zip --out whole.zip && unzip whole.zip -d screenshot",
    ),
    _ELEMENTS: ("offline/element_anno.zip", "unzip element_anno.zip -d element_anno"),
    _RAW: ("online/raw_data.zip", "unzip raw_data.zip -d raw_data"),
}


@dataclass(frozen=True)
class Layout:
    """Where the files are; found by `find_layout`.

    Args:
        root: the folder that holds ``offline`` and ``online``.
        split: the file of the few-shot tasks.
        instructions: the file of the Offline episodes.
        screens: folders against which the image paths of Offline are read, in order.
        elements: folders of the element annotations, in order.
        online: files of the Online episodes, sorted.
        raw_data: folder of the Online screenshots.
    """

    root: Path
    split: Path
    instructions: Path
    screens: tuple[Path, ...]
    elements: tuple[Path, ...]
    online: tuple[Path, ...]
    raw_data: Path

    def name(self, path: Path) -> str:
        """A file's name below the root, "/"-separated."""
        return path.relative_to(self.root).as_posix()

    def facts(self) -> list[tuple[str, int, int]]:
        """``(name, size in bytes, time of change in ns)`` of every file that is read; of pictures, the time is 0.

        A link to nothing has the size -1.

        Raises:
            DataError: if a folder cannot be listed.
        """
        folders = [self.screens[0], self.elements[0], self.raw_data]
        files = [self.split, self.instructions, *self.online, *(f for folder in folders for f in files_below(folder))]
        facts = []
        for file in sorted(set(files)):
            try:
                stat = file.stat()
            except OSError:  # a link to nothing: who reads it counts it
                facts.append((self.name(file), -1, 0))
                continue
            facts.append((self.name(file), stat.st_size, stat.st_mtime_ns if file.suffix == ".json" else 0))
        return facts


def files_below(folder: Path) -> Iterator[Path]:
    """All files of a folder, at any depth; linked folders below it are not entered.

    Raises:
        DataError: if a folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise DataError(f"{folder} must be readable, got: {error}. Check the rights of the folder.") from error

    for place, _, names in os.walk(folder, onerror=refuse):
        yield from (Path(place, name) for name in names)


def _holds_files(path: Path) -> bool:
    return is_file(path) or (is_folder(path) and next(files_below(path), None) is not None)


def _first(root: Path, names: tuple[str, ...], missing: list[str]) -> Path | None:
    """The first of the names that is there and holds something; else a line for the error."""
    for name in names:
        if _holds_files(root / name):
            return root / name
    line = " or ".join(names)
    archive, command = _ARCHIVES.get(names, ("", ""))
    if archive and is_file(root / archive):
        line += f": {archive} is there but not unpacked. cd {(root / archive).parent} && {command}"
    missing.append(line)
    return None


def _depths(folder: Path, *names: str) -> tuple[Path, ...]:
    """A folder, and those of the given names inside it, which an archive may have brought."""
    return (folder, *(folder / name for name in names if (folder / name).is_dir()))


def find_layout(root: str | Path) -> Layout:
    """Find the files of an unpacked release.

    Args:
        root: the folder that holds ``offline`` and ``online``.

    Raises:
        DataError: if anything is missing; it names all that is, where it was looked for, and how to get it.
    """
    root = Path(root).expanduser().absolute()
    missing: list[str] = []
    wanted = (_SPLITS, _INSTRUCTIONS, _SCREENS, _ELEMENTS, _ONLINE, _RAW)
    split, instructions, screens, elements, online, raw = (_first(root, names, missing) for names in wanted)
    online_files = _json_files(online)
    if online is not None and not online_files:
        missing.append(f"{online.relative_to(root)}: it holds no JSON file")
    if split and instructions and screens and elements and raw and online_files:
        pictures = (*_depths(screens, "screenshot", "screenshots"), screens.parent)
        return Layout(root, split, instructions, pictures, _depths(elements, "element_anno"), online_files, raw)
    listed = "".join(f"\n  {line}" for line in missing)
    raise DataError(f"LearnGUI is missing or not complete in {root}. Not found there:{listed}\n{GUIDE}")


def _json_files(path: Path | None) -> tuple[Path, ...]:
    if path is None:
        return ()
    return (path,) if path.is_file() else tuple(sorted(f for f in files_below(path) if f.suffix == ".json"))


def below(folder: Path, name: str) -> Path:
    """A file that a record names, below a folder.

    Raises:
        RecordError: if the name is absolute or leads out of the folder.
    """
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or "\0" in name or not parts.parts:
        raise RecordError(f"a path must be relative and stay in the data's folder, got {name[:120]!r}.")
    return folder / parts


def is_file(path: Path) -> bool:
    """Whether a file is there; False also for names that no file system takes."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """As `is_file`, of a folder."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
