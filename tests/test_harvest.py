"""Records, shards, resume and the manifest, against values that the tests compute on their own."""

import dataclasses
import json
import math

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from switchmem.harvest import (
    Harvest,
    HarvestError,
    HarvestPlan,
    HarvestWriter,
    Record,
    Vectors,
    bind_settings,
    done_ids,
    make_record,
    merge,
    note_damaged,
    read_damaged,
)
from switchmem.harvest.shards import read_settings, read_shards
from switchmem.memory.bank import image_candidates, text_candidates
from switchmem.memory.embedder import HashingEmbedder
from switchmem.memory.retrieval import StepWithMemory
from switchmem.memory.views import Condition
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

SETTINGS = {"layers": [0, 3, 5], "parameters_hash": "abc"}
EMBEDDER = HashingEmbedder(dim=32)
SHOT = Screenshot.from_image(Image.new("RGB", (20, 40), (10, 200, 30)))
TAP = Action(ActionType.TAP, (0.25, 0.5))


def step(episode, index=0, elements=((0.0, 0.0, 0.5, 0.5),)):
    boxes = tuple(UIElement(box, text="Go") for box in elements)
    return Step("bench", episode, index, "Open it", SHOT, boxes, TAP, category="web")


@dataclasses.dataclass
class Observation:
    step_id: str
    state: torch.Tensor
    shifted: dict
    answers: dict
    seconds: float = 0.5


@dataclasses.dataclass
class Parsed:
    action: Action | None
    reason: str | None


class Grammar:
    """Reads "x y" as a tap; notes the sizes it was given."""

    def __init__(self):
        self.sizes = set()

    def parse(self, text, size):
        self.sizes.add(size)
        try:
            x, y = map(float, text.split())
        except ValueError:
            return Parsed(None, "bad_syntax" if text else "empty")
        return Parsed(Action(ActionType.TAP, (x, y)), None)


class Benchmark:
    name = "bench"

    def score(self, action, gold):
        return 0.0 if action is None else 1.0 - abs(action.point[0] - gold.action.point[0])


