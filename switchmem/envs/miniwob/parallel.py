"""Many episodes side by side in one browser, each played to its end whatever happens on its page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from switchmem.console import progress, say
from switchmem.envs.base import Ending, PhoneAction, Screen
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv
from switchmem.envs.miniwob.tasks import TASKS, instance_seed

WORKERS = 8

Agent = Callable[[Screen], PhoneAction]
"""What is done on a screen."""
Begin = Callable[[MiniWobEnv, "Instance"], Agent]
"""An agent for one episode, made when its first screen is there. It is given the environment for privileged questions,
which only demonstrators ask."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A task with its values.

    Args:
        task: name.
        seed: of the instance, in [0, 2^32).
    """

    task: str
    seed: int


@dataclass(frozen=True, slots=True)
class Episode:
    """How an instance was played.

    Args:
        instance: what was played.
        ending: why it was over.
        detail: a few words on that, or "".
        raw_reward: what the page said, or None.
        steps: actions that were carried out.
        seconds: of wall-clock time.
    """

    instance: Instance
    ending: Ending
    detail: str
    raw_reward: float | None
    steps: int
    seconds: float

    @property
    def succeeded(self) -> bool:
        """Whether the raw reward was exactly 1."""
        return self.ending is Ending.SUCCESS


def suite(suite_seed: int, tasks: Iterable[str] = TASKS, index: int = 0) -> tuple[Instance, ...]:
    """The instances of a suite: all 92 tasks, those without a page among them, which count as failures."""
    return tuple(Instance(task, instance_seed(suite_seed, task, index)) for task in tasks)


def play(env: MiniWobEnv, instance: Instance, begin: Begin) -> Episode:
    """Play one instance to its end.

    What a page does is an ending. What an agent raises comes through: it is a fault of the agent.
    """
    start, steps = time.monotonic(), 0
    info: dict[str, Any] = {}
    try:
        screen, _ = env.reset(seed=instance.seed, options={"task": instance.task})
    except EpisodeError as error:
        return Episode(instance, error.ending, str(error), None, 0, time.monotonic() - start)
    agent, over = begin(env, instance), False
    while not over:
        screen, _, terminated, truncated, info = env.step(agent(screen))
        steps, over = steps + 1, terminated or truncated
    return Episode(instance, info["reason"], info["detail"], info["raw_reward"], steps, time.monotonic() - start)


def play_all(
    instances: Sequence[Instance],
    begin: Begin,
    make_env: Callable[[], MiniWobEnv],
    workers: int = WORKERS,
    title: str = "episodes",
) -> tuple[Episode, ...]:
    """Play instances in parallel, with a progress bar, and say how many episodes a minute that were.

    Args:
        instances: what is played.
        begin: makes the agent of an episode; called from several threads at once.
        make_env: makes the environment of a worker: ``lambda: MiniWobEnv(browser)`` with a browser that all share.
        workers: how many episodes run at a time, > 0. Chromium draws each in a process of its own; these threads wait.
        title: of the bar.

    Returns:
        The episodes in the order of the instances, whatever the order in which they ended.

    Raises:
        ValueError: if `workers` is not positive.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}.")
    own, envs = threading.local(), []
    lock, start, done = threading.Lock(), time.monotonic(), 0

    with progress(title) as advance:

        def work(instance: Instance) -> Episode:
            nonlocal done
            if not hasattr(own, "env"):
                own.env = make_env()
                envs.append(own.env)
            episode = play(own.env, instance, begin)
            with lock:
                done += 1
                advance(done, len(instances))
            return episode

        pool = ThreadPoolExecutor(min(workers, max(1, len(instances))), thread_name_prefix="episode")
        try:
            episodes = tuple(pool.map(work, instances))
        finally:
            pool.shutdown(cancel_futures=True)  # after a fault of the agent, the others end their step and stop
            for env in envs:
                env.close()
    minutes = (time.monotonic() - start) / 60
    say(f"{title}: {len(episodes)} in {60 * minutes:.0f} s, {len(episodes) / minutes:.1f} a minute")
    return episodes
