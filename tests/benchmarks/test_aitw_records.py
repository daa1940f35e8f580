"""AITW's shards as they come: every oddity of the real records, from any place, in bounded memory."""

import gzip
import json
import subprocess
import sys

import fsspec
import numpy as np
import pytest
from tfrecord.writer import TFRecordWriter

from switchmem.benchmarks import DataError, DataReport
from switchmem.benchmarks.aitw import AitwBenchmark, actions_match
from switchmem.benchmarks.aitw.records import AitwReader, find_shards, is_shard, read_tfrecords
from switchmem.benchmarks.convert import convert, survey
from switchmem.benchmarks.sources import find_files
from switchmem.benchmarks.store import StepStore
from switchmem.steps import Action, ActionType


def silent(done, total):
    pass


@pytest.fixture
def write(write_tfrecord, encode_example, aitw_features, tmp_path):
    """Write a shard of records; each is a dict of changed features."""

    def go(*records, name="general/general-00000-of-00002"):
        return write_tfrecord(tmp_path / "data" / name, [encode_example(aitw_features(**r)) for r in records])

    return go


@pytest.fixture
def both(tmp_path):
    """Read what was written in one go, and by survey and conversion; they must say the same."""

    def go():
        report = DataReport()
        steps = list(read_tfrecords([tmp_path / "data"], report))
        files = find_files(tmp_path / "data", is_shard)
        found = survey(AitwReader(), files, tmp_path / "survey", 1, silent)
        assert found.report == report
        ids = [step_id for episode in found.episodes for step_id in episode.step_ids]
        assert sorted(ids) == sorted(step.step_id for step in steps)
        convert(AitwReader(), found, {"all": ids}, tmp_path / "steps", 1, silent)
        store = StepStore(tmp_path / "steps" / "all")
        assert list(store.iterate(store.step_ids)) == steps
        return steps, report

    return go


def step(index, episode=b"7", **changes):
    return {"step_id": [index], "episode_id": [episode], **changes}


def end(index, episode=b"7", number=10):
    return step(index, episode, **{"results/action_type": [number]})


def test_a_whole_episode_needs_no_note(write, both):
    write(step(0), end(1))
    steps, report = both()
    assert [s.step_id for s in steps] == ["aitw/7/0", "aitw/7/1"]
    assert report.notes == {"episodes": 1, "episodes_incomplete": 0}


@pytest.mark.parametrize(
    "records, notes",
    [
        ([step(0)], {"incomplete": 1, "without_end": 1}),  # truncated
        ([end(1), step(0)], {"incomplete": 0, "out_of_order": 1}),  # the end is the highest index, wherever it stands
        ([step(3), end(9)], {"incomplete": 0, "not_numbered_through": 1}),
        ([step(1), end(2)], {"incomplete": 0, "not_numbered_through": 1}),
        ([step(0), step(1)], {"incomplete": 0, "without_end": 1}),
        ([step(0), end(1, number=11)], {"incomplete": 0}),
        ([step(0, episode_length=None), end(1, number=11) | {"episode_length": None}], {"incomplete": 0}),
    ],
)
def test_what_is_unusual_about_an_episode_is_counted(write, both, records, notes):
    write(*records, step(0, b"8", episode_length=[1], **{"results/action_type": [10]}))
    steps, report = both()
    assert len(steps) == len(records) + 1
    assert report.faults == []
    assert report.notes == {"episodes": 2} | {f"episodes_{name}": count for name, count in notes.items()}
    assert [s.index for s in steps[:-1]] == [record["step_id"][0] for record in records]  # kept as they are


def test_an_episode_over_two_shards_is_one(write, both):
    write(step(0))
    write(end(1), name="general/general-00001-of-00002")
    steps, report = both()
    assert [s.index for s in steps] == [0, 1]
    assert report.notes == {"episodes": 1, "episodes_incomplete": 0, "episodes_in_several_files": 1}


