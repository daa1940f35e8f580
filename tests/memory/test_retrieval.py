"""Top-1 retrieval against brute force."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.memory.bank import Bank
from switchmem.memory.retrieval import Hit, RetrievalError, top1


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return torch.from_numpy((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))


def brute_force(queries, keys, ids, ok):
    """One query and one candidate at a time; candidates in the order of their ids, a later one only if truly higher."""
    found = []
    for query, row in zip(queries.numpy().astype(np.float64), ok, strict=True):
        cosines = {
            i: sum(a * b for a, b in zip(query, k, strict=True)) for i, k, o in zip(ids, keys, row, strict=True) if o
        }
        best = max(cosines.values(), default=None)
        found.append(
            None if best is None else min(i for i, c in cosines.items() if math.isclose(c, best, abs_tol=1e-9))
        )
    return found


@st.composite
def problems(draw):
    m, b, e = draw(st.integers(1, 9)), draw(st.integers(1, 6)), draw(st.integers(2, 4))
    # small integers give many exact ties and many identical keys
    vector = st.lists(st.integers(-2, 2), min_size=e, max_size=e).filter(any)
    ids = draw(st.lists(st.text("ab01/", min_size=1, max_size=4), min_size=m, max_size=m, unique=True))
    name = st.sampled_from(["t/1", "t/2", "t/3"])
    return {
        "queries": unit(draw(st.lists(vector, min_size=b, max_size=b))),
        "keys": unit(draw(st.lists(vector, min_size=m, max_size=m))),
        "ids": tuple(ids),
        "bank_trajectories": tuple(draw(st.lists(name, min_size=m, max_size=m))),
        "query_trajectories": draw(st.lists(name, min_size=b, max_size=b)),
        "bank_categories": tuple(draw(st.lists(st.sampled_from("xy"), min_size=m, max_size=m))),
        "query_categories": draw(st.none() | st.lists(st.sampled_from("xyz"), min_size=b, max_size=b)),
        "allowed": draw(st.sampled_from([None, (m,), (b, m)])),
        "seed": draw(st.integers(0, 99)),
        "block": draw(st.sampled_from([1, 3, 7, 1 << 22])),
    }


@settings(max_examples=200, deadline=None)
@given(problems())
def test_top1_equals_brute_force_under_every_mask_and_block_size(p):
    b, m = len(p["queries"]), len(p["ids"])
    allowed = None
    if p["allowed"] is not None:
        allowed = torch.rand(p["allowed"], generator=torch.Generator().manual_seed(p["seed"])) < 0.6
    ok = np.ones((b, m), dtype=bool)
    for i in range(b):
        for j in range(m):
            ok[i, j] &= p["query_trajectories"][i] != p["bank_trajectories"][j]
            ok[i, j] &= p["query_categories"] is None or p["query_categories"][i] == p["bank_categories"][j]
            ok[i, j] &= allowed is None or bool(allowed.expand(b, m)[i, j])
    bank = Bank(p["ids"], p["bank_trajectories"], p["bank_categories"], p["keys"])
    hits = top1(p["queries"], bank, p["query_trajectories"], p["query_categories"], allowed, p["block"])
    assert [hit and hit.step_id for hit in hits] == brute_force(p["queries"], p["keys"].numpy(), p["ids"], ok)
    for query, hit in zip(p["queries"], hits, strict=True):
        if hit is not None:
            cosine = float(query.double() @ p["keys"][p["ids"].index(hit.step_id)].double())
            assert hit.cosine == pytest.approx(max(-1.0, min(1.0, cosine)), abs=1e-9)


def random_bank(m=300, e=64):
    keys = unit(np.random.default_rng(0).normal(size=(m, e)))
    return Bank(tuple(f"s{i:04d}" for i in range(m)), tuple(f"t{i // 5}" for i in range(m)), ("",) * m, keys)


def test_neither_the_batch_nor_the_order_of_the_bank_matters():
    bank = random_bank()
    queries = unit(np.random.default_rng(1).normal(size=(40, 64)))
    names = ["q"] * 40
    together = top1(queries, bank, names)
    assert [top1(q[None], bank, ["q"])[0].step_id for q in queries] == [hit.step_id for hit in together]
    order = np.random.default_rng(2).permutation(len(bank))
    shuffled = Bank(
        tuple(bank.ids[i] for i in order), tuple(bank.trajectories[i] for i in order), bank.categories, bank.keys[order]
    )
    assert [h.step_id for h in top1(queries, shuffled, names, block_elements=700)] == [h.step_id for h in together]


def test_identical_keys_give_the_smallest_id_wherever_they_stand():
    bank = random_bank(200)
    keys = bank.keys[7].repeat(200, 1)
    twins = Bank(tuple(reversed(bank.ids)), bank.trajectories, bank.categories, keys)
    assert {hit.step_id for hit in top1(bank.keys[:9], twins, ["q"] * 9)} == {"s0000"}


def test_own_trajectory_is_never_retrieved():
    bank = random_bank(20)
    hits = top1(bank.keys, bank, bank.trajectories)
    for trajectory, hit in zip(bank.trajectories, hits, strict=True):
        assert bank.trajectories[bank.ids.index(hit.step_id)] != trajectory


def test_no_candidate_is_none():
    bank = random_bank(5)  # one trajectory
    assert top1(bank.keys, bank, ["t0"] * 5) == [None] * 5
    empty = Bank((), (), (), torch.zeros(0, 64))
    assert top1(bank.keys, empty, ["q"] * 5) == [None] * 5
    assert top1(torch.zeros(0, 64), bank, []) == []


def test_hit_is_a_pair():
    assert Hit("a/b/0", 0.5) == ("a/b/0", 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": torch.zeros(2, 3)}, r"`queries` must have shape \[B, E\] with the bank's E = 64, got \(2, 3\)"),
        ({"queries": torch.full((2, 64), torch.nan)}, "`queries` must be finite, got NaN or infinity in row 0"),
        ({"query_trajectories": ["q"]}, "`query_trajectories` must have one entry per query, got 1 for 2"),
        ({"query_categories": ["q"]}, "`query_categories` must have one entry per query"),
        ({"allowed": torch.ones(4, dtype=torch.bool)}, r"`allowed` must be bool of shape \[M\] or \[B, M\]"),
        ({"allowed": torch.ones(5)}, "`allowed` must be bool"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {"queries": torch.zeros(2, 64), "query_trajectories": ["q", "q"]} | change
    with pytest.raises(RetrievalError, match=message):
        top1(bank=random_bank(5), **arguments)
