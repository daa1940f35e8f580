"""Episodes of the scripted demonstrators on instances that no study uses, as step stores of one folder per task."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from switchmem.benchmarks.store import StepStore, write_steps
from switchmem.envs.miniwob.demonstrators import DEMONSTRATORS
from switchmem.envs.miniwob.demonstrators.recording import record, unstudied_seeds
from switchmem.envs.miniwob.env import MiniWobEnv

LOG = logging.getLogger(__name__)

TRAINING_SEED = 2_000_000
"""Suite seed of all instances that the actor is taught on."""


def collect(folder: Path, episodes: int) -> dict[str, StepStore]:
    """The successful episodes of every task that has a demonstrator.

    Args:
        folder: of one step store per task; those that are there are kept.
        episodes: played per task, > 0; those that fail are left out, and named in the log.

    Returns:
        Stores by task. A task without a successful episode has none.
    """
    env = MiniWobEnv()
    try:
        for task in DEMONSTRATORS:
            if not (folder / task).exists():
                seeds = unstudied_seeds(TRAINING_SEED, task, range(episodes))
                steps = list(record(env, task, seeds, partial(_left_out, task)))
                if steps:
                    write_steps(steps, folder / task)
    finally:
        env.close()
    return {path.name: StepStore(path) for path in sorted(folder.iterdir()) if path.is_dir()}


def _left_out(task: str, seed: int, why: str) -> None:
    LOG.warning("%s, instance %d is left out: %s", task, seed, why)