def observation(item, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = {name: torch.randn(3, 4, generator=generator) for name in ("state", "text", "image")}
    return Observation(
        item.step_id,
        draw["state"],
        {Condition.TEXT: draw["text"], Condition.IMAGE: draw["image"], Condition.NONE: draw["state"]},
        {Condition.TEXT: ["0.25 0.5", "nonsense"], Condition.IMAGE: ["0.75 0.5", ""]},
    )


def record(episode, index=0, seed=0):
    item = StepWithMemory(step(episode, index), step("demo"), 0.75)
    return make_record(item, observation(item.step, seed), Grammar(), Benchmark(), Vectors(EMBEDDER)([item])[0])


def fill(folder, names, rank=0, per_shard=2):
    bind_settings(folder, SETTINGS)
    writer = HarvestWriter(folder, rank, per_shard)
    for seed, (episode, index) in enumerate(names):
        writer.append(record(episode, index, seed + 100 * rank))
    writer.flush()
    return [f"bench/{episode}/{index}" for episode, index in names]


def test_record_keeps_answers_actions_reasons_and_scores():
    got = record("a")
    assert got.answers == {"text": ["0.25 0.5", "nonsense"], "image": ["0.75 0.5", ""]}
    assert got.scores == {"text": [1.0, 0.0], "image": [0.5, 0.0]}
    assert got.reasons == {"text": [None, "bad_syntax"], "image": [None, "empty"]}
    assert got.actions["text"][1] is None and Action.from_dict(got.actions["image"][0]).point == (0.75, 0.5)
    assert (got.step_id, got.trajectory, got.memory_id, got.cosine) == ("bench/a/0", "bench/a", "bench/demo/0", 0.75)
    assert sorted(got.states) == ["image", "state", "text"]  # the state prompt is the prompt without memory
    assert got.context == {"index": 0, "action_type": "tap", "is_spatial": True, "density": 4.0, "category": "web"}


def test_record_passes_the_screenshot_size_and_copies_tensors():
    item = StepWithMemory(step("a"), step("demo"), 0.5)
    grammar, observed = Grammar(), observation(item.step)
    with torch.inference_mode():
        observed.state = observed.state.bfloat16()
        got = make_record(item, observed, grammar, Benchmark(), {})
    assert grammar.sizes == {(20, 40)}
    assert got.states["state"].dtype == torch.float32
    before = got.states["text"].clone()
    observed.shifted[Condition.TEXT].zero_()
    assert torch.equal(got.states["text"], before)


def test_record_without_elements_has_no_density_and_is_plain_json():
    item = StepWithMemory(step("a", elements=()), step("demo"), 0.5)
    got = make_record(item, observation(item.step), Grammar(), Benchmark(), {})
    assert got.context["density"] is None
    json.dumps(got.row(), allow_nan=False)


@pytest.mark.parametrize("case", ["other step", "no memory"])
def test_record_refuses_what_does_not_belong_together(case):
    item = StepWithMemory(step("a"), step("demo") if case == "other step" else None, math.nan)
    observed = observation(step("b") if case == "other step" else item.step)
    with pytest.raises(HarvestError, match="an observation must belong to its step"):
        make_record(item, observed, Grammar(), Benchmark(), {})


def test_vectors_are_those_of_the_embedder_and_memories_are_embedded_once():
    class Counting(HashingEmbedder):
        calls = 0

        def texts(self, texts):
            Counting.calls += len(texts)
            return super().texts(texts)

    demos = [step("d1"), step("d2", elements=())]
    batch = [StepWithMemory(step(f"q{i}"), demos[i % 2], 0.1) for i in range(6)]
    vectors = Vectors(Counting(dim=32), keep=1)
    rows = vectors(batch)
    assert Counting.calls == 2 + 6  # two demonstrations, six instructions
    for item, row in zip(batch, rows, strict=True):
        assert torch.equal(row["text"], text_candidates([item.memory], EMBEDDER)[0])
        assert torch.equal(row["image"], image_candidates([item.memory], EMBEDDER)[0])
        assert torch.equal(row["instruction"], EMBEDDER.texts(["Open it"])[0])
        assert torch.equal(row["screenshot"], EMBEDDER.multimodal([("", SHOT.image())])[0])
    again = vectors(batch)  # with room for one demonstration only
    assert all(torch.equal(a[name], b[name]) for a, b in zip(rows, again, strict=True) for name in a)


def test_shards_hold_every_record_and_resume_counts_on(tmp_path):
    fill(tmp_path, [("a", 0), ("a", 1), ("b", 0)])
    assert sorted(p.name for p in tmp_path.glob("rank-*")) == [
        f"rank-000-0000{n}.{suffix}" for n in (0, 1) for suffix in ("json", "safetensors")
    ]
    assert done_ids(tmp_path) == {"bench/a/0", "bench/a/1", "bench/b/0"}
    tensors = load_file(tmp_path / "rank-000-00000.safetensors")
    assert tensors["states.text"].shape == (2, 3, 4) and tensors["scores.image"].tolist() == [[0.5, 0.0]] * 2
    fill(tmp_path, [("c", 0)])
    fill(tmp_path, [("d", 0)], rank=1)
    assert [shard.name for shard in read_shards(tmp_path)] == [
        "rank-000-00000",
        "rank-000-00001",
        "rank-000-00002",
        "rank-001-00000",
    ]
    assert len(done_ids(tmp_path)) == 5


def test_what_a_killed_writer_leaves_is_ignored_and_written_over(tmp_path):
    ids = fill(tmp_path, [("a", 0), ("b", 0)])
    (tmp_path / ".rank-000-00001.77.tmp").write_bytes(b"half")
    (tmp_path / "rank-000-00001.safetensors").write_bytes(b"renamed, but its json never came")
    assert done_ids(tmp_path) == set(ids)
    ids += fill(tmp_path, [("c", 0)])
    assert merge(tmp_path, ids)["records"] == 3
    assert not list(tmp_path.glob(".*"))


def test_a_record_waits_no_longer_than_flush_seconds(tmp_path):
    writer = HarvestWriter(tmp_path, records_per_shard=100, flush_seconds=0.0)
    writer.append(record("a"))
    assert done_ids(tmp_path) == {"bench/a/0"}


def test_writer_refuses_records_of_another_shape(tmp_path):
    writer = HarvestWriter(tmp_path)
    writer.append(record("a"))
    other = dataclasses.replace(record("b"), states={"state": torch.zeros(2, 4)})
    with pytest.raises(HarvestError, match="same tensors.*states.state.*'bench/b/0'"):
        writer.append(other)
    with pytest.raises(HarvestError, match="`records_per_shard` must be at least 1, got 0"):
        HarvestWriter(tmp_path, records_per_shard=0)


def test_harvest_reads_back_in_order_of_trajectory_and_index_whatever_wrote_it(tmp_path):
    names = [("b", 0), ("a", 10), ("c", 0), ("a", 2)]
    ids = fill(tmp_path, names[:3]) + fill(tmp_path, names[3:], rank=1)
    merge(tmp_path, ids)
    harvest = Harvest.open(tmp_path, ids)
    assert harvest.complete and not harvest.missing and len(harvest) == 4
    assert harvest.step_ids == ("bench/a/2", "bench/a/10", "bench/b/0", "bench/c/0")
    assert harvest.trajectories == ("bench/a", "bench/a", "bench/b", "bench/c")
    assert harvest.layers == (0, 3, 5) and set(harvest.conditions) == {"text", "image"}
    expected = [record("a", 2, 100), record("a", 10, 1), record("b", 0, 0), record("c", 0, 2)]
    for name in ("state", "text", "image"):
        for position, layer in enumerate(harvest.layers):
            rows = torch.stack([r.states[name][position] for r in expected])
            assert torch.equal(harvest.states(name, layer), rows)
        assert torch.equal(harvest.states(name), rows)  # -1 is the last one
    for name in ("text", "image", "instruction", "screenshot"):
        assert torch.equal(harvest.embeddings(name), torch.stack([r.embeddings[name] for r in expected]))
    assert harvest.scores("image").dtype == torch.float64
    assert harvest.scores("image").tolist() == [[0.5, 0.0]] * 4
    assert harvest.answers("text") == [["0.25 0.5", "nonsense"]] * 4
    assert harvest.reasons("image") == [[None, "empty"]] * 4
    assert harvest.actions("text")[0][1] is None
    assert harvest.context("index") == [2, 10, 0, 0] and harvest.cosines.tolist() == [0.75] * 4
    assert harvest.memory_ids == ("bench/demo/0",) * 4
    assert harvest.parse_failures() == {"text": {"bad_syntax": 4}, "image": {"empty": 4}}


def test_harvest_names_what_it_has_when_asked_for_something_else(tmp_path):
    fill(tmp_path, [("a", 0)])
    harvest = Harvest.open(tmp_path)
    assert not harvest.complete
    with pytest.raises(HarvestError, match=r"`layer` must be one of \(0, 3, 5\) or -1, got 4"):
        harvest.states("state", 4)
    with pytest.raises(HarvestError, match="`states.both` must be one of"):
        harvest.states("both")
    with pytest.raises(HarvestError, match="`answers` must be of one of.*got 'none'"):
        harvest.answers("none")
    with pytest.raises(HarvestError, match="must be a finished harvest"):
        harvest.manifest  # noqa: B018
    bind_settings(tmp_path / "empty", SETTINGS)
    with pytest.raises(HarvestError, match="must hold at least one record"):
        Harvest.open(tmp_path / "empty").scores("text")
    with pytest.raises(HarvestError, match="must be a harvest folder"):
        Harvest.open(tmp_path / "absent")


def test_manifest_says_what_is_there(tmp_path):
    ids = fill(tmp_path, [("b", 0), ("a", 0), ("c", 0)])
    manifest = merge(tmp_path, reversed(ids), {"bench/x/0": "no memory"})
    assert manifest == Harvest.open(tmp_path).manifest
    assert manifest["step_ids"] == sorted(ids) and manifest["skipped"] == {"bench/x/0": "no memory"}
    assert manifest["parse_failures"] == {"text": {"bad_syntax": 3}, "image": {"empty": 3}}
    assert [shard["records"] for shard in manifest["shards"]] == [2, 1] and manifest["settings"] == SETTINGS


def test_merge_refuses_missing_foreign_and_doubled_steps_and_keeps_all(tmp_path):
    ids = fill(tmp_path, [("a", 0), ("b", 0)])
    with pytest.raises(HarvestError, match="each of 3 steps once, got 2 records: 1 missing .first 'bench/c/0'"):
        merge(tmp_path, [*ids, "bench/c/0"])
    with pytest.raises(HarvestError, match="1 not expected .first 'bench/b/0'"):
        merge(tmp_path, ids[:1])
    assert not Harvest.is_complete(tmp_path) and Harvest.open(tmp_path, [*ids, "bench/c/0"]).missing == ("bench/c/0",)
    fill(tmp_path, [("b", 0)], rank=1)
    with pytest.raises(HarvestError, match="1 twice .first 'bench/b/0'"):
        merge(tmp_path, ids)
    with pytest.raises(HarvestError, match="1 more than once, the first 'bench/b/0'"):
        Harvest.open(tmp_path)
    assert done_ids(tmp_path) == set(ids)


def test_a_step_found_damaged_is_skipped_by_id_and_not_missing(tmp_path):
    ids = fill(tmp_path, [("a", 0), ("b", 0)])
    for step_id in ("bench/d/0", "bench/c/\ud800/0", ids[0]):  # the last one was harvested all the same
        note_damaged(tmp_path, step_id, "its shard is cut off")
    damaged = ["bench/c/\ud800/0", "bench/d/0"]
    assert list(read_damaged(tmp_path)) == [ids[0], *damaged]
    manifest = merge(tmp_path, [*ids, *damaged], {"bench/x/0": "no memory"})
    assert manifest["skipped"] == {**dict.fromkeys(damaged, "its shard is cut off"), "bench/x/0": "no memory"}
    assert len(Harvest.open(tmp_path)) == 2 and Harvest.open(tmp_path).manifest == manifest
    with pytest.raises(HarvestError, match="1 missing .first 'bench/e/0'"):
        merge(tmp_path, [*ids, *damaged, "bench/e/0"])
    plan = HarvestPlan.open("test", tmp_path, [*ids, *damaged], {}, EMBEDDER)
    assert plan.todo == tuple(damaged) and not read_damaged(tmp_path)  # a later pass reads them afresh


def test_a_checking_rank_does_not_write(tmp_path):
    ids = fill(tmp_path, [("a", 0)])
    merge(tmp_path, ids, write=False)
    assert not Harvest.is_complete(tmp_path)


def test_damage_is_found_and_the_way_out_works(tmp_path):
    ids = fill(tmp_path, [("a", 0), ("b", 0), ("c", 0)])
    path = tmp_path / "rank-000-00000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(HarvestError, match="other content"):
        merge(tmp_path, ids)
    path.write_bytes(data[:-4])
    with pytest.raises(HarvestError, match="Delete it and its .json beside it.*only its 2 steps"):
        done_ids(tmp_path)
    path.unlink()
    path.with_suffix(".json").unlink()
    assert done_ids(tmp_path) == {"bench/c/0"}
    (tmp_path / "rank-000-00001.json").write_text('{"rows": [')
    with pytest.raises(HarvestError, match="rank-000-00001.json must be a harvest shard's JSON"):
        read_shards(tmp_path)


def test_settings_are_bound_to_the_folder(tmp_path):
    bind_settings(tmp_path / "h", SETTINGS)
    bind_settings(tmp_path / "h", SETTINGS)
    assert read_settings(tmp_path / "h") == SETTINGS
    with pytest.raises(HarvestError, match="parameters_hash was 'abc' and is now 'xyz'"):
        bind_settings(tmp_path / "h", SETTINGS | {"parameters_hash": "xyz"})
    (tmp_path / "h" / "settings.json").write_text("{")
    with pytest.raises(HarvestError, match="must be a harvest folder"):
        read_settings(tmp_path / "h")


def test_plan_leaves_out_what_is_done(tmp_path):
    ids = fill(tmp_path, [("a", 0), ("b", 0)])
    plan = HarvestPlan.open("test", tmp_path, [*ids, "bench/c/0"], {"bench/x/0": "damaged"}, EMBEDDER)
    assert plan.todo == ("bench/c/0",) and plan.expected_ids == (*ids, "bench/c/0")
    assert HarvestPlan.open("test", tmp_path / "new", ids, {}, EMBEDDER).todo == tuple(ids)


def test_record_is_a_value():
    assert isinstance(record("a"), Record)
    assert record("a").row() == record("a").row()
