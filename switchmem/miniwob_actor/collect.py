"""Episodes of the scripted demonstrators on instances that no study uses, as step stores of one folder per task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from PIL import Image

from switchmem.benchmarks.store import StepStore, write_steps
from switchmem.envs.miniwob.demonstrators import DEMONSTRATORS
from switchmem.envs.miniwob.demonstrators.episodes import demonstrate, episode_steps
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv
from switchmem.envs.miniwob.tasks import instance_seed
from switchmem.steps import Action, ActionType, Screenshot, Step

LOG = logging.getLogger(__name__)

TRAINING_SEED = 2_000_000
"""Suite seed of all instances that the actor is taught on."""
STUDY_SEEDS = (1001, 43, 42)
"""Suite seeds of bank, calibration and evaluation (SwitchMem, section 4.1): never played here."""
_WIDTH = 270  # pixels of the pictures that are kept: four times what the actor's vision tower is given, at most


def training_seeds(task: str, episodes: int) -> list[int]:
    """Seeds of a task's instances; those of the study's suites are left out."""
    studied = {instance_seed(suite, task) for suite in STUDY_SEEDS}
    seeds = (instance_seed(TRAINING_SEED, task, index) for index in range(episodes))
    return [seed for seed in seeds if seed not in studied]


def small(step: Step) -> Step:
    """The step with a smaller picture of the same proportions."""
    picture = step.screenshot.image()
    height = round(_WIDTH * picture.height / picture.width)
    return replace(step, screenshot=Screenshot.from_image(picture.resize((_WIDTH, height), Image.Resampling.BOX)))


def typed_at_once(steps: Iterable[Step]) -> list[Step]:
    """The steps with a tap on a field and the text that follows as one: the text, typed at that place.

    The textual screen does not tell which field was tapped, so that an actor without a past could not go on from there.
    """
    merged: list[Step] = []
    for step in steps:
        tap = merged[-1].action if merged else None
        if step.action.type is ActionType.TYPE and tap is not None and tap.type is ActionType.TAP:
            action = Action(ActionType.TYPE, tap.point, text=step.action.text)
            merged[-1] = replace(merged[-1], action=action)
        else:
            merged.append(step)
    return [replace(step, index=index) for index, step in enumerate(merged)]


def collect(folder: Path, episodes: int) -> dict[str, StepStore]:
    """The successful episodes of every task that has a demonstrator.

    Args:
        folder: of one step store per task; those that are there are kept.
        episodes: played per task, > 0; those that fail are left out, and counted in the log.

    Returns:
        Stores by task. A task without a successful episode has none.
    """
    env = MiniWobEnv()
    try:
        for task in DEMONSTRATORS:
            if not (folder / task).exists():
                steps = list(_played(env, task, episodes))
                if steps:
                    write_steps(steps, folder / task)
    finally:
        env.close()
    return {path.name: StepStore(path) for path in sorted(folder.iterdir()) if path.is_dir()}


def _played(env: MiniWobEnv, task: str, episodes: int) -> Iterator[Step]:
    solved, seeds = 0, training_seeds(task, episodes)
    for seed in seeds:
        try:
            episode = demonstrate(env, task, seed, DEMONSTRATORS)
            steps = episode_steps(episode) if episode.succeeded else []
        except (EpisodeError, ValueError) as error:  # no page, or an action that actors have no word for
            LOG.warning("%s: %s", task, error)
            continue
        solved += episode.succeeded
        yield from typed_at_once(small(step) for step in steps)
    LOG.info("%s: %d of %d instances solved", task, solved, len(seeds))
