"""switchmem's own step score, for recordings whose authors define none.

It is in the spirit of AITW's action matching, with the recorded element's own box and the sign of a path; it is not
equal to that.
"""

from __future__ import annotations

from switchmem.steps import Action, ActionType, Step, UIElement

TAP_DISTANCE = 0.14
"""Two taps this near match: fraction of the screen, width and height measured alike."""
WORDS_F1 = 0.5
"""Two texts match from this F1 of their sets of words on."""


def words_f1(first: str, second: str) -> float:
    """F1 of the two texts' sets of lower-case words; 1.0 when both are empty.

    >>> words_f1("Weather", "weather tomorrow")
    0.6666666666666666
    """
    a, b = set(first.lower().split()), set(second.lower().split())
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else 1.0


def main_direction(action: Action) -> tuple[int, int]:
    """Main axis of a finger's path (0 for x, 1 for y; y where both are equal) and its sign, +1 right and down.

    Args:
        action: a swipe or drag.
    """
    assert action.point is not None and action.end is not None  # `Action` guarantees both for a path
    dx, dy = action.end[0] - action.point[0], action.end[1] - action.point[1]
    return (0, 1 if dx > 0 else -1) if abs(dx) > abs(dy) else (1, 1 if dy > 0 else -1)


def tapped_element(gold: Step, point: tuple[float, float]) -> UIElement | None:
    """The element that a recorded tap went to, where the recording tells.

    Agents such as AppAgent tap an element's middle, rounded down to whole pixels, and so do AndroidControl's clicks.
    So it is an element whose centre is within one pixel of the tap on each axis; of several, clickable ones come first,
    then the smallest. A tap elsewhere in an element does not tell which one was meant.

    Args:
        gold: the recorded step.
        point: of its tap, ``(x, y)`` in [0, 1].

    Returns:
        The element, or None where no element is centred there.
    """
    margin_x, margin_y = 1 / gold.screenshot.width, 1 / gold.screenshot.height
    centred = [
        element
        for element in gold.elements
        if abs(element.center[0] - point[0]) <= margin_x and abs(element.center[1] - point[1]) <= margin_y
    ]
    return min(centred, key=lambda element: (not element.clickable, element.area), default=None)


def step_score(action: Action | None, gold: Step) -> float:
    """Whether a predicted action does what the recorded one did.

    The types must be equal; a tap is no long press and a swipe no drag. Then counts as right

    - a tap or long press inside the box of the recorded element (`tapped_element`), edges included, or within
      `TAP_DISTANCE` of the recorded point;
    - a swipe or drag whose main direction agrees, sign included, wherever it starts and however long it is;
    - a typed text, or the name of an opened app, when the F1 of its set of words is at least `WORDS_F1`;
    - anything else by its type alone: an answer given on completion is not compared.

    Args:
        action: the predicted action; None for an answer that could not be parsed.
        gold: the recorded step, its elements included.

    Returns:
        1.0 or 0.0; 0.0 for None.
    """
    if action is None or action.type is not gold.action.type:
        return 0.0
    if action.end is not None:
        return float(main_direction(action) == main_direction(gold.action))
    if action.point is not None and gold.action.point is not None:
        (x, y), (gold_x, gold_y) = action.point, gold.action.point
        element = tapped_element(gold, gold.action.point)
        near = (x - gold_x) ** 2 + (y - gold_y) ** 2 <= TAP_DISTANCE**2
        return float(near or (element is not None and element.contains(action.point)))
    if action.type in (ActionType.TYPE, ActionType.OPEN):
        return float(words_f1(action.text or "", gold.action.text or "") >= WORDS_F1)
    return 1.0
