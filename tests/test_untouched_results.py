"""Nothing that was lost, altered, or made for something else may end up in a result unnoticed."""

import fcntl
import json

import pytest

from switchmem.actors.spec import ActorSpec
from switchmem.resolved import ignored_by_test, router_settings


def harvest_of_test(desk):
    (stage,) = (
        path.parent
        for path in (desk.folder / "runs" / "stages").glob("harvest-*/stage.json")
        if json.loads(path.read_text())["inputs"]["sampling"]["temperature"] == 0.0
    )
    return stage


def scores(desk):
    return json.loads(desk.run.joinpath("results.json").read_text())["policies"]


def test_a_lost_shard_stops_the_test_and_the_advice_brings_it_back(desk, capsys):
    before, stage = scores(desk), harvest_of_test(desk)
    for path in stage.glob("rank-000-00000.*"):
        path.unlink()
    assert desk("test") == 1
    assert "steps of its manifest" in capsys.readouterr().err
    for name in ("manifest.json", "stage.json"):
        (stage / name).unlink()
    assert desk("test") == 0 and scores(desk) == before


def test_an_altered_shard_is_noticed(desk, capsys):
    shard = next(harvest_of_test(desk).glob("rank-*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert desk("test") == 1 and shard.name in capsys.readouterr().err


def test_a_damaged_router_is_trained_again(desk, capsys):
    before = (desk.run / "policy" / "model.safetensors").read_bytes()
    for weights in (desk.folder / "runs" / "stages").glob("router-*/model.safetensors"):
        weights.write_bytes(b"cut")
    assert desk("fit") == 0
    assert "router dcoe-0: trained again" in capsys.readouterr().out
    assert (desk.run / "policy" / "model.safetensors").read_bytes() == before


def test_a_router_from_a_checkpoint_is_no_other_runs_router(desk):
    assert desk("fit", "--model.init_args.dropout=0.2", "--run.name=other") == 0
    own = (desk.folder / "runs" / "other" / "policy" / "model.safetensors").read_bytes()
    checkpoint = desk.folder / "runs" / "other" / "checkpoints" / "last.ckpt"
    flags = ["--model.init_args.dropout=0.2", "--trainer.max_epochs=5"]
    assert desk("fit", *flags, "--run.name=warm", f"--ckpt_path={checkpoint}") == 0
    assert desk("fit", *flags, "--run.name=cold") == 0
    warm, cold = (
        (desk.folder / "runs" / name / "policy" / "model.safetensors").read_bytes() for name in ("warm", "cold")
    )
    assert len({own, warm, cold}) == 3


def test_test_refuses_other_data_than_fit(desk, capsys):
    assert desk("test", "--data.init_args.world=control") == 1
    assert "data.init_args.world was 'mixed' and is now 'control'" in capsys.readouterr().err
    assert ignored_by_test({"data": {"init_args": {"root": "a"}}}, {"data": {"init_args": {"root": "b"}}}) == {}


def test_a_folder_in_use_is_refused(desk, capsys):
    with (desk.run / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert desk("fit") == 1
    assert "another process is at work" in capsys.readouterr().err
    assert desk("fit") == 0


def test_an_untrained_router_is_no_policy(desk, capsys):
    assert desk("fit", "--trainer.max_epochs=0", "--run.name=none") == 1
    assert "`trainer.max_epochs` must leave at least one epoch" in capsys.readouterr().err
    assert not (desk.folder / "runs" / "none" / "policy").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter.pt", "model.safetensors"])
def test_any_file_of_an_actor_counts(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"a")
    first = ActorSpec(model=str(tmp_path)).fingerprint()
    (tmp_path / name).write_bytes(b"b")
    assert ActorSpec(model=str(tmp_path)).fingerprint() != first


def test_the_number_of_processes_counts_for_a_router():
    one, two = (router_settings({}, {"devices": n, "accelerator": "cpu"}, {}) for n in (1, 2))
    assert one != two and one["trainer"] == {"devices": 1}
