"""A harvest on a disk that is full, read-only, or gone from under a killed process: nothing finished is lost."""

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from switchmem import stages
from switchmem.harvest import (
    Harvest,
    HarvestWriter,
    Record,
    begin_writing,
    bind_settings,
    done_ids,
    end_writing,
    merge,
    wait_for_writers,
)
from switchmem.harvest.reader import HarvestError
from switchmem.stages import Stages, WriteError

FORK = multiprocessing.get_context("fork")
IDS = [f"bench/a/{n}" for n in range(6)]


def record(step_id, width=4):
    n = int(step_id.rpartition("/")[2])
    states = {name: torch.full((1, width), float(n)) for name in ("state", "text", "image")}
    empty = {"text": ["tap"], "image": [f"tap {n}"]}
    context = {"index": n, "action_type": "tap", "is_spatial": True, "density": None, "category": ""}
    return Record(
        step_id, "bench/a", "bench/m/0", 0.5, states, {"text": torch.ones(2)}, empty,
        {"text": [None], "image": [None]}, {"text": ["bad"], "image": ["bad"]}, {"text": [0.0], "image": [1.0]},
        context, 0.1,
    )  # fmt: skip


def harvest(folder, width=4):
    """What one process does: the steps that are left, then the manifest."""
    bind_settings(folder, {"layers": [0]})
    writer = HarvestWriter(folder, records_per_shard=2)
    for step_id in sorted(set(IDS) - done_ids(folder)):
        writer.append(record(step_id, width))
    writer.flush()
    return merge(folder, IDS)


def content(folder):
    found = Harvest.open(folder, IDS)
    assert found.complete
    return found.step_ids, found.answers("image"), found.states("state").tolist(), found.scores("image").tolist()


# --- kills ---


def killed_at(folder, moment):
    """Harvest in this process, and be killed in front of the n-th change of a file."""
    changes = 0

    def hook(event, arguments):
        nonlocal changes
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in ("os.rename", "os.remove", "os.mkdir")) and str(folder) in str(arguments[0]):
            if changes == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            changes += 1

    sys.addaudithook(hook)
    harvest(folder)


def test_a_kill_in_front_of_any_change_of_a_file_loses_no_finished_shard(tmp_path):
    harvest(tmp_path / "calm")
    for moment in range(100):
        folder = tmp_path / str(moment)
        process = FORK.Process(target=killed_at, args=(folder, moment))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        before = {path: path.stat().st_mtime_ns for path in folder.glob("rank-*.json")} if folder.exists() else {}
        harvest(folder)
        assert content(folder) == content(tmp_path / "calm")
        assert {path: path.stat().st_mtime_ns for path in before} == before
        assert not list(folder.glob(".*"))
    # the folder, twice asked for; settings, manifest and two files of each of three shards, each opened and renamed
    assert moment == 2 + 2 * (2 + 2 * 3)


# --- full disks ---


