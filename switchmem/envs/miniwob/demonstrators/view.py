"""What a scripted demonstrator sees of an episode, and how it says what to do: a few words for each action.

A demonstrator is a function of a `View` that yields actions; the view holds the screen after each of them. Nearly all
read the instruction and the visible elements alone, as an agent would. Where a page draws what its tree does not tell,
they ask the page itself (`View.query`), which no agent can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from switchmem.envs.base import PhoneAction, PhoneActionType, Screen
from switchmem.envs.miniwob.geometry import PAGE_HEIGHT, PAGE_WIDTH, SCALE, Geometry
from switchmem.steps import UIElement

QUERY_WIDTH, QUERY_HEIGHT = 160, 50  # CSS pixels that the instruction takes at the top of each page
SCROLLS = 12  # the longest page of the tasks is seen after fewer
# Where an element is tapped, as fractions of its box; the first that nothing covers.
_PLACES = ((0.5, 0.5), (0.1, 0.1), (0.9, 0.1), (0.1, 0.9), (0.9, 0.9), (0.5, 0.1), (0.5, 0.9), (0.1, 0.5), (0.9, 0.5))

Actions = Iterator[PhoneAction]


class Lost(LookupError):
    """The demonstrator does not find on the screen what its script needs; the message says what."""


class View:
    """An episode as its demonstrator sees it.

    Args:
        utterance: the page's instruction.
        screen: what is shown.
        geometry: of the screenshots.
        query: evaluates a script in the page, for `query`.

    Attributes:
        screen: what is shown now: the driver sets it after each action.
    """

    def __init__(self, utterance: str, screen: Screen, geometry: Geometry, query: Callable[[str], Any]) -> None:
        self.utterance, self.screen = utterance, screen
        self._geometry, self._query = geometry, query

    def query(self, script: str) -> Any:
        """The JSON value of a script in the page. Privileged: an agent has none of it. It must change nothing there."""
        return self._query(script)

    @property
    def elements(self) -> tuple[UIElement, ...]:
        """The visible elements below the instruction, in document order."""
        return tuple(e for e in self.screen.elements if self.middle(e)[1] > QUERY_HEIGHT)

    @property
    def fields(self) -> tuple[UIElement, ...]:
        """The text fields among them."""
        return tuple(e for e in self.elements if e.editable)

    @property
    def quoted(self) -> list[str]:
        """The instruction's words in quotation marks, at least one.

        Raises:
            Lost: if there are none.
        """
        found = re.findall(r'"(.*?)"', self.utterance)
        if not found:
            raise Lost(f"the instruction must quote something, got no quotation in {self.utterance!r}.")
        return found

    def words(self, pattern: str) -> tuple[str, ...]:
        """The groups of a pattern in the instruction.

        Raises:
            Lost: if it does not match.
        """
        match = re.search(pattern, self.utterance)
        if match is None:
            raise Lost(f"the instruction must hold {pattern!r}, got {self.utterance!r}.")
        return match.groups()

    def box(self, element: UIElement) -> tuple[float, float, float, float]:
        """An element's box in CSS pixels of the page."""
        (width, height), (left, top, right, bottom) = self._geometry.size, element.box
        corners = (self._geometry.css(x * width, y * height) for x, y in ((left, top), (right, bottom)))
        return tuple(v for corner in corners for v in corner)  # type: ignore[return-value]

    def middle(self, element: UIElement) -> tuple[float, float]:
        """The middle of an element in CSS pixels of the page."""
        left, top, right, bottom = self.box(element)
        return (left + right) / 2, (top + bottom) / 2

    def all(self, label: str, kind: str = "") -> list[UIElement]:
        """The elements of that label, and of that kind if one is given ("Button")."""
        return [e for e in self.elements if e.label == label and kind in ("", e.kind)]

    def one(self, label: str, kind: str = "") -> UIElement:
        """The first of them.

        Raises:
            Lost: if there is none.
        """
        return first(self.all(label, kind), f"{kind or 'element'} {label!r}")

    def button(self, *labels: str) -> UIElement:
        """The first button with one of these labels; any button if none is given.

        Raises:
            Lost: if there is none.
        """
        buttons = [e for e in self.elements if e.kind == "Button" and (not labels or e.label in labels)]
        return first(buttons, f"button {' or '.join(labels)}")

    def tap(self, element: UIElement) -> PhoneAction:
        """A tap on an element: on its middle, or beside it where another button lies over it."""
        return self.tap_at(*self._uncovered(element))

    def _uncovered(self, element: UIElement) -> tuple[float, float]:
        after = self.elements[self.elements.index(element) + 1 :] if element.kind == "Button" else ()
        over = [e for e in after if e.kind == "Button"]
        left, top, right, bottom = self.box(element)
        for part_x, part_y in _PLACES:
            x, y = left + part_x * (right - left), top + part_y * (bottom - top)
            if not any(b[0] <= x <= b[2] and b[1] <= y <= b[3] for b in map(self.box, over)):
                return x, y
        raise Lost(f"the button {element.label!r} must be in sight, got it under another.")

    def tap_at(self, x: float, y: float) -> PhoneAction:
        """A tap at a place in CSS pixels of the page."""
        return PhoneAction(PhoneActionType.CLICK, *self._pixel(x, y))

    def enter(self, field: UIElement, text: str, clear: bool = False) -> Actions:
        """Tap a field, then type into what has the focus: two actions that an actor's own action space has as well.

        Emptying the field first is AndroidWorld's alone. A tap right after a list has closed can leave the caret where
        it was; what is typed is lost then, and typed again.
        """
        for _ in range(2):
            yield self.tap(field)
            before = self.screen.screenshot.data
            yield self.type(text, clear)
            if self.screen.screenshot.data != before:
                return

    def type(self, text: str, clear: bool = False) -> PhoneAction:
        """Text and Enter into what has the focus."""
        return PhoneAction(PhoneActionType.INPUT_TEXT, text=text, clear_text=clear)

    def scroll(self, direction: str, element: UIElement | None = None) -> PhoneAction:
        """A scroll of an element, or of what lies in the middle of the page."""
        x, y = (PAGE_WIDTH / 2, PAGE_HEIGHT / 2) if element is None else self.middle(element)
        return PhoneAction(PhoneActionType.SCROLL, *self._pixel(x, y), direction=direction)

    def scroll_to(self, find: Callable[[], Sequence[UIElement]], what: str) -> Actions:
        """Scroll the page's list down until `find` finds something in it.

        Raises:
            Lost: if it does not by the end of the list.
        """
        for _ in range(SCROLLS):
            if find():
                return
            before = self.screen.screenshot.data
            yield self.scroll("down", self.scrollable())
            if self.screen.screenshot.data == before:
                break
        if not find():
            raise Lost(f"the list must hold {what}, got to its end without it.")

    def scrollable(self) -> UIElement:
        """The largest element that can be scrolled.

        Raises:
            Lost: if there is none.
        """
        found = sorted((e for e in self.elements if e.scrollable), key=lambda e: -e.area)
        return first(found, "element that can be scrolled")

    def picture(self) -> np.ndarray:
        """The page's part of the screenshot, ``(rows, columns, 3)`` bytes."""
        pixels = np.asarray(self.screen.screenshot.image())
        return pixels[self._geometry.top : self._geometry.top + PAGE_HEIGHT * SCALE]

    def colour(self, element: UIElement) -> tuple[int, int, int]:
        """Red, green and blue in [0, 255] in the middle of an element."""
        x, y = self.middle(element)
        red, green, blue = (int(v) for v in self.picture()[int(y * SCALE), int(x * SCALE)])
        return red, green, blue

    def _pixel(self, x: float, y: float) -> tuple[int, int]:
        return round(x * SCALE), round(y * SCALE) + self._geometry.top


def first(found: Sequence[UIElement], what: str) -> UIElement:
    """The first of the elements.

    Raises:
        Lost: if there is none.
    """
    if not found:
        raise Lost(f"the screen must show {what}, got none.")
    return found[0]
