"""The threshold against brute force over all cuts; policies against loops; the saved policy."""

import json
import math
import os
import stat
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.memory.views import Condition
from switchmem.policy import (
    Policy,
    PolicyCard,
    PolicyError,
    choices,
    choose_threshold,
    match_rate_threshold,
    oracle_scores,
    random_scores,
    routed_scores,
)
from switchmem.router import PairwiseRouter

# few distinct scores and sevenths, so that equal scores and equally good cuts are common
SCORE = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([0.1, 0.2, 0.3, -0.1]), st.floats(-1e6, 1e6))
STEPS = st.lists(st.tuples(SCORE, st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=12)


def all_cuts(r):
    ordered = sorted(r)
    return [-math.inf, *(a / 2 + b / 2 for a, b in zip(ordered, ordered[1:], strict=False)), math.inf]


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_threshold_equals_brute_force(steps):
    r = [s for s, _, _ in steps]
    # the reference counts exact sevenths
    value = {c: sum(Fraction(i if s >= c else t, 7) for s, t, i in steps) for c in all_cuts(r)}
    best = [c for c in value if value[c] == max(value.values())]
    expected = min(best, key=lambda c: (abs(c), -c))
    tau = choose_threshold(r, [t / 7 for _, t, _ in steps], [i / 7 for _, _, i in steps])
    assert tau == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(SCORE, min_size=1, max_size=12), st.integers(0, 12))
def test_matched_rate_equals_brute_force(r, twelfths):
    rate = Fraction(twelfths, 12)
    distance = {c: abs(Fraction(sum(s >= c for s in r), len(r)) - rate) for c in all_cuts(r)}
    best = [c for c in distance if distance[c] == min(distance.values())]
    assert match_rate_threshold(r, twelfths / 12) == min(best, key=lambda c: (abs(c), -c))


@pytest.mark.parametrize(
    ("r", "text", "image", "tau"),
    [
        ([0.3], [0.0], [1.0], -math.inf),  # one step that wants Image
        ([0.3], [1.0], [0.0], math.inf),  # one step that wants Text
        ([0.3], [0.5], [0.5], math.inf),  # indifferent: the cheaper memory
        ([-2.0, -1.0, 1.0, 2.0], [1, 1, 1, 1], [0, 0, 0, 0], math.inf),  # a single modality is best
        ([-2.0, -1.0, 1.0, 2.0], [0, 0, 0, 0], [0, 0, 0, 0], 0.0),  # all cuts equal: nearest 0
        ([-3.0, 0.0, 3.0], [0, 0, 0], [0, 0, 0], 1.5),  # -1.5 and 1.5 equally near: the larger
        ([1.0, 1.0, 5.0], [0, 1, 0], [1, 0, 1], 1.0),  # equal scores cannot be parted
    ],
)
def test_threshold_on_edges(r, text, image, tau):
    assert choose_threshold(r, text, image) == tau


def test_threshold_is_fast_on_many_steps():
    rng = np.random.default_rng(0)
    r, text, image = rng.normal(size=200_000), rng.random(200_000), rng.random(200_000)
    tau = choose_threshold(torch.tensor(r), torch.tensor(text), image)
    assert routed_scores(text, image, choices(r, tau)).mean() >= max(text.mean(), image.mean())


@pytest.mark.parametrize(
    ("r", "text", "image", "message"),
    [
        ([], [], [], "at least one step"),
        ([math.nan], [0.0], [0.0], r"`r` must be one finite number per step, got shape \[1\] with 1"),
        ([0.0], [math.nan], [0.0], "`text` must be one finite number"),
        ([0.0], [0.0], [math.inf], "`image` must be one finite number"),
        ([0.0, 1.0], [0.0], [0.0, 1.0], "one row per step, got 2, 1 and 2"),
        ([[0.0]], [0.0], [0.0], "one finite number per step"),
    ],
)
def test_threshold_arguments_are_checked(r, text, image, message):
    with pytest.raises(PolicyError, match=message):
        choose_threshold(r, text, image)


