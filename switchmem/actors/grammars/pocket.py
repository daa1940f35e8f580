"""The pocket actor's grammar: a screen of 4 x 7 places, one word each, and short actions.

An answer is ``thought ; action`` or the action alone, for instance ``star ; tap r3c2``.
"""

from __future__ import annotations

import re

from switchmem.actors.grammars.base import Parsed, ParseReason
from switchmem.memory.views import TREE, ElementView
from switchmem.steps import Action, ActionType, UIElement

COLUMNS, ROWS = 4, 7

_BARE = {
    ActionType.BACK: "back",
    ActionType.HOME: "home",
    ActionType.ENTER: "enter",
    ActionType.WAIT: "wait",
    ActionType.COMPLETE: "done",
    ActionType.IMPOSSIBLE: "impossible",
}
_POINT = {ActionType.TAP: "tap", ActionType.LONG_PRESS: "hold"}
_PATH = {ActionType.SWIPE: "swipe", ActionType.DRAG: "drag"}
_TEXT = {ActionType.TYPE: "type", ActionType.OPEN: "open"}
_WORDS = {**_BARE, **_POINT, **_PATH, **_TEXT}
_TYPES = {word: kind for kind, word in _WORDS.items()}
_PLACE = re.compile(rf"r([0-{ROWS - 1}])c([0-{COLUMNS - 1}])")
_SPLIT = re.compile(r"(?:^|\s);(?:\s|$)")


def _words(text: str) -> str:
    """Lower case, single blanks; a lone ``;`` would be read as the end of a thought and becomes a comma."""
    return " ".join("," if word == ";" else word for word in text.lower().split())


class PocketGrammar:
    """The pocket actor's words; a place is ``r{row}c{column}``, row 0..6 from the top, column 0..3 from the left."""

    name = "pocket"
    system = ""

    def point(self, x: float, y: float) -> str:
        """The cell that holds the point.

        >>> PocketGrammar().point(0.6, 1.0)
        'r6c2'
        """
        column = min(max(int(x * COLUMNS), 0), COLUMNS - 1)
        row = min(max(int(y * ROWS), 0), ROWS - 1)
        return f"r{row}c{column}"

    def element(self, element: UIElement, view: ElementView = TREE) -> str:
        """Cell and label, for instance ``r3c2 orbit`` or ``r3c2 unlabelled``; it has no words for anything else."""
        return f"{self.point(*element.center)} {_words(element.label) or 'unlabelled'}"

    def action(self, action: Action) -> str:
        """The action's words, for instance ``swipe r5c2 r1c2``."""
        words = [_WORDS[action.type]]
        words += [self.point(*point) for point in (action.point, action.end) if point is not None]
        if action.type in _TEXT:
            words += _words(action.text or "").split()
        return " ".join(words)

    def for_screen(self, size: tuple[int, int]) -> PocketGrammar:
        """Itself: cells are the same on every screen."""
        return self

    def parse(self, text: str, size: tuple[int, int]) -> Parsed:
        """Read what follows the last `` ; ``; cells become their centres.

        >>> PocketGrammar().parse("star ; tap r3c2", (128, 224)).action.point
        (0.625, 0.5)
        >>> PocketGrammar().parse("tap r9c9", (128, 224)).reason.value
        'bad_place'
        """
        words = _SPLIT.split(text.lower())[-1].split()
        if not words:
            return Parsed(None, ParseReason.EMPTY if not text.strip() else ParseReason.NO_ACTION)
        kind, rest = _TYPES.get(words[0]), words[1:]
        if kind is None:
            return Parsed(None, ParseReason.UNKNOWN_ACTION)
        if kind in _TEXT:
            return Parsed(Action(kind, text=" ".join(rest)))
        places = 1 if kind in _POINT else 2 if kind in _PATH else 0
        if len(rest) < places:
            return Parsed(None, ParseReason.MISSING_ARGUMENT)
        if len(rest) > places:
            return Parsed(None, ParseReason.EXTRA_WORDS)
        found = [_PLACE.fullmatch(word) for word in rest]
        points = [((int(m[2]) + 0.5) / COLUMNS, (int(m[1]) + 0.5) / ROWS) for m in found if m is not None]
        if len(points) < places:
            return Parsed(None, ParseReason.BAD_PLACE)
        touch, lift = (*points, None, None)[:2]
        return Parsed(Action(kind, touch, lift))
