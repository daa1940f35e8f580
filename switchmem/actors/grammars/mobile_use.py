"""The `mobile_use` tool call that Qwen3-VL and Qwen3.5 were trained on, with places in 0..1000.

Written as JSON. Read as JSON or as the XML form of Qwen3.5's own template, inside ``<tool_call>`` tags or bare.
The first call of an answer counts: it is the next thing to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from switchmem.actors.grammars.base import Parsed, ParseReason
from switchmem.memory.views import TREE, ElementView, one_line
from switchmem.steps import Action, ActionType, UIElement

SCALE = 1000

_ACTIONS = {
    "click": "Tap the point `coordinate`.",
    "long_press": "Press the point `coordinate` and hold it.",
    "swipe": "Move the finger from `coordinate` to `coordinate2`.",
    "type": "Type `text` into the field that has the focus.",
    "system_button": "Press `button`.",
    "open": "Open the app named `text`.",
    "wait": "Wait for the screen to change.",
    "answer": "Finish the task with the answer `text`.",
    "terminate": "Finish the task with `status`.",
}
_SCHEMA = {
    "type": "function",
    "function": {
        "name": "mobile_use",
        "description": "Act on the phone's touch screen. Coordinates go from (0, 0), top left, to (1000, 1000). "
        + " ".join(f"{name}: {what}" for name, what in _ACTIONS.items()),
        "parameters": {
            "type": "object",
            "required": ["action"],
            "properties": {
                "action": {"type": "string", "enum": list(_ACTIONS)},
                "coordinate": {"type": "array", "description": "[x, y]"},
                "coordinate2": {"type": "array", "description": "[x, y]"},
                "text": {"type": "string"},
                "button": {"type": "string", "enum": ["Back", "Home", "Enter"]},
                "status": {"type": "string", "enum": ["success", "failure"]},
            },
        },
    },
}
_SYSTEM = (
    "# Tools\n\nCall one function for each answer. Functions, as JSON, within <tools></tools>:\n<tools>\n"
    + json.dumps(_SCHEMA)
    + "\n</tools>\n\nGive the call as JSON within <tool_call></tool_call>, and nothing else:\n<tool_call>\n"
    '{"name": "mobile_use", "arguments": {"action": ...}}\n</tool_call>'
)

_BUTTONS = {"back": ActionType.BACK, "home": ActionType.HOME, "enter": ActionType.ENTER}
_STATUSES = {"success": ActionType.COMPLETE, "failure": ActionType.IMPOSSIBLE}
_POINT = {"click": ActionType.TAP, "long_press": ActionType.LONG_PRESS}
_TEXT = {"type": ActionType.TYPE, "open": ActionType.OPEN, "answer": ActionType.COMPLETE}
_XML_CALL = re.compile(r"<function=[^>]*>(.*?)(?:</function>|\Z)", re.DOTALL)
_XML_VALUE = re.compile(r"<parameter=([^>]*)>(.*?)</parameter>", re.DOTALL)


class _Unreadable(Exception):
    """Carries the reason from where it is found to `MobileUseGrammar.parse`."""

    def __init__(self, reason: ParseReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class MobileUseGrammar:
    """Qwen's `mobile_use` tool. It has no drag: a drag is written, and so read back, as a swipe."""

    name = "mobile_use"
    system = _SYSTEM

    def point(self, x: float, y: float) -> str:
        """The place in thousandths of the screen.

        >>> MobileUseGrammar().point(0.5, 0.12)
        '(500, 120)'
        """
        return f"({round(x * SCALE)}, {round(y * SCALE)})"

    def element(self, element: UIElement, view: ElementView = TREE) -> str:
        """Place, label, kind and what else the view tells.

        For instance ``(500, 120) "Search" Button, description "Opens the search page", id search_box, clickable``.
        """
        left, top, right, bottom = element.box
        place = f"{self.point(left, top)}-{self.point(right, bottom)}" if view.box else self.point(*element.center)
        label, description = one_line(element.label), one_line(element.description)
        words = [" ".join([place, _quoted(label) if label else "unlabelled", *element.kind.split()])]
        if view.description and description not in ("", label):
            words.append(f"description {_quoted(description)}")
        if view.resource_id and (name := one_line(element.resource_id.rpartition("/")[2])):
            words.append(f"id {name}")
        if view.flags:
            words += [flag for flag in ("clickable", "editable", "checked", "scrollable") if getattr(element, flag)]
        return ", ".join(words)

    def action(self, action: Action) -> str:
        """The call as one line of JSON, without the tags, which only the actor itself may write."""
        arguments: dict[str, Any] = {"action": _written_name(action)}
        if action.point is not None:
            arguments["coordinate"] = [round(v * SCALE) for v in action.point]
        if action.end is not None:
            arguments["coordinate2"] = [round(v * SCALE) for v in action.end]
        if arguments["action"] in _TEXT:
            arguments["text"] = action.text
        elif arguments["action"] == "system_button":
            arguments["button"] = action.type.value.capitalize()
        elif arguments["action"] == "terminate":
            arguments["status"] = "success" if action.type is ActionType.COMPLETE else "failure"
        return json.dumps({"name": "mobile_use", "arguments": arguments}, ensure_ascii=False)

    def parse(self, text: str, size: tuple[int, int]) -> Parsed:
        """Read the first tool call; places outside 0..1000 are errors, not clamped.

        >>> MobileUseGrammar().parse('{"action": "click", "coordinate": [500, 120]}', (1080, 2400)).action.point
        (0.5, 0.12)
        """
        answer = text.rpartition("</think>")[2]
        if not answer.strip():
            return Parsed(None, ParseReason.EMPTY)
        try:
            return Parsed(_read_action(_find_arguments(answer)))
        except _Unreadable as error:
            return Parsed(None, error.reason)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _written_name(action: Action) -> str:
    if action.type is ActionType.COMPLETE:
        return "answer" if action.text else "terminate"
    names = {kind: name for name, kind in {**_POINT, **_TEXT}.items()}
    names |= dict.fromkeys(_BUTTONS.values(), "system_button")
    names |= {ActionType.SWIPE: "swipe", ActionType.DRAG: "swipe", ActionType.WAIT: "wait"}
    return names.get(action.type, "terminate")


