"""Parts, pairs, the stream and the router's features of the shared data module."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from data_modules import RouterFeatures, StepsDataModule, split_by_trajectory
from data_modules.features import SeededBatches
from data_modules.pairs import NO_MEMORY, HarvestStream, part_bank
from data_modules.parts import describe
from switchmem.benchmarks.base import DataError
from switchmem.harvest import read_damaged
from switchmem.memory.embedder import HashingEmbedder
from switchmem.memory.embedding_shards import EmbeddingError
from switchmem.memory.retrieval import StepWithMemory
from switchmem.memory.views import query_text
from switchmem.stages import Stages
from switchmem.steps import Action, ActionType, Screenshot, Step

SHOT = Screenshot.from_image(Image.new("RGB", (8, 12), (9, 90, 30)))


def steps(prefix, episodes, per=2, category=""):
    for episode, index in itertools.product(range(episodes), range(per)):
        yield Step(
            "aitw", f"{prefix}{episode}", index, f"Open item {episode}", SHOT, (), Action(ActionType.BACK),
            category=category, activity=f"screen {index}",
        )  # fmt: skip


class Data(StepsDataModule):
    def __init__(self, folder, parts, tag="x", embedder=None, **options):
        super().__init__(**options)
        self.make, self.tag, self.reads = parts, tag, 0
        self.place(Stages(folder), embedder or HashingEmbedder(dim=32))

    def read(self, report):
        self.reads += 1
        report.read = report.kept = 1
        report.add("aitw/lost/0", "its picture is broken")
        return self.make()

    def fingerprint(self):
        return self.tag


def usual():
    return {
        "preference": steps("p", 3),
        "bank": steps("m", 4),
        "test": steps("t", 2),
        "test_bank": ("preference", "bank"),
    }


def test_parts_are_written_once_and_shared_ones_are_stored_once(tmp_path):
    data = Data(tmp_path, usual)
    data.prepare_steps()
    data.prepare_steps()
    assert data.reads == 1
    folder = data.steps_stage.folder
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == ["bank", "preference", "test"]
    assert [len(data.part(name)) for name in ("preference", "bank", "test", "test_bank")] == [6, 8, 4, 14]
    assert json.loads((folder / "data_report.json").read_text())["faults"][0]["id"] == "aitw/lost/0"
    again = Data(tmp_path, usual)
    assert again.part("test_bank")["aitw/m0/1"].activity == "screen 1" and again.reads == 0
    assert Data(tmp_path, usual, tag="y").steps_stage.key != data.steps_stage.key


def test_bank_is_preference_and_test_bank_is_bank_where_not_given(tmp_path):
    data = Data(tmp_path, lambda: {"preference": steps("p", 3), "test": steps("t", 2)})
    data.prepare_steps()
    assert data.part("bank").step_ids == data.part("test_bank").step_ids == data.part("preference").step_ids


def test_the_same_object_as_two_parts_is_stored_once(tmp_path):
    def make():
        shared = steps("p", 3)
        return {"preference": shared, "bank": shared, "test": steps("t", 2)}

    data = Data(tmp_path, make)
    data.prepare_steps()
    assert not (data.steps_stage.folder / "bank").exists() and len(data.part("bank")) == 6


def test_an_interrupted_write_is_done_again(tmp_path):
    def broken():
        yield from steps("p", 1)
        raise OSError("disk")

    data = Data(tmp_path, lambda: {"preference": steps("p", 3), "test": broken()})
    with pytest.raises(OSError, match="disk"):
        data.prepare_steps()
    assert not data.steps_stage.complete
    data.make = usual
    data.prepare_steps()
    assert len(data.part("preference")) == 6


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"preference": iter(())}, "`read` must give.*got .'preference'"),
        ({"preference": iter(()), "test": iter(()), "train": iter(())}, "must give"),
        ({"preference": steps("p", 2), "test": ("test",)}, "part 'test' must consist of other parts"),
        ({"preference": steps("p", 2), "test": ()}, "part 'test' must consist of other parts"),
        ({"preference": None, "test": steps("t", 1)}, "part 'preference' must have steps, got None"),
        (
            {"preference": steps("p", 2), "test": steps("t", 1), "bank": ("test_bank",)},
            "parts must not consist of each other",
        ),
        (
            {"preference": steps("p", 2), "test": iter(())},
            "part 'test' must have at least one step, got 4 preference and 0 test",
        ),
    ],
)
def test_parts_that_cannot_be_are_refused(tmp_path, parts, message):
    with pytest.raises(DataError, match=message):
        Data(tmp_path, lambda: parts).prepare_steps()


def test_a_stage_that_lost_its_parts_says_so(tmp_path):
    data = Data(tmp_path, usual)
    with pytest.raises(DataError, match="must hold the data's parts"):
        data.part("test")
    with pytest.raises(DataError, match="must hold retrieved pairs"):
        data.pairs("test")


def test_pairs_are_the_nearest_demonstrations_of_other_trajectories(tmp_path):
    data = Data(tmp_path, lambda: {"preference": steps("p", 4), "test": steps("t", 2)})
    data.prepare_memory("preference")
    pairs, part = data.pairs("preference"), data.part("preference")
    assert list(pairs.hits) == list(part.step_ids) and not pairs.skipped
    embedder = HashingEmbedder(dim=32)
    for query, hit in pairs.hits.items():
        vector = embedder.texts([query_text(part[query])])[0]
        others = [i for i in part.step_ids if part[i].trajectory != part[query].trajectory]
        cosines = {i: float(vector @ embedder.texts([query_text(part[i])])[0]) for i in others}
        best = max(cosines.values())
        assert hit.step_id == min(i for i, c in cosines.items() if c > best - 1e-6)
        assert hit.cosine == pytest.approx(best, abs=1e-6)
    bank = data.bank("bank")
    assert bank.ids == part.step_ids and bank.trajectories == tuple(part.meta(i).trajectory for i in part.step_ids)
    assert torch.equal(bank.keys[:], embedder.texts([query_text(part[i]) for i in part.step_ids]))


def test_retrieval_stays_in_the_category_where_the_part_says_so(tmp_path):
    class Categories(Data):
        same_category = frozenset({"preference"})

    def make():
        bank = itertools.chain(steps("m", 2, category="web"), steps("n", 2, category="install"))
        preference = itertools.chain(steps("p", 2, category="install"), steps("q", 1, category="general"))
        return {"preference": preference, "bank": bank, "test": steps("t", 2, category="general")}

    data = Categories(tmp_path, make)
    for part in ("preference", "test"):
        data.prepare_memory(part)
    assert {hit.step_id[5] for hit in data.pairs("preference").hits.values()} == {"n"}
    assert data.pairs("preference").skipped == {"aitw/q0/0": NO_MEMORY, "aitw/q0/1": NO_MEMORY}
    assert len(data.pairs("test").hits) == 4
    report = data.data_report()
    assert [f.id for f in report.faults] == ["aitw/lost/0", "aitw/q0/0", "aitw/q0/1"]
    assert report.notes["preference_without_memory"] == 2 and (report.read, report.kept) == (1, 1)


def test_own_trajectory_allows_everything_but_the_step_itself(tmp_path):
    data = Data(tmp_path, lambda: {"preference": steps("p", 1, per=3), "test": None})
    data.own_trajectory = True
    data.prepare_memory("preference")
    hits = data.pairs("preference").hits
    assert set(hits) == {"aitw/p0/0", "aitw/p0/1", "aitw/p0/2"} and all(q != h.step_id for q, h in hits.items())
    assert data.bank("bank").trajectories == ("aitw/p0",) * 3
    with pytest.raises(DataError, match="part 'test' must have steps, got none"):
        data.prepare_memory("test")


def test_a_smaller_bank_is_whole_trajectories_of_the_larger_one(tmp_path):
    def hits(fraction):
        data = Data(tmp_path, lambda: {"preference": steps("p", 20), "bank": steps("m", 10), "test": None})
        data.place(Stages(tmp_path), HashingEmbedder(dim=32), fraction)
        data.prepare_memory("preference")
        found = {hit.step_id for hit in data.pairs("preference").hits.values()}
        bank = part_bank(data.part("bank"), data.embeddings("preference"), fraction)
        assert found <= set(bank.ids) and len(data.pairs("preference").hits) == 40
        return data.memory_stage("preference").key, set(bank.trajectories), len(bank)

    rows = [hits(fraction) for fraction in (0.01, 0.1, 0.25, 0.5, 1.0)]
    assert [len(trajectories) for _, trajectories, _ in rows] == [1, 1, 3, 5, 10]
    assert all(size == 2 * len(trajectories) for _, trajectories, size in rows)
    assert all(small <= large for (_, small, _), (_, large, _) in itertools.pairwise(rows))
    assert len({key for key, _, _ in rows}) == 5


def test_own_trajectory_is_off_by_default_and_another_stage(tmp_path):
    data = Data(tmp_path, usual)
    key = data.memory_stage("preference").key
    assert data.own_trajectory is False
    data.own_trajectory = True
    assert data.memory_stage("preference").key != key


def test_one_step_has_no_memory_even_in_its_own_trajectory(tmp_path):
    data = Data(tmp_path, lambda: {"preference": steps("p", 1, per=1), "test": None})
    data.own_trajectory = True
    with pytest.raises(DataError, match="got 0 of 1 steps .* A memory comes from another step: add"):
        data.prepare_memory("preference")


def test_what_was_left_out_is_listed_where_a_part_is_empty(tmp_path):
    data = Data(tmp_path, lambda: {"preference": steps("p", 2), "test": iter(())})
    with pytest.raises(DataError, match="What was left out is listed in (.*)[.]$") as error:
        data.prepare_steps()
    listed = Path(str(error.value).rpartition("listed in ")[2][:-1])
    assert [fault["id"] for fault in json.loads(listed.read_text())["faults"]] == ["aitw/lost/0"]
    assert not data.steps_stage.complete


def test_allowed_restricts_each_query(tmp_path):
    class Support(Data):
        def allowed(self, part, query_ids, bank_ids):
            return torch.tensor([[b.split("/")[1] == "m" + q.split("/")[1][1:] for b in bank_ids] for q in query_ids])

    data = Support(tmp_path, usual)
    data.prepare_memory("preference")
    assert {(q[6], hit.step_id[6]) for q, hit in data.pairs("preference").hits.items()} == {(c, c) for c in "012"}


def test_allowed_may_list_ids_for_each_query(tmp_path):
    class Support(Data):
        def allowed(self, part, query_ids, bank_ids):
            return [["aitw/m" + q.split("/")[1][1:] + "/1", "aitw/unknown/0"] for q in query_ids]

    data = Support(tmp_path, usual)
    data.prepare_memory("preference")
    hits = data.pairs("preference").hits
    assert {query: hit.step_id for query, hit in hits.items()} == {q: f"aitw/m{q[6]}/1" for q in hits} and len(
        hits
    ) == 6


class Counting(HashingEmbedder):
    """Remembers how many texts it embedded; reads no more than 10 characters."""

    def __init__(self, dim=32):
        super().__init__(dim)
        self.count = 0

    def texts(self, texts):
        self.count += len(texts)
        return super().texts(texts)

    def cut(self, texts):
        return [len(text) > 10 for text in texts]


def test_every_step_of_every_part_is_embedded_once(tmp_path):
    embedder = Counting()
    data = Data(tmp_path, usual, embedder=embedder)
    data.prepare_memory("preference")
    assert embedder.count == 6 + 8  # no test step is read before the test
    for part in ("test", "preference"):
        data.prepare_memory(part)
    assert embedder.count == 6 + 8 + 4  # test_bank consists of two of them
    Data(tmp_path, usual, embedder=embedder).prepare_memory("test")
    data.own_trajectory = True  # another way to retrieve from the same vectors
    data.prepare_memory("test")
    assert embedder.count == 18
    assert data.embeddings_stage("preference").read()["facts"] == {"vectors": 14, "damaged": 0, "cut": 14}
    assert data.embeddings_stage("test").read()["facts"] == {"vectors": 4, "damaged": 0, "cut": 4}
    assert data.data_report().notes["test_texts_cut_by_embedder"] == 4 + 14


def test_a_part_without_steps_is_refused_before_anything_is_embedded(tmp_path):
    embedder = Counting()
    data = Data(tmp_path, lambda: {"preference": steps("p", 3), "test": None}, embedder=embedder)
    with pytest.raises(DataError, match="part 'test' must have steps, got none"):
        data.prepare_memory("test")
    assert embedder.count == 0


def test_altered_embeddings_are_found_and_only_they_are_made_again(tmp_path):
    data = Data(tmp_path, usual)
    data.prepare_embeddings("test")
    before = data.bank("test_bank").keys[:]
    (path,) = data.embeddings_stage("preference").folder.glob("*.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(EmbeddingError, match="must hold the .* bytes that were written, got .* other content. Delete"):
        data.prepare_memory("preference")
    for name in (path, path.with_suffix(".json"), path.parent / "manifest.json", path.parent / "stage.json"):
        name.unlink()
    data.prepare_memory("preference")
    assert torch.equal(data.bank("test_bank").keys[:], before)


def test_no_retrievable_memory_is_an_error_with_counts(tmp_path):
    data = Data(tmp_path, lambda: {"preference": steps("p", 1, per=4), "test": steps("t", 1)})
    with pytest.raises(
        DataError,
        match=r"'preference' must have at least one step with a retrievable memory, got 0 of 4 steps \(1 trajectories, "
        r"0 damaged steps\) over a bank of 4 steps \(1 trajectories\)",
    ):
        data.prepare_memory("preference")
    assert not data.memory_stage("preference").complete
    with pytest.raises(DataError, match="`part` must be one of preference, test, got 'bank'"):
        data.select("bank", tmp_path)


def test_damaged_records_are_left_out_by_id(tmp_path):
    data = Data(tmp_path, usual)
    data.prepare_steps()
    for part, name in (("preference", "aitw/p1/0"), ("bank", "aitw/m3/1")):
        damage(data, part, name)
    data.prepare_memory("preference")
    pairs = data.pairs("preference")
    assert len(pairs.hits) == 5 and list(pairs.skipped) == ["aitw/p1/0"]
    assert "aitw/m3/1" not in data.bank("bank").ids
    assert {"aitw/p1/0", "aitw/m3/1"} <= {fault.id for fault in data.data_report().faults}


def test_memory_stage_depends_on_everything_that_decides_the_pairs(tmp_path):
    keys = {
        Data(tmp_path, usual, tag=tag, embedder=HashingEmbedder(dim=dim)).memory_stage(part).key
        for tag, dim, part in itertools.product("xy", (32, 64), ("preference", "test"))
    }
    assert len(keys) == 8


def damage(data, part, step_id):
    """Change a byte of a step's picture in its shard."""
    folder = data.steps_stage.folder / part
    row = next(r for r in json.loads((folder / "index.json").read_text())["steps"] if r["step_id"] == step_id)
    tar = bytearray((folder / row["shard"]).read_bytes())
    tar[row["image_offset"] + 20] ^= 255
    (folder / row["shard"]).write_bytes(tar)


