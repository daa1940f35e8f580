"""The bootstrap and the sign-flip test against plain loops; their speed; their edges."""

import itertools
import math
import random
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.evaluation.statistics import (
    Interval,
    StatisticsError,
    cluster_bootstrap,
    cluster_sign_flip,
    gap_recovered,
    win_rates,
)


def steps(n=200, trajectories=25, seed=0, shift=0.05):
    """Differences that share a part within their trajectory."""
    rng = np.random.default_rng(seed)
    member = rng.integers(0, trajectories, n)
    diff = rng.normal(size=trajectories)[member] * 0.3 + rng.normal(size=n) * 0.2 + shift
    return diff, [f"b/{g}" for g in member]


def plain_bootstrap(diff, groups, n, seed):
    """Means of n replicates by the definition."""
    rng, names = random.Random(seed), sorted(set(groups))
    means = []
    for _ in range(n):
        values = []
        for _ in names:
            drawn = rng.choice(names)
            values += [d for d, g in zip(diff, groups, strict=True) if g == drawn]
        means.append(sum(values) / len(values))
    return np.quantile(means, [0.025, 0.975])


def plain_sign_flip(diff, groups):
    """The exact p-value by all patterns of signs."""
    names = sorted(set(groups))
    observed, patterns = abs(math.fsum(diff)), list(itertools.product((-1, 1), repeat=len(names)))
    extreme = 0
    for pattern in patterns:
        sign = dict(zip(names, pattern, strict=True))
        extreme += abs(math.fsum(sign[g] * d for d, g in zip(diff, groups, strict=True))) >= observed - 1e-9
    return extreme / len(patterns)


def test_bootstrap_equals_a_loop_up_to_chance():
    diff, groups = steps()
    ours = cluster_bootstrap(diff, groups, n=20_000)
    lo, hi = plain_bootstrap(diff, groups, 3_000, seed=1)
    spread = hi - lo
    assert ours.mean == pytest.approx(diff.mean())
    assert ours.lo == pytest.approx(lo, abs=0.06 * spread)
    assert ours.hi == pytest.approx(hi, abs=0.06 * spread)


def test_trajectories_are_resampled_whole():
    # twenty copies of each trajectory's step say no more than one
    diff, groups = steps(n=40, trajectories=40, shift=0.0)
    once = cluster_bootstrap(diff, groups)
    often = cluster_bootstrap(np.repeat(diff, 20), np.repeat(groups, 20))
    assert (often.mean, often.lo, often.hi) == pytest.approx((once.mean, once.lo, once.hi), rel=1e-9)
    alone = cluster_bootstrap(np.repeat(diff, 20), [str(i) for i in range(800)])
    assert alone.hi - alone.lo < 0.4 * (once.hi - once.lo)


def test_interval_covers_the_truth_as_often_as_it_says():
    covered = 0
    for seed in range(300):
        diff, groups = steps(n=150, trajectories=50, seed=seed, shift=0.0)
        interval = cluster_bootstrap(diff, groups, n=500, seed=seed)
        covered += interval.lo <= 0.0 <= interval.hi
    assert 0.89 <= covered / 300 <= 0.98


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 1.0, 0.1, 0.2, -0.3]), st.sampled_from("abcdefg")),
        min_size=1,
        max_size=20,
    )
)
def test_exact_sign_flip_equals_a_loop(pairs):
    diff, groups = (list(column) for column in zip(*pairs, strict=True))
    assert cluster_sign_flip(diff, groups) == pytest.approx(plain_sign_flip(diff, groups))


def test_random_sign_flip_agrees_with_the_exact_one():
    diff, groups = steps(n=60, trajectories=12, shift=0.1)
    exact = plain_sign_flip(diff, groups)
    assert cluster_sign_flip(diff, groups) == pytest.approx(exact)
    drawn = cluster_sign_flip(diff, groups, n=4_000)  # fewer than the 4,096 patterns
    assert 0.02 < exact < 0.98
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 4_000))
    assert drawn != exact


def test_no_effect_gives_uniform_p():
    p = [cluster_sign_flip(*steps(n=60, trajectories=30, seed=s, shift=0.0), n=400, seed=s) for s in range(300)]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=0.04)
    assert np.mean(p) == pytest.approx(0.5, abs=0.06)


