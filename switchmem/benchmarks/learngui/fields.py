"""JSON files and their values, whatever is in them: nothing here trusts a type."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from switchmem.steps import RecordError


def load_json(path: Path, on_repeated: Callable[[str], None]) -> Any:
    """The value of a JSON file. Of a key that an object has twice, the first value is kept.

    Args:
        path: the file, UTF-8 with or without a byte-order mark.
        on_repeated: called with each key that comes again in one object.

    Raises:
        RecordError: if the file cannot be read or is no JSON.
    """

    def first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                on_repeated(text_of(key))
            else:
                found[key] = value
        return found

    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise RecordError("it must be a regular file, got a folder, a pipe or a device. Remove it.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"the file cannot be read: {error.strerror}.") from error
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=first_of_each)
    except (ValueError, RecursionError) as error:
        raise RecordError(
            f"the file must be JSON, got {len(data)} bytes starting {data[:20]!r}: {error}. Fetch it again."
        ) from error


def text_of(value: object) -> str:
    """A text, "" for anything else; halves of surrogate pairs, which no file takes, become U+FFFD.

    >>> text_of("Wi-Fi"), text_of(None), text_of(chr(0xD800))
    ('Wi-Fi', '', '\ufffd')
    """
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else ""


def id_of(value: object) -> str:
    """An identifier: a text or a whole number; "" for anything else."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text_of(value).strip()


def first_text(values: Mapping[str, object], *names: str) -> str:
    """The first of the named values that is a text with more than blanks, trimmed; else ""."""
    return next((text for name in names if (text := text_of(values.get(name)).strip())), "")


def texts_of(value: object) -> list[str]:
    """The texts of a list, or of a single one: trimmed, without repeats and empty ones, in order."""
    items = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(text for item in items if (text := text_of(item).strip())))


def numbers_of(value: object, count: int) -> list[float] | None:
    """A list of that many finite numbers; None for anything else."""
    if not isinstance(value, list) or len(value) != count:
        return None
    numbers: list[float] = []
    for item in value:
        if isinstance(item, bool) or not isinstance(item, (int, float)) or not abs(item) < 1e9:
            return None
        numbers.append(float(item))
    return numbers


def require_object(value: object, what: str) -> dict[str, Any]:
    """The value, if it is an object.

    Raises:
        RecordError: if it is not.
    """
    if not isinstance(value, dict):
        raise RecordError(f"{what} must be an object, got {excerpt(value)}.")
    return value


def excerpt(value: object) -> str:
    """The beginning of a value, for a message."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
