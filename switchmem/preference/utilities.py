"""Utilities of sampled actions, the steps that prefer a modality, and the ones that do so stably.

Letters: `N` steps, `K` samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Values = ArrayLike | torch.Tensor
"""A tensor on the CPU, an array or nested lists."""
Groups = Sequence[str] | NDArray[np.str_]
"""The trajectory of each step."""

AGREE = 5
"""Samples of seven that must agree for a step to count as stable."""


class PreferenceError(ValueError):
    """No preference can be estimated from what was given; the message holds the counts and the way out."""


@dataclass(frozen=True, eq=False)
class Utilities:
    """Utilities of the same steps under Text and Image memory.

    Args:
        text: [N], mean score of the K sampled actions under Text memory, in [0, 1].
        image: [N], the same under Image memory.
        delta: [N], Image minus Text, in [-1, 1]; exactly 0.0 where the two are tied, and only there.
    """

    text: Floats
    image: Floats
    delta: Floats

    @property
    def non_tied(self) -> Bools:
        """[N], True on the steps of D_pref."""
        return self.delta != 0.0

    @property
    def counts(self) -> dict[str, int]:
        """How many steps there are, and how many are tied, prefer Text, prefer Image."""
        return count_preferences(self.delta)


def utilities(scores_text: Values, scores_image: Values) -> Utilities:
    """Compare the sampled scores of the two modalities.

    Ties are decided on exact sums: a difference of two means can leave 1e-17 where the scores are equal in
    another order.

    Args:
        scores_text: [N, K], benchmark scores of the sampled actions in [0, 1].
        scores_image: [N, K], the same for Image memory.

    Raises:
        PreferenceError: if the shapes differ, there is no sample, or a score is NaN or outside [0, 1].

    >>> pair = utilities([[0.1, 0.2, 0.3], [1, 0, 0]], [[0.3, 0.2, 0.1], [1, 1, 0]])
    >>> pair.non_tied.tolist(), pair.counts
    ([False, True], {'steps': 2, 'tied': 1, 'text': 0, 'image': 1})
    """
    text, image = _score_pair(scores_text, scores_image)
    samples = text.shape[1]
    # fsum rounds the exact sum once, so it is zero exactly when the two exact sums are equal
    gaps = [math.fsum((*i, *(-t))) / samples for t, i in zip(text, image, strict=True)]
    means = [[math.fsum(row) / samples for row in scores] for scores in (text, image)]
    return Utilities(np.array(means[0]), np.array(means[1]), np.array(gaps, dtype=np.float64))


def stable_preference(scores_text: Values, scores_image: Values, agree: int = AGREE) -> NDArray[np.int8]:
    """The modality that at least `agree` of the K paired samples prefer (the probing subset).

    Sample k prefers the modality with the higher score for that seed; a tie of that seed counts for neither.

    Args:
        scores_text: [N, K], scores in [0, 1].
        scores_image: [N, K], scores in [0, 1].
        agree: samples that must agree, K / 2 < agree <= K.

    Returns:
        [N], +1 where Image is stably preferred, -1 where Text is, 0 where neither is.

    Raises:
        PreferenceError: as `utilities`, or if `agree` is outside its range.

    >>> stable_preference([[0] * 7, [1] * 7, [0] * 7], [[1] * 5 + [0] * 2, [0] * 7, [1] * 4 + [0] * 3]).tolist()
    [1, -1, 0]
    """
    text, image = _score_pair(scores_text, scores_image)
    samples = text.shape[1]
    if not samples / 2 < agree <= samples:
        raise PreferenceError(
            f"`agree` must be more than half of the {samples} samples and at most all of them, got {agree}. "
            "Set it in proportion to the number of samples (5 of 7)."
        )
    for_image = (image > text).sum(axis=1) >= agree
    for_text = (text > image).sum(axis=1) >= agree
    return for_image.astype(np.int8) - for_text.astype(np.int8)


def count_preferences(delta: Floats) -> dict[str, int]:
    """Count utility gaps by their sign.

    >>> count_preferences(np.array([0.0, -1.0, 0.5, 0.5]))
    {'steps': 4, 'tied': 1, 'text': 1, 'image': 2}
    """
    text, image = int((delta < 0).sum()), int((delta > 0).sum())
    return {"steps": len(delta), "tied": len(delta) - text - image, "text": text, "image": image}


def check_length(name: str, values: Any, n: int) -> None:
    """Refuse `values` that do not have one row for each of `n` steps.

    Raises:
        PreferenceError: if the length differs.
    """
    if len(values) != n:
        raise PreferenceError(f"`{name}` must have one row per step, {n}, got {len(values)}. Select the same steps.")


def _score_pair(scores_text: Values, scores_image: Values) -> tuple[Floats, Floats]:
    text, image = (np.asarray(s, dtype=np.float64) for s in (scores_text, scores_image))
    if text.ndim != 2 or text.shape != image.shape or text.shape[1] < 1:
        raise PreferenceError(f"scores must be two [N, K] tables with K >= 1, got {text.shape} and {image.shape}.")
    for name, scores in (("scores_text", text), ("scores_image", image)):
        outside = ~((scores >= 0.0) & (scores <= 1.0))
        if outside.any():
            row, column = np.argwhere(outside)[0]
            raise PreferenceError(
                f"`{name}` must lie in [0, 1], got {scores[row, column]} at step {row}, sample {column}. "
                "An answer that cannot be parsed scores 0; anything else is a fault of the scorer."
            )
    return text, image