@pytest.mark.parametrize("workers", [0, 2])
def test_records_damaged_after_they_were_paired_are_counted_and_the_rest_goes_on(tmp_path, workers):
    data = Data(tmp_path, usual, num_workers=workers)
    data.select("preference", tmp_path / "harvest")
    data.prepare_data()
    hits = data.pairs("preference").hits
    damage(data, "preference", "aitw/p1/0")
    damage(data, "bank", "aitw/m2/1")
    lost = {"aitw/p1/0"} | {query for query, hit in hits.items() if hit.step_id == "aitw/m2/1"}
    assert len(lost) > 1
    data.setup("predict")
    read = [item.step.step_id for batch in data.predict_dataloader() for item in batch]
    assert sorted(read) == sorted(set(hits) - lost)
    damaged = read_damaged(tmp_path / "harvest")
    assert set(damaged) == lost
    assert "left out of the harvest: step 'aitw/p1/0': its bytes in" in damaged["aitw/p1/0"]
    assert all("step 'aitw/m2/1': its bytes in" in damaged[i] for i in lost - {"aitw/p1/0"})
    data.setup("predict")  # a later pass reads every record afresh
    assert not read_damaged(tmp_path / "harvest")


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_stream_covers_every_step_once_over_ranks_and_workers(tmp_path, world, workers):
    data = Data(tmp_path, usual)
    data.prepare_memory("preference")
    hits = data.pairs("preference").hits
    todo = list(hits)[1:]
    seen = []
    for rank in range(world):
        stream = HarvestStream(
            data.part("preference"), data.part("bank"), hits, todo, rank, world, on_damaged=pytest.fail
        )
        for batch in DataLoader(stream, batch_size=2, num_workers=workers, collate_fn=list):
            assert all(isinstance(item, StepWithMemory) for item in batch)
            seen += [(item.step.step_id, item.memory.step_id, item.cosine) for item in batch]
    assert sorted(seen) == sorted((i, *hits[i]) for i in todo)
    with pytest.raises(TypeError):
        len(stream)  # a length would make the trainer stop early


