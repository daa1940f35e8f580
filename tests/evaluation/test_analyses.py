"""Behaviour, context and frontier against loops that are written another way."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from switchmem.evaluation import (
    StatisticsError,
    budget_frontier,
    cluster_bootstrap,
    context_groups,
    context_shifts,
    density_quartiles,
    holm,
    mcnemar_exact,
    routing_behaviour,
)
from switchmem.policy import choices, random_scores, routed_scores

steps = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 30), st.booleans()), min_size=1, unique_by=lambda s: s[:2]
)
scores = st.sampled_from([0.0, 0.25, 0.5, 1.0])
routed = st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.3, 2.0]), scores, scores), min_size=1, max_size=30)


@given(steps)
def test_behaviour_equals_a_walk_along_each_trajectory(rows):
    found = routing_behaviour([r[2] for r in rows], [r[0] for r in rows], [r[1] for r in rows])
    both = switches = 0
    runs = []
    names = sorted({r[0] for r in rows})
    for name in names:
        path = [image for _, image in sorted((i, image) for t, i, image in rows if t == name)]
        both += len(set(path)) == 2
        switches += sum(a != b for a, b in itertools.pairwise(path))
        runs += [len(list(run)) for _, run in itertools.groupby(path)]
    assert found.trajectories == len(names)
    assert found.both == pytest.approx(both / len(names))
    assert found.switches == pytest.approx(switches / len(names))
    assert found.run == pytest.approx(sum(runs) / len(runs))
    assert found.image == pytest.approx(sum(r[2] for r in rows) / len(rows))


def test_behaviour_of_one_modality_and_of_one_step():
    alone = routing_behaviour([True], ["a"], [5])
    assert (alone.both, alone.image, alone.switches, alone.run) == (0.0, 1.0, 0.0, 1.0)
    same = routing_behaviour([False] * 4, ["a", "a", "b", "b"], [0, 1, 0, 1])
    assert (same.both, same.image, same.switches, same.run) == (0.0, 0.0, 0.0, 2.0)


def test_two_steps_at_one_place_are_refused():
    with pytest.raises(StatisticsError, match="two steps at one place of 'a'"):
        routing_behaviour([True, False], ["a", "a"], [3, 3])
    with pytest.raises(StatisticsError, match="at least one"):
        routing_behaviour([], [], [])


def test_groups_by_the_papers_quartiles_and_by_those_of_the_steps():
    density = [math.nan, 100.0, 310.0, 400.0, 567.73, 900.0]
    groups = context_groups(density, [True] * 3 + [False] * 3, [0, 1, 2, 0, 1, 2], quartiles=(310.00, 567.73))
    assert groups["sparse"].tolist() == [False, True, True, False, False, False]
    assert groups["dense"].tolist() == [False, False, False, False, True, True]
    assert (groups["spatial"] ^ groups["function"]).all() and (groups["initial"] ^ groups["later"]).all()
    own = context_groups(density, [True] * 6, [0] * 6)
    lower, upper = density_quartiles(density)
    ranked = sorted(d for d in density if not math.isnan(d))
    assert (lower, upper) == (ranked[1], ranked[3])
    assert own["sparse"].sum() == 2 and own["dense"].sum() == 2
    nowhere = context_groups([math.nan], [True], [0])
    assert not nowhere["sparse"].any() and not nowhere["dense"].any()


def test_shifts_are_those_of_the_steps_alone():
    rng = np.random.default_rng(0)
    delta, image = rng.choice([-1.0, 0.0, 1.0], 60), rng.random(60) < 0.4
    names = [f"t{n // 6}" for n in range(60)]
    groups = {"some": rng.random(60) < 0.5, "none": np.zeros(60, bool)}
    shifts = context_shifts(groups, delta, image, names, n=500, seed=3)
    kept = [k for k in range(60) if groups["some"][k]]
    assert shifts["some"].steps == len(kept)
    assert shifts["some"].image_rate == pytest.approx(sum(image[k] for k in kept) / len(kept))
    assert shifts["some"].delta == cluster_bootstrap([delta[k] for k in kept], [names[k] for k in kept], 500, 3)
    assert shifts["none"].steps == 0 and math.isnan(shifts["none"].delta.mean)
    assert math.isnan(shifts["none"].image_rate)
    with pytest.raises(StatisticsError, match="not finite"):
        context_shifts(groups, np.full(60, math.nan), image, names)


@given(routed, st.sampled_from([-2.0, 0.0, 0.2, 5.0]))
def test_the_frontier_is_what_each_threshold_would_have_scored(rows, threshold):
    r, text, image = (np.array(column) for column in zip(*rows, strict=True))
    curve = budget_frontier(r, text, image, threshold)
    assert len(curve.threshold) == len(set(r.tolist())) + 1
    for cut, rate, score, random in zip(curve.threshold, curve.image_rate, curve.score, curve.random, strict=True):
        chosen = choices(r, cut)
        assert rate == pytest.approx(chosen.mean())
        assert score == pytest.approx(routed_scores(text, image, chosen).mean())
        assert random == pytest.approx(random_scores(text, image, rate).mean())
    deployed = choices(r, threshold)
    assert curve.star == pytest.approx((deployed.mean(), routed_scores(text, image, deployed).mean()))
    assert any(np.allclose(curve.star, point) for point in zip(curve.image_rate, curve.score, strict=True))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_is_a_binomial_test_of_the_discordant_tasks(pairs):
    first, second = zip(*pairs, strict=True)
    only, other = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    wanted = binomtest(only, only + other, 0.5).pvalue if only + other else 1.0
    assert mcnemar_exact(first, second) == pytest.approx(wanted)
    assert mcnemar_exact(second, first) == pytest.approx(wanted)


def test_mcnemar_of_thousands_of_tasks_and_of_scores_that_are_no_successes():
    assert 0.0 <= mcnemar_exact([1] * 4000 + [0] * 3000, [0] * 4000 + [1] * 3000) < 1e-30
    with pytest.raises(StatisticsError, match="0 or 1"):
        mcnemar_exact([0.5, 1], [0, 1])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values):
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.2, 0.9):
        rejected = set()
        for rank, (p, place) in enumerate(sorted((p, i) for i, p in enumerate(p_values))):
            if (len(p_values) - rank) * p > alpha:
                break
            rejected.add(place)
        assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected
    with pytest.raises(StatisticsError):
        holm([0.5, 1.2])
