"""Top-1 retrieval against brute force."""

import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.memory import retrieval
from switchmem.memory.bank import Bank
from switchmem.memory.retrieval import TIE, Hit, RetrievalError, top1


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
        "block": (draw(st.integers(1, 7)), draw(st.integers(1, 10))),
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
    assert [h.step_id for h in top1(queries, shuffled, names, block=(3, 70))] == [h.step_id for h in together]


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


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(0, 99))
def test_lists_of_ids_are_the_same_as_a_mask(p, seed):
    b, m = len(p["queries"]), len(p["ids"])
    mask = torch.rand((b, m), generator=torch.Generator().manual_seed(seed)) < 0.5
    lists = [[i for i, ok in zip(p["ids"], row, strict=True) if ok] * 2 + ["not in the bank"] for row in mask]
    bank = Bank(p["ids"], p["bank_trajectories"], p["bank_categories"], p["keys"])
    rest = (bank, p["query_trajectories"], p["query_categories"])
    assert top1(p["queries"], *rest, lists, p["block"]) == top1(p["queries"], *rest, mask, p["block"])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_many_copies_and_near_copies_in_any_blocks(data):
    """Copies, and keys that differ by less or more than a tie, in high dimension where float32 errs."""
    e, m, b = 96, data.draw(st.integers(1, 120)), data.draw(st.integers(1, 9))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    # A few directions; then copies with noise from far below a tie to what float32 cannot tell from one.
    origins = rng.normal(size=(3, e))
    keys = origins[rng.integers(0, 3, m)] + rng.choice([0, 0, 1e-8, 1e-6, 1e-4], (m, 1)) * rng.normal(size=(m, e))
    keys, queries = unit(keys), unit(origins[rng.integers(0, 3, b)] + 0.1 * rng.normal(size=(b, e)))
    ids = tuple(f"s{i:03d}" for i in rng.permutation(m))
    groups = tuple(f"t{i}" for i in rng.integers(0, 4, m))
    asked = [f"t{i}" for i in rng.integers(0, 5, b)]
    ok = np.array([[q != g for g in groups] for q in asked])
    exact = np.where(ok, queries.numpy().astype(np.float64) @ keys.numpy().astype(np.float64).T, -np.inf)
    best = exact.max(axis=1, keepdims=True)
    wanted = [min((i for i, t in zip(ids, row, strict=True) if t), default=None) for row in (exact >= best - TIE) & ok]
    block = data.draw(st.tuples(st.integers(1, 10), st.integers(1, 130)))
    hits = top1(queries, Bank(ids, groups, ("",) * m, keys), asked, block=block)
    # At the very edge of a tie, rounding of a float64 sum decides.
    below = best - np.where(ok, exact, 2.0)
    sure = ~(np.abs(below - TIE) < 1e-13).any(axis=1)
    assert [h and h.step_id for h, s in zip(hits, sure, strict=True) if s] == [
        w for w, s in zip(wanted, sure, strict=True) if s
    ]


@pytest.mark.parametrize("room", [1, 2, 5, 1024])
@pytest.mark.parametrize("columns", [1, 7, 1000])
def test_a_crowd_of_ties_that_no_front_can_hold_is_looked_at_again(monkeypatch, room, columns):
    """Cosines that rise with the id by less than a tie: of each two, neither makes the other superfluous."""
    monkeypatch.setattr(retrieval, "FRONT", room)
    m = 400
    query = np.array([1.0, 1e-4])
    for span, first in ((0.5, 0), (4.0, 300)):  # of a tie: over all keys; so that the last quarter ties
        keys = np.stack([np.ones(m), np.linspace(0, span * TIE / 1e-4, m)], axis=1).astype(np.float32)
        queries = torch.from_numpy(query[None].astype(np.float32))
        values = keys.astype(np.float64) @ queries[0].double().numpy()
        assert (np.diff(values) > 0).all() and abs(int(np.flatnonzero(values >= values[-1] - TIE)[0]) - first) <= 1
        order = np.random.default_rng(0).permutation(m)
        bank = Bank(tuple(f"s{i:03d}" for i in order), ("t",) * m, ("",) * m, torch.from_numpy(keys[order]))
        (hit,) = top1(queries, bank, ["q"], block=(1, columns))
        assert hit.step_id == f"s{np.flatnonzero(values >= values[-1] - TIE)[0]:03d}"