def test_a_repeated_step_is_kept_once_and_counts_no_step_more(write, both):
    write(step(0), step(0, goal_info=[b"another goal"]), step(0, episode_length=[3]))
    write(step(0), end(1), name="general/general-00001-of-00002")
    steps, report = both()
    assert [(s.index, s.instruction) for s in steps] == [(0, "open the clock"), (1, "open the clock")]
    assert [fault.id for fault in report.faults] == ["aitw/7/0"] * 3
    assert (report.read, report.kept) == (5, 2)


def test_ids_of_single_steps_hold_a_goal_with_slashes(write, both):
    name = '12345678901234567890.0-3.open "a/b" and ’café’/../x  '
    write(step(0, name.encode()), end(1, name.encode()), name="single/single-00000-of-00001")
    steps, report = both()
    assert [s.step_id for s in steps] == [f"aitw/{name}/0", f"aitw/{name}/1"]
    assert {s.category for s in steps} == {"single"} and report.notes["episodes"] == 1


def test_ids_that_are_no_text_are_faults_and_never_one_episode(write, both):
    write(step(0, b"bad\xff"), step(1, b"bad\xfe"), end(0))
    steps, report = both()
    assert [s.step_id for s in steps] == ["aitw/7/0"]
    assert [fault.id.rpartition("#")[2] for fault in report.faults] == ["record-0", "record-1"]
    assert "`episode_id` must be UTF-8, got b'bad\\xff'" in report.faults[0].reason


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["no byte", "gzip of nothing"])
def test_a_shard_without_a_record_is_a_fault(write, both, content):
    write(end(0))
    empty = write(name="general/general-00001-of-00002")
    empty.write_bytes(content)
    steps, report = both()
    assert len(steps) == 1 and report.read == 2
    assert [(f.id, f.reason) for f in report.faults] == [
        ("aitw/general-00001-of-00002#record-0", "the file holds no record. Fetch it again.")
    ]


def test_types_written_as_words_are_faults(write, both):
    write(step(0, **{"results/action_type": [b"DUAL_POINT"]}), end(1))
    steps, report = both()
    assert [s.index for s in steps] == [1]
    assert report.faults[0].id == "aitw/7/0" and "`results/action_type` is missing or of another kind" in str(report)


@pytest.mark.parametrize("bad", [[np.nan, 0.5, 0.1, 0.1], [np.inf, 0.5, -np.inf, 0.1], [0.1, 0.1, 0.1, np.inf]])
def test_an_annotation_without_a_place_is_dropped_alone(write, both, bad):
    positions = {"image/ui_annotations_positions": [*bad, 0.5, 0.0, 0.5, 1.0]}
    write(step(0, **positions), end(1))
    steps, report = both()
    assert [element.kind for element in steps[0].elements] == ["ICON_STAR"]
    assert report.notes["elements_dropped"] == 1


def test_boxes_over_the_edge_are_cut_and_equal_a_plain_loop(write, both):
    boxes = np.random.default_rng(0).uniform(-0.3, 1.2, (50, 4)).astype(np.float32)
    boxes[:, 2:] = abs(boxes[:, 2:])
    names = {f"image/ui_annotations_{key}": [b"x"] * 50 for key in ("text", "ui_types")}
    write(step(0, **names, **{"image/ui_annotations_positions": boxes.ravel().tolist()}), end(1))
    steps, _ = both()
    for element, row in zip(steps[0].elements, boxes.tolist(), strict=True):
        y, x, height, width = row
        corners = (x, y, x + width, y + height)
        assert element.box == tuple(min(max(value, 0.0), 1.0) for value in corners)


def test_shards_come_from_any_url(write, tmp_path):
    data = write(step(0), end(1)).read_bytes()
    local = list(read_tfrecords([tmp_path / "data"], DataReport()))
    memory = fsspec.filesystem("memory")
    memory.pipe("/aitw-test/general/general-00000-of-00001", data)
    for url in ("memory://aitw-test", "memory://aitw-test/general/general-00000-of-00001"):
        assert list(read_tfrecords([url], DataReport())) == local
    memory.rm("/aitw-test", recursive=True)
    with pytest.raises(DataError, match=r"memory://aitw-test.*general/general-00000-of-00321"):
        find_shards(["memory://aitw-test"])


