"""The calls of UI-TARS: the first generation writes places in 0..1000, UI-TARS-1.5 in pixels of the resized picture.

An answer is ``Thought: ...`` and ``Action: click(start_box='(197,525)')``. The first call behind the last ``Action:``
counts, as in the authors' own parser. Read are places with and without box tokens, as points, as boxes (their middle),
and as ``<point>197 525</point>``; any quotes, escaped or not; and calls that break off.

- A text with a line break at its end is typed and submitted. It is read as typing without the break, which is what a
  scorer compares; a line break alone is Enter, and Enter is written so: there is no other word for it.
- ``scroll`` with two places is a finger's path. With a direction it tells where the content goes on, so that the finger
  moves the opposite way.
- ``call_user()`` gives up. What a phone cannot do (``hotkey``, ``left_double``, ``right_single``) is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from switchmem.actors.grammars.base import Parsed, ParseReason, Unreadable
from switchmem.actors.grammars.calls import Call, CallReader, escape
from switchmem.actors.grammars.elements import PlacedGrammar
from switchmem.actors.grammars.places import (
    OPPOSITE,
    PictureLimits,
    Pixels,
    Places,
    Point,
    Relative,
    Size,
    finger_direction,
    finger_path,
    numbers,
    read_place,
)
from switchmem.steps import Action, ActionType

_POINT = {"click": ActionType.TAP, "left_single": ActionType.TAP, "long_press": ActionType.LONG_PRESS}
_PATH = {"scroll": ActionType.SWIPE, "swipe": ActionType.SWIPE, "drag": ActionType.DRAG}
_BARE = {
    "press_home": ActionType.HOME,
    "press_back": ActionType.BACK,
    "press_enter": ActionType.ENTER,
    "wait": ActionType.WAIT,
    "call_user": ActionType.IMPOSSIBLE,
    "finished": ActionType.COMPLETE,
}
_VERBAL = frozenset({"type", "open_app", "finished", "call_user"})
_KNOWN = frozenset({*_POINT, *_PATH, *_BARE, *_VERBAL})
_START = ("start_box", "point", "start_point", "box")
_END = ("end_box", "end_point")
_TURN_ENDS = ("<|im_end|>", "<|endoftext|>")

_HEAD = """You operate a phone for the user. You get a task, the current screenshot, and what was done before. \
Say what you make of it, then act.

## Output Format
Thought: ...
Action: ...

## Action Space
"""
_NOTE = """

## Note
- Write the Thought in English.
- In the Thought, plan the next small step, and end with one sentence that says what you do now and to which element.
- Give one action."""
_BOX = "<|box_start|>({})<|box_end|>"
_SHARED = """press_home()
press_back()
open_app(app_name='')
wait()
finished(content='') # the task is done; content is the answer, if the user asked for one
call_user() # the task cannot be done"""
_SPACE = f"""click(start_box='{_BOX.format("x1,y1")}')
long_press(start_box='{_BOX.format("x1,y1")}', time='')
type(content='') # to submit, end the content with \\n
scroll(start_box='{_BOX.format("x1,y1")}', end_box='{_BOX.format("x3,y3")}')
"""
_SPACE_15 = """click(point='<point>x1 y1</point>')
long_press(point='<point>x1 y1</point>')
type(content='') # escape quotes and line breaks as \\', \\" and \\n; to submit, end the content with \\n
scroll(point='<point>x1 y1</point>', direction='down or up or right or left')
drag(start_point='<point>x1 y1</point>', end_point='<point>x2 y2</point>')
"""


