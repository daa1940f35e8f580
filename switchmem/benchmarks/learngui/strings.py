"""LearnGUI's action strings: ``CLICK[x,y]``, ``SWIPE[UP]``, ``TYPE[text]``, ``PRESS_BACK``, ``TASK_COMPLETE[answer]``.

Places are pixels of the screenshot, x right and y down; a swipe's direction is that of the finger. `parse_action` reads
a string as the authors' scorer does, `parse_whole` as it is meant; `recorded_action` and `action_string` turn strings
into actions and back.
"""

from __future__ import annotations

import re
from dataclasses import replace

from switchmem.steps import Action, ActionType, RecordError

NAME = "learngui"
CORRECTED_NAME = "learngui_corrected"

Parsed = tuple[str | float, ...]
"""The type and its arguments, such as ``("CLICK", x, y)``, ``("SWIPE", direction)`` or ``("PRESS_BACK",)``."""

_CLICK = re.compile(r"CLICK\[(\d+),(\d+)\]", re.IGNORECASE)
_SWIPE = re.compile(r"SWIPE\[(\w+)\]", re.IGNORECASE)
_TYPE = re.compile(r"TYPE\[(.*?)\]", re.DOTALL)
_COMPLETE = re.compile(r"TASK_COMPLETE\[(.*?)\]", re.DOTALL)

_NUMBER = r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*"
_WHOLE_PLACE = re.compile(rf"(CLICK|LONG_PRESS)\s*\[{_NUMBER},{_NUMBER}\]", re.IGNORECASE)
_WHOLE_SWIPE = re.compile(r"SWIPE\s*\[\s*(UP|DOWN|LEFT|RIGHT)\s*\]", re.IGNORECASE)
_WHOLE_TEXT = re.compile(r"(TYPE|TASK_COMPLETE)\[(.*)\]", re.IGNORECASE | re.DOTALL)
_BARE = {
    "PRESS_BACK": ActionType.BACK,
    "PRESS_HOME": ActionType.HOME,
    "PRESS_ENTER": ActionType.ENTER,
    "TASK_IMPOSSIBLE": ActionType.IMPOSSIBLE,
}
_STRINGS = {kind: string for string, kind in _BARE.items()}
_PLACES = {"CLICK": ActionType.TAP, "LONG_PRESS": ActionType.LONG_PRESS}
_TEXTS = {"TYPE": ActionType.TYPE, "TASK_COMPLETE": ActionType.COMPLETE}

# A swipe is recorded as a direction alone; it is drawn over the middle of the screen.
_PATHS = {
    "UP": ((0.5, 0.7), (0.5, 0.3)),
    "DOWN": ((0.5, 0.3), (0.5, 0.7)),
    "LEFT": ((0.7, 0.5), (0.3, 0.5)),
    "RIGHT": ((0.3, 0.5), (0.7, 0.5)),
}


def parse_action(text: str | None) -> Parsed | None:
    """Read an action's string as LearnGUI's official scorer does, gaps included.

    Args:
        text: the string; blanks around it do not count.

    Returns:
        The action, or the string itself as the only item where it is not understood; None for None, "", and a click
        whose numbers have thousands of digits.

    Example:
        >>> parse_action("CLICK[10,20]"), parse_action("CLICK[10, 20]"), parse_action("TYPE[a]b]")
        (('CLICK', 10, 20), ('CLICK[10, 20]',), ('TYPE', 'a'))
    """
    if not text:
        return None
    text = text.strip()
    if click := _CLICK.search(text):
        try:
            return "CLICK", int(click[1]), int(click[2])
        except ValueError:  # more digits than Python converts
            return None
    if swipe := _SWIPE.search(text):
        return "SWIPE", swipe[1].upper()
    if typed := _TYPE.search(text):
        return "TYPE", typed[1]
    if text in _BARE:
        return (text,)
    if complete := _COMPLETE.search(text):
        return "TASK_COMPLETE", complete[1]
    return ("TASK_COMPLETE", "") if text == "TASK_COMPLETE" else (text,)


def parse_whole(text: str | None) -> Parsed | None:
    """Read an action's string from its first to its last character, in any case, with blanks and decimal points.

    Returns:
        The action, ``("LONG_PRESS", x, y)`` among them; None for anything else.

    Example:
        >>> parse_whole("long_press[10.5, 20]"), parse_whole("TYPE[see CLICK[1,2]]")
        (('LONG_PRESS', 10.5, 20.0), ('TYPE', 'see CLICK[1,2]'))
    """
    text = (text or "").strip()
    if place := _WHOLE_PLACE.fullmatch(text):
        return place[1].upper(), float(place[2]), float(place[3])
    if swipe := _WHOLE_SWIPE.fullmatch(text):
        return "SWIPE", swipe[1].upper()
    if texts := _WHOLE_TEXT.fullmatch(text):
        return texts[1].upper(), texts[2]
    name = text.upper()
    if name in _BARE:
        return (name,)
    return ("TASK_COMPLETE", "") if name == "TASK_COMPLETE" else None


