"""The web actor's grammar: places on a grid of four CSS pixels, elements with their kind, and short actions.

A place is two words, ``x17 y42``: its column of 54 and its row of 109. An element's place follows its label, and an
answer may name what it touches first, ``tap Submit x17 y42`` or ``type Name x17 y42 Ada``: who has said the label has
found the place.
"""

from __future__ import annotations

import re

from switchmem.actors.grammars.base import Parsed, ParseReason, Unreadable
from switchmem.memory.views import TREE, ElementView, one_line
from switchmem.steps import Action, ActionType, UIElement

COLUMNS, ROWS = 54, 109

_BARE = {
    "back": ActionType.BACK,
    "home": ActionType.HOME,
    "enter": ActionType.ENTER,
    "wait": ActionType.WAIT,
    "done": ActionType.COMPLETE,
    "impossible": ActionType.IMPOSSIBLE,
}
_AT_POINT = {"tap": ActionType.TAP, "hold": ActionType.LONG_PRESS}
_BETWEEN = {"swipe": ActionType.SWIPE, "drag": ActionType.DRAG}
_WITH_TEXT = {"type": ActionType.TYPE, "open": ActionType.OPEN}
_WORDS = {kind: word for words in (_BARE, _AT_POINT, _BETWEEN, _WITH_TEXT) for word, kind in words.items()}
_PLACE = re.compile(r"(?:^|(?<= ))x(\d{1,2}) y(\d{1,3})(?= |$)")


class MiniWobGrammar:
    """The web actor's words."""

    name = "miniwob"
    system = ""

    def point(self, x: float, y: float) -> str:
        """The cell of the grid that holds the point.

        >>> MiniWobGrammar().point(0.5, 1.0)
        'x27 y108'
        """
        column = min(max(int(x * COLUMNS), 0), COLUMNS - 1)
        row = min(max(int(y * ROWS), 0), ROWS - 1)
        return f"x{column} y{row}"

    def element(self, element: UIElement, view: ElementView = TREE) -> str:
        """Kind, what is on, name in the page, label and place: ``CheckBox checked #ch0 Tea x6 y15``."""
        name = one_line(element.resource_id.rpartition("/")[2])
        flags = "checked" if element.checked else ""
        words = (element.kind.rpartition(".")[2], flags, f"#{name}" if name else "", one_line(element.label))
        return " ".join(word for word in (*words, self.point(*element.center)) if word)

    def action(self, action: Action) -> str:
        """The action's words, for instance ``type x5 y9 Ada``."""
        places = [self.point(*point) for point in (action.point, action.end) if point is not None]
        texts = [one_line(action.text or "")] if action.type in _WITH_TEXT.values() else []
        return " ".join(word for word in (_WORDS[action.type], *places, *texts) if word)

    def for_screen(self, size: tuple[int, int]) -> MiniWobGrammar:
        """Itself: cells are the same on every screen."""
        return self

    def parse(self, text: str, size: tuple[int, int]) -> Parsed:
        """Read an answer; cells become their centres.

        >>> MiniWobGrammar().parse("type First name x27 y54 Ada L", (1080, 2180)).action.text
        'Ada L'
        >>> MiniWobGrammar().parse("tap x54 y0", (1080, 2180)).reason.value
        'bad_place'
        """
        word, _, rest = one_line(text).partition(" ")
        try:
            return Parsed(_read(word, rest))
        except Unreadable as error:
            return Parsed(None, error.reason)


def _read(word: str, rest: str) -> Action:
    if not word:
        raise Unreadable(ParseReason.EMPTY)
    if word in _WITH_TEXT:
        point, rest = _place(rest) if word == "type" and _PLACE.search(rest) else (None, rest)
        return Action(_WITH_TEXT[word], point, text=rest)
    point = end = None
    if word in _AT_POINT or word in _BETWEEN:
        point, rest = _place(rest)
    if word in _BETWEEN:
        end, rest = _place(rest)
    kind = (_BARE | _AT_POINT | _BETWEEN).get(word)
    if kind is None:
        raise Unreadable(ParseReason.UNKNOWN_ACTION)
    if rest:
        raise Unreadable(ParseReason.EXTRA_WORDS)
    return Action(kind, point, end)


def _place(text: str) -> tuple[tuple[float, float], str]:
    """The first place of a text, and what follows it; before it stands what is there, in words of the actor's own."""
    found = _PLACE.search(text)
    if found is None:
        raise Unreadable(ParseReason.BAD_PLACE if text else ParseReason.MISSING_ARGUMENT)
    column, row = int(found[1]), int(found[2])
    if column >= COLUMNS or row >= ROWS:
        raise Unreadable(ParseReason.BAD_PLACE)
    return ((column + 0.5) / COLUMNS, (row + 0.5) / ROWS), text[found.end() :].lstrip()