@dataclass(frozen=True)
class UITarsGrammar(PlacedGrammar):
    r"""UI-TARS of the first generation (SFT and DPO, from Qwen2-VL): integers in 0..1000.

    What it writes into prompts has no box tokens: in the outside world's text no special token may survive. The
    system message, which is the project's own, shows them where the model was trained on them.

    >>> UITarsGrammar().action(Action(ActionType.TAP, (0.197, 0.525)))
    "click(start_box='(197,525)')"
    >>> answer = "Thought: Open it.\nAction: click(start_box='<|box_start|>(197,525)<|box_end|>')"
    >>> UITarsGrammar().parse(answer, (1080, 2400)).action.point
    (0.197, 0.525)
    """

    places: Places = Relative(1000)
    name = "ui_tars"
    system = _HEAD + _SPACE + _SHARED + _NOTE
    _place_name = "start_box"

    def point(self, x: float, y: float) -> str:
        """A place as the model writes it, for instance ``(197,525)``."""
        return "({},{})".format(*self.places.write(x, y))

    def action(self, action: Action) -> str:
        """The call, without ``Action:``; on one line."""
        kind, text = action.type, escape(action.text or "")
        if action.point is not None and action.end is not None:
            return self._written_path(kind, action.point, action.end)
        if action.point is not None:
            name = "click" if kind is ActionType.TAP else "long_press"
            return f"{name}({self._place_name}='{self.point(*action.point)}')"
        return {
            ActionType.TYPE: f"type(content='{text}')",
            ActionType.OPEN: f"open_app(app_name='{text}')",
            ActionType.ENTER: r"type(content='\n')",
            ActionType.COMPLETE: f"finished(content='{text}')",
            ActionType.HOME: "press_home()",
            ActionType.BACK: "press_back()",
            ActionType.WAIT: "wait()",
        }.get(kind, "call_user()")

    def _written_path(self, kind: ActionType, start: Point, end: Point) -> str:
        name = "drag" if kind is ActionType.DRAG else "scroll"
        return f"{name}(start_box='{self.point(*start)}', end_box='{self.point(*end)}')"

    def parse(self, text: str, size: Size) -> Parsed:
        """Read the first call behind the last ``Action:``; ``size`` is the screenshot's ``(width, height)``."""
        for end in _TURN_ENDS:
            text = text.rstrip().removesuffix(end)
        if not text.strip():
            return Parsed(None, ParseReason.EMPTY)
        try:
            return Parsed(self._read(CallReader(text, _VERBAL).last_action(_KNOWN, _BARE), size))
        except Unreadable as error:
            return Parsed(None, error.reason)

    def _read(self, call: Call, size: Size) -> Action:
        """An action from a call.

        Raises:
            Unreadable: with the reason, if it is none.
        """
        if call.name in _POINT:
            return Action(_POINT[call.name], self._place(call.arguments, _START, size))
        if call.name in _PATH:
            start, end = self._path(call, size)
            return Action(_PATH[call.name], start, end)
        content = next(iter(call.arguments.values()), None)
        if call.name == "finished":
            return Action(ActionType.COMPLETE, text=content or None)
        if call.name in _BARE:
            return Action(_BARE[call.name])
        if call.name not in _VERBAL:
            raise Unreadable(ParseReason.UNKNOWN_ACTION)
        if content is None:
            raise Unreadable(ParseReason.MISSING_ARGUMENT)
        if call.name == "open_app":
            return Action(ActionType.OPEN, text=content)
        typed = content.rstrip("\r\n")
        return Action(ActionType.TYPE, text=typed) if typed or not content else Action(ActionType.ENTER)

    def _place(self, arguments: Mapping[str, str], names: tuple[str, ...], size: Size) -> Point:
        return read_place(_numbers(arguments, names), self.places, size)

    def _path(self, call: Call, size: Size) -> tuple[Point, Point]:
        arguments = call.arguments
        if any(arguments.get(name) for name in _END):
            return self._place(arguments, _START, size), self._place(arguments, _END, size)
        if call.name == "scroll" and "direction" in arguments:
            direction = OPPOSITE.get(arguments["direction"].strip().lower(), "")
            values = _numbers(arguments, _START)
            return finger_path(direction, read_place(values, self.places, size) if values else None)
        values = _numbers(arguments, ())  # two places, without names
        if len(values) != 4:
            raise Unreadable(ParseReason.MISSING_ARGUMENT)
        return read_place(values[:2], self.places, size), read_place(values[2:], self.places, size)


@dataclass(frozen=True)
class UITars15Grammar(UITarsGrammar):
    """UI-TARS-1.5 (from Qwen2.5-VL): ``<point>x y</point>`` in pixels of the resized picture.

    A swipe is written as a scroll of where it starts, in the direction of its content. What is read back has the same
    direction and a length of its own: the grammar has no word for it.

    >>> UITars15Grammar().for_screen((1080, 2400)).action(Action(ActionType.TAP, (0.5, 0.25)))
    "click(point='<point>546 602</point>')"
    """

    places: Places = Pixels(PictureLimits(factor=28, min_pixels=100 * 28 * 28, max_pixels=16384 * 28 * 28))
    name = "ui_tars_15"
    system = _HEAD + _SPACE_15 + _SHARED + _NOTE
    _place_name = "point"

    def point(self, x: float, y: float) -> str:
        """A place as the model writes it, for instance ``<point>546 602</point>``."""
        return "<point>{} {}</point>".format(*self.places.write(x, y))

    def _written_path(self, kind: ActionType, start: Point, end: Point) -> str:
        if kind is ActionType.DRAG:
            return f"drag(start_point='{self.point(*start)}', end_point='{self.point(*end)}')"
        direction = OPPOSITE[finger_direction(start, end)]
        return f"scroll(point='{self.point(*start)}', direction='{direction}')"


def _numbers(arguments: Mapping[str, str], names: tuple[str, ...]) -> list[float]:
    """The numbers of the first argument of those names, of ``x`` and ``y``, or of what has no name; may be none."""
    for name in names:
        if arguments.get(name):
            return numbers(arguments[name])
    if arguments.get("x") and arguments.get("y"):
        return numbers(f"{arguments['x']} {arguments['y']}")
    return numbers(arguments.get("", ""))