def test_float32_products_stay_inside_the_stated_bound():
    """The bound that leaves candidates out, against products of the worst case that is easy to make: equal signs."""
    rng = np.random.default_rng(3)
    for e in (2, 64, 2048):
        vectors = unit(np.abs(rng.normal(size=(300, e))) + 1e-3).numpy()
        error = np.abs((vectors @ vectors.T).astype(np.float64) - vectors.astype(np.float64) @ vectors.T)
        search = retrieval._Search(torch.from_numpy(vectors), random_bank(9, e), ["q"] * 300, None, None, (1, 1))
        assert 0 < error.max() < search.error < e * 2.0**-23


def test_a_bank_in_mapped_files_gives_the_same(tmp_path):
    bank = random_bank()
    bank.save(tmp_path / "bank")
    queries = unit(np.random.default_rng(1).normal(size=(40, 64)))
    assert top1(queries, Bank.load(tmp_path / "bank"), ["q"] * 40, block=(7, 50)) == top1(queries, bank, ["q"] * 40)


def test_memory_is_bounded_by_the_block_though_all_are_tied():
    """Equal demonstrations: a matrix of all cosines would take 24 MB in float32, and its pairs far more."""
    m, b = 12_000, 500
    keys = unit(np.ones((1, 32))).repeat(m, 1)
    bank = Bank(tuple(f"s{i:05d}" for i in reversed(range(m))), ("t",) * m, ("",) * m, keys)
    queries = unit(np.ones((1, 32))).repeat(b, 1)
    top1(queries[:1], bank, ["q"], block=(50, 200))
    tracemalloc.start()
    hits = top1(queries, bank, ["q"] * b, block=(100, 400))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {hit.step_id for hit in hits} == {"s00000"} and peak < 6e6


def test_hit_is_a_pair():
    assert Hit("a/b/0", 0.5) == ("a/b/0", 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": torch.zeros(2, 3)}, r"`queries` must have shape \[B, E\] with the bank's E = 64, got \(2, 3\)"),
        (
            {"queries": torch.full((2, 64), torch.nan)},
            "`queries` must be finite rows of length 1, got length nan in row 0",
        ),
        ({"queries": torch.full((2, 64), 0.2)}, "`queries` must be finite rows of length 1, got length 1.6 in row 0"),
        ({"queries": torch.full((2, 64), 0.125, dtype=torch.float64)}, "`queries` must be float32, got torch.float64"),
        ({"allowed": [["s0001"]]}, "`allowed` must have one entry per query, got 1 for 2"),
        ({"block": (0, 5)}, r"`block` must be two numbers of at least 1, got \(0, 5\)"),
        ({"query_trajectories": ["q"]}, "`query_trajectories` must have one entry per query, got 1 for 2"),
        ({"query_categories": ["q"]}, "`query_categories` must have one entry per query"),
        ({"allowed": torch.ones(4, dtype=torch.bool)}, r"`allowed` must be bool of shape \[M\] or \[B, M\]"),
        ({"allowed": torch.ones(5)}, "`allowed` must be bool"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {"queries": torch.full((2, 64), 0.125), "query_trajectories": ["q", "q"]} | change
    with pytest.raises(RetrievalError, match=message):
        top1(bank=random_bank(5), **arguments)


def test_a_key_that_is_no_unit_vector_is_named():
    bank = random_bank(50)
    bank.keys[33] *= 1.01
    with pytest.raises(RetrievalError, match="`keys` must be finite rows of length 1, got length 1.01 in row 33"):
        top1(bank.keys[:4], bank, ["q"] * 4, block=(2, 10))
