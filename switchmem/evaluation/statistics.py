"""How sure a difference is when steps of one trajectory are not independent.

Whole trajectories are resampled or flipped, never single steps. Only a trajectory's sum and size enter, so a replicate
is one row of a matrix product; results depend on the seed alone.

Letters: `N` steps, `G` trajectories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Values = ArrayLike | torch.Tensor
Groups = Sequence[str] | NDArray[np.str_]

REPLICATES = 20_000
_ROWS = 1_000
"""Replicates held in memory at once; part of the definition, as it orders the random numbers."""


class StatisticsError(ValueError):
    """A statistic is not defined for what was given; the message says why."""


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval.

    Args:
        mean: the mean over all steps.
        lo, hi: ends of the interval; NaN with a single trajectory, which says nothing about others.
    """

    mean: float
    lo: float
    hi: float


def cluster_bootstrap(
    diff: Values, groups: Groups, n: int = REPLICATES, seed: int = 0, confidence: float = 0.95
) -> Interval:
    """Percentile interval of the mean over steps, from resampled trajectories.

    Args:
        diff: [N], a paired difference (or a score) per step.
        groups: [N], trajectory of each step.
        n: replicates, >= 1.
        seed: of the random numbers.
        confidence: share of replicates inside, in (0, 1).

    Raises:
        StatisticsError: if there is no step, a value is not finite, the lengths differ, or `n` or `confidence` is out
            of range.

    >>> cluster_bootstrap([0.0, 1.0, 1.0, 1.0], ["a", "a", "b", "c"], n=1000)
    Interval(mean=0.75, lo=0.5, hi=1.0)
    """
    if not 0.0 < confidence < 1.0:
        raise StatisticsError(f"`confidence` must lie in (0, 1), got {confidence}.")
    values, sums, sizes = _clusters(diff, groups, n)
    count = len(sums)
    mean = float(values.mean())
    if count == 1:
        return Interval(mean, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    totals = np.stack([sums, sizes], axis=1)
    means = np.empty(n)
    for start in range(0, n, _ROWS):
        rows = min(_ROWS, n - start)
        drawn = rng.integers(0, count, (rows, count), dtype=np.int32) + count * np.arange(rows)[:, None]
        # multinomial counts: how often each trajectory was drawn in each replicate
        times = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        resampled = times @ totals
        means[start : start + rows] = resampled[:, 0] / resampled[:, 1]
    tail = (1.0 - confidence) / 2
    lo, hi = np.quantile(means, [tail, 1.0 - tail])
    return Interval(mean, float(lo), float(hi))


def cluster_sign_flip(diff: Values, groups: Groups, n: int = REPLICATES, seed: int = 0) -> float:
    """Two-sided p-value of a mean difference of 0, from flipping the sign of whole trajectories.

    With at most `n` different sign patterns all are counted and the p-value is exact; otherwise it is
    (1 + patterns at least as extreme) / (n + 1).

    Args:
        diff: [N], a paired difference per step.
        groups: [N], trajectory of each step.
        n: random sign patterns, >= 1.
        seed: of the random numbers.

    Returns:
        p in (0, 1]; 1 with a single trajectory.

    Raises:
        StatisticsError: if there is no step, a value is not finite, the lengths differ, or `n` < 1.

    >>> cluster_sign_flip([1.0, 1.0, 1.0, 1.0], ["a", "b", "c", "d"])
    0.125
    """
    _, sums, _ = _clusters(diff, groups, n)
    count = len(sums)
    observed = abs(float(sums.sum()))
    # equal sums may differ in their last bits after adding up in another order
    reached = observed - 1e-12 * float(np.abs(sums).sum())
    if 2**count <= n:
        every = np.arange(2**count)[:, None] >> np.arange(count) & 1
        return float((np.abs(_flipped(every, sums)) >= reached).mean())
    rng = np.random.default_rng(seed)
    extreme = 0
    for start in range(0, n, _ROWS):
        rows = min(_ROWS, n - start)
        raw = np.frombuffer(rng.bytes(rows * (-(-count // 8))), np.uint8).reshape(rows, -1)
        patterns = np.unpackbits(raw, axis=1, count=count)
        extreme += int((np.abs(_flipped(patterns, sums)) >= reached).sum())
    return (1 + extreme) / (n + 1)


def _flipped(patterns: NDArray[np.integer], sums: Floats) -> Floats:
    """Total of each pattern [rows, G] of 0 (kept) and 1 (flipped)."""
    flipped: Floats = sums.sum() - 2.0 * (patterns.astype(np.float64) @ sums)
    return flipped


def _clusters(diff: Values, groups: Groups, n: int) -> tuple[Floats, Floats, Floats]:
    """The checked values [N], and sum [G] and size [G] of each trajectory."""
    values = finite_column("diff", diff)
    if len(groups) != len(values) or not len(values):
        raise StatisticsError(
            f"`diff` and `groups` must have one entry per step and at least one, got {len(values)} and {len(groups)}."
        )
    if n < 1:
        raise StatisticsError(f"`n` must be >= 1, got {n}. The paper takes {REPLICATES} replicates.")
    _, member = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True)
    sums: Floats = np.bincount(member, weights=values).astype(np.float64)
    return values, sums, np.bincount(member).astype(np.float64)


def finite_column(name: str, values: Values) -> Floats:
    """One finite number per step, float64 [N].

    Raises:
        StatisticsError: if there is another dimension, or a value is NaN or infinite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array.ravel()))
        raise StatisticsError(
            f"`{name}` must be one finite number per step, got shape {list(array.shape)} with {len(bad)} that are not "
            f"finite, at places {bad[:5].tolist()}. Score those steps; a missing score is not a 0."
        )
    return array


# --- tasks that are done or not, and several tests at once ---


def mcnemar_exact(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided exact p-value of two policies on the same tasks, each done or not.

    Only tasks that one policy does and the other does not count; under the null either is as likely.

    Args:
        first: [N] bool, tasks that the first policy does.
        second: [N] bool, those of the second.

    Returns:
        p in (0, 1]; 1 where no task tells them apart.

    Raises:
        StatisticsError: if the lengths differ, there is no task, or a value is neither 0 nor 1.

    >>> mcnemar_exact([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0])
    0.0625
    """
    a, b = finite_column("first", first), finite_column("second", second)
    if not len(a) or len(a) != len(b) or not np.isin(np.concatenate([a, b]), (0.0, 1.0)).all():
        raise StatisticsError(
            f"`first` and `second` must say 0 or 1 for the same tasks, at least one, got {len(a)} and {len(b)} values "
            f"among {np.unique(np.concatenate([a, b]))[:5].tolist()}."
        )
    only_first, only_second = int((a > b).sum()), int((b > a).sum())
    n, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(n, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**n)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for several tests by Holm's step-down rule, in the order given.

    Args:
        p_values: of the tests, each in [0, 1].

    Raises:
        StatisticsError: if one is not in [0, 1].

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    if not all(0.0 <= p <= 1.0 for p in p_values):
        raise StatisticsError(f"`p_values` must lie in [0, 1], got {list(p_values)}.")
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


# --- Text against Image ---


@dataclass(frozen=True)
class WinRates:
    """Which modality wins, among steps where they differ.

    Args:
        text, image: share of non-tied steps in [0, 1]; NaN if every step is tied.
        non_tied, tied: steps.
    """

    text: float
    image: float
    non_tied: int
    tied: int


def win_rates(text: Values, image: Values) -> WinRates:
    """Win rates of the two modalities.

    Args:
        text: [N], score of each step under Text memory.
        image: [N], under Image memory.

    Raises:
        StatisticsError: if the lengths differ or a score is not finite.

    >>> win_rates([1, 0, 0, 1], [0, 1, 1, 1])
    WinRates(text=0.3333333333333333, image=0.6666666666666666, non_tied=3, tied=1)
    """
    a, b = finite_column("text", text), finite_column("image", image)
    if len(a) != len(b):
        raise StatisticsError(f"`text` and `image` must have one score per step, got {len(a)} and {len(b)}.")
    non_tied = int((a != b).sum())
    rates = [int(wins.sum()) / non_tied if non_tied else math.nan for wins in (a > b, b > a)]
    return WinRates(rates[0], rates[1], non_tied, len(a) - non_tied)


def gap_recovered(score: float, best_fixed: float, oracle: float) -> float:
    """Share of the way from the best fixed condition to the oracle that a policy covers.

    Args:
        score: of the policy, in the unit of the other two.
        best_fixed: of the best fixed condition.
        oracle: of the oracle.

    Returns:
        1 at the oracle, 0 at the best fixed condition, below 0 under it; NaN where the oracle is not above it.

    >>> gap_recovered(53.0, best_fixed=50.0, oracle=56.0)
    0.5
    """
    gap = oracle - best_fixed
    return (score - best_fixed) / gap if gap > 0 else math.nan