def test_predict_needs_a_selection_and_fit_needs_features(tmp_path):
    data = Data(tmp_path, usual)
    with pytest.raises(DataError, match="a part must be selected"):
        data.predict_dataloader()
    with pytest.raises(DataError, match="features must be set"):
        data.train_dataloader()
    assert data.feature_dims == {}
    data.prepare_data()  # nothing selected, nothing to do
    assert data.reads == 0
    data.select("test", tmp_path / "harvest")
    data.prepare_data()
    data.setup("predict")
    batches = list(data.predict_dataloader())
    assert sum(len(batch) for batch in batches) == 4
    assert data.harvest_plan.expected_ids == data.part("test").step_ids


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9])
def test_a_limit_takes_steps_spread_over_the_part(tmp_path, limit):
    data = Data(tmp_path, usual)
    data.select("test", tmp_path / "harvest", limit)
    data.prepare_data()
    data.setup("predict")
    ids = data.part("test").step_ids
    chosen = data.harvest_plan.expected_ids
    assert len(chosen) == min(limit, 4) == len(set(chosen)) and [i for i in ids if i in chosen] == list(chosen)
    assert sum(len(batch) for batch in data.predict_dataloader()) == len(chosen)
    with pytest.raises(DataError, match="`limit` must be at least 1, got 0"):
        data.select("test", tmp_path / "harvest", 0)


