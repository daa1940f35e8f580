"""Actions and coordinates as recordings write them, to `Action`: names, synonyms, fractions and pixels.

| written | is | fields |
|---|---|---|
| tap, click | tap | point |
| long_press, long_click | long press | point |
| swipe | swipe: the finger's motion | point and end, or direction |
| scroll | swipe: where the view goes, so that "down" shows what is further down and the finger moves up | direction |
| drag | drag | point and end |
| type, input_text | type | text |
| open, open_app | open | text: the app's name |
| back, navigate_back, press_back | back | |
| home, navigate_home, press_home | home | |
| enter, keyboard_enter, press_enter | enter | |
| wait | wait | |
| complete, done, finish | complete | text: an answer, where one was asked for |
| impossible, infeasible | impossible | |

`description`, a sentence that tells the action, goes with any.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from switchmem.benchmarks.untrusted import optional_text, refuse_unknown, shorten
from switchmem.steps import Action, ActionType, RecordError, Screenshot

Point = tuple[float, float]
Box = tuple[float, float, float, float]

SYNONYMS: dict[str, ActionType] = {
    "click": ActionType.TAP,
    "long_click": ActionType.LONG_PRESS,
    "scroll": ActionType.SWIPE,
    "input_text": ActionType.TYPE,
    "open_app": ActionType.OPEN,
    "navigate_back": ActionType.BACK,
    "press_back": ActionType.BACK,
    "navigate_home": ActionType.HOME,
    "press_home": ActionType.HOME,
    "keyboard_enter": ActionType.ENTER,
    "press_enter": ActionType.ENTER,
    "done": ActionType.COMPLETE,
    "finish": ActionType.COMPLETE,
    "infeasible": ActionType.IMPOSSIBLE,
}
NAMES: dict[str, ActionType] = {kind.value: kind for kind in ActionType} | SYNONYMS
FIELDS = ("type", "point", "end", "direction", "text", "description")

STROKES: dict[str, tuple[Point, Point]] = {
    "up": ((0.5, 0.75), (0.5, 0.25)),
    "down": ((0.5, 0.25), (0.5, 0.75)),
    "left": ((0.75, 0.5), (0.25, 0.5)),
    "right": ((0.25, 0.5), (0.75, 0.5)),
}
"""The finger's path where only its direction is known: half the screen, through the middle."""
SHAPE_TOLERANCE = 0.02
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}

_TAKES: dict[ActionType, tuple[str, ...]] = {
    ActionType.TAP: ("point",),
    ActionType.LONG_PRESS: ("point",),
    ActionType.SWIPE: ("point", "end", "direction"),
    ActionType.DRAG: ("point", "end"),
    ActionType.TYPE: ("text",),
    ActionType.OPEN: ("text",),
    ActionType.COMPLETE: ("text",),
}


def _numbers(value: object, count: int, field: str) -> list[int | float]:
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if not len(values) == len(numbers) == count:
        raise RecordError(f"`{field}` must be a list of {count} numbers, got {shorten(value)}.")
    return numbers


@dataclass(frozen=True, slots=True)
class Frame:
    """What the coordinates of a recording mean.

    Args:
        size: ``(width, height)`` of the screen that they refer to, in pixels, both > 0; None where they are
            fractions in [0, 1].
        way_out: what to do when a point lies outside of it; goes into the message.
    """

    size: tuple[int, int] | None
    way_out: str

    def point(self, value: object, field: str) -> Point:
        """``[x, y]`` as fractions of the screen.

        Raises:
            RecordError: if it is no pair of numbers on the screen, or claims to be pixels and is fractions.
        """
        x, y = _numbers(value, 2, field)
        self._refuse_fractions(value, [x, y], field)
        width, height = self.size or (1, 1)
        if not (0 <= x <= width and 0 <= y <= height):
            raise self._outside(value, "[x, y]", field)
        return (x / width, y / height)

    def box(self, value: object, field: str) -> Box | None:
        """``[left, top, right, bottom]`` as fractions, pixels cut to the screen; None where nothing of it is left.

        Raises:
            RecordError: if it is not four numbers, fractions leave [0, 1], or it claims to be pixels and is fractions.
        """
        numbers = _numbers(value, 4, field)
        self._refuse_fractions(value, numbers, field)
        if self.size is None and not all(0 <= v <= 1 for v in numbers):
            raise self._outside(value, "[left, top, right, bottom]", field)
        width, height = self.size or (1, 1)
        left, top, right, bottom = numbers
        left, right = max(left, 0), min(right, width)
        top, bottom = max(top, 0), min(bottom, height)
        if left >= right or top >= bottom:
            return None
        return (left / width, top / height, right / width, bottom / height)

    def _outside(self, value: object, form: str, field: str) -> RecordError:
        rule = "fractions of the screen in [0, 1]"
        if self.size is not None:
            rule = f"pixels of the screen of {self.size[0]} x {self.size[1]}"
        return RecordError(f"`{field}` must be {form} in {rule}, got {shorten(value)}. {self.way_out}")

    def _refuse_fractions(self, value: object, numbers: list[int | float], field: str) -> None:
        if self.size is not None and any(0 < v < 1 for v in numbers):
            raise RecordError(f"`{field}` must be in pixels, got {shorten(value)}, which has fractions of one.")


