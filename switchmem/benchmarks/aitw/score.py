"""AITW's official score: action matching, in the (y, x) convention of its authors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from switchmem.steps import Action, ActionType, Step

NAME = "aitw"

Floats: TypeAlias = NDArray[np.float32]

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


def _single(values: ArrayLike | Sequence[ArrayLike]) -> Floats:
    """Values in float32; what is smaller than any normal number is 0, as for the official code's compiler."""
    rounded = np.array(values, np.float32)  # a copy
    rounded[np.abs(rounded) < np.finfo(np.float32).tiny] = 0
    return rounded


def _distance(one: Floats, other: Floats) -> Floats:
    """Euclidean distance of (y, x) points ``[..., 2]`` in float32, to the last bit as the official code gets it.

    That code is JAX, whose compiler fuses the sum of squares: ``y * y`` is added exactly to the rounded ``x * x``, and
    only the sum is rounded. Unfused, one pair in a hundred at a threshold is decided the other way. A float64 holds the
    square of a float32 exactly.
    """
    y, x = np.moveaxis(one - other, -1, 0)
    total = (x * x).astype(np.float64) + np.square(y, dtype=np.float64)
    return np.sqrt(total.astype(np.float32))


def is_tap(touch: Floats, lift: Floats) -> NDArray[np.bool_]:
    """Whether fingers go a way that is short enough to count as a tap.

    Args:
        touch: where they touch, (y, x) in [0, 1], float32 ``[..., 2]``.
        lift: where they lift, the same shape.
    """
    return np.asarray(_distance(touch, lift) <= np.float32(SWIPE_DISTANCE))


def _in_boxes(points: Floats, boxes: Floats) -> NDArray[np.bool_]:
    """Whether each point ``[m, 2]`` is in its box ``[m, 4]``, edges included."""
    y, x = points.T
    top, left, height, width = boxes.T
    return (y >= top) & (y <= top + height) & (x >= left) & (x <= left + width)


def _grow(boxes: Floats) -> Floats:
    """Enlarge (y, x, h, w) boxes around their middle. Clamping at 0 does not shorten a box: official behaviour."""
    growth = np.float32(BOX_GROWTH) * boxes[:, 2:]
    return np.concatenate([np.maximum(0, boxes[:, :2] - growth / 2), np.minimum(1, boxes[:, 2:] + growth)], axis=1)


def _flatten(boxes: ArrayLike | Sequence[ArrayLike], mask: ArrayLike | None) -> tuple[Floats, NDArray[np.int64]]:
    """All boxes ``[m, 4]`` and the pair that each belongs to ``[m]``."""
    if mask is not None or isinstance(boxes, np.ndarray):
        padded = _single(boxes)
        kept = np.ones(padded.shape[:2], bool) if mask is None else np.asarray(mask, bool)
        return padded[kept], np.nonzero(kept)[0]
    each = [np.asarray(some, np.float32).reshape(-1, 4) for some in cast(Sequence[ArrayLike], boxes)]
    owners = np.repeat(np.arange(len(each)), [len(some) for some in each])
    return _single(np.concatenate(each)), owners


