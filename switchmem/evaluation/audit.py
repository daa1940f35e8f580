"""Does it depend on the step which modality helps more? Statistics of a sampled harvest, each with its uncertainty.

The mean of K sampled scores is a noisy utility, and the better of two noisy means is too good: an oracle that picks it
gains even where no step prefers anything. So a step's modality is chosen here by some of its samples and scored by the
others, which knows nothing of their noise (`halves_gain`). Such a choice is a little worse than that of an oracle that
knows the true utilities; `ceiling` bounds what that one could gain.

Letters: `N` steps, `K` samples, `G` trajectories.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from switchmem.evaluation.statistics import (
    REPLICATES,
    Floats,
    Groups,
    Interval,
    StatisticsError,
    Values,
    cluster_bootstrap,
    cluster_sign_flip,
    finite_column,
)

Answer = Literal["yes", "no", "too few"]

SPLITS = 200
"""Ways to divide the samples that are averaged at most; seven samples have 35 each way."""
LEVEL = 0.05
Z = 1.959964
"""Standard errors from the mean to the end of a 95 % interval."""
SURE = 6
"""With fewer trajectories in which anything differs no pattern of signs is rarer than 5 %."""
_ROWS = 1_000
RARE = 20
"""With fewer trajectories than this in which anything differs, a bootstrap cannot tell how rare that is."""


@dataclass(frozen=True)
class Finding:
    """A gain over the best fixed modality and what follows from it.

    Args:
        answer: "yes" where the gain is surely above 0, "no" where it is surely below what is worth having, else
            "too few".
        gain: mean over the steps with its interval, in the scores' unit.
        p: of the two-sided sign-flip test over trajectories.
        most: the largest gain that is compatible with the data; at least the interval's upper end.
        more_trajectories: how many more would decide it, if they are like those seen; 0 where it is decided, None where
            a single trajectory says nothing about others.
    """

    answer: Answer
    gain: Interval
    p: float
    most: float
    more_trajectories: int | None


def find(gain: Values, groups: Groups, worth: float, n: int = REPLICATES, seed: int = 0) -> Finding:
    """Judge a gain.

    "Yes" asks for two things: a bootstrap interval above 0, and a sign-flip test below 5 %; the bootstrap alone is too
    sure of itself with a handful of trajectories.

    Args:
        gain: [N], paired gain of each step over the best fixed modality.
        groups: [N], trajectory of each step.
        worth: gain below which there is nothing worth having, > 0, in the unit of `gain`.
        n: replicates.
        seed: of bootstrap and test.

    Raises:
        StatisticsError: if `worth` is not > 0, or as `cluster_bootstrap`.

    >>> find([0.5, 0.25] * 20, [f"t{i}" for i in range(40)], worth=0.01, n=1000).answer
    'yes'
    >>> find([0.0] * 400, [f"t{i}" for i in range(400)], worth=0.01, n=1000).answer
    'no'
    >>> find([0.5, -0.25], ["a", "b"], worth=0.01, n=1000).answer
    'too few'
    """
    if not worth > 0.0:
        raise StatisticsError(f"`worth` must be > 0, got {worth}. It is the smallest gain that matters.")
    interval = cluster_bootstrap(gain, groups, n, seed)
    p = cluster_sign_flip(gain, groups, n, seed)
    sums, sizes = cluster_sums(gain, groups)
    if len(sums) == 1:
        return Finding("too few", interval, p, 1.0, None)
    unseen = _unseen(sums / sizes)
    most = max(interval.hi, unseen)
    if most < worth:
        return Finding("no", interval, p, most, 0)
    if interval.lo > 0.0 and p < LEVEL:
        return Finding("yes", interval, p, most, 0)
    return Finding("too few", interval, p, most, _more(interval.mean, sums, sizes, worth))


def cluster_sums(values: Values, groups: Groups) -> tuple[Floats, Floats]:
    """Sum [G] and number of steps [G] of each trajectory, in the order of their names."""
    column = finite_column("values", values)
    _, member = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True)
    return np.bincount(member, weights=column).astype(np.float64), np.bincount(member).astype(np.float64)


def cluster_error(sums: Floats, sizes: Floats) -> float:
    """Standard error of the mean over steps when trajectories are independent and steps are not.

    The linearised (Taylor) estimate of a ratio of sums.

    Args:
        sums: [G] of each trajectory, G >= 2.
        sizes: [G], their steps.

    >>> round(cluster_error(np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4)), 4)  # the textbook's, sqrt(1/3) / 2
    0.2887
    """
    count, mean = len(sums), sums.sum() / sizes.sum()
    squares = float(((sums - mean * sizes) ** 2).sum())
    return math.sqrt(squares * count / (count - 1)) / float(sizes.sum())


def _unseen(means: Floats) -> float:
    """The most that rare trajectories could add which the sample holds too few of; 0 where it holds enough."""
    informative = int((means != 0.0).sum())
    if informative >= RARE:
        return 0.0
    typical = float(np.abs(means).max()) if informative else 1.0
    return share_at_most(informative, len(means)) * typical


def share_at_most(found: int, count: int, tail: float = LEVEL / 2) -> float:
    """Exact (Clopper-Pearson) upper limit of a share of which `found` of `count` were seen.

    >>> round(share_at_most(0, 100), 4)
    0.0362
    """
    if found >= count:
        return 1.0
    lo, hi = 0.0, 1.0
    for _ in range(60):
        middle = (lo + hi) / 2
        seen = math.fsum(math.comb(count, k) * middle**k * (1 - middle) ** (count - k) for k in range(found + 1))
        lo, hi = (middle, hi) if seen > tail else (lo, middle)
    return hi


def _more(mean: float, sums: Floats, sizes: Floats, worth: float) -> int:
    """Trajectories until the interval leaves 0 below itself, or what is worth having above, whichever comes first."""
    count, informative = len(sums), int((sums != 0.0).sum())
    room = max(mean, worth - mean)
    needed = count * (Z * cluster_error(sums, sizes) / room) ** 2
    if not informative:  # until rare differences could not have been missed
        needed = math.log(LEVEL / 2) / math.log1p(-min(worth, 0.5))
    elif room == mean:
        needed = max(needed, count * SURE / informative)
    return max(1, math.ceil(needed - count))


# --- what choosing per step gains ---


def halves_gain(scores_text: Values, scores_image: Values, image_is_best: bool) -> Floats:
    """Gain of each step when its modality is chosen by half of its samples and scored by the other half.

    All divisions of the samples are averaged, both ways; of more than `SPLITS` that many are drawn. Where the choosing
    samples tie, the best fixed modality stays. Its expectation is 0 where no step prefers anything.

    Args:
        scores_text: [N, K], K >= 2.
        scores_image: [N, K].
        image_is_best: whether Image is the best fixed modality.

    Returns:
        [N] in [-1, 1].

    Raises:
        StatisticsError: if the shapes differ, K is below 2, or a score is not finite.

    >>> halves_gain([[1, 1, 1, 1], [0, 0, 0, 0]], [[0, 0, 0, 0], [1, 1, 1, 1]], image_is_best=True).tolist()
    [1.0, 0.0]
    """
    against = _differences(scores_text, scores_image) * (-1.0 if image_is_best else 1.0)
    samples = against.shape[1]
    if samples < 2:
        raise StatisticsError(f"scores must be of at least 2 samples, got {samples}. One chooses, another one scores.")
    choosing = _divisions(samples)
    votes = against @ choosing.T
    scored = (against @ (1.0 - choosing).T) / (samples - choosing.sum(axis=1))
    # sums of equal scores may differ in their last bits
    gains: Floats = np.where(votes > 1e-9, scored, 0.0).mean(axis=1)
    return gains


def _divisions(samples: int) -> Floats:
    """[S, K] of 1 where a sample chooses and 0 where it scores."""
    half = samples // 2
    if 2 * math.comb(samples, half) <= SPLITS:
        sides = [set(side) for side in itertools.combinations(range(samples), half)]
        masks = np.array([[float(k in side) for k in range(samples)] for side in sides])
    else:
        rng = np.random.default_rng(0)
        masks = (rng.permuted(np.tile(np.arange(samples), (SPLITS // 2, 1)), axis=1) < half).astype(np.float64)
    return np.concatenate([masks, 1.0 - masks])


def ceiling(
    scores_text: Values, scores_image: Values, groups: Groups, n: int = REPLICATES, seed: int = 0
) -> float | None:
    """The most that an oracle of the true utilities could gain over the best fixed modality, at 97.5 % confidence.

    With delta a step's true gap, the oracle gains (E|delta| - |E delta|) / 2, and E|delta| is at most the root of
    E[delta^2], whose estimate from pairs of different samples is unbiased. The bound is computed in each of `n`
    resamples of trajectories.

    Returns:
        A bound in [0, 1]; None with fewer than 2 samples or trajectories.
    """
    gaps = _differences(scores_text, scores_image)
    samples = gaps.shape[1]
    if samples < 2 or len(set(groups)) < 2:
        return None
    squares = (gaps.sum(axis=1) ** 2 - (gaps**2).sum(axis=1)) / (samples * (samples - 1))
    columns = [cluster_sums(values, groups)[0] for values in (squares, gaps.mean(axis=1), np.ones(len(gaps)))]
    totals, count = np.stack(columns, axis=1), len(columns[0])
    rng, bounds = np.random.default_rng(seed), np.empty(n)
    for start in range(0, n, _ROWS):
        stop = min(start + _ROWS, n)
        drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=stop - start) @ totals
        square, mean = drawn[:, 0] / drawn[:, 2], drawn[:, 1] / drawn[:, 2]
        bounds[start:stop] = (np.sqrt(np.maximum(square, 0.0)) - np.abs(mean)) / 2
    return max(0.0, float(np.quantile(bounds, 1.0 - LEVEL / 2)))


def _differences(scores_text: Values, scores_image: Values) -> Floats:
    """Image minus Text, [N, K]."""
    text, image = (np.asarray(scores, dtype=np.float64) for scores in (scores_text, scores_image))
    if text.ndim != 2 or text.shape != image.shape or not np.isfinite(text + image).all():
        raise StatisticsError(
            f"scores must be two finite [N, K] tables of one shape, got {text.shape} and {image.shape}. "
            "Score every sample; one that cannot be parsed scores 0."
        )
    gaps: Floats = image - text
    return gaps


# --- how well a probe ranks ---


def auroc_interval(
    labels: Values, decisions: Values, groups: Groups, n: int = REPLICATES, seed: int = 0, confidence: float = 0.95
) -> Interval:
    """AUROC with an interval from resampled trajectories.

    The decisions stay as they are: what another sample would have made of the probe's own fit is not in the interval.
    Replicates that draw only one class say nothing and are left out.

    Args:
        labels: [N], > 0 where Image is preferred.
        decisions: [N], held-out decision values; equal ones count half.
        groups: [N], trajectory of each step.
        n: replicates.
        seed: of the random numbers.
        confidence: share of replicates inside, in (0, 1).

    Returns:
        NaN throughout with one class only; ends NaN with a single trajectory.

    Raises:
        StatisticsError: if lengths differ, there is no step, or a value is not finite.

    >>> auroc_interval([1, 1, 0, 0], [3.0, 1.0, 2.0, 0.0], ["a", "b", "c", "d"], n=200).mean
    0.75
    """
    wanted, scores = finite_column("labels", labels) > 0, finite_column("decisions", decisions)
    if not len(wanted) or not len(wanted) == len(scores) == len(groups):
        raise StatisticsError(
            "`labels`, `decisions` and `groups` must have one entry per step and at least one, got "
            f"{len(wanted)}, {len(scores)} and {len(groups)}."
        )
    _, member = np.unique(np.asarray(groups, dtype=np.str_), return_inverse=True)
    order = np.argsort(scores, kind="stable")
    wanted, member, ranked = wanted[order], member[order], scores[order]
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)
    count = int(member.max()) + 1
    mean = float(_auroc(np.ones((1, len(ranked))), wanted, ends)[0])
    if count == 1 or math.isnan(mean):
        return Interval(mean, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    rows = max(1, 2_000_000 // len(ranked))  # bounds the memory of a block
    found = []
    for start in range(0, n, rows):
        drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=min(rows, n - start))
        found.append(_auroc(drawn[:, member].astype(np.float64), wanted, ends))
    values = np.concatenate(found)
    tail = (1.0 - confidence) / 2
    lo, hi = np.nanquantile(values, [tail, 1.0 - tail])
    return Interval(mean, float(lo), float(hi))


def _auroc(weights: Floats, wanted: NDArray[np.bool_], ends: NDArray[np.intp]) -> Floats:
    """AUROC of each row of weights [R, N] over steps sorted by decision; `ends` closes each run of equal ones."""
    per_run = [np.diff(np.cumsum(weights * side, axis=1)[:, ends], axis=1, prepend=0.0) for side in (wanted, ~wanted)]
    image, text = per_run
    below = np.cumsum(text, axis=1) - text
    pairs = image.sum(axis=1) * text.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = (image * (below + text / 2)).sum(axis=1) / pairs
    return ratio
