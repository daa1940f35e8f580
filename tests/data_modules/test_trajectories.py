"""Recorded folders: real ones where they are at hand, and what happens with too few."""

import json
import shutil
from typing import get_args

import pytest
from PIL import Image

from data_modules import TrajectoriesDataModule, split_by_trajectory
from data_modules.trajectories import READERS, Format
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.memory.embedder import HashingEmbedder
from switchmem.stages import Stages


def module(folder, root, **options):
    data = TrajectoriesDataModule(str(root), **options)
    data.place(Stages(folder), HashingEmbedder(dim=64))
    return data


def recorded(root, episodes=5, steps=3):
    """A folder in the JSONL layout; the first step of the second episode is broken."""
    root.mkdir()
    lines = []
    for number in range(episodes * steps):
        Image.new("RGB", (20, 40), (number, 0, 0)).save(root / f"{number}.png")
        identity = {"episode": number // steps, "step": number % steps, "instruction": f"go {number // steps}"}
        lines.append({**identity, "screenshot": f"{number}.png", "action": {"type": "back"}})
    lines[steps]["action"] = {"type": "fly"}
    (root / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def control(root, episodes=4):
    """A folder of AndroidControl-style episodes of two actions."""
    root.mkdir()
    Image.new("RGB", (20, 40)).save(root / "a.png")
    whole = {
        "goal": "go",
        "actions": [{"action_type": "wait"}, {"action_type": "navigate_back"}],
        "step_instructions": ["wait", "go back"],
        "screenshots": ["a.png"] * 3,
        "accessibility_trees": [[]] * 3,
        "screenshot_widths": [20] * 3,
        "screenshot_heights": [40] * 3,
    }
    (root / "episodes.json").write_text(json.dumps([{"episode_id": n, **whole} for n in range(episodes)]))
    return root


def test_every_format_has_a_reader():
    assert set(get_args(Format)) == set(READERS)


@pytest.mark.parametrize(
    "make, format, name, kept, faults",
    [(recorded, "jsonl", "recorded", 14, ["recorded/1/0"]), (control, "android_control", "android_control", 8, [])],
)
def test_other_formats(tmp_path, make, format, name, kept, faults):
    data = module(tmp_path / "stages", make(tmp_path / "data"), format=format)
    for part in ("preference", "test"):
        data.prepare_memory(part)
    report = data.data_report()
    assert (report.kept, [fault.id for fault in report.faults]) == (kept, faults)
    preference, test = data.part("preference"), data.part("test")
    assert len(preference) + len(test) == kept and {i.partition("/")[0] for i in preference.step_ids} == {name}
    runs = [{part.meta(i).trajectory for i in part.step_ids} for part in (preference, test)]
    assert len(runs[1]) == 1 and not runs[0] & runs[1]
    for query, hit in data.pairs("test").hits.items():
        assert test.meta(query).trajectory != preference.meta(hit.step_id).trajectory


def test_the_folder_is_read_once_and_nothing_is_left_beside_the_stage(tmp_path, monkeypatch):
    opened = []

    def read(root, report):
        opened.append(root)
        return READERS["jsonl"](root, report)

    data = module(tmp_path / "stages", recorded(tmp_path / "data"), format="jsonl")
    expected = {step.step_id: step for step in READERS["jsonl"](data.root, DataReport())}
    monkeypatch.setitem(READERS, "android_control", read)
    data.format = "android_control"
    left_over = data._copy
    left_over.mkdir(parents=True)
    (left_over / "index.json").write_text("of a killed run")
    data.prepare_steps()
    assert opened == [data.root]
    assert [path.name for path in (tmp_path / "stages").iterdir() if path.is_dir()] == [data.steps_stage.key]
    found = {i: data.part(part)[i] for part in ("preference", "test") for i in data.part(part).step_ids}
    assert found == expected


def test_nothing_is_left_where_the_data_is_refused(tmp_path):
    data = module(tmp_path / "stages", recorded(tmp_path / "data", episodes=2), format="jsonl")
    with pytest.raises(DataError, match="at least 3 trajectories.*got 2 .5 of 6 records kept, 1 fault"):
        data.prepare_steps()
    assert not data._copy.exists()


@pytest.mark.real_data
def test_real_runs_become_queries_with_memories_of_other_runs(tmp_path, real_data):
    data = module(tmp_path, real_data / "appagent_runs")
    for part in ("preference", "test"):
        data.prepare_memory(part)
    preference, test = data.part("preference"), data.part("test")
    runs = [{part.meta(i).trajectory for i in part.step_ids} for part in (preference, test)]
    assert len(runs[0]) >= 2 and len(runs[1]) >= 1 and not runs[0] & runs[1]
    names = sorted(runs[0] | runs[1])
    assert runs[1] == {names[i] for i in split_by_trajectory(names, 0.25, seed=42)[1]}
    assert data.part("bank").step_ids == data.part("test_bank").step_ids == preference.step_ids
    for part in (preference, test):
        for query, hit in data.pairs(part.name).hits.items():
            assert part.meta(query).trajectory != preference.meta(hit.step_id).trajectory
            assert -1.0 <= hit.cosine <= 1.0
    assert data.data_report().read > 0


@pytest.mark.real_data
def test_one_episode_is_too_few(tmp_path, real_data):
    data = module(tmp_path, real_data / "aitw" / "tfrecord", format="aitw_tfrecord")
    with pytest.raises(
        DataError, match="at least 3 trajectories with usable steps.*got 1 .4 of 4 records kept.*`own_trajectory`"
    ):
        data.prepare_memory("preference")


@pytest.mark.real_data
def test_one_episode_may_remember_itself_where_asked_to(tmp_path, real_data):
    data = module(tmp_path, real_data / "aitw" / "tfrecord", format="aitw_tfrecord", own_trajectory=True)
    data.prepare_memory("preference")
    hits, part = data.pairs("preference").hits, data.part("preference")
    assert set(hits) == set(part.step_ids) and len(hits) == 4
    assert all(query != hit.step_id for query, hit in hits.items())
    assert part.step_ids == data.part("bank").step_ids
    assert "results mean nothing" in data.notes[0]
    with pytest.raises(DataError, match="part 'test' must have steps, got none"):
        data.prepare_memory("test")


@pytest.mark.real_data
def test_a_fraction_that_leaves_no_memory_is_refused(tmp_path, real_data):
    with pytest.raises(DataError, match="`test_fraction` must leave at least 2 of"):
        module(tmp_path, real_data / "appagent_runs", test_fraction=0.99).prepare_steps()


@pytest.mark.real_data
def test_changed_files_are_another_stage(tmp_path, real_data):
    root = tmp_path / "runs"
    shutil.copytree(real_data / "appagent_runs", root)
    data = module(tmp_path / "stages", root)
    before = data.steps_stage.key
    assert data.steps_stage.key == before
    log = next(root.rglob("log_*.txt"))
    log.chmod(0o644)
    log.write_bytes(log.read_bytes() + b"\n")
    assert data.steps_stage.key != before


def test_missing_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match="`root` must be a folder or file of recorded runs, got .*absent"):
        module(tmp_path, tmp_path / "absent").prepare_steps()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="`root` must be a folder or file"):
        module(tmp_path, tmp_path / "empty").prepare_steps()
    with pytest.raises(DataError, match="`root` cannot be looked at: File name too long"):
        module(tmp_path, "x" * 300)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "zip"}, "`format` must be"),
        ({"test_fraction": 0.0}, "`test_fraction` must be"),
        ({"test_fraction": 1.0}, "`test_"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises(DataError, match=message):
        TrajectoriesDataModule("anywhere", **options)


def test_without_a_folder_the_formats_are_told():
    with pytest.raises(DataError, match="no folder is named") as error:
        TrajectoriesDataModule()
    assert all(name in str(error.value) for name in (*READERS, "--data.init_args.root DIR", "pocket.yaml"))


def test_a_forgotten_format_is_told(tmp_path):
    root = tmp_path / "mine"
    root.mkdir()
    (root / "steps.jsonl").write_text("{}\n")
    data = TrajectoriesDataModule(str(root))
    data.place(Stages(tmp_path / "stages"), HashingEmbedder(64))
    with pytest.raises(DataError, match="Add `--data.init_args.format jsonl`"):
        data.prepare_steps()
