"""Boxes in which a change says nothing of an action: clocks that went on, and pointers that moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from switchmem.memory.agmem.crop import Fractions
from switchmem.steps import UIElement

_TIME = re.compile(r"\s*(\d{1,2})[:.h](\d{2})(?:[:.](\d{2}))?\s*([ap]\.?\s?m\.?)?\s*", re.IGNORECASE)
_SAME_PLACE = 0.02
_MINUTES = 5


def clocks(before: Sequence[UIElement], after: Sequence[UIElement], minutes: int = _MINUTES) -> list[Fractions]:
    """Boxes of elements that show the time of day on both screens, a little later on the second.

    A time that was set by the user jumps, and a clock does not: a difference of more than `minutes` is a change.

    Args:
        before: elements of a screen.
        after: elements of the next one.
        minutes: by which a clock may go on between them, at least 0.
    """
    shown = [(element, clock) for element in before if (clock := time_of_day(element.text)) is not None]
    found = []
    for element in after:
        clock = time_of_day(element.text)
        if clock is None:
            continue
        for other, earlier in shown:
            moved = max(abs(a - b) for a, b in zip(element.box, other.box, strict=True))
            # twelve hours, since without "am" and "pm" one comes after twelve
            if moved <= _SAME_PLACE and (clock - earlier) % (12 * 3600) <= 60 * minutes:
                found.append(element.box)
                break
    return found


def time_of_day(text: str) -> int | None:
    """Seconds since midnight of a text that is a time and nothing else; None for other texts.

    >>> time_of_day("9:41"), time_of_day("12:05:30"), time_of_day("Meet at 9:41"), time_of_day("25:00")
    (34860, 43530, None, None)
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    return 3600 * hours + 60 * minutes + seconds if hours < 24 and minutes < 60 and seconds < 60 else None


def around(points: Iterable[tuple[float, float]], radius: float, size: tuple[int, int]) -> list[Fractions]:
    """Boxes around places where a pointer, or the dot of a shown touch, stands or stood.

    Args:
        points: ``(x, y)`` fractions of the screen in [0, 1].
        radius: half the box's side, as a fraction of the shorter side of the screen, at least 0.
        size: ``(width, height)`` of the screen in pixels.
    """
    across, down = (radius * min(size) / side for side in size)
    return [(max(0.0, x - across), max(0.0, y - down), min(1.0, x + across), min(1.0, y + down)) for x, y in points]