def test_seed_decides_and_order_does_not():
    diff, groups = steps(n=500, trajectories=60)
    assert cluster_bootstrap(diff, groups, seed=3) == cluster_bootstrap(torch.tensor(diff), np.array(groups), seed=3)
    assert cluster_bootstrap(diff, groups, seed=3) != cluster_bootstrap(diff, groups, seed=4)
    assert cluster_sign_flip(diff, groups, seed=3) == cluster_sign_flip(diff, groups, seed=3)
    order = np.random.default_rng(0).permutation(500)
    shuffled = cluster_bootstrap(diff[order], np.array(groups)[order], seed=3)
    assert (shuffled.lo, shuffled.hi) == pytest.approx(
        (cluster_bootstrap(diff, groups, seed=3).lo, cluster_bootstrap(diff, groups, seed=3).hi), rel=1e-9
    )


def test_twenty_thousand_replicates_take_less_than_a_second():
    diff, groups = steps(n=5_000, trajectories=759)
    fastest = {}
    for function in (cluster_bootstrap, cluster_sign_flip):
        times = []
        for _ in range(3):  # the best of three: other work may share the machine
            start = time.perf_counter()
            function(diff, groups)
            times.append(time.perf_counter() - start)
        fastest[function.__name__] = min(times)
    assert all(value < 1.0 for value in fastest.values()), fastest


def test_one_trajectory_says_nothing_about_others():
    interval = cluster_bootstrap([0.0, 1.0], ["a", "a"])
    assert interval.mean == 0.5 and math.isnan(interval.lo) and math.isnan(interval.hi)
    assert cluster_sign_flip([0.0, 1.0], ["a", "a"]) == 1.0


def test_no_difference_at_all():
    assert cluster_bootstrap([0.0] * 4, list("aabb")) == Interval(0.0, 0.0, 0.0)
    assert cluster_sign_flip([0.0] * 40, [str(i) for i in range(40)]) == 1.0


@pytest.mark.parametrize("function", [cluster_bootstrap, cluster_sign_flip])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([0.0, math.nan], ["a", "b"]),
            r"`diff` must be one finite number per step, got shape \[2\] with 1 .* places \[1\]",
        ),
        (([[0.0]], ["a"]), "one finite number per step"),
        (([0.0], ["a", "b"]), "one entry per step and at least one, got 1 and 2"),
        (([], []), "at least one, got 0 and 0"),
        (([0.0], ["a"], 0), "`n` must be >= 1, got 0"),
    ],
)
def test_arguments_are_checked(function, arguments, message):
    with pytest.raises(StatisticsError, match=message):
        function(*arguments)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_confidence_is_a_share(confidence):
    with pytest.raises(StatisticsError, match=r"`confidence` must lie in \(0, 1\)"):
        cluster_bootstrap([0.0], ["a"], confidence=confidence)


def test_win_rates_equal_a_loop():
    rng = np.random.default_rng(0)
    text, image = rng.integers(0, 3, (2, 90)) / 2
    wins = [sum(a > b for a, b in zip(text, image, strict=True)), sum(b > a for a, b in zip(text, image, strict=True))]
    rates = win_rates(text, image)
    assert (rates.non_tied, rates.tied) == (sum(wins), 90 - sum(wins))
    assert (rates.text, rates.image) == pytest.approx((wins[0] / sum(wins), wins[1] / sum(wins)))
    tied = win_rates([1.0], [1.0])
    assert math.isnan(tied.text) and math.isnan(tied.image) and tied.non_tied == 0
    with pytest.raises(StatisticsError, match="one score per step, got 1 and 2"):
        win_rates([1.0], [1.0, 0.0])
    with pytest.raises(StatisticsError, match="`image` must be one finite"):
        win_rates([1.0], [math.nan])


def test_share_of_the_gap():
    assert gap_recovered(49.0, 50.0, 56.0) == pytest.approx(-1 / 6)
    assert math.isnan(gap_recovered(50.0, 50.0, 50.0)) and math.isnan(gap_recovered(50.0, 51.0, 50.0))
