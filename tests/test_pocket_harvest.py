"""The pocket actor's sampled actions are the same for any batch size, number of ranks, and after a kill."""

import os
from pathlib import Path

import pytest
from forked_ranks import launch, until, wait

from switchmem.cli import main
from switchmem.harvest import Harvest

SMALL = "--data.init_args.apps=2 --data.init_args.episodes=3 --data.init_args.test_apps=1".split()


def command(folder, devices, nodes, flags=()):
    """What each process runs."""
    os.chdir(folder)
    ranks = [f"--trainer.devices={devices}", "--trainer.strategy=ddp"] if devices > 1 else []
    raise SystemExit(main(["harvest", "--config=pocket.yaml", *SMALL, *ranks, *flags]))


def harvest(folder: Path, *flags: str, devices: int = 1) -> Harvest:
    ranks = launch(command, folder, devices, flags=flags)
    wait(ranks, 240)
    assert [rank.status for rank in ranks] == [0] * devices, [rank.said for rank in ranks]
    (found,) = (folder / "runs" / "stages").glob("harvest-*/manifest.json")
    return Harvest.open(found.parent)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Harvest:
    return harvest(tmp_path_factory.mktemp("plain"), "--data.init_args.batch_size=8")


def assert_same(one: Harvest, other: Harvest) -> None:
    assert one.step_ids == other.step_ids and len(one) > 15
    for condition in ("text", "image"):
        assert one.answers(condition) == other.answers(condition)
        assert one.actions(condition) == other.actions(condition)
        assert (one.scores(condition) == other.scores(condition)).all()


def test_batch_size_changes_no_answer(tmp_path, plain):
    assert_same(plain, harvest(tmp_path, "--data.init_args.batch_size=1"))


def test_two_ranks_change_no_answer(tmp_path, plain):
    assert_same(plain, harvest(tmp_path, devices=2))


def test_a_kill_changes_no_answer(tmp_path, plain):
    flags = ["--data.init_args.batch_size=1"]
    (rank,) = launch(command, tmp_path, flags=flags)
    # as soon as the harvest has begun: some of its steps are done, none or few of them kept
    assert until(lambda: rank.ended or "harvest of preference" in rank.said, 120)
    until(lambda: False, 0.3)
    assert not rank.ended, "the harvest was over before it could be killed"
    rank.kill()
    wait([rank])
    assert not list(tmp_path.glob("runs/stages/harvest-*/manifest.json"))
    assert_same(plain, harvest(tmp_path, *flags))