def test_rates_are_checked():
    for call in (lambda: match_rate_threshold([0.0], 50), lambda: random_scores([0.0], [1.0], -0.1)):
        with pytest.raises(PolicyError, match=r"`image_rate` must lie in \[0, 1\]"):
            call()
    with pytest.raises(PolicyError, match="at least one step"):
        match_rate_threshold([], 0.5)


def test_policies_equal_a_loop():
    rng = np.random.default_rng(1)
    text, image, r = rng.random(50), rng.random(50), rng.normal(size=50)
    routed = routed_scores(text, image, choices(r, 0.2))
    for k in range(50):
        assert routed[k] == (image[k] if r[k] >= 0.2 else text[k])
        assert oracle_scores(text, image)[k] == max(text[k], image[k])
    drawn = [np.where(rng.random(50) < 0.3, image, text).mean() for _ in range(4000)]
    assert random_scores(text, image, 0.3).mean() == pytest.approx(np.mean(drawn), abs=0.005)
    assert choices([1.0], math.inf).tolist() == [False] and choices([1.0], -math.inf).tolist() == [True]


# --- the saved policy ---


def batch(n=6):
    generator = torch.Generator().manual_seed(3)
    sizes = {"state": 12, "text": 7, "image": 7, "instruction": 7, "screenshot": 7}
    return {k: torch.randn(n, d, generator=generator) for k, d in sizes.items()}


def policy(target="dcoe", threshold=0.01):
    torch.manual_seed(0)
    router = PairwiseRouter(14 if target == "basic" else 12, 7, width=6, hidden=9)
    card = PolicyCard(actor="a1", layer=31, template="t1", embedder="hashing-7", target=target, seed=42, n_pref=10)
    return Policy(router, threshold, card)


@pytest.mark.parametrize("target", ["dcoe", "basic"])
@pytest.mark.parametrize("threshold", [0.01, math.inf, -math.inf])
def test_saved_and_loaded_it_routes_the_same(tmp_path, target, threshold):
    made = policy(target, threshold)
    made.router.train()
    conditions, r = made.route(batch())
    assert conditions == [Condition.IMAGE if x >= threshold else Condition.TEXT for x in r.tolist()]
    made.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    again, r_again = loaded.route(batch())
    assert again == conditions and torch.equal(r, r_again)
    assert loaded.threshold == threshold and loaded.card.target == target
    assert {p.name for p in (tmp_path / "policy").iterdir()} == {"policy.json", "config.json", "model.safetensors"}
    json.loads((tmp_path / "policy" / "policy.json").read_text(), parse_constant=pytest.fail)


def test_it_is_refused_for_another_actor():
    made = policy()
    made.check(actor="a1", layer=31, template="t1", embedder="hashing-7")
    with pytest.raises(PolicyError, match="`actor` is 'a2', trained with 'a1'; `layer` is 7, trained with 31"):
        made.check(actor="a2", layer=7, template="t1", embedder="hashing-7")


@pytest.mark.parametrize("damage", ["missing", "cut", "format", "target", "weights", "nan"])
def test_a_damaged_policy_is_refused(tmp_path, damage):
    policy().save(tmp_path)
    path = tmp_path / "policy.json"
    values = json.loads(path.read_text())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_text(path.read_text()[:20])
    elif damage == "weights":
        (tmp_path / "model.safetensors").unlink()
    else:
        values["card"]["target"] = "sorcery" if damage == "target" else "dcoe"
        changes = {"format": {"format": "x"}, "nan": {"threshold": "nan"}}.get(damage, {})
        path.write_text(json.dumps(values | changes))
    with pytest.raises(PolicyError, match="must hold a whole policy"):
        Policy.load(tmp_path)


def test_a_shared_policys_files_are_as_readable_as_the_umask_allows(tmp_path):
    before = os.umask(0o027)
    try:
        policy().save_pretrained(tmp_path / "out")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert modes == dict.fromkeys(["model.safetensors", "config.json", "policy.json", "README.md"], 0o640)
