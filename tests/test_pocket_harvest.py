"""The pocket actor's sampled actions are the same for any batch size, number of ranks, and after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchmem.harvest import Harvest

SMALL = "--data.init_args.apps 2 --data.init_args.episodes 3 --data.init_args.test_apps 1"


def command(project: Path, *flags: str) -> list[str]:
    return [sys.executable, str(project / "train.py"), "harvest", "--config", "pocket.yaml", *SMALL.split(), *flags]


def harvest(project: Path, folder: Path, *flags: str) -> Harvest:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(command(project, *flags), cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (found,) = (folder / "runs" / "stages").glob("harvest-*/manifest.json")
    return Harvest.open(found.parent)


@pytest.fixture(scope="module")
def plain(project, tmp_path_factory) -> Harvest:
    return harvest(project, tmp_path_factory.mktemp("plain"), "--data.init_args.batch_size=8")


def assert_same(one: Harvest, other: Harvest) -> None:
    assert one.step_ids == other.step_ids and len(one) > 15
    for condition in ("text", "image"):
        assert one.answers(condition) == other.answers(condition)
        assert one.actions(condition) == other.actions(condition)
        assert (one.scores(condition) == other.scores(condition)).all()


@pytest.mark.slow
def test_batch_size_changes_no_answer(project, tmp_path, plain):
    assert_same(plain, harvest(project, tmp_path, "--data.init_args.batch_size=1"))


@pytest.mark.slow
def test_two_ranks_change_no_answer(project, tmp_path, plain):
    ranks = ["--trainer.devices=2", "--trainer.strategy=ddp"]
    assert_same(plain, harvest(project, tmp_path, *ranks))


@pytest.mark.slow
def test_a_kill_changes_no_answer(project, tmp_path, plain):
    flags = ["--data.init_args.batch_size=1"]
    process = subprocess.Popen(
        command(project, *flags), cwd=tmp_path, start_new_session=True, stdout=subprocess.DEVNULL
    )
    # as soon as the harvest has begun: some of its steps are done, none or few of them kept
    while process.poll() is None and not list(tmp_path.glob("runs/stages/harvest-*/*")):
        time.sleep(0.05)
    time.sleep(0.3)
    killed = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL) if killed else None
    process.wait()
    assert killed, "the harvest was over before it could be killed"
    assert not list(tmp_path.glob("runs/stages/harvest-*/manifest.json"))
    assert_same(plain, harvest(project, tmp_path, *flags))
