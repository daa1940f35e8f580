"""AppAgent's actions: function calls that name an element by its tag, read to the middle of that element's box."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from switchmem.memory.baseline import Reading
from switchmem.memory.index_actions import Point, Unread
from switchmem.steps import Action, ActionType, UIElement

_LINE = re.compile(r"^[\s*]*action[\s*]*:[\s*]*(.*)$", re.IGNORECASE | re.MULTILINE)
_CALL = re.compile(r"([a-z_]+)\s*\((.*)\)", re.IGNORECASE)
_FINISH = re.compile(r"[\s\"'`*.]*finish[\s\"'`*.]*", re.IGNORECASE)
_ON = {"tap": ActionType.TAP, "long_press": ActionType.LONG_PRESS}
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_LENGTHS = {"short": 1, "medium": 2, "long": 3}
UNIT = 0.1
"""A short sideways swipe, as a fraction of the screen's width; upright ones are twice as long in pixels."""
_QUOTES = " \t\"'`"


@dataclass(frozen=True)
class TagReader:
    """Reads the call behind ``Action:``. The grid, which asks for another round, is an unknown action here.

    Args:
        elements: by tag, from 1.
    """

    elements: Mapping[int, UIElement]

    def parse(self, text: str, size: tuple[int, int]) -> Reading:
        """Read an answer; never raises.

        Args:
            text: the raw answer.
            size: ``(width, height)`` of the screenshot in pixels, in which swipes are measured.

        Returns:
            The action, or why there is none: "empty", "no_action", "bad_syntax", "unknown_action", "missing_argument",
            "bad_place", or "bad_index" for a tag that no element has.
        """
        answer = text.rpartition("</think>")[2]
        if not answer.strip():
            return Reading(None, "empty")
        line = _LINE.search(answer)
        if line is None:
            return Reading(None, "no_action")
        try:
            return Reading(self._action(line[1], size))
        except Unread as error:
            return Reading(None, error.reason)

    def _action(self, line: str, size: tuple[int, int]) -> Action:
        if _FINISH.fullmatch(line):
            return Action(ActionType.COMPLETE)
        call = _CALL.search(line)
        if call is None:
            raise Unread("bad_syntax" if line.strip() else "no_action")
        name, inside = call[1].lower(), call[2]
        if name == "text":  # commas and brackets belong to the text
            return Action(ActionType.TYPE, text=_unquoted(inside))
        arguments = [part.strip(_QUOTES) for part in inside.split(",")]
        if name in _ON:
            return Action(_ON[name], self._element(arguments[0]).center)
        if name == "swipe":
            if len(arguments) < 3:
                raise Unread("missing_argument")
            start = self._element(arguments[0]).center
            return Action(ActionType.SWIPE, start, swipe_end(start, arguments[1], arguments[2], size))
        raise Unread("unknown_action")

    def _element(self, tag: str) -> UIElement:
        if not tag:
            raise Unread("missing_argument")
        number = int(tag) if tag.isdecimal() and len(tag) < 9 else -1
        if number not in self.elements:
            raise Unread("bad_index")
        return self.elements[number]


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def swipe_end(start: Point, direction: str, length: str, size: tuple[int, int]) -> Point:
    """Where a swipe ends, on the screen.

    Args:
        start: where the finger touches, ``(x, y)`` in [0, 1].
        direction: where it goes: up, down, left or right.
        length: short, medium or long.
        size: ``(width, height)`` of the screenshot in pixels.

    Raises:
        Unread: if a word is unknown, or the finger would not move.
    """
    way, times = _DIRECTIONS.get(direction.lower()), _LENGTHS.get(length.lower())
    if way is None or times is None:
        raise Unread("bad_place")
    across, down = UNIT * times, 2 * UNIT * times * size[0] / size[1]
    end = (min(max(start[0] + way[0] * across, 0.0), 1.0), min(max(start[1] + way[1] * down, 0.0), 1.0))
    if end == start:
        raise Unread("bad_place")
    return end
