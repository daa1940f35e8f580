"""M3A's actions: JSON that names an element by its number, read to the middle of that element's box."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from switchmem.memory.baseline import Reading
from switchmem.steps import Action, ActionType, UIElement

Point = tuple[float, float]
SCREEN = UIElement((0.0, 0.0, 1.0, 1.0))

_BARE = {
    "keyboard_enter": ActionType.ENTER,
    "navigate_back": ActionType.BACK,
    "navigate_home": ActionType.HOME,
    "wait": ActionType.WAIT,
}
_ON = {"click": ActionType.TAP, "long_press": ActionType.LONG_PRESS}
_WITH_TEXT = {
    "open_app": (ActionType.OPEN, "app_name"),
    "answer": (ActionType.COMPLETE, "text"),
}
_STATUS = {"complete": ActionType.COMPLETE, "infeasible": ActionType.IMPOSSIBLE}
_ACTION = re.compile(r"(?:^|\n)[\s*]*action[\s*]*:", re.IGNORECASE)
_MOST_OPENINGS = 64


class Unread(Exception):
    """Carries a reason from where it is found to the reader, which raises nothing itself."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class IndexReader:
    """Reads the first JSON object behind ``Action:``, or of the whole answer where there is no such line.

    Args:
        elements: by number.
    """

    elements: Mapping[int, UIElement]

    def parse(self, text: str, size: tuple[int, int]) -> Reading:
        """Read an answer; never raises.

        Args:
            text: the raw answer.
            size: not used: places are those of boxes.

        Returns:
            The action, or why there is none: "empty", "no_action", "bad_syntax", "unknown_action", "missing_argument",
            or "bad_index" for a number that no element has.
        """
        answer = text.rpartition("</think>")[2]
        if not answer.strip():
            return Reading(None, "empty")
        try:
            return Reading(self._action(_first_object(answer)))
        except Unread as error:
            return Reading(None, error.reason)

    def _action(self, call: Mapping[str, Any]) -> Action:
        name = call.get("action_type")
        if not isinstance(name, str):
            raise Unread("unknown_action")
        if name in _BARE:
            return Action(_BARE[name])
        if name in _ON:
            return Action(_ON[name], self._element(call).center)
        if name == "input_text":  # into the numbered field, which is touched first; else into the one with the focus
            place = None if call.get("index") is None else self._element(call).center
            return Action(ActionType.TYPE, place, text=_text(call, "text"))
        if name in _WITH_TEXT:
            kind, field = _WITH_TEXT[name]
            return Action(kind, text=_text(call, field))
        if name == "status":
            return Action(_status(call))
        if name == "scroll":
            region = SCREEN if call.get("index") is None else self._element(call)
            return Action(ActionType.SWIPE, *scroll_path(region, call.get("direction")))
        raise Unread("unknown_action")

    def _element(self, call: Mapping[str, Any]) -> UIElement:
        index = call.get("index")
        if index is None:
            raise Unread("missing_argument")
        if isinstance(index, str) and index.strip().isdecimal() and len(index) < 9:
            index = int(index)
        if isinstance(index, bool) or not isinstance(index, int) or index not in self.elements:
            raise Unread("bad_index")
        return self.elements[index]


def scroll_path(region: UIElement, direction: Any) -> tuple[Point, Point]:
    """Where the finger touches and lifts to scroll a region: from its middle to an edge, against the direction.

    Raises:
        Unread: if the direction is none of the four, or the region is so thin that nothing would move.

    >>> scroll_path(SCREEN, "down")
    ((0.5, 0.5), (0.5, 0.0))
    """
    (x, y), (left, top, right, bottom) = region.center, region.box
    ends = {"down": (x, top), "up": (x, bottom), "right": (left, y), "left": (right, y)}
    if direction is None:
        raise Unread("missing_argument")
    end = ends.get(direction) if isinstance(direction, str) else None
    if end is None or end == (x, y):
        raise Unread("bad_place")
    return (x, y), end


def _text(call: Mapping[str, Any], name: str) -> str:
    value = call.get(name)
    if not isinstance(value, str):
        raise Unread("missing_argument")
    return value


def _status(call: Mapping[str, Any]) -> ActionType:
    status = call.get("goal_status")
    if status is None:
        raise Unread("missing_argument")
    if not isinstance(status, str) or status.lower() not in _STATUS:
        raise Unread("unknown_action")
    return _STATUS[status.lower()]


def _first_object(answer: str) -> Mapping[str, Any]:
    """The first JSON object with an ``action_type``.

    Raises:
        Unread: if there is none.
    """
    head = _ACTION.search(answer)
    body = answer[head.end() :] if head else answer
    decoder, start = json.JSONDecoder(), body.find("{")
    for _ in range(_MOST_OPENINGS):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(body, start)
            if isinstance(value, dict) and "action_type" in value:
                return value
        except (ValueError, RecursionError):  # broken, an absurdly long number, or absurdly deep
            end = start + 1
        start = body.find("{", end)
    raise Unread("bad_syntax" if "{" in body else "no_action")