def features(trajectories, d=3, e=2):
    n = len(trajectories)
    tensors = {
        "state": torch.arange(n * d).reshape(n, d).float(),
        "target": torch.arange(n).float(),
        "delta": torch.ones(n),
    }
    tensors |= {
        name: torch.full((n, e), float(i)) for i, name in enumerate(("text", "image", "instruction", "screenshot"))
    }
    return RouterFeatures([f"s{i}" for i in range(n)], trajectories, tensors)


def test_fit_gets_batches_by_name_and_no_trajectory_on_both_sides(tmp_path):
    data = Data(tmp_path, usual, router_batch_size=4, val_fraction=0.3)
    names = [f"t{i // 3}" for i in range(30)]
    data.use_features(features(names))
    assert data.feature_dims == {"state": 3, "text": 2, "image": 2, "instruction": 2, "screenshot": 2}
    train, val = list(data.train_dataloader()), list(data.val_dataloader())
    assert train[0]["state"].shape == (4, 3) and train[0]["target"].shape == (4,)
    ids = [[int(i[1:]) for batch in side for i in batch["step_id"]] for side in (train, val)]
    assert sorted(ids[0] + ids[1]) == list(range(30)) and len(ids[1]) == 9
    assert not {names[i] for i in ids[0]} & {names[i] for i in ids[1]}
    for batch in train + val:
        for i, state in zip(batch["step_id"], batch["state"], strict=True):
            assert state[0] == 3 * int(i[1:])


