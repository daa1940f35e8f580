"""From router scores to a choice: the frozen threshold, and the policies to compare with.

Every offline policy is a choice between columns of scores that were measured once, so all functions here take the
columns and return one score per step.

Letters: `N` steps.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Values = ArrayLike | torch.Tensor
"""A tensor on the CPU, an array or a list."""


class PolicyError(ValueError):
    """A policy cannot be made or used from what was given; the message says why, and the way out."""


# --- the threshold ---


def choices(r: Values, threshold: float) -> Bools:
    """Where Image memory is chosen: r >= threshold.

    Args:
        r: [N], router scores.
        threshold: tau, any real number or an infinity.

    Returns:
        [N], True for Image, False for Text.

    >>> choices([-1.0, 0.5, 2.0], 0.5).tolist()
    [False, True, True]
    """
    return _column("r", r) >= threshold


def choose_threshold(r: Values, text: Values, image: Values) -> float:
    """The cut with the highest mean utility of the steps it is chosen on.

    Candidates are the midpoints of neighbouring sorted scores, and both infinities (always Image, never Image). Of
    cuts that are equally good the one nearest 0 is taken, and of two equally near the larger: Text is the cheaper
    memory.

    Args:
        r: [N], router scores of the training steps.
        text: [N], utility under Text memory, in [0, 1].
        image: [N], utility under Image memory, in [0, 1].

    Returns:
        tau; minus or plus infinity if one modality is best throughout.

    Raises:
        PolicyError: if there is no step, the lengths differ, or a value is not finite.

    >>> choose_threshold([-2.0, -1.0, 1.0, 3.0], text=[1, 1, 0, 0], image=[0, 0, 1, 1])
    0.0
    """
    scores, u_text, u_image = _column("r", r), _column("text", text), _column("image", image)
    if not len(scores) == len(u_text) == len(u_image):
        raise PolicyError(
            f"`r`, `text` and `image` must have one row per step, got {len(scores)}, {len(u_text)} and {len(u_image)}."
        )
    order = np.argsort(scores, kind="stable")
    cuts, below = _cuts(scores[order])
    # what is given up by choosing Text on the `below` lowest scores
    forgone = np.concatenate([[0.0], np.cumsum((u_image - u_text)[order])])
    gain = -forgone[below]
    # sums of the same numbers in another order differ in their last bits; that must not decide between equal cuts
    return _nearest_zero(cuts[gain >= gain.max() - 1e-9])


def match_rate_threshold(r: Values, image_rate: float) -> float:
    """The cut whose share of Image choices on calibration steps is closest to `image_rate`.

    Candidates and the order of equally close cuts are those of `choose_threshold`.

    Args:
        r: [N], router scores of unlabelled calibration states.
        image_rate: share of Image choices on the training side, in [0, 1].

    Raises:
        PolicyError: if there is no step, a score is not finite, or `image_rate` is not in [0, 1].

    >>> match_rate_threshold([0.0, 1.0, 2.0, 3.0], image_rate=0.25)
    2.5
    """
    if not 0.0 <= image_rate <= 1.0:
        raise PolicyError(
            f"`image_rate` must lie in [0, 1], got {image_rate}. It is a share of steps, not a percentage."
        )
    scores = np.sort(_column("r", r))
    cuts, below = _cuts(scores)
    distance = np.abs((len(scores) - below) - image_rate * len(scores))
    return _nearest_zero(cuts[distance <= distance.min() + 1e-9])


def _cuts(ordered: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """All candidate cuts of sorted scores, and how many scores lie below each."""
    if not len(ordered):
        raise PolicyError("`r` must hold at least one step, got none. Choose the threshold on the training steps.")
    middles = ordered[:-1] / 2 + ordered[1:] / 2
    cuts = np.concatenate([[-math.inf], middles, [math.inf]])
    return cuts, np.searchsorted(ordered, cuts, side="left")


def _nearest_zero(cuts: Floats) -> float:
    return float(min(cuts, key=lambda cut: (abs(cut), -cut)))


# --- policies as column choices ---


def routed_scores(text: Values, image: Values, take_image: ArrayLike) -> Floats:
    """Score of each step when Image is taken where `take_image` says so, and Text elsewhere; all [N]."""
    return np.where(np.asarray(take_image, dtype=np.bool_), _column("image", image), _column("text", text))


def oracle_scores(text: Values, image: Values) -> Floats:
    """Score of each step under the better of Text and Image; all [N]."""
    return np.maximum(_column("text", text), _column("image", image))


def random_scores(text: Values, image: Values, image_rate: float) -> Floats:
    """Expected score of each step when Image is drawn with probability `image_rate` in [0, 1]; all [N].

    Raises:
        PolicyError: if `image_rate` is not in [0, 1].

    >>> random_scores([1.0, 0.0], [0.0, 0.0], image_rate=0.25).tolist()
    [0.75, 0.0]
    """
    if not 0.0 <= image_rate <= 1.0:
        raise PolicyError(f"`image_rate` must lie in [0, 1], got {image_rate}. It is a probability.")
    return (1.0 - image_rate) * _column("text", text) + image_rate * _column("image", image)


def _column(name: str, values: Values) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or not np.isfinite(column).all():
        bad = int((~np.isfinite(column)).sum())
        raise PolicyError(
            f"`{name}` must be one finite number per step, got shape {list(column.shape)} with {bad} that are not "
            "finite. Look for the steps whose states or scores are missing."
        )
    return column
