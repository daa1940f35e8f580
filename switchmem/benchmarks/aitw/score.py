"""AITW's official score: action matching, in the (y, x) convention of its authors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from switchmem.steps import Action, ActionType, Step

NAME = "aitw"

TYPE, DUAL_POINT, NO_MATCH = 3, 4, 0  # 0 is not used by the data, so it matches nothing
GLOBAL_ACTIONS = {
    5: ActionType.BACK,
    6: ActionType.HOME,
    7: ActionType.ENTER,
    10: ActionType.COMPLETE,
    11: ActionType.IMPOSSIBLE,
}
_IDS = {kind: number for number, kind in GLOBAL_ACTIONS.items()} | {
    ActionType.TYPE: TYPE,
    ActionType.TAP: DUAL_POINT,
    ActionType.LONG_PRESS: DUAL_POINT,  # AITW records a long press as a touch and lift at one place
    ActionType.SWIPE: DUAL_POINT,
    ActionType.DRAG: DUAL_POINT,
}

TAP_DISTANCE = 0.14  # two taps this near match; fraction of the screen on each axis
SWIPE_DISTANCE = 0.04  # a longer way from touch to lift is a swipe
BOX_GROWTH = 1.4  # annotated boxes grow by this share of their height and width


def is_tap(touch: NDArray[np.float32], lift: NDArray[np.float32]) -> bool:
    """Whether the finger's way is short enough to count as a tap; points are (y, x) or (x, y), alike."""
    return bool(np.linalg.norm(touch - lift) <= np.float32(SWIPE_DISTANCE))


def _in_boxes(point: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
    top, left, height, width = boxes.T
    y, x = point
    return (y >= top) & (y <= top + height) & (x >= left) & (x <= left + width)


def _grow(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Enlarge (y, x, h, w) boxes around their middle. Clamping at 0 does not shorten a box: official behaviour."""
    growth = np.float32(BOX_GROWTH) * boxes[:, 2:]
    return np.concatenate([np.maximum(0, boxes[:, :2] - growth / 2), np.minimum(1, boxes[:, 2:] + growth)], axis=1)


def actions_match(
    touch_1: ArrayLike,
    lift_1: ArrayLike,
    type_1: int,
    touch_2: ArrayLike,
    lift_2: ArrayLike,
    type_2: int,
    boxes: ArrayLike,
) -> bool:
    """Whether two actions count as the same, by AITW's official rule.

    Actions other than DUAL_POINT match when their types are equal; typed text is not compared. Two taps match
    when they are within 0.14 or in one enlarged box; two swipes when their main axes agree, whatever the
    sign; a tap never matches a swipe. Computed in float32, as the official code is; where a distance equals a
    threshold to the last bit, that code's own answer depends on the machine's fused arithmetic.

    Args:
        touch_1: where the first finger touches, (y, x) in [0, 1]; points are looked at for DUAL_POINT only.
        lift_1: where it lifts, (y, x) in [0, 1].
        type_1: AITW's id of the first action's type.
        touch_2: as `touch_1`, of the second action.
        lift_2: as `lift_1`, of the second action.
        type_2: as `type_1`, of the second action.
        boxes: (y, x, height, width) of the screen's annotations, shape [n, 4]; n may be 0.

    Example:
        >>> tap = [0.5, 0.5]
        >>> actions_match(tap, tap, 4, [0.6, 0.5], [0.6, 0.5], 4, [])
        True
    """
    if type_1 != DUAL_POINT or type_2 != DUAL_POINT:
        return type_1 == type_2
    touch_1, lift_1, touch_2, lift_2 = (np.asarray(p, np.float32) for p in (touch_1, lift_1, touch_2, lift_2))
    taps = is_tap(touch_1, lift_1), is_tap(touch_2, lift_2)
    if taps[0] != taps[1]:
        return False
    if taps[0]:
        grown = _grow(np.asarray(boxes, np.float32).reshape(-1, 4))
        in_one_box = bool(np.any(_in_boxes(touch_1, grown) & _in_boxes(touch_2, grown)))
        return in_one_box or bool(np.linalg.norm(touch_1 - touch_2) <= np.float32(TAP_DISTANCE))
    axes = np.argmax(np.abs(lift_1 - touch_1)), np.argmax(np.abs(lift_2 - touch_2))
    return bool(axes[0] == axes[1])


def _official(action: Action) -> tuple[list[float], list[float], int]:
    """(touch yx, lift yx, type id) of an action; (-1, -1) without a point, as the data has it."""
    if action.point is None:
        return [-1.0, -1.0], [-1.0, -1.0], _IDS.get(action.type, NO_MATCH)
    x, y = action.point
    end_x, end_y = action.end or action.point
    return [y, x], [end_y, end_x], _IDS[action.type]


class AitwBenchmark:
    """AITW's name and score: 1.0 where the official action matching accepts the action, else 0.0."""

    name = NAME

    def score(self, action: Action | None, gold: Step) -> float:
        """Score one predicted action; see `actions_match`.

        A long press counts as a tap. Opening an app and waiting do not exist in AITW and match nothing.
        """
        if action is None:
            return 0.0
        boxes = [(e.box[1], e.box[0], e.box[3] - e.box[1], e.box[2] - e.box[0]) for e in gold.elements]
        return float(actions_match(*_official(action), *_official(gold.action), boxes))
