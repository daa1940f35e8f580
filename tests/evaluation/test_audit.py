"""The audit's statistics against plain loops and other libraries, and its verdict on simulated data of a known kind."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta
from sklearn.metrics import roc_auc_score

from switchmem.evaluation.audit import (
    auroc_interval,
    ceiling,
    cluster_error,
    cluster_sums,
    find,
    halves_gain,
    share_at_most,
)
from switchmem.evaluation.statistics import StatisticsError

# --- halves of the samples ---


def plain_halves(text, image, image_is_best):
    """One step: over every division of the samples, both ways."""
    samples, found = range(len(text)), []
    for size in (len(text) // 2, len(text) - len(text) // 2):
        for chosen in itertools.combinations(samples, size):
            rest = [k for k in samples if k not in chosen]
            votes = sum(image[k] - text[k] for k in chosen)
            takes_image = votes > 1e-9 or (image_is_best and votes >= -1e-9)
            taken, best = (image if takes_image else text), (image if image_is_best else text)
            found.append(sum(taken[k] - best[k] for k in rest) / len(rest))
    return sum(found) / len(found)


scores = st.sampled_from([0.0, 0.1, 0.25, 0.3, 1.0])


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 7).flatmap(lambda k: st.tuples(*[st.lists(scores, min_size=k, max_size=k)] * 2)), st.booleans())
def test_halves_are_what_a_plain_loop_says(pair, image_is_best):
    text, image = pair
    found = halves_gain([text], [image], image_is_best)
    # of an even number of samples each division is met both ways by the loop, of an odd one by either size
    assert found[0] == pytest.approx(plain_halves(text, image, image_is_best), abs=1e-12)


def test_many_samples_are_divided_at_random_and_to_the_same_end():
    rng = np.random.default_rng(0)
    text, image = (rng.random((400, 12)) < p for p in (0.4, 0.6))
    some = halves_gain(text, image, True)
    every = [plain_halves(t.astype(float), i.astype(float), True) for t, i in zip(text[:40], image[:40], strict=True)]
    assert np.abs(some[:40] - every).max() < 0.05 and abs(some[:40].mean() - np.mean(every)) < 0.005


def test_one_sample_can_not_be_halved():
    with pytest.raises(StatisticsError, match="at least 2 samples, got 1"):
        halves_gain([[1.0]], [[0.0]], True)
    with pytest.raises(StatisticsError, match="of one shape"):
        halves_gain([[1.0, 0.0]], [[0.0]], True)


def world(seed, trajectories, steps=4, samples=7, gap=0.0, shift=0.0, easy=0.0):
    """Sampled scores where Image helps on half of the steps and Text on the other, by `gap` each.

    Steps of a trajectory are alike in how hard they are. `shift` makes Image better everywhere; on a share `easy` of
    the steps either modality always succeeds.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 2 * steps, trajectories)
    groups = np.repeat([f"t{i}" for i in range(trajectories)], lengths)
    base = np.clip(rng.random(trajectories).repeat(lengths) + rng.normal(0, 0.15, len(groups)), 0.02, 0.98)
    sign = rng.choice([-1, 1], len(groups))
    solved = rng.random(len(groups)) < easy
    rates = [np.where(solved, 1.0, base + side * gap * sign) for side in (-1, 1)]
    rates[0] = rates[0] * (1.0 - shift)
    text, image = ((rng.random((len(groups), samples)) < rate[:, None]).astype(float) for rate in rates)
    return text, image, groups


def test_halves_remove_what_noise_adds_to_the_oracle_gap():
    text, image, _ = world(0, 20_000)
    measured = np.maximum(text.mean(1), image.mean(1)).mean() - max(text.mean(), image.mean())
    assert measured > 0.05  # though no step prefers anything
    assert abs(halves_gain(text, image, True).mean()) < 0.002
    text, image, _ = world(0, 20_000, gap=0.4)
    truth = np.abs(image.mean() - text.mean())
    assert halves_gain(text, image, True).mean() > 0.2 > truth


# --- what an oracle could gain at most ---


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.15, 0.4])
def test_the_ceiling_is_above_what_a_true_oracle_gains(gap):
    inside = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        groups = np.repeat([f"t{i}" for i in range(300)], 4)
        sign = rng.choice([-1, 1], len(groups))
        text, image = ((rng.random((1200, 7)) < (0.5 + side * gap * sign)[:, None]) * 1.0 for side in (-1, 1))
        truth = gap - abs(2 * gap * sign.mean()) / 2
        inside += truth <= ceiling(text, image, groups, n=400) <= truth + 0.08
    assert inside >= 18


def test_the_ceiling_needs_two_samples_and_trajectories():
    assert ceiling([[1.0]], [[0.0]], ["a"]) is None and ceiling([[1.0, 0.0]], [[0.0, 1.0]], ["a"]) is None


# --- errors, limits, AUROC ---


def test_the_cluster_error_is_the_spread_of_the_bootstrap():
    rng = np.random.default_rng(1)
    groups = np.repeat([f"t{i}" for i in range(200)], rng.integers(1, 9, 200))
    values = rng.normal(size=len(groups)) + np.unique(groups, return_inverse=True)[1] % 5
    sums, sizes = cluster_sums(values, groups)
    drawn = rng.integers(0, 200, (20_000, 200))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    assert cluster_error(sums, sizes) == pytest.approx(means.std(), rel=0.03)


