"""The harvester on a fake actor, in this process: what it keeps, what it resumes, what it refuses."""

import json

import lightning as L
import pytest
import torch

from callbacks import HiddenStateHarvester
from switchmem.harvest import Harvest, HarvestError, done_ids, read_actors, read_usage


def test_harvest_holds_what_the_actor_gave(fake, tmp_path, capsys):
    harvest = fake.run(tmp_path, steps=7)
    actor = fake.FakeModule()
    assert harvest.complete and sorted(harvest.step_ids) == sorted(s.step_id for s in fake.fake_steps(7, "p"))
    for n, step_id in enumerate(harvest.step_ids):
        for condition in actor.conditions:
            answers = [actor.answer(step_id, condition, seed) for seed in (1, 2)]
            assert harvest.answers(condition.value)[n] == answers
            # every gold action is BACK, so the official score of an answer is known
            assert harvest.scores(condition.value)[n].tolist() == [float(a == "back") for a in answers]
            assert torch.equal(harvest.states(condition.value, 2)[n], actor.states(step_id, condition.value)[1])
    failures = {c: sum(a == "???" for row in harvest.answers(c) for a in row) for c in ("text", "image")}
    assert {c: sum(r.values()) for c, r in harvest.manifest["parse_failures"].items()} == failures
    assert sum(failures.values()) > 0
    assert harvest.settings["parameters_hash"] == actor.actor.parameters_hash()
    assert read_actors(harvest.folder) == [actor.actor.facts()] and read_usage(harvest.folder) == {}
    output = capsys.readouterr().out
    assert "harvest of preference: 7 steps to do, 0 of all 7 kept from before" in output
    assert "harvest of preference: finished, 7 steps in" in output and "steps/s" in output


def test_neither_batch_size_nor_workers_change_a_record(fake, tmp_path):
    one = fake.run(tmp_path / "a", steps=9, batch=1)
    many = fake.run(tmp_path / "b", steps=9, batch=4, workers=2)
    assert fake.same(one, many)


def test_greedy_pass_under_all_conditions(fake, tmp_path):
    harvest = fake.run(tmp_path, part="test", conditions=("none", "text", "image", "both"), seeds=(0,))
    assert len(harvest) == 8 and harvest.conditions == ("none", "text", "image", "both")
    assert harvest.scores("none").shape == (8, 1) and harvest.states("both").shape == (8, 3)


def test_finished_steps_are_not_harvested_again(fake, tmp_path, capsys):
    first = fake.run(tmp_path, steps=6)
    before = sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "harvest").glob("rank-*"))
    again = fake.run(tmp_path, steps=6)
    assert sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "harvest").glob("rank-*")) == before
    assert fake.same(first, again)
    assert "0 steps to do, 6 of all 6 kept from before" in capsys.readouterr().out


def test_an_interrupted_run_keeps_what_it_observed(fake, tmp_path):
    class Stop(L.Callback):
        def on_predict_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
            if batch_idx == 1:
                raise RuntimeError("stop")

    harvester = HiddenStateHarvester(records_per_shard=100)
    data = fake.make_data(tmp_path, 12)
    data.select("preference", tmp_path / "harvest")
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[harvester, Stop()],
    )
    with pytest.raises(RuntimeError, match="stop"):
        trainer.predict(fake.FakeModule(), datamodule=data, return_predictions=False)
    assert len(done_ids(tmp_path / "harvest")) == 6


def test_a_changed_actor_cannot_continue_a_harvest(fake, tmp_path):
    fake.run(tmp_path, steps=6)
    with pytest.raises(HarvestError, match="must be continued with the settings it was started with"):
        fake.run(tmp_path, steps=6, seeds=(1, 2, 3))


def test_an_actor_that_changes_its_parameters_is_found(fake, tmp_path):
    with pytest.raises(HarvestError, match="parameters must not change during a harvest"):
        fake.run(tmp_path, steps=6, drift=True)
    assert not Harvest.is_complete(tmp_path / "harvest")


def test_a_lost_observation_is_found(fake, tmp_path):
    with pytest.raises(HarvestError, match="one observation per step, got 2 for 3 steps"):
        fake.run(tmp_path, steps=6, lose=True)


def test_a_limited_run_is_no_finished_harvest(fake, tmp_path):
    data = fake.make_data(tmp_path, 12)
    data.select("preference", tmp_path / "harvest")
    trainer = L.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        limit_predict_batches=2, callbacks=[HiddenStateHarvester()],
    )  # fmt: skip
    with pytest.raises(HarvestError, match="each of 12 steps once, got 6 records: 6 missing"):
        trainer.predict(fake.FakeModule(), datamodule=data, return_predictions=False)
    assert fake.run(tmp_path, steps=12).complete


def test_harvester_needs_a_plan(fake, tmp_path):
    trainer = L.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[HiddenStateHarvester()],
    )  # fmt: skip
    loader = torch.utils.data.DataLoader([1], collate_fn=list)
    with pytest.raises(HarvestError, match="must run with a data module that has a `harvest_plan`, got none"):
        trainer.predict(fake.FakeModule(), loader, return_predictions=False)
    with pytest.raises(HarvestError, match="`records_per_shard` must be at least 1, got 0"):
        HiddenStateHarvester(records_per_shard=0)


def test_manifest_is_plain_json(fake, tmp_path):
    fake.run(tmp_path, steps=6)
    values = json.loads((tmp_path / "harvest" / "manifest.json").read_text())
    assert values["records"] == 6 and values["settings"]["conditions"] == ["text", "image"]
