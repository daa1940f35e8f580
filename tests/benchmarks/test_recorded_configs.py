"""The configs for recorded folders run the same path as the pocket world: fit and test, on small recordings."""

import json
import shutil

import pytest
from desk import Desk
from fake_actor import recorded_actions

from switchmem.benchmarks import DataReport
from switchmem.benchmarks.aitw import read_tfrecords
from switchmem.benchmarks.appagent import read_runs

EPISODES = 6
SHARDS = "--data.init_args.format=aitw_tfrecord"


@pytest.fixture
def runs(write_run, tmp_path):
    for number in range(EPISODES):
        answers = ["tap(1)", "tap(2)", 'text("hello")', "tap(1)", "tap(2)"]
        write_run(answers, folder=f"task_system_2024-01-0{number + 1}_00-00-00", task=f"do thing {number}")
    return tmp_path / "runs"


@pytest.fixture
def write_episodes(write_tfrecord, aitw_features, encode_example):
    def write(folder):
        for episode in range(EPISODES):
            records = [
                encode_example(aitw_features(episode_id=[b"%d" % episode], episode_length=[5], step_id=[step]))
                for step in range(5)
            ]
            write_tfrecord(folder / f"google_apps-{episode:05d}-of-{EPISODES:05d}", records)
        return folder

    return write


def fit_and_test(desk, root, *flags):
    flags = [
        "--config=trajectories.yaml",
        f"--data.init_args.root={root}",
        "--study.bootstrap=100",
        "--trainer.fast_dev_run=1",
        *flags,
    ]
    assert desk("fit", small=flags) == 0 and desk("test", small=flags) == 0
    return json.loads((desk.folder / "runs" / "stages" / "fast_dev_run" / "results.json").read_text())


def test_trajectories(runs, tmp_path, monkeypatch):
    answers = recorded_actions(read_runs(runs, DataReport()))
    results = fit_and_test(Desk(tmp_path / "desk", monkeypatch, answers), runs)
    assert results["benchmark"] == "appagent" and results["n_trajectories"] == 2
    assert "too few" in results["notes"][-1]


def test_aitw_shards(write_episodes, tmp_path, monkeypatch):
    root = write_episodes(tmp_path / "aitw")
    answers = recorded_actions(read_tfrecords([root], DataReport()))
    results = fit_and_test(Desk(tmp_path / "desk", monkeypatch, answers), root, SHARDS)
    assert results["benchmark"] == "aitw" and results["n_steps"] == 10


@pytest.mark.real_data
def test_the_real_episode_beside_others(real_data, write_episodes, tmp_path, monkeypatch):
    root = write_episodes(tmp_path / "aitw")
    (shard,) = (real_data / "aitw" / "tfrecord").iterdir()
    shutil.copy(shard, root / shard.name)
    steps = list(read_tfrecords([root], DataReport()))
    desk = Desk(tmp_path / "desk", monkeypatch, recorded_actions(steps))
    fit_and_test(desk, root, SHARDS)
    harvested = [
        step_id
        for path in (desk.folder / "runs" / "stages").glob("harvest-*/manifest.json")
        for step_id in json.loads(path.read_text())["step_ids"]
    ]
    real = {step.step_id for step in read_tfrecords([shard], DataReport())}
    assert len(real) == 4 and real <= set(harvested)
