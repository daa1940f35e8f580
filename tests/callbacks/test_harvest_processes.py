"""Two ranks that Lightning itself launches, as a command with several devices does; other tests fork their ranks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import harvest_run
import pytest

from switchmem.harvest import Harvest, done_ids

SCRIPT = Path(harvest_run.__file__)


@pytest.mark.slow
def test_ranks_end_with_the_one_that_launched_them_and_the_harvest_resumes_on_one(fake, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "RANK", "NODE_RANK")}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(tmp_path / "b"), *"--steps 20 --devices 2 --batch 1 --delay 0.3".split()],
        env=environment | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    folder = tmp_path / "b" / "harvest"
    deadline = time.monotonic() + 180
    while len(done_ids(folder)) < 4 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)  # rank 0 alone, as the kernel does where memory runs out
    output, _ = process.communicate(timeout=20)  # which waits for rank 1 too: it holds the other end of the pipe
    assert {path.name[:8] for path in folder.glob("rank-*.json")} == {"rank-000", "rank-001"}, output
    assert "error: rank 0 of 2 has ended without a word" in output
    partial = done_ids(folder)
    assert 4 <= len(partial) < 20 and not Harvest.is_complete(folder)
    harvest = fake.run(tmp_path / "b", steps=20, workers=1)
    assert harvest.complete and len(harvest) == 20
    assert fake.same(harvest, fake.run(tmp_path / "a", steps=20))