@pytest.mark.parametrize("found, count", [(0, 1), (0, 50), (3, 40), (19, 400), (40, 40)])
def test_the_exact_limit_of_a_share(found, count):
    expected = 1.0 if found == count else beta.ppf(0.975, found + 1, count - found)
    assert share_at_most(found, count) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=40))
def test_auroc_is_that_of_scikit_learn(rows):
    labels, decisions = [a for a, _ in rows], [float(b) for _, b in rows]
    found = auroc_interval(labels, decisions, [str(n) for n in range(len(rows))], n=20).mean
    if len(set(labels)) == 2:
        assert found == pytest.approx(roc_auc_score(labels, decisions))
    else:
        assert math.isnan(found)


def test_the_aurocs_interval_is_that_of_a_plain_loop():
    rng = np.random.default_rng(2)
    groups = np.repeat([f"t{i:02}" for i in range(40)], 5)
    labels = rng.random(200) < 0.4
    decisions = np.round(rng.normal(size=200) + labels, 1)
    found = auroc_interval(labels, decisions, groups, n=4000)
    members = [np.flatnonzero(groups == name) for name in np.unique(groups)]
    loop = []
    for _ in range(500):
        rows = np.concatenate([members[g] for g in rng.integers(0, 40, 40)])
        loop.append(roc_auc_score(labels[rows], decisions[rows]))
    assert (found.lo, found.hi) == pytest.approx(tuple(np.quantile(loop, [0.025, 0.975])), abs=0.02)
    assert math.isnan(auroc_interval([1, 0], [1.0, 0.0], ["a", "a"]).lo)
    with pytest.raises(StatisticsError, match="one entry per step"):
        auroc_interval([1, 0], [1.0], ["a", "a"])


# --- the verdict ---


def answers(runs, n=400, **kind):
    """Share of each answer over simulated data sets."""
    counts = {"yes": 0, "no": 0, "too few": 0}
    for seed in range(runs):
        text, image, groups = world(seed, **kind)
        finding = find(halves_gain(text, image, image.mean() >= text.mean()), groups, 0.01, n=n)
        counts[finding.answer] += 1
    return {answer: count / runs for answer, count in counts.items()}


@pytest.mark.parametrize(
    "kind",
    [{"trajectories": 6}, {"trajectories": 12}, {"trajectories": 60}, {"trajectories": 60, "easy": 0.9},
     {"trajectories": 60, "shift": 0.3}, {"trajectories": 40, "samples": 3}],
    ids=str,
)  # fmt: skip
def test_without_a_preference_it_says_yes_in_at_most_one_of_twenty(kind):
    assert answers(100, **kind)["yes"] <= 0.05


def test_with_a_strong_preference_it_says_yes_and_with_few_steps_that_they_are_few():
    assert answers(30, trajectories=60, gap=0.3)["yes"] == 1.0
    assert answers(30, trajectories=5, gap=0.3)["too few"] == 1.0
    assert answers(30, trajectories=20, gap=0.05)["too few"] >= 0.9


def test_with_many_steps_and_no_preference_it_says_no():
    assert answers(20, trajectories=400)["no"] >= 0.9


def test_a_no_is_rarely_said_where_there_is_something():
    """The gain by halves is 2.6 points here, and 1 is worth having."""
    for trajectories in (12, 40, 100):
        assert answers(60, trajectories=trajectories, gap=0.08)["no"] <= 0.05


def test_as_many_more_like_those_seen_decide_it():
    """The same trajectories again and again are exactly like those seen."""
    told = 0
    for seed in range(20):
        text, image, groups = world(seed, 25, gap=0.05)
        gain = halves_gain(text, image, True)
        finding = find(gain, groups, 0.01, n=2000)
        if finding.answer != "too few":
            continue
        told += 1
        times = (25 + finding.more_trajectories) / 25

        def again(copies, gain=gain, groups=groups):
            names = np.concatenate([[f"{copy}/{name}" for name in groups] for copy in range(copies)])
            return find(np.tile(gain, copies), names, 0.01, n=2000).answer

        assert again(math.ceil(1.3 * times)) == ("yes" if finding.gain.mean > 0.005 else "no")
        if times > 2.5:
            assert again(int(times / 1.3)) == "too few"
    assert told >= 10


def test_nothing_seen_is_not_nothing_there():
    few = find([0.0] * 50, [str(n) for n in range(50)], 0.01, n=200)
    assert few.answer == "too few" and few.most == pytest.approx(share_at_most(0, 50))
    enough = 50 + few.more_trajectories
    assert find([0.0] * enough, [str(n) for n in range(enough)], 0.01, n=200).answer == "no"
    assert find([0.0] * (enough - 2), [str(n) for n in range(enough - 2)], 0.01, n=200).answer == "too few"


def test_one_trajectory_says_nothing_about_others():
    finding = find([1.0] * 30, ["a"] * 30, 0.01, n=200)
    assert finding.answer == "too few" and finding.more_trajectories is None
    with pytest.raises(StatisticsError, match="`worth` must be > 0"):
        find([1.0], ["a"], 0.0)
