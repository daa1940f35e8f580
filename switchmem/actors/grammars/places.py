"""Places on a screen as models write them: fractions of some scale, or pixels of the picture that they see.

A place up to 1 % outside of the screen is moved onto its edge: models round, and count 0..999, 0..1000 or 1..1000
alike. One farther out is an error and no place at the edge, since it was meant on another scale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from switchmem.actors.grammars.base import GrammarError, ParseReason, Unreadable

Point = tuple[float, float]
Size = tuple[int, int]

SLACK = 0.01
"""How far outside of the screen, as a fraction of it, a place still counts as at its edge."""
TRAVEL = 0.4
"""Length of a swipe, as a fraction of the screen, where only its direction is known."""
_SHORTEST = 0.2
_LONGEST_TEXT = 256

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_TAG = re.compile(r"<\s?/?\|?/?(?:box_start|box_end|point|bbox|box)\|?>")
_SEPARATORS = frozenset(" \t\r\n,;()[]'\"")
_FINGER = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
"""Where the finger goes when the content is to go the other way, and back."""


@dataclass(frozen=True)
class PictureLimits:
    """What an image processor of the Qwen2-VL family makes of a picture before the model sees it.

    Args:
        factor: width and height become multiples of it: patch size times merge size.
        min_pixels: the fewest pixels of a picture, >= 1; smaller ones are scaled up.
        max_pixels: the most pixels of a picture; larger ones are scaled down.
    """

    factor: int = 28
    min_pixels: int = 56 * 56
    max_pixels: int = 16384 * 28 * 28

    def resized(self, size: Size) -> Size:
        """Size of the picture that the model sees, ``(width, height)`` in pixels.

        Halves are rounded to the even multiple, as Python does; rounding them up gives other sizes.

        >>> PictureLimits().resized((1080, 2400))
        (1092, 2408)
        """
        multiples = tuple(round(side / self.factor) for side in size)
        area = math.prod(multiples) * self.factor**2
        if area > self.max_pixels:
            shrink = math.sqrt(math.prod(size) / self.max_pixels)
            multiples = tuple(max(1, math.floor(side / shrink / self.factor)) for side in size)
        elif area < self.min_pixels:
            grow = math.sqrt(self.min_pixels / math.prod(size))
            multiples = tuple(math.ceil(side * grow / self.factor) for side in size)
        return multiples[0] * self.factor, multiples[1] * self.factor


class Places(Protocol):
    """A way to write places as numbers."""

    def write(self, x: float, y: float) -> Point:
        """The numbers of a place; ``x`` and ``y`` are fractions of the screen in [0, 1]."""

    def read(self, x: float, y: float, size: Size) -> Point:
        """The place of the numbers on a screenshot of ``(width, height)`` pixels, as fractions in [0, 1].

        Raises:
            Unreadable: if it lies off the screen.
        """

    def for_screen(self, size: Size) -> Places:
        """The same way on a screenshot of ``(width, height)`` pixels."""

    def limited(self, max_pixels: int) -> Places:
        """The same way for a model whose pictures have at most so many pixels."""


@dataclass(frozen=True)
class Relative:
    """Numbers from 0 to ``scale`` over the width and the height, whatever the picture's size.

    Args:
        scale: > 0.
        digits: decimals that are written; 0 writes integers.
    """

    scale: int
    digits: int = 0

    def write(self, x: float, y: float) -> Point:
        """See `Places.write`."""
        decimals = self.digits or None
        return round(x * self.scale, decimals), round(y * self.scale, decimals)

    def read(self, x: float, y: float, size: Size) -> Point:
        """See `Places.read`."""
        return _fraction(x, self.scale), _fraction(y, self.scale)

    def for_screen(self, size: Size) -> Relative:
        """Itself."""
        return self

    def limited(self, max_pixels: int) -> Relative:
        """Itself."""
        return self


@dataclass(frozen=True)
class Pixels:
    """Pixels of a picture.

    Args:
        limits: how the screenshot is resized before the model sees it; None for pixels of the screenshot itself.
        screen: ``(width, height)`` of the screenshot on which places are written; None until it is known.
    """

    limits: PictureLimits | None
    screen: Size | None = None

    def picture(self, size: Size) -> Size:
        """Size of the picture whose pixels count, for a screenshot of ``size``."""
        return self.limits.resized(size) if self.limits else size

    def write(self, x: float, y: float) -> Point:
        """See `Places.write`.

        Raises:
            GrammarError: if the screenshot's size is not known.
        """
        if self.screen is None:
            raise GrammarError(
                "A grammar that writes pixels must know the screenshot's size before it writes a place, got none. "
                "Use `grammar.for_screen((width, height))`."
            )
        width, height = self.picture(self.screen)
        return round(x * width), round(y * height)

    def read(self, x: float, y: float, size: Size) -> Point:
        """See `Places.read`."""
        width, height = self.picture(size)
        return _fraction(x, width), _fraction(y, height)

    def for_screen(self, size: Size) -> Pixels:
        """See `Places.for_screen`."""
        return replace(self, screen=size)

    def limited(self, max_pixels: int) -> Pixels:
        """See `Places.limited`."""
        if self.limits is None:
            return self
        smallest = min(self.limits.min_pixels, max_pixels)
        return replace(self, limits=replace(self.limits, min_pixels=smallest, max_pixels=max_pixels))


def _fraction(value: float, whole: int) -> float:
    # A comparison also refuses NaN; booleans are integers to Python, and no coordinates.
    if isinstance(value, bool) or not -SLACK * whole <= value <= (1 + SLACK) * whole:
        raise Unreadable(ParseReason.BAD_PLACE)
    return min(max(value / whole, 0.0), 1.0)


def numbers(text: str) -> list[float]:
    """The numbers of a place as a text: between them stand blanks, commas, brackets, quotes or box tags alone.

    Raises:
        Unreadable: if there is anything else, or far too much.

    >>> numbers("<|box_start|>(197, 525)<|box_end|>")
    [197.0, 525.0]
    """
    if len(text) > _LONGEST_TEXT:
        raise Unreadable(ParseReason.BAD_PLACE)
    text = _TAG.sub(" ", text)
    if not _SEPARATORS.issuperset(_NUMBER.sub(" ", text)):
        raise Unreadable(ParseReason.BAD_PLACE)
    return [float(number) for number in _NUMBER.findall(text)]


def read_place(values: Sequence[float], places: Places, size: Size) -> Point:
    """A place from two numbers, or the middle of a box from four.

    Raises:
        Unreadable: if there are no numbers, another number of them, or the place lies off the screen.
    """
    if not values:
        raise Unreadable(ParseReason.MISSING_ARGUMENT)
    if len(values) not in (2, 4):
        raise Unreadable(ParseReason.BAD_PLACE)
    ends = [places.read(values[i], values[i + 1], size) for i in range(0, len(values), 2)]
    return (ends[0][0] + ends[-1][0]) / 2, (ends[0][1] + ends[-1][1]) / 2


def finger_path(direction: str, touch: Point | None = None) -> tuple[Point, Point]:
    """Where a finger touches and lifts that moves up, down, left or right.

    Args:
        direction: of the finger.
        touch: where it starts; the path goes through the middle of the screen where that is not known. Near the
            edge that it moves to, it starts farther back, so that the way stays a swipe.

    Raises:
        Unreadable: if the direction is none of the four.

    >>> finger_path("up")
    ((0.5, 0.7), (0.5, 0.3))
    """
    if direction not in _FINGER:
        raise Unreadable(ParseReason.BAD_PLACE)
    axis = 1 if direction in ("up", "down") else 0
    sign = _FINGER[direction][axis]
    start, end = list(touch or (0.5, 0.5)), list(touch or (0.5, 0.5))
    if touch is None:
        start[axis] = round(0.5 - sign * TRAVEL / 2, 6)
    end[axis] = round(min(max(start[axis] + sign * TRAVEL, 0.0), 1.0), 6)
    if abs(end[axis] - start[axis]) < _SHORTEST:
        start[axis] = end[axis] - sign * _SHORTEST
    return (start[0], start[1]), (end[0], end[1])


def finger_direction(start: Point, end: Point) -> str:
    """The main direction of a finger's path; the vertical one where both are equal, and up for a path without length.

    >>> finger_direction((0.5, 0.7), (0.4, 0.3))
    'up'
    """
    across, along = end[0] - start[0], end[1] - start[1]
    if abs(across) > abs(along):
        return "right" if across > 0 else "left"
    return "down" if along > 0 else "up"