def _find_arguments(answer: str) -> Mapping[str, Any]:
    """The arguments of the first call, XML or JSON.

    Raises:
        _Unreadable: if there is none.
    """
    if (call := _XML_CALL.search(answer)) is not None:
        # Trimmed line breaks belong to the XML form, not to the value.
        return {name.strip(): value.strip() for name, value in _XML_VALUE.findall(call[1])}
    for value in _json_objects(answer):
        arguments = value.get("arguments", value)
        if isinstance(arguments, Mapping) and "action" in arguments:
            return arguments
    raise _Unreadable(ParseReason.BAD_SYNTAX if "{" in answer else ParseReason.NO_ACTION)


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Outermost JSON objects in a text, from left to right; what is broken is passed over."""
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError):  # broken, an absurdly long number, or absurdly deep
            end = start + 1
        start = text.find("{", end)


def _read_action(arguments: Mapping[str, Any]) -> Action:
    """An action from the call's arguments.

    Raises:
        _Unreadable: with the reason, if they are none.
    """
    name = str(arguments.get("action", "")).strip().lower()
    if name in _POINT:
        return Action(_POINT[name], _place(arguments, "coordinate"))
    if name == "swipe":
        start = "coordinate1" if "coordinate1" in arguments else "coordinate"
        return Action(ActionType.SWIPE, _place(arguments, start), _place(arguments, "coordinate2"))
    if name in _TEXT:
        text = arguments.get("text")
        if not isinstance(text, str):
            raise _Unreadable(ParseReason.MISSING_ARGUMENT)
        return Action(_TEXT[name], text=text)
    if name == "wait":
        return Action(ActionType.WAIT)
    if name == "system_button":
        return Action(_lookup(arguments, "button", _BUTTONS))
    if name == "terminate":
        return Action(_lookup(arguments, "status", _STATUSES))
    if name == "key":
        return Action(_lookup(arguments, "text", _BUTTONS))
    raise _Unreadable(ParseReason.UNKNOWN_ACTION)


def _lookup(arguments: Mapping[str, Any], key: str, known: Mapping[str, ActionType]) -> ActionType:
    if key not in arguments:
        raise _Unreadable(ParseReason.MISSING_ARGUMENT)
    kind = known.get(str(arguments[key]).strip().lower())
    if kind is None:
        raise _Unreadable(ParseReason.UNKNOWN_ACTION)
    return kind


def _place(arguments: Mapping[str, Any], key: str) -> tuple[float, float]:
    """``(x, y)`` in [0, 1] from ``[x, y]`` in 0..1000, as a list or as its text."""
    value = arguments.get(key)
    if value is None:
        raise _Unreadable(ParseReason.MISSING_ARGUMENT)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _Unreadable(ParseReason.BAD_PLACE) from None
    if not isinstance(value, list) or len(value) != 2:
        raise _Unreadable(ParseReason.BAD_PLACE)
    for number in value:
        # A comparison also refuses NaN; booleans are integers to Python, and no coordinates.
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= SCALE:
            raise _Unreadable(ParseReason.BAD_PLACE)
    return value[0] / SCALE, value[1] / SCALE