def check_shape(size: tuple[int, int], screenshot: Screenshot) -> None:
    """Refuse a picture that cannot show the screen that the coordinates refer to, at whatever scale.

    Args:
        size: ``(width, height)`` of that screen in pixels.
        screenshot: of the same step.

    Raises:
        RecordError: if width to height differ by more than `SHAPE_TOLERANCE`, as after turning or cropping.
    """
    ratio = size[0] * screenshot.height / (size[1] * screenshot.width)
    if abs(ratio - 1) > SHAPE_TOLERANCE:
        raise RecordError(
            f"the screenshot must show the whole screen of {size[0]} x {size[1]}, got a picture of "
            f"{screenshot.width} x {screenshot.height}. Turn it, or take it again without cropping."
        )


def _path(name: str, values: Mapping[str, object], frame: Frame) -> tuple[Point, Point]:
    """Touch and lift of a swipe, scroll or drag."""
    direction = values.get("direction")
    if name == "scroll" or direction is not None:
        if values.get("point") is not None or values.get("end") is not None:
            raise RecordError("a swipe must have either a `direction` or `point` and `end`, got both. Leave one out.")
        if not isinstance(direction, str) or direction.lower() not in STROKES:
            raise RecordError(f"`action.direction` must be up, down, left or right, got {shorten(direction)}.")
        return STROKES[OPPOSITE[direction.lower()] if name == "scroll" else direction.lower()]
    touch, lift = (frame.point(values.get(field), f"action.{field}") for field in ("point", "end"))
    if touch == lift:
        raise RecordError(f"action {name!r} must end elsewhere than it starts, got {touch} twice. Write it as a tap.")
    return touch, lift


def _refuse_superfluous(name: str, kind: ActionType, values: Mapping[str, object]) -> None:
    takes = ("direction",) if name == "scroll" else _TAKES.get(kind, ())
    given = [field for field in FIELDS if values.get(field) is not None]
    extra = [field for field in given if field not in ("type", "description", *takes)]
    if extra:
        allowed = " and ".join(f"`{field}`" for field in takes) or "nothing else"
        raise RecordError(f"action {name!r} takes {allowed}, got `{extra[0]}`: {shorten(values[extra[0]])}.")


def action_type(name: object) -> ActionType:
    """The action type of a written name, upper or lower case.

    Raises:
        RecordError: if there is none, with the names that there are.
    """
    kind = NAMES.get(name.lower()) if isinstance(name, str) else None
    if kind is None:
        near = difflib.get_close_matches(name[:80].lower(), NAMES, 1) if isinstance(name, str) else []
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise RecordError(f"`action.type` must be one of {', '.join(NAMES)}, got {shorten(name)}.{guess}")
    return kind


def read_action(values: object, frame: Frame) -> Action:
    """An action as the table of this module has it.

    Args:
        values: an object with `type` and the fields of that type; null counts as absent.
        frame: what its coordinates mean.

    Raises:
        RecordError: if the type or a field is unknown, one is missing or superfluous, or a point is off the screen.
    """
    if not isinstance(values, Mapping):
        raise RecordError(f'`action` must be an object such as {{"type": "back"}}, got {shorten(values)}.')
    refuse_unknown(values, FIELDS, "`action`")
    kind = action_type(values.get("type"))
    name = str(values["type"]).lower()
    _refuse_superfluous(name, kind, values)
    text, description = (optional_text(values, field, "action.") for field in ("text", "description"))
    point, end = None, None
    if "end" in _TAKES.get(kind, ()):
        point, end = _path(name, values, frame)
    elif "point" in _TAKES.get(kind, ()):
        point = frame.point(values.get("point"), "action.point")
    return Action(kind, point, end, text, description or "")
