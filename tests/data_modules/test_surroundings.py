"""What the baselines see around a step: no more than retrieval may give to it."""

import pytest
from around import TAP_MENU, TAP_SAVE, make_step

from data_modules.base import StepsDataModule
from switchmem.memory.embedder import HashingEmbedder
from switchmem.stages import Stages

QUERIES = [make_step("q", n, TAP_SAVE) for n in range(3)] + [make_step("r", 0, TAP_MENU)]
BANK = [
    make_step("d", 1, TAP_SAVE, category="a"),
    make_step("d", 0, TAP_MENU, category="a"),
    make_step("e", 0, TAP_SAVE, category="b"),
    *QUERIES[:2],
]


class Hand(StepsDataModule):
    def read(self, report):
        report.read = report.kept = 9
        return {"preference": iter(BANK), "bank": iter(BANK), "test": iter(QUERIES), "test_bank": iter(BANK)}

    def fingerprint(self):
        return {"hand": 1, "name": type(self).__name__}


class SameCategory(Hand):
    same_category = frozenset({"test"})


class Sets(Hand):
    def allowed(self, part, query_ids, bank_ids):
        return [{"hand/e/0", "hand/q/0"} for _ in query_ids] if part == "test" else None


class Masks(Hand):
    def allowed(self, part, query_ids, bank_ids):
        import torch

        return torch.tensor([[i.startswith("hand/e") for i in bank_ids] for _ in query_ids]) if part == "test" else None


def around(tmp_path, kind=Hand, fraction=1.0):
    data = kind()
    data.place(Stages(tmp_path), HashingEmbedder(64), fraction)
    data.prepare_embeddings("preference")
    data.prepare_embeddings("test")
    return data.surroundings("test")


def ids(steps):
    return [step.step_id.removeprefix("hand/") for step in steps]


def test_before_and_trace_are_in_order_and_of_their_own_trajectory(tmp_path):
    found = around(tmp_path)
    assert ids(found.before(QUERIES[2])) == ["q/0", "q/1"] and found.before(QUERIES[3]) == ()
    assert ids(found.trace(BANK[0])) == ["d/0", "d/1"]
    assert ids(found.bank()) == ["d/1", "d/0", "e/0", "q/0", "q/1"]
    assert found.demonstration("hand/e/0").category == "b"


@pytest.mark.parametrize(
    "kind, wanted",
    [(Hand, {"d/0", "d/1", "e/0"}), (SameCategory, {"d/0", "d/1"}), (Sets, {"e/0"}), (Masks, {"e/0"})],
)
def test_usable_is_what_retrieval_may_give(tmp_path, kind, wanted):
    query = make_step("q", 2, TAP_SAVE, category="a")
    everything = [step.step_id for step in BANK] + ["hand/unknown/0"]
    assert around(tmp_path, kind).usable(query, everything) == {f"hand/{i}" for i in wanted}


def test_a_smaller_bank_is_smaller_here_too(tmp_path):
    found = around(tmp_path, fraction=0.4)
    assert len({step.trajectory for step in found.bank()}) == 2


def test_a_damaged_record_is_left_out_and_told_once(tmp_path, caplog):
    found = around(tmp_path)
    (shard,) = tmp_path.glob("steps-*/test_bank/steps-*.tar")
    shard.write_bytes(shard.read_bytes().replace(b"hand/d/0", b"hand/d/9"))
    assert ids(found.trace(BANK[0])) == ids(found.trace(BANK[0])) == ["d/1"]
    assert [step.step_id for step in found.bank()].count("hand/d/0") == 0
    assert caplog.text.count("hand/d/0 is left out") == 1


def test_what_is_made_once_is_made_once(tmp_path):
    found, made = around(tmp_path), []
    assert [found.once("x", lambda: made.append(1) or len(made)) for _ in range(3)] == [1, 1, 1]
    assert found.embed(["a", "b"]).shape == (2, 64)
