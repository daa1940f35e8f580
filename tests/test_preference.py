"""Targets and the layer probe against plain NumPy and a minimised logistic loss; ties against exact fractions."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from switchmem.preference import (
    PreferenceError,
    PreferenceEstimator,
    fit_targets,
    group_folds,
    layer_auroc,
    stable_preference,
    utilities,
)

SCORES = st.sampled_from([0.0, 1.0, 0.1, 0.2, 0.3, 1 / 3, 2 / 3, 0.7])


def reference(d, labels, fresh, k, c=1.0):
    """Decision values of `fresh` by the textbook: standardise, SVD, then minimise the penalised logistic loss."""
    mean, scale = d.mean(axis=0), d.std(axis=0)
    axes = np.linalg.svd((d - mean) / scale, full_matrices=False)[2][:k]
    x, sign = np.c_[(d - mean) / scale @ axes.T, np.ones(len(d))], np.where(labels, 1.0, -1.0)
    penalty = np.append(np.ones(k), 0.0) / c

    def loss(w):
        return np.logaddexp(0, -sign * (x @ w)).sum() + 0.5 * penalty @ w**2

    def gradient(w):
        return penalty * w - x.T @ (sign * expit(-sign * (x @ w)))

    def hessian(w):
        p = expit(x @ w)
        return (x.T * (p * (1 - p))) @ x + np.diag(penalty)

    w = minimize(loss, np.zeros(k + 1), jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-7}).x
    return (fresh - mean) / scale @ axes.T @ w[:-1] + w[-1]


def auroc(scores, labels):
    """Share of (positive, negative) pairs in the right order, ties one half."""
    gaps = np.subtract.outer(scores[labels], scores[~labels])
    return ((gaps > 0) + 0.5 * (gaps == 0)).mean()


def held_out(d, labels, fold_of, k=64):
    """Decision values of each fold by the reference of the other folds."""
    scores = np.empty(len(d))
    for fold in set(fold_of):
        held = fold_of == fold
        scores[held] = reference(d[~held], labels[~held], d[held], k)
    return scores


def shifts(n=300, width=90, trajectories=40, seed=0, tied=0.3):
    """Shifts whose first feature tells the modality, utility gaps with ties, trajectories."""
    rng = np.random.default_rng(seed)
    d = rng.normal(size=(n, width)) * rng.uniform(0.01, 50, width) + rng.normal(size=width) * 10
    signal = (d[:, 0] - d[:, 0].mean()) / d[:, 0].std() + rng.normal(size=n)
    delta = np.where(rng.random(n) < tied, 0.0, np.sign(signal) / 7)
    groups = [f"b/{i}" for i in rng.integers(0, trajectories, n)]
    return d, delta, groups


# --- utilities ---


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 7))
def test_ties_are_those_of_exact_sums(data, samples):
    table = st.lists(st.lists(SCORES, min_size=samples, max_size=samples), min_size=1, max_size=5)
    text = data.draw(table)
    image = [
        data.draw(st.one_of(st.permutations(row), st.lists(SCORES, min_size=samples, max_size=samples))) for row in text
    ]
    pair = utilities(text, image)
    exact = [sum(map(Fraction, i)) - sum(map(Fraction, t)) for t, i in zip(text, image, strict=True)]
    assert pair.non_tied.tolist() == [gap != 0 for gap in exact]
    np.testing.assert_allclose(pair.delta, [float(gap / samples) for gap in exact], rtol=1e-12)
    np.testing.assert_allclose(pair.text, np.mean(text, axis=1), rtol=1e-12)
    assert sum(pair.counts[k] for k in ("tied", "text", "image")) == pair.counts["steps"] == len(text)


def test_a_tie_that_means_would_miss():
    text, image = [[0.1, 0.2, 0.3]], [[0.3, 0.2, 0.1]]
    assert sum(text[0]) != sum(image[0])
    assert utilities(text, image).delta.tolist() == [0.0]
    assert utilities(torch.tensor(text), torch.tensor(image)).counts["tied"] == 1


def test_stable_subset_against_a_loop():
    rng = np.random.default_rng(0)
    text, image = rng.integers(0, 2, (2, 2000, 7)).astype(float)
    expected = []
    for t, i in zip(text, image, strict=True):
        for_image = sum(b > a for a, b in zip(t, i, strict=True))
        for_text = sum(a > b for a, b in zip(t, i, strict=True))
        expected.append(1 if for_image >= 5 else -1 if for_text >= 5 else 0)
    assert stable_preference(text, image).tolist() == expected
    assert {-1, 0, 1} == set(expected)


@pytest.mark.parametrize(
    ("text", "image", "message"),
    [
        ([[0, math.nan]], [[0, 1]], r"`scores_text` must lie in \[0, 1\], got nan at step 0, sample 1"),
        ([[0, 1]], [[0, 1.5]], r"`scores_image` must lie in \[0, 1\], got 1.5"),
        ([[0, 1]], [[0, 1], [0, 1]], "two \\[N, K\\] tables"),
        ([[]], [[]], "K >= 1"),
        ([0, 1], [0, 1], "two \\[N, K\\] tables"),
    ],
)
def test_scores_are_checked(text, image, message):
    with pytest.raises(PreferenceError, match=message):
        utilities(text, image)


@pytest.mark.parametrize("agree", [3, 8])
def test_agreement_must_be_a_majority(agree):
    with pytest.raises(PreferenceError, match="more than half of the 7 samples"):
        stable_preference([[0] * 7], [[1] * 7], agree)


# --- the estimator ---


@pytest.mark.parametrize(
    ("n", "width", "k"), [(300, 90, 64), (300, 20, 20), (50, 700, 49), (1200, 600, 64), (600, 1100, 64)]
)
def test_targets_equal_the_reference(n, width, k):
    d, delta, groups = shifts(n, width, tied=0.0)
    estimator, targets = fit_targets(d, delta, groups)
    fresh = shifts(40, width, seed=9)[0]
    expected = reference(d, delta > 0, np.concatenate([d, fresh]), k)
    np.testing.assert_allclose(np.append(targets, estimator.decision(fresh)), expected, rtol=1e-5, atol=1e-4)
    assert estimator.counts == {**estimator.counts, "steps": n, "tied": 0, "components": k}


def test_tied_steps_do_not_take_part():
    d, delta, groups = shifts()
    estimator, targets = fit_targets(torch.tensor(d), delta, groups)
    kept = delta != 0
    alone, _ = fit_targets(d[kept], delta[kept], np.array(groups)[kept])
    np.testing.assert_array_equal(estimator.coef, alone.coef)
    assert np.isnan(targets[~kept]).all() and np.isfinite(targets[kept]).all()


def test_cross_fit_predicts_unseen_trajectories():
    d, delta, groups = shifts()
    plain, in_sample = fit_targets(d, delta, groups)
    crossed, targets = fit_targets(d, delta, groups, cross_fit=True)
    kept = np.flatnonzero(delta)
    fold_of = group_folds(np.array(groups)[kept], 5)
    labels = delta[kept] > 0
    np.testing.assert_allclose(targets[kept], held_out(d[kept], labels, fold_of), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(plain.coef, crossed.coef)
    assert auroc(targets[kept], labels) < auroc(in_sample[kept], labels)


def test_few_steps_take_fewer_components_and_say_so(caplog):
    d, delta, groups = shifts(12, 30, tied=0.0)
    estimator, _ = fit_targets(d, delta, groups)
    assert estimator.counts["components"] == 11
    assert "PCA keeps 11 of 64 components: 12 non-tied steps" in caplog.text


def test_two_steps_are_enough_to_fit():
    estimator, targets = fit_targets([[0.0, 1.0], [1.0, 1.0]], [-0.5, 0.5], ["a", "a"])
    assert targets[0] < 0 < targets[1]
    assert estimator.scale[1] == 1.0  # a constant feature is left alone


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        ([0, 0, 0], "3 steps: 3 tied, 0 prefer Text, 0 prefer Image"),
        ([0.5, 0, 0.5], "3 steps: 1 tied, 0 prefer Text, 2 prefer Image"),
        ([], "0 steps: 0 tied"),
    ],
)
def test_without_both_classes_it_stops_with_the_counts(delta, message):
    with pytest.raises(PreferenceError, match=message):
        fit_targets(np.ones((len(delta), 2)), delta, ["a"] * len(delta))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": [[math.nan], [1.0]]}, "`d` must be a finite matrix, got shape \\[2, 1\\] with 1 values"),
        ({"delta": [math.nan, 1.0]}, "`delta` must be finite"),
        ({"delta": [1.0]}, "`delta` must have one row per step, 2, got 1"),
        ({"groups": ["a"]}, "`groups` must have one row per step, 2, got 1"),
        ({"cross_fit": True}, "at least 2 trajectories, got 2 steps of 1"),
        ({"cross_fit": True, "groups": ["a", "b"]}, "prefer Text"),
        ({"cross_fit": True, "folds": 1}, "`folds` must be >= 2, got 1"),
        ({"n_components": 0}, "`n_components` must be >= 1"),
        ({"c": 0.0}, "`c` > 0"),
    ],
)
def test_arguments_are_checked(changes, message):
    arguments = {"d": [[0.0], [1.0]], "delta": [-1.0, 1.0], "groups": ["a", "a"]}
    with pytest.raises(PreferenceError, match=message):
        fit_targets(**{**arguments, **changes})


@pytest.mark.parametrize("width", [500, 1100])
def test_axes_are_orthonormal_and_their_signs_fixed_for_repeated_rows(width):
    rows = np.repeat(np.random.default_rng(0).normal(size=(30, width)), 20, axis=0)
    delta = np.resize([-1.0, 1.0, 1.0], 600)
    axes, again = (PreferenceEstimator.fit(rows, delta).components for _ in range(2))
    np.testing.assert_allclose(axes @ axes.T, np.eye(64), atol=1e-9)
    np.testing.assert_array_equal(axes, again)
    assert (axes[np.arange(64), np.abs(axes).argmax(axis=1)] > 0).all()


def test_shifts_that_never_vary_leave_the_share_of_the_classes(recwarn):
    _, targets = fit_targets(np.full((40, 5), 3.0), np.resize([-1.0, 1.0, 1.0, 1.0], 40), ["a"] * 40)
    np.testing.assert_allclose(targets, math.log(3), atol=1e-5)
    assert not recwarn.list


def test_separable_classes_converge():
    d = np.concatenate([np.full((50, 3), -1e4), np.full((50, 3), 1e4)]) + np.random.default_rng(0).normal(size=(100, 3))
    delta = np.repeat([-1.0, 1.0], 50)
    _, targets = fit_targets(d, delta, ["a"] * 100, c=1e6)
    np.testing.assert_allclose(targets, reference(d, delta > 0, d, 3, c=1e6), rtol=5e-3)


def test_a_regression_that_does_not_converge_is_an_error(monkeypatch):
    monkeypatch.setattr("switchmem.preference.estimator._MAX_ITER", 2)
    d, delta, groups = shifts()
    with pytest.raises(
        PreferenceError, match=r"converge in 2 iterations, got \d+ steps of 64 components at c=1.0: .*c`"
    ):
        fit_targets(d, delta, groups)


# --- saved form ---


def test_saved_and_loaded_it_decides_the_same(tmp_path):
    d, delta, groups = shifts()
    estimator, _ = fit_targets(d, delta, groups)
    estimator.save(tmp_path / "targets")
    loaded = PreferenceEstimator.load(tmp_path / "targets")
    np.testing.assert_array_equal(loaded.decision(d), estimator.decision(d))
    assert loaded.counts == estimator.counts
    assert sorted(p.name for p in (tmp_path / "targets").iterdir()) == ["preference.json", "preference.safetensors"]


@pytest.mark.parametrize("damage", ["missing", "cut", "format", "shape"])
def test_a_damaged_folder_is_refused(tmp_path, damage):
    d, delta, groups = shifts()
    estimator, _ = fit_targets(d, delta, groups)
    if damage == "shape":
        object.__setattr__(estimator, "scale", estimator.scale[1:])
    estimator.save(tmp_path)
    if damage == "missing":
        (tmp_path / "preference.json").unlink()
    if damage == "cut":
        data = (tmp_path / "preference.safetensors").read_bytes()
        (tmp_path / "preference.safetensors").write_bytes(data[:-9])
    if damage == "format":
        (tmp_path / "preference.json").write_text(json.dumps({"format": "other", "counts": {}}))
    with pytest.raises(PreferenceError, match="must hold a whole preference.safetensors"):
        PreferenceEstimator.load(tmp_path)


def test_shifts_of_another_actor_are_refused():
    d, delta, groups = shifts(width=90)
    estimator, _ = fit_targets(d, delta, groups)
    with pytest.raises(PreferenceError, match=r"`d` must be \[B, 90\]"):
        estimator.decision(d[:, :80])
    with pytest.raises(PreferenceError, match="finite"):
        estimator.decision(np.full((1, 90), np.inf))


# --- the layer probe ---


def test_layer_probe_equals_the_reference():
    d, delta, groups = shifts(tied=0.0)
    noise = np.random.default_rng(5).normal(size=d.shape)
    fold_of = group_folds(groups, 5)
    result = layer_auroc({0: noise, 31: torch.tensor(d)}, delta > 0, groups)
    for layer, x in ((0, noise), (31, d)):
        expected = auroc(held_out(x, delta > 0, fold_of), delta > 0)
        assert result[layer] == pytest.approx(expected, abs=1e-4)  # a near-tie may fall either way
    assert result[31] > 0.7 > 0.6 > result[0]
    signs = stable_preference(np.zeros((1, 7)), np.ones((1, 7)))
    assert math.isnan(layer_auroc({0: [[1.0]]}, signs, ["a"])[0])


@pytest.mark.parametrize(
    ("labels", "groups"),
    [([1, 0, 1, 0], ["a"] * 4), ([1, 1, 1, 1], list("abcd")), ([1, 1, 0, 0], list("aabb")), ([], [])],
    ids=["one trajectory", "one class", "a fold without one class", "no step"],
)
def test_undefined_probe_is_nan_and_says_why(labels, groups, caplog):
    result = layer_auroc({3: np.ones((len(labels), 2))}, labels, groups)
    assert math.isnan(result[3])
    assert f"{len(labels)} stable steps of {len(set(groups))} trajectories" in caplog.text


def test_layer_probe_checks_lengths():
    with pytest.raises(PreferenceError, match="`groups` must have one row per step, 2"):
        layer_auroc({}, [0, 1], ["a"])
    with pytest.raises(PreferenceError, match="`d_by_layer` must have one row per step, 2"):
        layer_auroc({0: [[1.0]]}, [0, 1], ["a", "b"])


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60), st.integers(2, 6))
@settings(deadline=None)
def test_folds_keep_groups_whole_and_balanced(groups, folds):
    fold_of = group_folds(groups, folds)
    of_group = {g: set(fold_of[np.array(groups) == g].tolist()) for g in groups}
    assert all(len(folds_of_group) == 1 for folds_of_group in of_group.values())
    used = min(folds, len(of_group))
    assert set(fold_of.tolist()) == set(range(used))
    sizes = np.bincount(fold_of)
    assert sizes.max() - sizes.min() <= max(groups.count(g) for g in groups)