def test_no_validation_where_the_fraction_is_zero(tmp_path):
    data = Data(tmp_path, usual, val_fraction=0.0)
    data.use_features(features(["a"] * 5))
    assert data.val_dataloader() == [] and sum(len(b["step_id"]) for b in data.train_dataloader()) == 5


def test_a_single_trajectory_is_validated_on_its_own_steps_with_a_warning(tmp_path, caplog):
    data = Data(tmp_path, usual, val_fraction=0.3)
    data.use_features(features(["a"] * 10))
    sides = [
        [i for batch in side for i in batch["step_id"]] for side in (data.train_dataloader(), data.val_dataloader())
    ]
    assert sorted(map(len, sides)) == [3, 7] and len({*sides[0], *sides[1]}) == 10
    assert [r.message for r in caplog.records if "of one trajectory (a)" in r.message]
    with pytest.raises(DataError, match="at least 2 trajectories, got 1 with 1 steps"):
        data.use_features(features(["a"]))


def test_training_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        batches = SeededBatches(range(5, 25), 8, seed)
        batches.set_epoch(epoch)
        assert [len(batch) for batch in batches] == [8, 8, 4] and len(batches) == 3
        return [place for batch in batches for place in batch]

    assert sorted(order(1, 0)) == list(range(5, 25)) and order(1, 3) == order(1, 3)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


