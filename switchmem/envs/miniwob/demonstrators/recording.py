"""Successful episodes of the scripted demonstrators as step records, for an actor or a router to learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from PIL import Image

from switchmem.envs.miniwob.demonstrators import DEMONSTRATORS
from switchmem.envs.miniwob.demonstrators.episodes import demonstrate, episode_steps
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv
from switchmem.envs.miniwob.tasks import instance_seed
from switchmem.steps import Action, ActionType, Screenshot, Step

STUDY_SEEDS = (1001, 43, 42)
"""Suite seeds of bank, calibration and evaluation (SwitchMem, section 4.1): nothing is learned from their instances."""
_WIDTH = 270  # pixels of the pictures that are kept


def check_suite(suite: int) -> None:
    """Refuse the suites of the study.

    Raises:
        ValueError: if the suite is one of them.
    """
    if suite in STUDY_SEEDS:
        raise ValueError(
            f"`suite_seed` must be none of the study's own seeds {STUDY_SEEDS}, got {suite}. Take another one."
        )


def unstudied_seeds(suite: int, task: str, indices: Iterable[int]) -> list[int]:
    """Seeds of a task's instances of a suite; those of the study's suites are left out.

    Raises:
        ValueError: if the suite is one of the study's.
    """
    check_suite(suite)
    studied = {instance_seed(taken, task) for taken in STUDY_SEEDS}
    seeds = (instance_seed(suite, task, index) for index in indices)
    return [seed for seed in seeds if seed not in studied]


def record(env: MiniWobEnv, task: str, seeds: Sequence[int], failed: Callable[[int, str], None]) -> Iterator[Step]:
    """Let the task's demonstrator play some instances, and give the steps of the episodes that it solves.

    Args:
        env: to play in.
        task: one of `DEMONSTRATORS`.
        seeds: of the instances.
        failed: told of each episode that is left out, and why.

    Yields:
        Steps in order, with small pictures; a tap on a field and the text that follows are one.
    """
    for seed in seeds:
        try:
            episode = demonstrate(env, task, seed, DEMONSTRATORS)
            steps = episode_steps(episode) if episode.succeeded else []
        except (EpisodeError, ValueError) as error:  # no page, or an action that actors have no word for
            failed(seed, str(error))
            continue
        if not episode.succeeded:
            how = (
                "the script lost its way"
                if episode.ending is None
                else f"the episode ended with {episode.ending.value}"
            )
            failed(seed, f"{how}: {episode.detail}" if episode.detail else how)
        yield from typed_at_once(small(step) for step in steps)


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
