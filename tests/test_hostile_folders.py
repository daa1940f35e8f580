"""Run folders that cannot be written, checkpoints that are none, and files altered behind the run's back."""

import errno
import os
from pathlib import Path

import pytest
import torch

from switchmem.policy import Policy, PolicyError


@pytest.mark.parametrize("flags", [["--run.dir=blocked"], ["--run.stages_dir=blocked/stages", "--run.name=other"]])
def test_a_place_that_cannot_be_written_is_told_without_a_traceback(desk, flags, capsys):
    (desk.folder / "blocked").touch()
    assert desk("harvest", *flags) == 1
    error = capsys.readouterr().err
    assert "blocked" in error and "must be writable, got: " in error and "--run.dir" in error
    assert "Traceback" not in error


def test_a_read_only_run_folder_is_told_without_a_traceback(desk, monkeypatch, capsys):
    """Root may write anywhere, so the system's refusal is put in its place."""
    opened = Path.open

    def refuse(self, mode="r", *rest, **options):
        if set(mode) & set("wax") and self.is_relative_to(desk.run):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return opened(self, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert desk("test") == 1
    assert f"{desk.run / '.lock'} must be writable, got: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("known", [True, False])
def test_a_full_disk_under_another_library_is_told_without_a_traceback(desk, monkeypatch, known, capsys):
    def save(*_, **__):
        path = [str(desk.run / "checkpoints" / "last.ckpt")] if known else []  # a failed write does not tell its file
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *path)

    monkeypatch.setattr("lightning.pytorch.Trainer.save_checkpoint", save)
    assert desk("fit", "--model.init_args.lr=0.5") == 1
    error = capsys.readouterr().err
    place = f"{desk.run}/checkpoints" if known else "the disk of the run or of its stages"
    assert f"error: {place} must have space, got: No space left on device" in error and "Traceback" not in error


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 cut", "foreign"])
def test_a_checkpoint_that_is_none_is_told_without_a_traceback(desk, content, capsys):
    before = {p: p.stat().st_mtime_ns for p in desk.run.rglob("*")}
    path = desk.folder / "x.ckpt"
    if content == "foreign":
        torch.save({"state_dict": {}}, path)
    else:
        path.write_bytes(content)
    assert desk("fit", f"--ckpt_path={path}") == 1
    error = capsys.readouterr().err
    assert f"`--ckpt_path` must be a checkpoint that a `fit` of this project wrote, got {path}: " in error
    assert "Traceback" not in error
    assert {p: p.stat().st_mtime_ns for p in desk.run.rglob("*")} == before


def altered(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["targets.safetensors", "targets.json", "preference.safetensors"])
def test_altered_targets_stop_a_fit(desk, name, capsys):
    (path,) = (desk.folder / "runs" / "stages").glob(f"targets-*/{name}")
    altered(path)
    assert desk("fit") == 1
    assert f"{path} must be as it was written, got other content. Remove {path.parent}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "policy.json"])
def test_an_altered_policy_is_refused_and_made_again(desk, name, capsys):
    path = desk.run / "policy" / "dcoe-0" / name
    before = path.read_bytes()
    if name == "policy.json":
        path.write_text(path.read_text().replace('"seed": 0', '"seed": 7'))
    else:
        altered(path, -3)
    with pytest.raises(PolicyError, match="must hold a whole policy"):
        Policy.load(path.parent)
    assert desk("test") == 1
    assert "must hold a whole policy" in capsys.readouterr().err
    assert desk("fit") == 0
    assert path.read_bytes() == before


def test_an_altered_estimator_stops_a_test(desk, capsys):
    altered(desk.run / "policy" / "preference" / "preference.safetensors")
    assert desk("test") == 1
    assert "preference.safetensors must be as it was written, got other content. Run `fit`" in capsys.readouterr().err


def test_an_altered_router_is_trained_again(desk, capsys):
    before = (desk.run / "policy" / "model.safetensors").read_bytes()
    for weights in (desk.folder / "runs" / "stages").glob("router-*/model.safetensors"):
        altered(weights)
    assert desk("fit") == 0
    assert "router dcoe-0: trained again" in capsys.readouterr().out
    assert (desk.run / "policy" / "model.safetensors").read_bytes() == before
