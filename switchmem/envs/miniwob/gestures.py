"""The finger's way of AndroidWorld's scrolls and swipes, in CSS pixels of the page (its env/actuation.py).

A scroll starts in the middle of what is scrolled and ends at its edge. A swipe crosses the whole screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchmem.envs.miniwob.geometry import PAGE_HEIGHT, PAGE_WIDTH, Geometry
from switchmem.steps import UIElement

Point = tuple[float, float]
Box = tuple[float, float, float, float]
_PAGE: Box = (0.0, 0.0, float(PAGE_WIDTH), float(PAGE_HEIGHT))
_INSIDE = 1.0  # a finger on the very edge would be beside the page


def scroll_path(
    elements: Sequence[UIElement], geometry: Geometry, direction: str, x: float | None, y: float | None
) -> tuple[Point, Point]:
    """Where the finger touches and lifts for a scroll.

    Args:
        elements: of the screen; the smallest one that can be scrolled under the point is, as by AndroidWorld's index.
        geometry: of the screenshot.
        direction: in which the view goes: "down" moves the finger up.
        x: of the point in pixels of the screenshot; None scrolls the page.
        y: of the point.
    """
    width, height = geometry.size
    box = _PAGE
    if x is not None and y is not None:
        under = [e for e in elements if e.scrollable and e.contains((x / width, y / height))]
        if under:
            left, top, right, bottom = min(under, key=lambda e: e.area).box
            corners = geometry.css(left * width, top * height), geometry.css(right * width, bottom * height)
            box = (*corners[0], *corners[1])
    left, top, right, bottom = box
    middle = ((left + right) / 2, (top + bottom) / 2)
    lift = {
        "down": (middle[0], top + _INSIDE),
        "up": (middle[0], bottom - _INSIDE),
        "right": (left + _INSIDE, middle[1]),
        "left": (right - _INSIDE, middle[1]),
    }
    return middle, lift[direction]


def swipe_path(direction: str) -> tuple[Point, Point]:
    """Where the finger touches and lifts for a swipe over the screen.

    AndroidWorld inverts up and down against its scroll, but not left and right: "left" moves the finger to the right.
    """
    x, y = PAGE_WIDTH / 2, PAGE_HEIGHT / 2
    top, bottom = (x, _INSIDE), (x, PAGE_HEIGHT - _INSIDE)
    left, right = (_INSIDE, y), (PAGE_WIDTH - _INSIDE, y)
    return {"down": (top, bottom), "up": (bottom, top), "left": (left, right), "right": (right, left)}[direction]