def test_a_failing_disk_is_no_damaged_shard(write, tmp_path):
    path = write(step(0), end(1))
    (source,) = find_shards([tmp_path / "data"])
    path.write_bytes(path.read_bytes()[:-9])
    report = DataReport()
    with pytest.raises(DataError, match="has changed since it was listed"):
        list(AitwReader().survey(source, report))


LONG = """
import sys
from pathlib import Path
from switchmem.benchmarks.aitw.records import AitwReader, is_shard
from switchmem.benchmarks.convert import convert, survey
from switchmem.benchmarks.sources import find_files

folder = Path(sys.argv[1])
silent = lambda done, total: None
found = survey(AitwReader(), find_files(folder / "data", is_shard), folder / "survey", 1, silent)
ids = [step_id for episode in found.episodes for step_id in episode.step_ids]
print(convert(found.reader, found, {"all": ids}, folder / "steps", 1, silent)["all"])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_memory_does_not_grow_with_the_shard(aitw_features, project, tmp_path):
    """A shard of 300 screens, 525 MB once unzipped, in less than half of it."""
    plain, target = tmp_path / "plain", tmp_path / "data" / "general" / "general-00000-of-00001"
    target.parent.mkdir(parents=True)
    kinds = {bytes: "byte", int: "int", float: "float"}
    with gzip.open(target, "wb", 1) as file:
        for index in range(300):
            size = {"image/height": [1080], "image/width": [540], "image/encoded": [bytes([index % 256]) * 1_749_600]}
            values = aitw_features(step_id=[index], episode_length=[300], **size)
            writer = TFRecordWriter(str(plain))
            writer.write({name: (value, kinds[type(value[0])]) for name, value in values.items()})
            writer.close()
            file.write(plain.read_bytes())
    command = [sys.executable, "-c", LONG, str(tmp_path)]
    out = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=True).stdout
    count, kilobytes = map(int, out.split())
    assert count == 300 and kilobytes < 250_000
    rows = json.loads((tmp_path / "steps/all/index.json").read_text())["shards"]
    assert [row["steps"] for row in rows] == [256, 44]


def test_a_box_that_leaves_the_screen_is_scored_as_recorded(write, both, aitw_features):
    """Its enlarged middle is another one than that of the part on the screen, which `Step` holds."""
    boxes = np.array([[0.1, -0.3, 0.1, 0.4], [0.5, 0.8, 0.25, 0.5], [0.7, 0.25, 0.2, 0.5]], np.float32)
    names = {f"image/ui_annotations_{name}": [b"", b"", b""] for name in ("text", "ui_types")}
    touch = {name: [0.15, 0.0] for name in ("results/yx_touch", "results/yx_lift")}
    write(step(0, **names, **touch, **{"image/ui_annotations_positions": boxes.ravel().tolist()}), end(1))
    gold = both()[0][0]
    assert gold.elements[2].recorded is None
    assert gold.elements[0].box[0] == 0.0 and gold.elements[0].recorded[0] == np.float32(-0.3)
    decided = []
    for x in np.linspace(0, 1, 101):
        other = Action(ActionType.TAP, (float(x), 0.15))
        yx = [0.15, float(x)]
        expected = actions_match(yx, yx, 4, [0.15, 0.0], [0.15, 0.0], 4, boxes)
        assert AitwBenchmark().score(other, gold) == expected
        cut = [(e.box[1], e.box[0], e.box[3] - e.box[1], e.box[2] - e.box[0]) for e in gold.elements]
        decided.append(expected != actions_match(yx, yx, 4, [0.15, 0.0], [0.15, 0.0], 4, cut))
    assert any(decided)  # the boxes on the screen alone would have said something else
