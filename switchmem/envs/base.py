"""What an agent sees of an online environment, what it can do there, and how an episode ends.

The actions are those of AndroidWorld's JSON action space, in pixels of the screenshot. An actor's own action
(`switchmem.steps.Action`: fractions of the screen, swipes as finger motion) is converted here, and only here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from switchmem.steps import Action, ActionType, Screenshot, UIElement

GOAL = "Follow the instructions shown on the top of the screen: {utterance}"
"""AndroidWorld's sentence around a page's instruction."""

DIRECTIONS = ("up", "down", "left", "right")
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


class ActionError(ValueError):
    """An action that breaks a rule of the action space, or has no counterpart in it; the message says which."""


class PhoneActionType(str, Enum):
    """AndroidWorld's action types. There is no drag: its JSON action space rejects one."""

    CLICK = "click"
    DOUBLE_TAP = "double_tap"
    LONG_PRESS = "long_press"
    SCROLL = "scroll"
    SWIPE = "swipe"
    INPUT_TEXT = "input_text"
    NAVIGATE_HOME = "navigate_home"
    NAVIGATE_BACK = "navigate_back"
    KEYBOARD_ENTER = "keyboard_enter"
    OPEN_APP = "open_app"
    WAIT = "wait"
    ANSWER = "answer"
    STATUS = "status"


_AT_POINT = frozenset({PhoneActionType.CLICK, PhoneActionType.DOUBLE_TAP, PhoneActionType.LONG_PRESS})
_MAY_HAVE_POINT = _AT_POINT | {PhoneActionType.SCROLL, PhoneActionType.INPUT_TEXT}
_WITH_DIRECTION = frozenset({PhoneActionType.SCROLL, PhoneActionType.SWIPE})
_WITH_TEXT = frozenset({PhoneActionType.INPUT_TEXT, PhoneActionType.ANSWER, PhoneActionType.OPEN_APP})
GOAL_STATUS = ("complete", "infeasible")


class Ending(str, Enum):
    """Why an episode is over. Only `SUCCESS` is one."""

    SUCCESS = "success"  # the page gave a raw reward of exactly 1
    FAILURE = "failure"  # the page ended the task with another reward
    BUDGET = "budget"  # the last step was used up
    AGENT_DONE = "agent_done"  # the agent called it complete or infeasible, and the page had not rewarded it
    LEFT_APP = "left_app"  # home, or another app
    NAVIGATION = "navigation"  # the page was left or loaded again
    POPUP = "popup"  # the page opened another window
    DIALOG = "dialog"  # the page opened an alert, a question, or asked before leaving
    DOWNLOAD = "download"  # the page began to download a file
    PAGE_CRASH = "page_crash"  # the page's process or the browser died
    TIMEOUT = "timeout"  # the page did not answer any more
    PAGE_ERROR = "page_error"  # the page is no task, or lost what makes it one
    MISSING_PAGE = "missing_page"  # there is no page of that task


@dataclass(frozen=True, slots=True)
class Screen:
    """What the agent sees.

    Args:
        screenshot: the phone's screen, losslessly encoded.
        elements: its accessibility tree, in the schema of UIAutomator dumps, in document order.
        goal: AndroidWorld's sentence with the page's instruction.
    """

    screenshot: Screenshot
    elements: tuple[UIElement, ...]
    goal: str


