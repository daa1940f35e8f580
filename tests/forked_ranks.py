"""Ranks as processes forked from a server that has imported everything, so that a test can start and kill many.

Not forked from the test's own process: what earlier tests left there (thread pools whose threads a fork does not
take along) would let a rank wait for ever.
"""

import multiprocessing
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["callbacks", "data_modules", "switchmem.actors.module", "switchmem.cli"])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def by_hand(rank, devices, nodes):
    """Variables that are set for a process started by hand on each machine, or by Lightning on the same one."""
    values = {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": rank // devices, "WORLD_SIZE": devices * nodes}
    return values | ({"LOCAL_RANK": rank % devices} if devices > 1 or nodes == 1 else {})


def torchrun(rank, devices, nodes):
    """Variables that torchrun sets."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "RANK": rank,
        "LOCAL_RANK": rank % devices,
        "GROUP_RANK": rank // devices,
        "WORLD_SIZE": devices * nodes,
        "LOCAL_WORLD_SIZE": devices,
        "TORCHELASTIC_RUN_ID": "test",
    }


def slurm(rank, devices, nodes):
    """Variables that srun sets."""
    return {
        "SLURM_JOB_ID": 4242,
        "SLURM_JOB_NAME": "harvest",
        "SLURM_NODELIST": "localhost",
        "SLURM_NTASKS": devices * nodes,
        "SLURM_NTASKS_PER_NODE": devices,
        "SLURM_NNODES": nodes,
        "SLURM_PROCID": rank,
        "SLURM_LOCALID": rank % devices,
        "SLURM_NODEID": rank // devices,
    }


def work(function, environment, output, arguments):
    """What a forked process does."""
    os.environ.clear()  # of the server, which an earlier test may have started
    os.environ.update(environment)
    torch.set_num_threads(1)  # as in the tests' own process
    # as Lightning does when it is imported, which here was before the fork
    names = [name for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID") if name in environment]
    rank_zero_only.rank = int(environment[names[0]]) if names else 0
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    try:
        function(**arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


@dataclass
class Rank:
    process: multiprocessing.Process
    output: Path

    @property
    def said(self):
        return self.output.read_text() if self.output.exists() else ""

    @property
    def status(self):
        return self.process.exitcode

    @property
    def ended(self):
        return self.process.exitcode is not None

    def kill(self, number=signal.SIGKILL):
        if not self.ended:
            os.kill(self.process.pid, number)


def launch(function, folder, devices=1, nodes=1, launcher=by_hand, **arguments):
    """Fork all ranks of ``function(folder=..., devices=..., nodes=..., **arguments)``."""
    folder.mkdir(parents=True, exist_ok=True)
    port, world = free_port(), devices * nodes
    ranks = []
    for number in range(world):
        output = folder / f"said-{time.monotonic_ns()}-{number}.txt"
        values = {"folder": folder, "devices": devices, "nodes": nodes, **arguments}
        shape = {"MASTER_PORT": port, **launcher(number, devices, nodes)} if world > 1 else {}
        environment = {**os.environ, **{name: str(value) for name, value in shape.items()}}
        process = SERVER.Process(target=work, args=(function, environment, output, values))
        process.start()
        ranks.append(Rank(process, output))
    return ranks


def until(condition, seconds):
    """Whether a condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait(ranks, seconds=60):
    """Let all ranks end.

    Returns:
        Seconds that it took.
    """
    start = time.monotonic()
    ended = until(lambda: all(rank.ended for rank in ranks), seconds)
    for rank in ranks:
        rank.kill()
    assert ended, [(rank.status, rank.said) for rank in ranks]
    return time.monotonic() - start
