"""A harvest over ranks, workers, kills and restarts covers every step exactly once, with the same records."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchmem.harvest import Harvest, done_ids

SCRIPT = Path(__file__).with_name("harvest_run.py")


def start(folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "RANK", "NODE_RANK")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def finish(process):
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    return output


@pytest.mark.slow
def test_two_ranks_with_two_workers_cover_every_step_once(fake, tmp_path):
    output = finish(start(tmp_path / "b", "--steps", "23", "--devices", "2", "--workers", "2"))
    harvest = Harvest.open(tmp_path / "b" / "harvest")
    assert harvest.complete and len(harvest) == 23
    assert {shard["name"][:8] for shard in harvest.manifest["shards"]} == {"rank-000", "rank-001"}
    assert fake.same(harvest, fake.run(tmp_path / "a", steps=23))
    assert "rank 0 of 2: 12 steps to do" in output and "rank 1 of 2: 11 steps to do" in output


@pytest.mark.slow
def test_ranks_end_with_the_one_that_launched_them_and_the_harvest_resumes_on_one(fake, tmp_path):
    process = start(tmp_path / "b", "--steps", "20", "--devices", "2", "--batch", "1", "--delay", "0.3")
    folder = tmp_path / "b" / "harvest"
    deadline = time.monotonic() + 120
    while len(done_ids(folder)) < 4 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)  # rank 0 alone, as the kernel does where memory runs out
    output, _ = process.communicate(timeout=20)  # which waits for rank 1 too: it holds the other end of the pipe
    assert "error: rank 0 of 2 has ended without a word" in output
    partial = done_ids(folder)
    assert 4 <= len(partial) < 20 and not Harvest.is_complete(folder)
    harvest = fake.run(tmp_path / "b", steps=20, workers=1)
    assert harvest.complete and len(harvest) == 20
    assert fake.same(harvest, fake.run(tmp_path / "a", steps=20))