def _direction(action: Action) -> str:
    """The finger's direction on the axis of the longer way, in fractions of the screen; vertical where both are equal.

    A finger that does not move has none, "".
    """
    assert action.point is not None and action.end is not None  # `Action` guarantees both for a path
    across, down = action.end[0] - action.point[0], action.end[1] - action.point[1]
    if abs(across) > abs(down):
        return "RIGHT" if across > 0 else "LEFT"
    return ("DOWN" if down > 0 else "UP") if down else ""


def action_string(action: Action, width: int, height: int) -> str | None:
    """An action as LearnGUI writes it.

    Args:
        action: the action.
        width: of the screenshot in pixels, > 0.
        height: of the screenshot in pixels, > 0.

    Returns:
        The string, places rounded to whole pixels (halves to the even one); None for what LearnGUI does not have: a
        drag, opening an app by name, waiting.

    Example:
        >>> action_string(Action(ActionType.TAP, (0.5, 0.25)), 1440, 3120)
        'CLICK[720,780]'
        >>> action_string(Action(ActionType.SWIPE, (0.5, 0.7), (0.4, 0.3)), 1440, 3120)
        'SWIPE[UP]'
    """
    for string, kind in _PLACES.items():
        if action.type is kind and action.point is not None:
            return f"{string}[{round(action.point[0] * width)},{round(action.point[1] * height)}]"
    for string, kind in _TEXTS.items():
        if action.type is kind:
            return f"{string}[{action.text or ''}]"
    if action.type is ActionType.SWIPE:
        return f"SWIPE[{_direction(action)}]"
    return _STRINGS.get(action.type)


def _place(place: Parsed, width: int, height: int, text: str) -> tuple[float, float]:
    x, y = (value for value in place if not isinstance(value, str))
    if not (x <= width and y <= height):
        raise RecordError(f"`action` must be within the screenshot of {width} x {height} pixels, got {text[:80]!r}.")
    return x / width, y / height


def recorded_action(text: str, width: int, height: int, description: str = "") -> Action:
    """A recorded string as an action, read whole where that is possible, else as the official scorer reads it.

    A typed text and an answer are kept whole; a swipe is drawn over the middle of the screen.

    Args:
        text: the string.
        width: of the screenshot in pixels, > 0.
        height: of the screenshot in pixels, > 0.
        description: the sentence that goes with it.

    Raises:
        RecordError: if the string is no action, or its place is outside the screenshot.

    Example:
        >>> recorded_action("TYPE[a]b]", 1440, 3120).text
        'a]b'
    """
    parsed = parse_whole(text) or parse_action(text) or ("",)
    kind, rest = str(parsed[0]), parsed[1:]
    if kind in _PLACES and len(rest) == 2:
        action = Action(_PLACES[kind], _place(rest, width, height, text))
    elif kind == "SWIPE" and rest and rest[0] in _PATHS:
        start, end = _PATHS[str(rest[0])]
        action = Action(ActionType.SWIPE, start, end)
    elif kind in _TEXTS and rest:
        answer = str(rest[0])
        action = Action(_TEXTS[kind], text=answer if kind == "TYPE" else answer or None)
    elif kind in _BARE:
        action = Action(_BARE[kind])
    else:
        raise RecordError(
            "`action` must be CLICK[x,y], LONG_PRESS[x,y], SWIPE[UP|DOWN|LEFT|RIGHT], TYPE[text], PRESS_BACK, "
            f"PRESS_HOME, PRESS_ENTER, TASK_COMPLETE[answer] or TASK_IMPOSSIBLE, got {text[:80]!r}."
        )
    return replace(action, description=description)


def is_read_officially(text: str, action: Action, width: int, height: int) -> bool:
    """Whether the official scorer sees the same in a recorded string as in the action that was made of it.

    It does not where it cannot read the string, ``press_back`` or ``CLICK[10, 20]``: such a step counts as wrong
    whatever is predicted, while the action, written properly, would be matched.

    Example:
        >>> [is_read_officially(t, recorded_action(t, 99, 99), 99, 99) for t in ("PRESS_BACK", "press_back")]
        [True, False]
    """
    return parse_action(action_string(action, width, height)) == parse_action(text)
