"""The `mobile_use` tool call of the Qwen family: places in 0..1000 (Qwen3-VL, Qwen3.5) or in pixels (Qwen2.5-VL).

Written as JSON. Read as JSON or as the XML form of Qwen3.5's own template, inside ``<tool_call>`` tags or bare.
The first call of an answer counts: it is the next thing to do. Qwen's own material scales by 1000 in one place and by
999 in another; here it is 1000.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from switchmem.actors.grammars.base import Parsed, ParseReason, Unreadable
from switchmem.actors.grammars.elements import PlacedGrammar
from switchmem.actors.grammars.places import PictureLimits, Pixels, Places, Point, Relative, Size, numbers
from switchmem.steps import Action, ActionType

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
_BUTTONS = {"back": ActionType.BACK, "home": ActionType.HOME, "enter": ActionType.ENTER}
_STATUSES = {"success": ActionType.COMPLETE, "failure": ActionType.IMPOSSIBLE}
_POINT = {"click": ActionType.TAP, "long_press": ActionType.LONG_PRESS}
_TEXT = {"type": ActionType.TYPE, "open": ActionType.OPEN, "answer": ActionType.COMPLETE}
_XML_NAME = re.compile(r"<function=[^<>]*>")
_XML_KEY = re.compile(r"<parameter=([^<>]*)>")
_XML_END = "</parameter>"
# A broken answer may hold thousands of openings, and each could be read up to the end of the answer.
_MOST_OPENINGS = 256


def _system(range_: str) -> str:
    schema = {
        "type": "function",
        "function": {
            "name": "mobile_use",
            "description": f"Act on the phone's touch screen. {range_} "
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
    return (
        "# Tools\n\nCall one function for each answer. Functions, as JSON, within <tools></tools>:\n<tools>\n"
        + json.dumps(schema)
        + "\n</tools>\n\nGive the call as JSON within <tool_call></tool_call>, and nothing else:\n<tool_call>\n"
        '{"name": "mobile_use", "arguments": {"action": ...}}\n</tool_call>'
    )


@dataclass(frozen=True)
class MobileUseGrammar(PlacedGrammar):
    """Qwen's `mobile_use` tool. It has no drag: a drag is written, and so read back, as a swipe.

    >>> MobileUseGrammar().point(0.5, 0.12)
    '(500, 120)'
    >>> MobileUseGrammar().parse('{"action": "click", "coordinate": [500, 120]}', (1080, 2400)).action.point
    (0.5, 0.12)
    """

    places: Places = Relative(1000)
    name = "mobile_use"

    @property
    def system(self) -> str:
        """The tool as a JSON schema, and how it is called."""
        return _system("Coordinates go from (0, 0), top left, to (1000, 1000).")

    def action(self, action: Action) -> str:
        """The call as one line of JSON, without the tags, which only the actor itself may write."""
        arguments: dict[str, Any] = {"action": _written_name(action)}
        if action.point is not None:
            arguments["coordinate"] = list(self.places.write(*action.point))
        if action.end is not None:
            arguments["coordinate2"] = list(self.places.write(*action.end))
        if arguments["action"] in _TEXT:
            arguments["text"] = action.text
        elif arguments["action"] == "system_button":
            arguments["button"] = action.type.value.capitalize()
        elif arguments["action"] == "terminate":
            arguments["status"] = "success" if action.type is ActionType.COMPLETE else "failure"
        return json.dumps({"name": "mobile_use", "arguments": arguments}, ensure_ascii=False)

    def parse(self, text: str, size: Size) -> Parsed:
        """Read the first tool call of an answer to a screenshot of ``(width, height)`` pixels."""
        answer = text.rpartition("</think>")[2]
        if not answer.strip():
            return Parsed(None, ParseReason.EMPTY)
        try:
            return Parsed(self._read(_find_arguments(answer), size))
        except Unreadable as error:
            return Parsed(None, error.reason)

    def _read(self, arguments: Mapping[str, Any], size: Size) -> Action:
        """An action from the call's arguments.

        Raises:
            Unreadable: with the reason, if they are none.
        """
        name = str(arguments["action"]).strip().lower()
        if name in _POINT:
            return Action(_POINT[name], self._place(arguments, "coordinate", size))
        if name == "swipe":
            key = "coordinate1" if "coordinate1" in arguments else "coordinate"
            start, end = (self._place(arguments, k, size) for k in (key, "coordinate2"))
            return Action(ActionType.SWIPE, start, end)
        if name in _TEXT:
            return Action(_TEXT[name], text=_text(arguments))
        if name == "wait":
            return Action(ActionType.WAIT)
        key, known = {
            "system_button": ("button", _BUTTONS),
            "terminate": ("status", _STATUSES),
            "key": ("text", _BUTTONS),
        }.get(name, ("", {}))
        if not key:
            raise Unreadable(ParseReason.UNKNOWN_ACTION)
        return Action(_lookup(arguments, key, known))

    def _place(self, arguments: Mapping[str, Any], key: str, size: Size) -> Point:
        """``(x, y)`` in [0, 1] from ``[x, y]``, as a list or as its text."""
        value = arguments.get(key)
        if value is None:
            raise Unreadable(ParseReason.MISSING_ARGUMENT)
        values = numbers(value) if isinstance(value, str) else value
        if not isinstance(values, list) or len(values) != 2 or not all(isinstance(v, (int, float)) for v in values):
            raise Unreadable(ParseReason.BAD_PLACE)
        return self.places.read(values[0], values[1], size)


@dataclass(frozen=True)
class MobileUsePixelsGrammar(MobileUseGrammar):
    """`mobile_use` as Qwen2.5-VL speaks it: in pixels of the picture after the image processor has resized it."""

    places: Places = Pixels(PictureLimits(factor=28, min_pixels=56 * 56, max_pixels=16384 * 28 * 28))
    name = "mobile_use_pixels"

    @property
    def system(self) -> str:
        """As in `MobileUseGrammar`; names the picture's size where the screenshot's is known."""
        places = self.places
        if not isinstance(places, Pixels) or places.screen is None:
            return _system("Coordinates are pixels of the screenshot, from (0, 0), top left.")
        width, height = places.picture(places.screen)
        return _system(f"Coordinates are pixels of the screenshot, from (0, 0), top left, to ({width}, {height}).")


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
        Unreadable: if there is none.
    """
    xml = _xml_arguments(answer)
    if xml is not None:
        if "action" not in xml:
            raise Unreadable(ParseReason.BAD_SYNTAX)
        return xml
    for value in _json_objects(answer):
        arguments = value.get("arguments", value)
        if isinstance(arguments, Mapping) and "action" in arguments:
            return arguments
    raise Unreadable(ParseReason.BAD_SYNTAX if "{" in answer else ParseReason.NO_ACTION)


