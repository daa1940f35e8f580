"""A harvest whose ranks are killed at any moment holds, in the end, what an undisturbed one does."""

import json
import random
import signal

import pytest
from forked_ranks import launch, until, wait

from switchmem.harvest import Harvest, done_ids

STEPS, KILLS = 220, 20
SHAPES = ((1, 1), (2, 1), (3, 1), (1, 2), (1, 3))
"""(devices, machines) of a start."""
AT_LEAST = 10.0
"""Seconds that the steps still to do take all ranks together, so that none is through before it is killed."""
PROMPTLY = 20.0
"""Seconds, on a machine that may be busy; mostly it takes a tenth of one."""
GONE = "has ended without a word: killed, out of memory, or its machine is lost"


def at_work(rank):
    return "steps to do" in rank.said


def interrupted(fake, folder, lot):
    """One start, and one kill at a random moment."""
    devices, nodes = lot.choice(SHAPES)
    left = STEPS - len(done_ids(folder / "harvest"))
    ranks = launch(fake.run, folder, devices, nodes, steps=STEPS, batch=2, delay=AT_LEAST / left)
    victim = lot.choice(ranks)
    if lot.random() < 0.75:  # else while it starts
        assert until(lambda: victim.ended or at_work(victim), 60), victim.said
    until(lambda: victim.ended, lot.uniform(0.0, 0.5))
    met = at_work(victim)
    for rank in ranks if lot.random() < 0.2 or not met else [victim]:
        rank.kill()  # ranks that have not met each other yet are ended by what launched them
    wait(ranks, PROMPTLY)
    for rank in ranks:
        assert rank.status in (-signal.SIGKILL, 1), rank.said
        if rank.status == 1:
            assert GONE in rank.said and "the same command goes on from there" in rank.said
            assert "Traceback" not in rank.said


@pytest.mark.slow
def test_twenty_kills_of_any_rank_at_any_moment_change_nothing(fake, tmp_path):
    lot, folder = random.Random(7), tmp_path / "killed"
    for _ in range(KILLS):
        interrupted(fake, folder, lot)
    begun = len(done_ids(folder / "harvest"))
    assert 0 < begun < STEPS and not Harvest.is_complete(folder / "harvest")
    wait(launch(fake.run, folder, devices=3, steps=STEPS, batch=5))
    harvest = Harvest.open(folder / "harvest")
    assert harvest.complete and len(harvest) == STEPS
    assert fake.same(harvest, fake.run(tmp_path / "calm", steps=STEPS))


def test_two_ranks_with_two_workers_cover_every_step_once(fake, tmp_path):
    ranks = launch(fake.run, tmp_path / "b", devices=2, steps=23, workers=2)
    wait(ranks)
    harvest = Harvest.open(tmp_path / "b" / "harvest")
    assert harvest.complete and len(harvest) == 23
    assert {shard["name"][:8] for shard in harvest.manifest["shards"]} == {"rank-000", "rank-001"}
    assert fake.same(harvest, fake.run(tmp_path / "a", steps=23))
    for rank, steps in enumerate((12, 11)):
        assert f"rank {rank} of 2: {steps} steps to do" in ranks[rank].said


def test_a_failing_rank_is_told_by_the_others_and_nothing_is_lost(fake, tmp_path):
    ranks = launch(fake.run, tmp_path / "b", devices=2, steps=30, batch=1, delay=0.02, fail={1: 5})
    wait(ranks, PROMPTLY)
    assert [rank.status for rank in ranks] == [1, 1]
    assert "rank 1 of 2 stops: out of memory" in ranks[0].said and "Rank 0 ends too" in ranks[0].said
    assert "Traceback" not in ranks[0].said and "RuntimeError: out of memory" in ranks[1].said
    # five steps of rank 1, and whatever rank 0 had observed by then, its open shard included
    kept = done_ids(tmp_path / "b" / "harvest")
    assert 5 <= len(kept) < 30
    assert fake.same(fake.run(tmp_path / "b", steps=30), fake.run(tmp_path / "a", steps=30))


def test_a_rank_with_quicker_steps_waits_without_a_timeout(fake, tmp_path):
    ranks = launch(fake.run, tmp_path, devices=2, steps=8, batch=1, slow={1: 1.0}, timeout=3.0)
    wait(ranks)
    assert [rank.status for rank in ranks] == [0, 0], [rank.said for rank in ranks]
    assert Harvest.open(tmp_path / "harvest").complete


@pytest.mark.parametrize("devices", [1, 2])
def test_sigterm_ends_a_harvest_with_what_it_has(fake, tmp_path, devices):
    ranks = launch(fake.run, tmp_path / "b", devices, steps=40, batch=1, delay=0.05)
    assert until(lambda: all(at_work(rank) for rank in ranks), 60)
    until(lambda: False, 0.3)
    for rank in ranks:
        rank.kill(signal.SIGTERM)
    wait(ranks, PROMPTLY)
    assert 0 < len(done_ids(tmp_path / "b" / "harvest")) < 40
    assert fake.same(fake.run(tmp_path / "b", steps=40), fake.run(tmp_path / "a", steps=40))


def test_a_picture_found_broken_is_counted_by_id_and_the_rest_goes_on(fake, tmp_path):
    data = fake.make_data(tmp_path / "b", 24)
    data.prepare_memory("preference")
    broken = ["aitw/p1/0", "aitw/p4/2", "aitw/p7/1"]
    store = data.steps_stage.folder / "preference"
    for row in json.loads((store / "index.json").read_text())["steps"]:
        if row["step_id"] in broken:
            shard = bytearray((store / row["shard"]).read_bytes())
            shard[row["image_offset"] + 20] ^= 255
            (store / row["shard"]).write_bytes(shard)
    ranks = launch(fake.run, tmp_path / "b", devices=2, steps=24, workers=1)
    wait(ranks)
    assert [rank.status for rank in ranks] == [0, 0], [rank.said for rank in ranks]
    harvest = Harvest.open(tmp_path / "b" / "harvest")
    assert harvest.complete and len(harvest) == 21 and not set(broken) & set(harvest.step_ids)
    skipped = harvest.manifest["skipped"]
    assert sorted(skipped) == broken and all("have changed" in reason for reason in skipped.values())
    assert "21 steps in" in ranks[0].said and "3 steps skipped" in ranks[0].said


def test_a_full_disk_at_one_rank_ends_all_with_the_way_out(fake, tmp_path):
    ranks = launch(fake.run, tmp_path / "b", devices=2, steps=30, batch=1, delay=0.02, full={1: 3})
    wait(ranks, PROMPTLY)
    assert [rank.status for rank in ranks] == [1, 1]
    for rank in ranks:
        assert "must have space for the" in rank.said and "Make space and run the same command again" in rank.said
    assert not list((tmp_path / "b" / "harvest").glob(".*"))
    assert 0 < len(done_ids(tmp_path / "b" / "harvest")) < 30
    assert fake.same(fake.run(tmp_path / "b", steps=30), fake.run(tmp_path / "a", steps=30))
