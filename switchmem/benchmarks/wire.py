"""Takes one long value out of a serialised `tf.train.Example` without copying it.

A parser of Protocol Buffers copies a value twice, into its message and out of it. For the raw pixels of a screen that
takes longer than all the rest of the message, of which a parser is still the best reader. So only the frames around
the value are looked at here, and only in the one layout that writers produce: anything else is left to the parser.
"""

from __future__ import annotations

_FIELD_1, _FIELD_2 = 0x0A, 0x12  # number and wire type "bytes of a length"
_LONGEST = 5  # bytes of a length below 2**32


class _Odd(Exception):
    """Not laid out as expected."""


def _body(data: bytes | memoryview, at: int, end: int, field: int) -> tuple[int, int]:
    """(start, end) of the content of the field that begins at `at`, which `end` limits."""
    if at >= end or data[at] != field:
        raise _Odd
    length = 0
    for place in range(_LONGEST):
        at += 1
        if at >= end:
            raise _Odd
        byte = data[at]
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    else:
        raise _Odd
    if at + 1 + length > end:
        raise _Odd
    return at + 1, at + 1 + length


def _whole(data: bytes | memoryview, at: int, end: int, field: int) -> int:
    """Start of the content of the field that takes all of `at` to `end`."""
    start, stop = _body(data, at, end, field)
    if stop != end:
        raise _Odd
    return start


def cut_value(payload: bytes | memoryview, name: str) -> tuple[memoryview, bytes] | None:
    """Take out the first feature of that name.

    Args:
        payload: a serialised `tf.train.Example`.
        name: of a feature that holds one value of bytes.

    Returns:
        The value, over the payload's own memory, and the serialised `tf.train.Features` of all others; None where the
        feature is not found, or anything before or in it is not laid out as writers do it.
    """
    key, end = name.encode(), len(payload)
    try:
        inside = _whole(payload, 0, end, _FIELD_1)
        at = inside
        while at < end:
            start, stop = _body(payload, at, end, _FIELD_1)
            key_start, key_end = _body(payload, start, stop, _FIELD_1)
            if payload[key_start:key_end] == key:
                value = key_end
                for field in (_FIELD_2, _FIELD_1, _FIELD_1):  # of the entry, its list of bytes, the one in it
                    value = _whole(payload, value, stop, field)
                view = memoryview(payload)
                return view[value:stop], b"".join((view[inside:at], view[stop:]))
            at = stop
    except _Odd:  # protobuf reads such a layout
        return None
    return None