def _xml_arguments(answer: str) -> dict[str, str] | None:
    """What stands in the first ``<function=...>``; None without one. The last value may lack its end."""
    call = _XML_NAME.search(answer)
    if call is None:
        return None
    body = answer[call.end() :].partition("</function>")[0]
    # The key stands in every second piece, and behind it what goes to the next key.
    _, *pieces = _XML_KEY.split(body)
    values = [piece.partition(_XML_END)[0] for piece in pieces[1::2]]
    # One line break on each side belongs to the XML form, not to the value.
    return {
        key.strip(): value.removeprefix("\n").removesuffix("\n") for key, value in zip(pieces[::2], values, strict=True)
    }


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Outermost JSON objects in a text, from left to right; what is broken is passed over."""
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(_MOST_OPENINGS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError):  # broken, an absurdly long number, or absurdly deep
            end = start + 1
        start = text.find("{", end)


def _text(arguments: Mapping[str, Any]) -> str:
    text = arguments.get("text")
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        try:
            return str(text)
        except ValueError:  # more digits than Python converts
            raise Unreadable(ParseReason.BAD_SYNTAX) from None
    if not isinstance(text, str):
        raise Unreadable(ParseReason.MISSING_ARGUMENT)
    return text


def _lookup(arguments: Mapping[str, Any], key: str, known: Mapping[str, ActionType]) -> ActionType:
    if key not in arguments:
        raise Unreadable(ParseReason.MISSING_ARGUMENT)
    kind = known.get(str(arguments[key]).strip().lower())
    if kind is None:
        raise Unreadable(ParseReason.UNKNOWN_ACTION)
    return kind
