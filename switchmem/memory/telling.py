"""Recorded steps in words that belong to no actor: what was done, what a screen holds, and how it changed.

Places are left out: these words serve where a demonstration is to be told and not to be copied.
"""

from __future__ import annotations

from switchmem.memory.views import demonstrated, one_line
from switchmem.steps import Action, ActionType, Step, UIElement

_BARE = {
    ActionType.BACK: "go back",
    ActionType.HOME: "go to the home screen",
    ActionType.ENTER: "press enter",
    ActionType.WAIT: "wait",
    ActionType.COMPLETE: "finish: the task is complete",
    ActionType.IMPOSSIBLE: "stop: the task is impossible",
}
_ON = {ActionType.TAP: "tap", ActionType.LONG_PRESS: "long press"}


def tell_element(element: UIElement | None) -> str:
    """The words that name an element.

    >>> tell_element(UIElement((0, 0, 1, 1), text="Save", kind="Button")), tell_element(None)
    ('"Save" (Button)', 'a place without an element')
    """
    if element is None:
        return "a place without an element"
    label, kind = one_line(element.label), one_line(element.kind.rpartition(".")[2])
    if not label:
        return f"an unlabelled {kind or 'element'}"
    return f'"{label}" ({kind})' if kind else f'"{label}"'


def direction(action: Action) -> str:
    """Where the finger of a swipe or drag goes: up, down, left or right; "" for other actions.

    >>> direction(Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2)))
    'up'
    """
    if action.point is None or action.end is None:
        return ""
    across, down = action.end[0] - action.point[0], action.end[1] - action.point[1]
    if abs(across) > abs(down):
        return "left" if across < 0 else "right"
    return "up" if down < 0 else "down"


def tell_action(step: Step) -> str:
    """What was done at a step, without a place: the recording's own sentence where there is one.

    Returns:
        One line, such as ``tap "Save" (Button)`` or ``swipe up``.
    """
    action = step.action
    if action.description.strip():
        return one_line(action.description)
    if action.type in _ON:
        return f"{_ON[action.type]} {tell_element(demonstrated(step))}"
    if action.type in (ActionType.SWIPE, ActionType.DRAG):
        return f"{action.type.value} {direction(action)}"
    if action.type is ActionType.TYPE:
        return f'type "{one_line(action.text or "")}"'
    if action.type is ActionType.OPEN:
        return f'open the app "{one_line(action.text or "")}"'
    return _BARE[action.type]


def tell_screen(step: Step, words: int = 24) -> str:
    """A short description of a screen: where it is, and its labels in the recording's order.

    Args:
        step: whose screen.
        words: the most words.
    """
    heads = [one_line(step.activity.rpartition("/")[2]), one_line(step.caption)]
    labels = list(dict.fromkeys(one_line(e.label) for e in step.elements if e.label.strip()))
    told = "; ".join(head for head in (*heads, ", ".join(labels)) if head)
    return cut_words(told, words) or "a screen without words"


def tell_change(before: Step, after: Step, words: int = 16) -> str:
    """How a screen changed, by its labels.

    Args:
        before: a step.
        after: the one that follows it in its trajectory.
        words: the most words for what is new, and for what is gone.
    """
    old, new = ([one_line(e.label) for e in step.elements if e.label.strip()] for step in (before, after))
    come = list(dict.fromkeys(label for label in new if label not in set(old)))
    gone = list(dict.fromkeys(label for label in old if label not in set(new)))
    if not come and not gone:
        return "no words of the screen changed"
    parts = [f"new: {cut_words(', '.join(come), words)}"] if come else []
    parts += [f"gone: {cut_words(', '.join(gone), words)}"] if gone else []
    return "; ".join(parts)


def cut_words(text: str, most: int) -> str:
    """The first words of a text, with an ellipsis where some are left out.

    >>> cut_words("one two three", 2)
    'one two…'
    """
    words = text.split()
    return " ".join(words) if len(words) <= most else " ".join(words[:most]).rstrip(",;") + "…"