@dataclass(frozen=True, slots=True)
class PhoneAction:
    """One action of AndroidWorld's JSON action space.

    Args:
        type: what is done.
        x: pixels of the screenshot from the left; with `y`, or neither. Taps need a point, text entry taps it first,
            and a scroll scrolls what can be scrolled there.
        y: pixels from the top.
        text: what is typed or answered, or the app to be opened.
        direction: up, down, left or right. A scroll names where the view goes: "down" shows what is further down. A
            swipe names, as AndroidWorld's does, the finger's way for up and down, and the view's for left and right.
        goal_status: of a status: complete or infeasible.
        clear_text: whether text entry empties the field first.

    Raises:
        ActionError: if a field is missing, superfluous or out of its range.
    """

    type: PhoneActionType
    x: float | None = None
    y: float | None = None
    text: str | None = None
    direction: str | None = None
    goal_status: str | None = None
    clear_text: bool = False

    def __post_init__(self) -> None:
        _require((self.x is None) == (self.y is None), "x` and `y", "be given together", (self.x, self.y))
        has_point = self.x is not None
        _require(has_point or self.type not in _AT_POINT, "x", f"be given for {self.type.value!r}", None)
        _require(not has_point or self.type in _MAY_HAVE_POINT, "x", f"be left out of {self.type.value!r}", self.x)
        _require(not has_point or (self.x >= 0 and self.y >= 0), "x` and `y", "be >= 0", (self.x, self.y))  # type: ignore[operator]
        needs = self.type in _WITH_DIRECTION
        _require(needs == (self.direction is not None), "direction", _needed(needs, self.type), self.direction)
        _require(self.direction in (None, *DIRECTIONS), "direction", f"be one of {DIRECTIONS}", self.direction)
        needs = self.type in _WITH_TEXT
        _require(needs == (self.text is not None), "text", _needed(needs, self.type), self.text)
        needs = self.type is PhoneActionType.STATUS
        _require(needs == (self.goal_status is not None), "goal_status", _needed(needs, self.type), self.goal_status)
        _require(self.goal_status in (None, *GOAL_STATUS), "goal_status", f"be one of {GOAL_STATUS}", self.goal_status)

    def to_dict(self) -> dict[str, Any]:
        """AndroidWorld's JSON object: ``{"action_type": "click", "x": 540, "y": 900}``; empty fields are left out."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "type"}
        return {"action_type": self.type.value, **{k: v for k, v in fields.items() if v is not None and v is not False}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PhoneAction:
        """Inverse of `to_dict`.

        Raises:
            ActionError: if the object has unknown fields, or breaks a rule above.
        """
        rest = dict(values)
        try:
            kind = PhoneActionType(rest.pop("action_type"))
            return cls(kind, **rest)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ActionError):
                raise
            known = ", ".join(t.value for t in PhoneActionType)
            raise ActionError(
                f"an action must have an `action_type` of {known} and known fields, got {values!r}: {error}."
            ) from error

    @classmethod
    def from_action(cls, action: Action, width: int, height: int) -> PhoneAction:
        """An actor's action in this action space.

        Args:
            action: of an actor, coordinates in [0, 1].
            width: of the screenshot in pixels.
            height: of the screenshot in pixels.

        Raises:
            ActionError: for a drag, which AndroidWorld's action space does not have.
        """
        if action.type is ActionType.DRAG:
            raise ActionError(
                f"an action must have a counterpart in AndroidWorld's action space, got a drag from {action.point} to "
                f"{action.end}. "
                "Swipes start from the middle of what is scrolled; nothing can be picked up."
            )
        if action.type is ActionType.SWIPE:
            assert action.point is not None and action.end is not None  # `Action` sees to it
            finger = _finger_direction(action.point, action.end, width, height)
            touched = _pixels(action.point, width, height)
            return cls(PhoneActionType.SCROLL, *touched, direction=OPPOSITE[finger])
        if action.type is ActionType.TYPE:
            x, y = (None, None) if action.point is None else _pixels(action.point, width, height)
            return cls(PhoneActionType.INPUT_TEXT, x=x, y=y, text=action.text)
        if action.point is not None:
            return cls(_BY_TYPE[action.type], *_pixels(action.point, width, height))
        if action.type is ActionType.OPEN:
            return cls(PhoneActionType.OPEN_APP, text=action.text)
        return cls(_BY_TYPE[action.type], goal_status=_STATUS.get(action.type))


_BY_TYPE = {
    ActionType.TAP: PhoneActionType.CLICK,
    ActionType.LONG_PRESS: PhoneActionType.LONG_PRESS,
    ActionType.BACK: PhoneActionType.NAVIGATE_BACK,
    ActionType.HOME: PhoneActionType.NAVIGATE_HOME,
    ActionType.ENTER: PhoneActionType.KEYBOARD_ENTER,
    ActionType.WAIT: PhoneActionType.WAIT,
    ActionType.COMPLETE: PhoneActionType.STATUS,
    ActionType.IMPOSSIBLE: PhoneActionType.STATUS,
}
_STATUS = {ActionType.COMPLETE: "complete", ActionType.IMPOSSIBLE: "infeasible"}


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise ActionError(f"`{name}` must {rule}, got {value!r}.")


def _needed(needed: bool, kind: PhoneActionType) -> str:
    return f"be given for {kind.value!r}" if needed else f"be left out of {kind.value!r}"


def _pixels(point: tuple[float, float], width: int, height: int) -> tuple[int, int]:
    """The pixel under a point in [0, 1]; the right and lower edge belong to the last one."""
    return min(int(point[0] * width), width - 1), min(int(point[1] * height), height - 1)


def _finger_direction(start: tuple[float, float], end: tuple[float, float], width: int, height: int) -> str:
    dx, dy = (end[0] - start[0]) * width, (end[1] - start[1]) * height
    if abs(dx) > abs(dy):
        return "right" if dx > 0 else "left"
    return "down" if dy > 0 else "up"
