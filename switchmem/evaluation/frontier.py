"""What a budget of Image memories buys: score against Image rate as the threshold moves (SwitchMem, section 6.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from switchmem.evaluation.statistics import StatisticsError, Values, finite_column

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Score against Image rate.

    Args:
        threshold: [P] cuts from plus to minus infinity; Image is chosen where r >= threshold.
        image_rate: [P] shares of steps with Image in [0, 1], rising from 0 to 1.
        score: [P] mean scores in [0, 1] of the routed policy.
        random: [P] mean scores of choosing Image at random at the same rates, exact and not drawn.
        star: place of the deployed threshold on the curve: (image rate, score).
    """

    threshold: Floats
    image_rate: Floats
    score: Floats
    random: Floats
    star: tuple[float, float]


def budget_frontier(r: Values, text: Values, image: Values, threshold: float) -> Frontier:
    """Sweep the threshold over all cuts that change a choice.

    Args:
        r: [N], router scores; equal ones are always chosen alike.
        text: [N], scores under Text memory, in [0, 1].
        image: [N], scores under Image memory, in [0, 1].
        threshold: the deployed tau.

    Returns:
        A curve of one point more than there are different router scores.

    Raises:
        StatisticsError: if there is no step, the lengths differ, or a value is not finite.

    >>> curve = budget_frontier([0.0, 1.0], text=[1, 0], image=[0, 1], threshold=0.5)
    >>> curve.image_rate.tolist(), curve.score.tolist(), curve.star
    ([0.0, 0.5, 1.0], [0.5, 1.0, 0.5], (0.5, 1.0))
    """
    scores, u_text, u_image = (finite_column(n, v) for n, v in (("r", r), ("text", text), ("image", image)))
    if not len(scores) or not len(scores) == len(u_text) == len(u_image):
        raise StatisticsError(
            "`r`, `text` and `image` must have one entry per step and at least one, got "
            f"{len(scores)}, {len(u_text)} and {len(u_image)}."
        )
    count = len(scores)
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    gained = np.concatenate([[0.0], np.cumsum((u_image - u_text)[order])])
    # after how many of the highest scores a cut can lie: before the first, behind the last, and where they differ
    taken = np.concatenate([[0], np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, [count]])
    inner = taken[1:-1]
    cuts = np.concatenate([[np.inf], ranked[inner - 1] / 2 + ranked[inner] / 2, [-np.inf]])
    rate = taken / count
    chosen = scores >= threshold
    return Frontier(
        threshold=cuts,
        image_rate=rate,
        score=(u_text.sum() + gained[taken]) / count,
        random=(1.0 - rate) * u_text.mean() + rate * u_image.mean(),
        star=(float(chosen.mean()), float(np.where(chosen, u_image, u_text).mean())),
    )