def test_features_refuse_what_does_not_belong_together():
    with pytest.raises(DataError, match="one entry for each of at least one step, got 1 steps but .'trajectories': 2"):
        RouterFeatures(["a"], ["t", "u"], {"state": torch.zeros(1, 2)})
    with pytest.raises(DataError, match="at least one step, got 0 steps"):
        RouterFeatures([], [], {"state": torch.zeros(0, 2)})


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.99])
@pytest.mark.parametrize("count", [2, 3, 10])
def test_split_is_by_trajectory_and_repeatable(fraction, count):
    names = [f"t{i % count}" for i in range(count * 4)]
    first, second = split_by_trajectory(names, fraction, seed=5)
    assert (first, second) == split_by_trajectory(names, fraction, seed=5)
    assert sorted(first + second) == list(range(len(names))) and first and second
    assert not {names[i] for i in first} & {names[i] for i in second}
    wanted = min(count - 1, max(1, round(fraction * count)))
    assert len({names[i] for i in second}) == wanted


def test_split_seeds_differ_and_bad_splits_are_refused():
    names = [f"t{i}" for i in range(30)]
    assert len({tuple(split_by_trajectory(names, 0.3, seed)[1]) for seed in range(5)}) == 5
    with pytest.raises(DataError, match=r"`fraction` must be in \[0, 1\), got 1.0"):
        split_by_trajectory(names, 1.0, 0)
    with pytest.raises(DataError, match="at least 2 trajectories, got 1 with 3 steps"):
        split_by_trajectory(["a"] * 3, 0.5, 0)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("batch_size", 0), ("num_workers", -1), ("router_batch_size", 0), ("val_fraction", 1.0), ("val_fraction", -0.1)],
)
def test_arguments_out_of_range_are_refused(tmp_path, argument, value):
    with pytest.raises(DataError, match=f"`{argument}` must be"):
        Data(tmp_path, usual, **{argument: value})


def test_counts_in_words():
    assert describe({"a": 1, "b": 0, "c": 3}) == "1 a and 0 b and 3 c steps"