def match_actions(
    touch_1: ArrayLike,
    lift_1: ArrayLike,
    type_1: ArrayLike,
    touch_2: ArrayLike,
    lift_2: ArrayLike,
    type_2: ArrayLike,
    boxes: ArrayLike | Sequence[ArrayLike],
    mask: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """Whether pairs of actions count as the same, by AITW's official rule.

    Actions other than DUAL_POINT match when their types are equal; typed text is not compared. Two taps match
    when their touches are within 0.14 or in one enlarged box; two swipes when their main axes agree, whatever the
    sign, and a tie is vertical; a tap never matches a swipe. The rule is symmetric in its two actions.

    Everything is float32 in the official code's order, as JAX computes it on a CPU: `_distance` and `_single` tell
    where its compiler matters.
    That code cannot take a screen without boxes; here such taps are compared by distance alone.

    Args:
        touch_1: where the first actions' fingers touch, (y, x) in [0, 1], ``[B, 2]``; points are looked at for
            DUAL_POINT only, the data has (-1, -1) elsewhere.
        lift_1: where they lift, ``[B, 2]``.
        type_1: AITW's ids of the first actions' types, ``[B]``.
        touch_2: as `touch_1`, of the second actions.
        lift_2: as `lift_1`, of the second actions.
        type_2: as `type_1`, of the second actions.
        boxes: (y, x, height, width) of each screen's annotations: an array ``[B, n, 4]``, or a list of ``B`` arrays
            ``[n_i, 4]``, any of which may be empty.
        mask: which boxes of an array ``[B, n, 4]`` are real, ``[B, n]``; None takes all.

    Returns:
        ``[B]``.

    Raises:
        ValueError: if there are not as many screens as pairs.

    Example:
        >>> taps, home = [[0.5, 0.5], [-1, -1]], [4, 6]
        >>> match_actions(taps, taps, home, [[0.6, 0.5], [-1, -1]], [[0.6, 0.5], [-1, -1]], home, [[], []])
        array([ True,  True])
    """
    touches = _single([touch_1, touch_2]).reshape(2, -1, 2)
    lifts = _single([lift_1, lift_2]).reshape(2, -1, 2)
    kinds_1, kinds_2 = np.asarray(type_1), np.asarray(type_2)
    pairs, screens = touches.shape[1], len(cast(Sequence[ArrayLike], boxes))
    if screens != pairs:
        raise ValueError(f"`boxes` must hold the boxes of each of {pairs} pairs, got {screens} screens.")
    taps_1, taps_2 = is_tap(touches, lifts)
    axes_1, axes_2 = np.argmax(np.abs(lifts - touches), axis=-1)
    both_tap = taps_1 & taps_2
    near = _distance(*touches) <= np.float32(TAP_DISTANCE)
    if not np.all(near | ~both_tap):
        flat, owners = _flatten(boxes, mask)
        grown = _grow(flat)
        near[owners[_in_boxes(touches[0, owners], grown) & _in_boxes(touches[1, owners], grown)]] = True
    gestures = np.where(both_tap, near, (taps_1 == taps_2) & (axes_1 == axes_2))
    dual = (kinds_1 == DUAL_POINT) & (kinds_2 == DUAL_POINT)
    return np.where(dual, gestures, kinds_1 == kinds_2)


def actions_match(
    touch_1: ArrayLike,
    lift_1: ArrayLike,
    type_1: int,
    touch_2: ArrayLike,
    lift_2: ArrayLike,
    type_2: int,
    boxes: ArrayLike,
) -> bool:
    """Whether two actions count as the same; one pair of `match_actions`.

    Args:
        touch_1: where the first finger touches, (y, x) in [0, 1].
        lift_1: where it lifts, (y, x) in [0, 1].
        type_1: AITW's id of the first action's type.
        touch_2: as `touch_1`, of the second action.
        lift_2: as `lift_1`, of the second action.
        type_2: as `type_1`, of the second action.
        boxes: (y, x, height, width) of the screen's annotations, ``[n, 4]``; n may be 0.

    Example:
        >>> tap = [0.5, 0.5]
        >>> actions_match(tap, tap, 4, [0.6, 0.5], [0.6, 0.5], 4, [])
        True
    """
    return bool(match_actions(touch_1, lift_1, [type_1], touch_2, lift_2, [type_2], [boxes])[0])


def _official(action: Action) -> tuple[list[float], list[float], int]:
    """(touch yx, lift yx, type id) of an action; (-1, -1) without a point, as the data has it."""
    if action.point is None:
        return [-1.0, -1.0], [-1.0, -1.0], _IDS.get(action.type, NO_MATCH)
    x, y = action.point
    end_x, end_y = action.end or action.point
    return [y, x], [end_y, end_x], _IDS[action.type]


class AitwBenchmark:
    """AITW's name and score: 1.0 where the official action matching accepts the action, else 0.0.

    Results here are the mean over steps, as SwitchMem reports them (section 5). AITW's authors score each of the five
    sets by itself and average the five, which weighs a set's steps by how few they are; the two agree only where all
    sets are equally large. `scores.parquet` keeps the score of every step, from which either can be had.
    """

    name = NAME

    def score(self, action: Action | None, gold: Step) -> float:
        """Score one predicted action; see `actions_match`.

        A long press counts as a tap. Opening an app and waiting do not exist in AITW and match nothing. A box that
        leaves the screen is taken as recorded.
        """
        if action is None:
            return 0.0
        corners = [element.recorded or element.box for element in gold.elements]
        boxes = [(top, left, bottom - top, right - left) for left, top, right, bottom in corners]
        return float(actions_match(*_official(action), *_official(gold.action), boxes))