def full(monkeypatch, writes, number=errno.ENOSPC):
    """Let a number of files reach the disk, and none after."""
    sync, left = os.fsync, iter(range(writes))

    def fsync(descriptor):
        if next(left, None) is None:
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("writes", range(8))
def test_a_full_disk_is_told_and_the_same_command_goes_on(tmp_path, monkeypatch, writes, number):
    folder = tmp_path / "harvest"
    with monkeypatch.context() as patch:
        full(patch, writes, number)
        with pytest.raises(WriteError) as error:
            harvest(folder)
    # settings come first, then tensors and rows of each shard, then the manifest
    names = ["settings.json"] + [f"rank-000-0000{n}.{kind}" for n in range(3) for kind in ("safetensors", "json")]
    name = [*names, "manifest.json"][writes]
    assert f"{folder} must have space for the " in str(error.value) and f" bytes of {name}, got: " in str(error.value)
    assert "bytes free). Make space and run the same command again" in str(error.value)
    assert not list(folder.glob(".*")) and len(done_ids(folder)) == 2 * max(0, (writes - 1) // 2)
    harvest(folder)
    harvest(tmp_path / "calm")
    assert content(folder) == content(tmp_path / "calm")


def test_a_writer_keeps_its_records_until_there_is_space(tmp_path, monkeypatch):
    bind_settings(tmp_path, {"layers": [0]})
    writer = HarvestWriter(tmp_path, records_per_shard=2)
    writer.append(record(IDS[0]))
    with monkeypatch.context() as patch:
        full(patch, 0)
        with pytest.raises(WriteError):
            writer.append(record(IDS[1]))
    writer.flush()
    assert done_ids(tmp_path) == set(IDS[:2])


def test_a_disk_that_really_is_full(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a small disk")
    try:
        wide = 4096  # 3 states of 16 KiB each: the third shard of two steps does not fit
        with pytest.raises(WriteError, match=r"must have space for the [\d,]+ bytes of rank-000-00002.safetensors"):
            harvest(disk / "harvest", wide)
        assert done_ids(disk / "harvest") == set(IDS[:4]) and not list((disk / "harvest").glob(".*"))
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True, capture_output=True)
        harvest(disk / "harvest", wide)
        harvest(tmp_path / "calm", wide)
        assert content(disk / "harvest") == content(tmp_path / "calm")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_stage_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    stage = Stages(tmp_path / "stages").stage("a", {})
    stage.begin()
    with monkeypatch.context() as patch:
        full(patch, 0)
        with pytest.raises(WriteError, match=r"must have space for the \d+ bytes of stage.json, got: No space left"):
            stage.finish()
    assert not stage.complete and [path.name for path in stage.folder.iterdir()] == ["stage.json"]
    (tmp_path / "file").touch()
    for act in (
        Stages(tmp_path / "file").stage("a", {}).begin,
        Stages(tmp_path / "file").stage("a", {}).lock().__enter__,
    ):
        with pytest.raises(WriteError, match="file.* must be writable, got: .*--run.stages_dir"):
            act()


# --- who writes ---


def test_a_new_run_looks_only_when_the_ranks_of_a_killed_one_write_no_more(tmp_path):
    folder = tmp_path / "harvest"

    def straggler(ready):
        begin_writing(folder)
        ready.set()
        time.sleep(0.5)
        bind_settings(folder, {"layers": [0]})
        writer = HarvestWriter(folder, rank=1)
        writer.append(record(IDS[0]))
        writer.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    ready = FORK.Event()
    process = FORK.Process(target=straggler, args=(ready,))
    process.start()
    assert ready.wait(20)
    wait_for_writers(folder)
    assert done_ids(folder) == {IDS[0]}
    process.join()
    begin_writing(folder)
    begin_writing(folder)  # a second pass of the same process
    wait_for_writers(folder)  # which does not wait for itself
    end_writing(folder)
    end_writing(folder)


def test_a_long_wait_for_another_process_is_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(stages, "PATIENCE_SECONDS", 0.05)
    stage = Stages(tmp_path).stage("a", {})

    def work():
        with stage.lock():
            ready.set()
            time.sleep(0.5)

    ready = FORK.Event()
    process = FORK.Process(target=work)
    process.start()
    assert ready.wait(20)
    with stage.lock():
        assert f"Waiting for another process that works on {stage.folder}." in caplog.text
    process.join()
    caplog.clear()
    with stage.lock():
        pass
    time.sleep(0.1)
    assert not caplog.text


def test_a_file_system_without_locks_is_told_and_used(tmp_path, monkeypatch, caplog):
    def flock(handle, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with Stages(tmp_path).stage("a", {}).lock():
        wait_for_writers(tmp_path / "harvest")
    assert "file system without locks" in caplog.text and "one command at a time" in caplog.text


def test_the_way_out_of_a_doubled_step_loses_one_shard(tmp_path):
    harvest(tmp_path)
    (tmp_path / "manifest.json").unlink()
    double = HarvestWriter(tmp_path, rank=1)
    double.append(record(IDS[3]))
    double.flush()
    with pytest.raises(HarvestError, match=r"1 twice.*Delete rank-001-00000 there \(.json and .safetensors\)"):
        merge(tmp_path, IDS)
    for path in tmp_path.glob("rank-001-00000.*"):
        path.unlink()
    assert merge(tmp_path, IDS)["records"] == 6
