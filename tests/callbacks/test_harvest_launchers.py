"""`harvest` on two machines of one or two devices each, as launchers start it; all simulated on this one."""

import json
import os
import signal

import fake_actor
import pytest
from desk import SMALL
from forked_ranks import by_hand, launch, slurm, torchrun, until, wait

from switchmem.cli import main
from switchmem.harvest import Harvest


def command(folder, devices, nodes, *, answers, pause=0.0, flags=()):
    """What each process runs."""
    os.chdir(folder)
    with pytest.MonkeyPatch.context() as patch:
        fake_actor.install(patch, folder / "fake", answers)
        observe = fake_actor.FakeActor.observe

        def slowly(self, batch, *rest):
            until(lambda: False, pause)
            return observe(self, batch, *rest)

        patch.setattr(fake_actor.FakeActor, "observe", slowly)
        strategy = ["--trainer.strategy=ddp"] if devices * nodes > 1 else []
        shape = [f"--trainer.devices={devices}", f"--trainer.num_nodes={nodes}", "--actor.model=fake", *strategy]
        raise SystemExit(main(["harvest", *SMALL, *shape, *flags]))


def at_work(rank):
    return "harvest of preference: rank" in rank.said


@pytest.fixture(scope="module")
def answers():
    return fake_actor.recorded_actions(fake_actor.pocket_steps())


def found(folder):
    (manifest,) = folder.glob("runs/stages/harvest-*/manifest.json")
    return Harvest.open(manifest.parent)


def content(harvest):
    names = harvest.conditions
    return (
        harvest.step_ids,
        [harvest.answers(name) for name in names],
        [harvest.scores(name).tolist() for name in names],
        [harvest.states(name, layer).tolist() for name in ("state", *names) for layer in harvest.layers],
        harvest.embeddings("image").tolist(),
    )


@pytest.fixture(scope="module")
def alone(answers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    ranks = launch(command, folder, answers=answers)
    wait(ranks)
    assert ranks[0].status == 0, ranks[0].said
    return content(found(folder))


@pytest.mark.parametrize("launcher, devices", [(by_hand, 1), (torchrun, 2), (slurm, 1)])
def test_two_machines_make_one_harvest(launcher, devices, answers, alone, tmp_path):
    ranks = launch(command, tmp_path, devices, 2, launcher, answers=answers)
    wait(ranks, 120)
    assert [rank.status for rank in ranks] == [0] * len(ranks), [rank.said for rank in ranks]
    harvest = found(tmp_path)
    assert content(harvest) == alone
    assert len({shard["name"][:8] for shard in harvest.manifest["shards"]}) == len(ranks)
    # what is said and written once is said and written by the first rank alone
    told = [rank.said for rank in ranks]
    assert "run folder: " in told[0] and not any("run folder: " in text for text in told[1:])
    assert all(f"harvest of preference: rank {n} of {len(ranks)}:" in text for n, text in enumerate(told))
    provenance = json.loads((tmp_path / "runs" / "pocket" / "provenance.harvest.json").read_text())
    assert provenance["actor"]["fingerprint"]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_lost_machine_ends_the_other_and_the_same_command_goes_on(victim, answers, alone, tmp_path):
    flags = ["--data.init_args.batch_size=1"]
    ranks = launch(command, tmp_path, 1, 2, answers=answers, pause=0.1, flags=flags)
    assert until(lambda: all(at_work(rank) for rank in ranks), 60), [rank.said for rank in ranks]
    until(lambda: False, 0.5)
    ranks[victim].kill()
    wait(ranks, 20)
    other = ranks[1 - victim]
    assert other.status == 1 and f"error: rank {victim} of 2 has ended without a word" in other.said
    assert not list(tmp_path.glob("runs/stages/harvest-*/manifest.json"))
    assert list(tmp_path.glob(f"runs/stages/harvest-*/rank-00{1 - victim}-*.json"))  # its open shard was written
    again = launch(command, tmp_path, answers=answers)
    wait(again)
    assert again[0].status == 0 and " 0 of all" not in again[0].said.partition("harvest of preference")[2]
    assert content(found(tmp_path)) == alone


def test_a_scheduler_that_ends_a_job_gets_its_status(answers, tmp_path):
    flags = ["--data.init_args.batch_size=1"]
    ranks = launch(command, tmp_path, 1, 2, slurm, answers=answers, pause=0.1, flags=flags)
    assert until(lambda: all(at_work(rank) for rank in ranks), 60), [rank.said for rank in ranks]
    until(lambda: False, 0.5)
    for rank in ranks:
        rank.kill(signal.SIGTERM)
    wait(ranks, 20)
    assert [rank.status for rank in ranks] == [143, 143], [rank.said for rank in ranks]
    assert any("stopped by SIGTERM. What was harvested is kept" in rank.said for rank in ranks)
    assert list(tmp_path.glob("runs/stages/harvest-*/rank-*.json"))
