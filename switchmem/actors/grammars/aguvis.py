"""The code that Aguvis answers with: ``pyautogui.click(x=0.5, y=0.12)``, ``mobile.home()``; places are fractions.

The code is read as Python's syntax by `ast` and never run; where it is no Python, as with an unescaped quote, it is
read as `CallReader` reads calls. The first call of the segment for ``os`` counts; without segments, the first that
starts a line or follows ``Action:``, else the first of the text. Decode answers with their special tokens: they part
the segments.

Scrolls tell where the content goes, in pages: ``scroll(page=-0.1)`` shows what is below, so that the finger moves up,
and ``hscroll(page=0.1)`` shows what is on the right. The sign is that of pyautogui and of the recordings' own
instructions in Aguvis' training data; one public converter of that data has it the other way round. A phone has no
double, right or hovering click: those are unknown actions.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from switchmem.actors.grammars.base import Parsed, ParseReason, Unreadable
from switchmem.actors.grammars.calls import CallReader
from switchmem.actors.grammars.elements import PlacedGrammar
from switchmem.actors.grammars.places import Places, Point, Relative, Size, finger_path, numbers, read_place
from switchmem.steps import Action, ActionType

_POINT = {"click": ActionType.TAP, "tap": ActionType.TAP, "long_press": ActionType.LONG_PRESS}
_TEXT = {
    "write": (ActionType.TYPE, "message"),
    "typewrite": (ActionType.TYPE, "message"),
    "open_app": (ActionType.OPEN, "app_name"),
}
_BARE = {"home": ActionType.HOME, "back": ActionType.BACK, "wait": ActionType.WAIT}
_SCROLLS = {"scroll": ("up", "down"), "hscroll": ("right", "left")}
_KEYS = {"enter": ActionType.ENTER, "return": ActionType.ENTER, "back": ActionType.BACK, "home": ActionType.HOME}
_STATUSES = {"success": ActionType.COMPLETE, "failure": ActionType.IMPOSSIBLE}
_KNOWN = frozenset(
    {*_POINT, *_TEXT, *_BARE, *_SCROLLS, "swipe", "moveto", "dragto", "press", "hotkey", "answer", "terminate"}
)
_VERBAL = frozenset({*_TEXT, "answer"})

_HEAD = r"(?:(pyautogui|mobile|browser)\.)?\b([A-Za-z_]\w*+)[ \t]*\("
_LINE_CALL = re.compile(rf"(?:^|\n|\bAction:)[ \t`>]*(?:python[ \t])?{_HEAD}")
_ANY_CALL = re.compile(rf"(?<![\w.]){_HEAD}")
_NEXT_CALL = re.compile(rf"[\s;]*{_HEAD}")
_TOKEN = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[()]")
_OS = "<|recipient|>os"
_LONGEST_CODE = 500

_FUNCTIONS = {
    "mobile.swipe": ("Move the finger over the screen.", {"from_coord": "array", "to_coord": "array"}),
    "mobile.home": ("Go to the home screen.", {}),
    "mobile.back": ("Go back.", {}),
    "mobile.wait": ("Wait for the screen to change.", {"seconds": "number"}),
    "mobile.long_press": ("Press a point and hold it.", {"x": "number", "y": "number"}),
    "mobile.open_app": ("Open an app.", {"app_name": "string"}),
    "mobile.terminate": ("End the task with the status 'success' or 'failure'.", {"status": "string"}),
    "answer": ("End the task with the answer that the user asked for.", {"text": "string"}),
}
_SYSTEM = (
    "You operate a phone for the user through its screen. Act with `pyautogui`; places are fractions of the screenshot "
    "from 0 to 1, x from the left and y from the top.\n\nYou have access to the following functions:\n"
) + "\n".join(
    json.dumps(
        {
            "name": name,
            "description": what,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in arguments.items()},
                "required": list(arguments),
            },
        }
    )
    for name, (what, arguments) in _FUNCTIONS.items()
)


@dataclass(frozen=True)
class _Statement:
    """A call: name in lower case, arguments, and where the text goes on."""

    name: str
    positional: Sequence[Any]
    named: Mapping[str, Any]
    end: int

    def get(self, key: str) -> Any:
        """The argument of that name, else the first one without a name, else None."""
        return self.named.get(key, self.positional[0] if self.positional else None)


@dataclass(frozen=True)
class AguvisGrammar(PlacedGrammar):
    r"""Aguvis (from Qwen2-VL): Python calls with four decimals.

    >>> AguvisGrammar().action(Action(ActionType.TAP, (0.5, 0.12)))
    'pyautogui.click(x=0.5, y=0.12)'
    >>> answer = "all\nAction: Tap it.<|diff_marker|>\n<|im_start|>assistant<|recipient|>os\n"
    >>> answer += "pyautogui.click(0.5, 0.12)"
    >>> AguvisGrammar().parse(answer, (1080, 2400)).action.point
    (0.5, 0.12)
    """

    places: Places = Relative(1, digits=4)
    name = "aguvis"
    system = _SYSTEM

    def action(self, action: Action) -> str:
        """The code; a drag takes two lines."""
        text = action.text or ""
        if action.point is not None:
            return self._written_place(action.type, action.point, action.end)
        return {
            ActionType.TYPE: f"pyautogui.write(message={text!r})",
            ActionType.OPEN: f"mobile.open_app(app_name={text!r})",
            ActionType.ENTER: "pyautogui.press(keys=['enter'])",
            ActionType.HOME: "mobile.home()",
            ActionType.BACK: "mobile.back()",
            ActionType.WAIT: "mobile.wait(seconds=3)",
            ActionType.COMPLETE: f"answer({text!r})" if text else "mobile.terminate(status='success')",
        }.get(action.type, "mobile.terminate(status='failure')")

    def _written_place(self, kind: ActionType, point: Point, end: Point | None) -> str:
        x, y = self.places.write(*point)
        if end is None:
            return f"{'pyautogui.click' if kind is ActionType.TAP else 'mobile.long_press'}(x={x}, y={y})"
        end_x, end_y = self.places.write(*end)
        if kind is ActionType.DRAG:
            return f"pyautogui.moveTo(x={x}, y={y})\npyautogui.dragTo(x={end_x}, y={end_y})"
        return f"mobile.swipe(from_coord=[{x}, {y}], to_coord=[{end_x}, {end_y}])"

    def parse(self, text: str, size: Size) -> Parsed:
        """Read the first call that counts; ``size`` is not needed."""
        if not text.strip():
            return Parsed(None, ParseReason.EMPTY)
        _, is_parted, code = text.partition(_OS)
        code = code.partition("<|")[0] if is_parted else text
        try:
            return Parsed(self._read(code, _first_statement(code), size))
        except Unreadable as error:
            return Parsed(None, error.reason)

    def _read(self, code: str, statement: _Statement, size: Size) -> Action:
        """An action from the first call and, after a move, the next.

        Raises:
            Unreadable: with the reason, if it is none.
        """
        name = statement.name
        if name in _POINT:
            return Action(_POINT[name], self._place(statement, size))
        if name in _BARE:
            return Action(_BARE[name])
        if name in _TEXT:
            kind, key = _TEXT[name]
            return Action(kind, text=_string(statement.get(key)))
        if name == "answer":
            return Action(ActionType.COMPLETE, text=_string(statement.get("text"), "") or None)
        if name in _SCROLLS:
            return Action(ActionType.SWIPE, *_scroll(statement))
        if name == "swipe":
            return Action(ActionType.SWIPE, *self._path(statement, size))
        if name in ("moveto", "dragto"):
            return Action(ActionType.DRAG, *self._drag(code, statement, size))
        return Action(_named_kind(statement))

    def _place(self, statement: _Statement, size: Size) -> Point:
        named = [statement.named[key] for key in ("x", "y") if key in statement.named]
        return read_place(_flat(named or statement.positional), self.places, size)

    def _path(self, statement: _Statement, size: Size) -> tuple[Point, Point]:
        named = [_flat([statement.named[key]]) for key in ("from_coord", "to_coord") if key in statement.named]
        flat = _flat(statement.positional)
        start, end = named if len(named) == 2 else (flat[:2], flat[2:4])
        return read_place(start, self.places, size), read_place(end, self.places, size)

    def _drag(self, code: str, statement: _Statement, size: Size) -> tuple[Point, Point]:
        if statement.name == "dragto":
            return self._path(statement, size)
        match = _NEXT_CALL.match(code, statement.end)
        following = _statement(code, match) if match else None
        if following is None or following.name != "dragto":
            raise Unreadable(ParseReason.UNKNOWN_ACTION)  # a finger cannot hover
        return self._place(statement, size), self._place(following, size)


def _first_statement(code: str) -> _Statement:
    """The call that counts.

    Raises:
        Unreadable: if there is none.
    """
    for pattern in (_LINE_CALL, _ANY_CALL):
        for match in pattern.finditer(code):
            # Without its module, and with a blank behind it, it may be a word of a sentence.
            if match[1] or (match[2].lower() in _KNOWN and code[match.end() - 2] not in " \t"):
                return _statement(code, match)
    raise Unreadable(ParseReason.NO_ACTION)


def _statement(code: str, head: re.Match[str]) -> _Statement:
    """The call whose name and opening parenthesis were matched.

    Raises:
        Unreadable: if its arguments can be read in no way.
    """
    name = head[2].lower()
    end, length = _call_end(code, head.end())
    # Code outside of texts is short; longer, hostile code could exhaust Python's own parser.
    if end is not None and length <= _LONGEST_CODE:
        arguments = _python_arguments(code[head.end() : end])
        if arguments is not None:
            return _Statement(name, *arguments, end)
    loose = CallReader(code, _VERBAL).call_at(head.start(2), len(code))
    if loose is None:
        raise Unreadable(ParseReason.BAD_SYNTAX)
    named = dict(loose.arguments)
    first = named.pop("", None)
    return _Statement(name, [] if first is None else [first], named, loose.end)


def _python_arguments(code: str) -> tuple[list[Any], dict[str, Any]] | None:
    """Literal arguments, positional and by name, of a call from behind its opening parenthesis; None if not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape such as \d is no reason for a warning here
            call = ast.parse(f"f({code}", mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        named = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
        return [ast.literal_eval(value) for value in call.args], named
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


def _call_end(code: str, start: int) -> tuple[int | None, int]:
    """Where a call ends, None if it does not, and how long it is without its texts."""
    depth, texts = 1, 0
    for token in _TOKEN.finditer(code, start):
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
        else:
            texts += len(token[0])
        if depth == 0:
            return token.end(), token.end() - start - texts
    return None, 0


def _flat(values: Any) -> list[float]:
    """The numbers of a value, of a list of them, or of their text.

    Raises:
        Unreadable: if there is anything else.
    """
    if isinstance(values, (list, tuple)):
        return [number for value in values[:9] for number in _flat(value)]
    if isinstance(values, str):
        return numbers(values)
    if not isinstance(values, (int, float)):
        raise Unreadable(ParseReason.BAD_PLACE)
    return [values]


def _string(value: Any, default: str | None = None) -> str:
    if value is None and default is not None:
        return default
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, (str, int, float)):
        raise Unreadable(ParseReason.MISSING_ARGUMENT)
    return str(value)


def _scroll(statement: _Statement) -> tuple[Point, Point]:
    pages = _flat([] if statement.get("page") is None else statement.get("page"))
    if not pages or not pages[0]:
        raise Unreadable(ParseReason.MISSING_ARGUMENT)
    negative, positive = _SCROLLS[statement.name]
    return finger_path(negative if pages[0] < 0 else positive)


def _named_kind(statement: _Statement) -> ActionType:
    """What a key press or the end of the task is.

    Raises:
        Unreadable: if the key or the status means nothing here.
    """
    argument = {"press": ("keys", _KEYS), "hotkey": ("keys", _KEYS), "terminate": ("status", _STATUSES)}
    if statement.name not in argument:
        raise Unreadable(ParseReason.UNKNOWN_ACTION)
    key, known = argument[statement.name]
    word = _string(statement.get(key)).strip().strip("[]'\"").lower()
    if word not in known or len(statement.positional) > 1:
        raise Unreadable(ParseReason.UNKNOWN_ACTION)
    return known[word]
