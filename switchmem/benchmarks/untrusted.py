"""What recordings from elsewhere hold: JSON and file names, read so that the worst of them is a `RecordError`."""

from __future__ import annotations

import codecs
import difflib
import json
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from switchmem.steps import RecordError

MAX_LINE = 64 * 2**20
"""Longest line that is read, in bytes; a step has kilobytes and an AndroidControl episode a few megabytes."""
MAX_FILE = 256 * 2**20
"""Largest picture or dump that is read, in bytes."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 2  # however deep a value is nested, telling it does not recurse further
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def shorten(value: object) -> str:
    """`repr` of a value, cut so that it fits in a sentence."""
    return _SHORT.repr(value)[:160]


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(f"an object names a field twice: {shorten([name for name, _ in pairs])}")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)


def decode_text(data: bytes) -> str:
    """UTF-8 as text, a byte order mark left out.

    Raises:
        RecordError: if it is not UTF-8.
    """
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(
            f"the text must be UTF-8, got {data[:12]!r}: {error.reason} at byte {error.start}. Save it as UTF-8."
        ) from error


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at a place of a text, and where it ends.

    Args:
        text: JSON.
        start: the first character of the value.

    Raises:
        RecordError: if there is none, or it holds what JSON does not have (NaN, Infinity, an object's field twice,
            half a surrogate pair), is nested deeper than Python reads, or has a number of thousands of digits.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
        if _LONE_SURROGATE.search(text, start, end):
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # pairs pass; halves could be stored nowhere
    except UnicodeEncodeError as error:
        raise RecordError("the text must be Unicode, got half a surrogate pair. Write the whole character.") from error
    except RecursionError as error:
        raise RecordError("JSON must not be nested deeper than a thousand levels.") from error
    except ValueError as error:
        raise RecordError(f"it must be JSON, got {shorten(text[start : start + 80])}: {error}.") from error
    return value, end


def decode_object(data: bytes) -> dict[str, Any]:
    """One JSON object and nothing else.

    Raises:
        RecordError: as `decode_text` and `decode_json`, and if it is not an object or something follows it.
    """
    text = decode_text(data).strip()
    value, end = decode_json(text)
    if not isinstance(value, dict):
        raise RecordError(f"it must be one JSON object, got {shorten(value)}.")
    if end != len(text):
        raise RecordError(f"it must be one JSON object and nothing else, got {shorten(text[end:])} after it.")
    return value


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Lines of a file that are not blank, with their numbers from 1, split at "\n" only: texts may hold others.

    A line over `MAX_LINE` is cut there, which leaves no whole JSON; the rest of it is never held in memory.

    Raises:
        OSError: if the file cannot be read.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE):
            number += 1
            rest = line
            while len(rest) == MAX_LINE and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE)
            if line.strip():
                yield number, line


def refuse_unknown(values: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """Refuse fields that nothing reads, which are mostly misspelt.

    Raises:
        RecordError: naming the first unknown field and the nearest known one.
    """
    unknown = next((name for name in values if name not in known), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown[:80], known, 1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise RecordError(f"{what} has the unknown field {shorten(unknown)}.{guess} Known are {', '.join(known)}.")


def optional_text(values: Mapping[str, Any], name: str, what: str = "") -> str | None:
    """A text field; None where it is absent or null.

    Raises:
        RecordError: if it is something else than a text.
    """
    value = values.get(name)
    if value is None or isinstance(value, str):
        return value
    raise RecordError(f"`{what}{name}` must be a text, got {shorten(value)}. Put it in quotes.")


def read_below(folder: Path, name: object, field: str) -> bytes:
    """The bytes of a file that a recording names.

    Args:
        folder: the file must lie in it, links resolved.
        name: its path below the folder.
        field: where the name stands, for the message.

    Raises:
        RecordError: if the name is no relative path, leaves the folder, or names no regular file of at most
            `MAX_FILE` bytes.
    """
    if not isinstance(name, str) or not name:
        raise RecordError(f"`{field}` must be the path of a file below {folder}, got {shorten(name)}.")
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise RecordError(
                f"`{field}` must be a path that stays in {folder}, got {shorten(name)}. Copy the file into the folder."
            )
        if path.exists() and not path.is_file():
            raise RecordError(f"`{field}` must name a regular file, got {shorten(name)}.")
        if path.stat().st_size > MAX_FILE:
            raise RecordError(f"`{field}` must have at most {MAX_FILE} bytes, got {path.stat().st_size}.")
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"`{field}`: {name[:160]} cannot be read: {error.strerror}.") from error
    except (ValueError, RuntimeError) as error:  # a NUL in the name; links that lead in a circle
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"`{field}` must be the path of a file, got {shorten(name)}: {error}.") from error
