"""LearnGUI from its files to results: parts, supports, guidance, and both commands on a small release."""

import json
import os
import shutil

import pytest
import torch
from desk import Desk
from learngui_release import ONLINE, Release, task, write

from data_modules import LearnGuiDataModule
from switchmem.actors.grammars.mobile_use import MobileUseGrammar
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.memory.embedder import HashingEmbedder
from switchmem.stages import Stages


@pytest.fixture
def release(tmp_path):
    return Release(tmp_path / "learngui")


def module(release, tmp_path, **options):
    data = LearnGuiDataModule(str(release.root), **options)
    data.place(Stages(tmp_path / "stages"), HashingEmbedder(dim=64))
    return data


def episodes(part):
    return {part.meta(step_id).episode_id for step_id in part.step_ids}


def test_links_to_nothing_and_pipes_cost_what_they_stand_for(release, tmp_path):
    """A purged cache leaves links to nothing; the rest of the release can still be used."""
    release.write()
    online = release.online_folder / "low_level_instructions"
    (online / "gone.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(online / "pipe.json")
    for path in (release.raw / "o0" / "o0_1.png", release.anno / "q0_1.json"):
        path.unlink()
        path.symlink_to(tmp_path / "nowhere")
    data = module(release, tmp_path)
    data.prepare_memory("test")
    faults = {fault.id: fault.reason for fault in data.data_report().faults}
    below = "learngui/online/low_level_instructions"
    assert set(faults) == {f"{below}/gone.json", f"{below}/pipe.json", "learngui/o0/1"}
    assert "cannot be read: No such file" in faults[f"{below}/gone.json"]
    assert "must be a regular file" in faults[f"{below}/pipe.json"]
    assert "o0_1.png cannot be read: No such file" in faults["learngui/o0/1"]
    assert data.data_report().notes["steps_without_an_element_annotation"] >= 1
    before = data.steps_stage.key
    (tmp_path / "nowhere").write_bytes(b"{}")  # what the links lead to is there again
    assert module(release, tmp_path).steps_stage.key != before


def test_a_root_that_no_file_system_takes_is_told():
    with pytest.raises(DataError, match="missing or not complete"):
        LearnGuiDataModule("x" * 300)


def test_who_is_in_which_part(release, tmp_path):
    data = module(release.write(), tmp_path)
    for part in ("preference", "test"):
        data.prepare_memory(part)
    assert episodes(data.part("preference")) == episodes(data.part("bank")) == set(ONLINE)
    assert episodes(data.part("test")) == {"q0", "q1", "q2"}
    assert episodes(data.part("test_bank")) == {"s0", "s1", "s2"}
    report = data.data_report()
    assert not report.faults and report.read == report.kept == 4 * 5 + 3 * 5 + 3 * 5
    counts = {
        "episodes_in_preference_and_test": 0,
        "episodes_in_preference": 4,
        "episodes_in_preference_that_are_test_supports": 0,
        "test_queries": 3,
        "test_queries_without_a_support": 0,
        "test_queries_that_are_supports_of_others": 0,
        "test_queries_that_are_their_own_support": 0,
        "test_supports": 3,
    }
    assert counts.items() <= report.notes.items()


@pytest.mark.parametrize("k_shot", [1, 2, 3])
def test_a_query_retrieves_from_its_own_supports_alone(release, tmp_path, k_shot):
    data = module(release.write(), tmp_path, k_shot=k_shot)
    data.prepare_memory("test")
    listed = {"q0": ("s0", "s1", "s2"), "q1": ("s1", "s2", "s3"), "q2": ("s2", "s0", "s1")}
    hits = data.pairs("test").hits
    assert len(hits) == 15
    for query, hit in hits.items():
        assert hit.step_id.split("/")[1] in listed[query.split("/")[1]][:k_shot]
    queries, bank = data.part("test").step_ids, data.part("test_bank").step_ids
    expected = [[b.split("/")[1] in listed[q.split("/")[1]][:k_shot] for b in bank] for q in queries]
    # another process, which finds the steps written, knows the supports too
    allowed = module(release, tmp_path, k_shot=k_shot).allowed("test", queries, bank)
    assert allowed.dtype is torch.bool and torch.equal(allowed, torch.tensor(expected))
    assert data.allowed("preference", queries, bank) is None


def test_preference_queries_never_retrieve_from_their_own_trajectory(release, tmp_path):
    data = module(release.write(), tmp_path)
    data.prepare_memory("preference")
    hits = data.pairs("preference").hits
    assert len(hits) == 20
    assert all(query.split("/")[1] != hit.step_id.split("/")[1] for query, hit in hits.items())


def test_queries_that_are_supports_online_or_their_own_support(release, tmp_path):
    release.tasks = [
        task("q0", ("q0",)),  # only itself: no support
        task("q1", ("q1", "q2", "s0")),  # a test query as the support of another
        task("q2", ("nowhere", "s1")),
    ]
    release.online = {name: release.episode(name, shots="o/") for name in ("o0", "o1", "q1", "s1")}
    data = module(release.write(), tmp_path)
    for part in ("preference", "test"):
        data.prepare_memory(part)
    assert episodes(data.part("preference")) == {"o0", "o1", "s1"}
    assert episodes(data.part("test_bank")) == {"q2", "s1"}
    hits = data.pairs("test").hits
    assert {(q.split("/")[1], h.step_id.split("/")[1]) for q, h in hits.items()} == {("q1", "q2"), ("q2", "s1")}
    skipped = data.pairs("test").skipped
    assert sorted(skipped) == [f"learngui/q0/{n}" for n in range(5)]
    report = data.data_report()
    told = {fault.id: fault.reason for fault in report.faults}
    assert "no usable demonstration; listed: none" in told["learngui/q0"]
    assert "test query too" in told["learngui/q1"]
    assert set(skipped) <= set(told)
    counts = {
        "episodes_in_preference_and_test": 0,
        "episodes_in_preference_that_are_test_supports": 1,
        "test_queries_without_a_support": 1,
        "test_queries_that_are_supports_of_others": 1,
        "test_queries_that_are_their_own_support": 0,
        "tasks_that_list_their_query_as_support": 2,
        "test_without_memory": 5,
    }
    assert counts.items() <= report.notes.items()
    assert report.read == report.kept == 15 + 15 + 5  # what is query and support is counted once


def test_official_and_corrected_never_share_a_stage(release, tmp_path):
    release.write()
    official, corrected = module(release, tmp_path), module(release, tmp_path, score="corrected")
    assert official.steps_stage.key != corrected.steps_stage.key
    assert not official.notes and "no number compares" in corrected.notes[0]
    corrected.prepare_steps()
    assert all(step_id.startswith("learngui_corrected/") for step_id in corrected.part("test").step_ids)


def test_the_stage_follows_files_and_settings(release, tmp_path):
    release.write()
    keys = [module(release, tmp_path).steps_stage.key, module(release, tmp_path, k_shot=2).steps_stage.key]
    assert module(release, tmp_path, seed=7).steps_stage.key == keys[0]
    moved = tmp_path / "moved"
    shutil.copytree(release.root, moved)
    assert module(Release(moved), tmp_path).steps_stage.key == keys[0]
    release.picture(release.screens / "more.png")
    keys.append(module(release, tmp_path).steps_stage.key)
    write(release.anno / "q0_0.json", {"clickable_elements": []})
    keys.append(module(release, tmp_path).steps_stage.key)
    write(release.online_folder / "low_level_instructions" / "o9.json", release.episode("o9"))
    keys.append(module(release, tmp_path).steps_stage.key)
    assert len(set(keys)) == 5


@pytest.mark.parametrize(("option", "value"), [("k_shot", 4), ("k_shot", 0), ("score", "other"), ("batch_size", 0)])
def test_arguments_out_of_range(release, tmp_path, option, value):
    with pytest.raises(DataError, match=f"`{option}` must be"):
        module(release.write(), tmp_path, **{option: value})


def test_a_part_without_a_usable_step_names_what_was_left_out(release, tmp_path):
    release.write()
    for file in release.raw.rglob("*.png"):
        file.write_bytes(b"broken")
    with pytest.raises(DataError, match=r"(?s)No usable step in .*learngui/o0/0: .*data_report.json"):
        module(release, tmp_path).prepare_steps()


def test_ids_with_slashes(release, tmp_path):
    release.episodes = {f"a/{name}": episode for name, episode in release.episodes.items()}
    release.tasks = [task("a/q0", ("a/s0",)), task("a/q1", ("a/s1",))]
    data = module(release.write(), tmp_path)
    data.prepare_memory("test")
    pairs = {(q.rpartition("/")[0], h.step_id.rpartition("/")[0]) for q, h in data.pairs("test").hits.items()}
    assert pairs == {("learngui/a/q0", "learngui/a/s0"), ("learngui/a/q1", "learngui/a/s1")}


# --- the config ---


def fit_and_test(desk, *flags):
    flags = ["--config=learngui.yaml", "--memory.name=hashing", "--memory.dim=64", *flags]
    flags += ["--study.bootstrap=100", "--trainer.fast_dev_run=1", "--data.init_args.num_workers=0"]
    assert desk("fit", small=flags) == 0 and desk("test", small=flags) == 0
    return json.loads((desk.folder / "runs" / "stages" / "fast_dev_run" / "results.json").read_text())


@pytest.mark.parametrize("score", ["official", "corrected"])
def test_the_config_from_files_to_results(release, tmp_path, monkeypatch, score):
    data = LearnGuiDataModule(str(release.write().root), score=score)
    parts = data.read(DataReport())
    grammar = MobileUseGrammar()
    answers = {s.step_id: grammar.action(s.action) for part in ("preference", "test") for s in parts[part]}
    desk = Desk(tmp_path / "desk", monkeypatch, answers)
    results = fit_and_test(desk, f"--data.init_args.root={release.root}", f"--data.init_args.score={score}")
    assert results["benchmark"] == {"official": "learngui", "corrected": "learngui_corrected"}[score]
    assert (results["n_steps"], results["n_trajectories"]) == (15, 3)
    assert any("no number compares" in note for note in results["notes"]) == (score == "corrected")


def test_without_data_the_config_stops_at_once_and_says_all(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path / "desk", monkeypatch, answers={})
    for command in ("prepare", "fit"):
        assert desk(command, small=["--config=learngui.yaml"]) == 1
        told = capsys.readouterr().err
        for words in (
            "offline/task_split.json",
            str(desk.folder / "data" / "learngui"),
            "lgy0404/LearnGUI",
            "pocket.yaml",
        ):
            assert words in told
    assert desk.loads == [] and not (desk.folder / "runs").exists()
