"""The protocol of MobileMiniWoB++, part by part: which episodes are played, by whom, and what is made of them.

bank        the actor without a memory, or scripted demonstrators, at one suite seed; successes become demonstrations
calibration first screens at a second seed; the threshold whose Image rate there is that of the policy's training
evaluation  every policy on the same instances at a third seed
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from switchmem.agent import BaselineAgent, BaselineDecision, Decision, LiveBank
from switchmem.envs.base import Screen
from switchmem.envs.crew import Crew
from switchmem.memory.views import Condition
from switchmem.policy import Policy, PolicyError, choices, match_rate_threshold
from switchmem.rollout.instances import Instance
from switchmem.rollout.play import Environment, Job, Watcher, play
from switchmem.rollout.results import SWITCHMEM
from switchmem.rollout.trace import Facts, Trace, TraceError, read_facts, write_trace

Play = Callable[[Any, Job], Trace]
"""Plays one episode in an environment."""


class LiveAgent(Protocol):
    """What a rollout asks of an agent; `SwitchMemAgent` is one."""

    def act(
        self, goal: str, screenshot: Any, ui_elements: Any = ..., *, condition: Condition | None = None
    ) -> Decision:
        """Decide on a screen, with a fixed form of memory or the policy's."""

    def preference(self, goal: str, screenshot: Any, ui_elements: Any = ...) -> float | None:
        """The router's score of a screen."""


MakeAgent = Callable[[Policy | None, LiveBank | None], LiveAgent]
"""An agent with a policy and a bank, or without either; the loaded actor is the same for all."""


Fatal = tuple[type[Exception], ...]
"""Errors that mean that there is no environment at all."""


def player(
    agent: LiveAgent, crew: Crew[Any], stuck: int | None = None, watcher: Watcher | None = None, fatal: Fatal = ()
) -> Play:
    """Plays episodes with an agent; the job's policy names the form of memory. See `play`."""

    def work(env: Environment, job: Job) -> Trace:
        condition = None if job.policy == SWITCHMEM else Condition(job.policy)

        def decide(screen: Screen) -> Decision:
            crew.check()
            return agent.act(screen.goal, screen.screenshot, screen.elements, condition=condition)

        return play(env, job, decide, stuck, watcher, fatal)

    return work


def baseline_player(
    agent: BaselineAgent, crew: Crew[Any], stuck: int | None = None, watcher: Watcher | None = None, fatal: Fatal = ()
) -> Play:
    """Plays episodes under a memory baseline, each with a past of its own. See `play`."""

    def work(env: Environment, job: Job) -> Trace:
        episode = agent.episode()

        def decide(screen: Screen) -> BaselineDecision:
            crew.check()
            return episode.act(screen.goal, screen.screenshot, screen.elements)

        return play(env, job, decide, stuck, watcher, fatal)

    return work


def looker(fatal: Fatal = ()) -> Play:
    """Begins a task and looks at its first screen alone."""
    return lambda env, job: play(env, job, None, fatal=fatal)


@dataclass(frozen=True)
class Part:
    """Episodes that are kept in one folder.

    Args:
        folder: holds a trace per task.
        jobs: one per task.
    """

    folder: Path
    jobs: Sequence[Job]

    def path(self, job: Job) -> Path:
        """Where a trace lies."""
        return self.folder / f"{job.task}.tar"

    def todo(self) -> list[Job]:
        """What has no whole trace yet."""
        return [job for job in self.jobs if not _is_whole(self.path(job))]

    def facts(self) -> list[Facts]:
        """What was played, in the order of the jobs.

        Raises:
            TraceError: if a trace is missing or damaged.
        """
        return [read_facts(self.path(job)) for job in self.jobs]


def _is_whole(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        read_facts(path)
    except TraceError:
        path.unlink()  # it is played again
        return False
    return True


def play_parts(parts: Sequence[Part], crew: Crew[Any], work: Play, advance: Callable[[float, float], None]) -> None:
    """Play what is missing of some parts, several episodes at a time. Each trace is kept as soon as it is over.

    Args:
        parts: of one phase.
        crew: plays.
        work: plays one episode.
        advance: told how many of how many episodes are there.
    """
    place = {job: part.path(job) for part in parts for job in part.jobs}
    # tasks in turn under all policies: a rollout that is stopped has whole tasks, and not one policy's alone
    order = {task: n for n, task in enumerate(dict.fromkeys(job.task for job in place))}
    todo = sorted((job for part in parts for job in part.todo()), key=lambda job: order[job.task])

    def keep(env: Environment, job: Job) -> Trace:
        trace = work(env, job)
        write_trace(place[job], trace)
        return trace

    done = len(place) - len(todo)
    advance(done, len(place))
    for _ in crew.run(todo, keep):
        done += 1
        advance(done, len(place))


def instances(facts: Iterable[Facts]) -> list[Instance]:
    """Those that could be begun."""
    return [Instance(fact.task, fact.seed, fact.look) for fact in facts if fact.look]


# --- the threshold ---


@dataclass(frozen=True)
class Calibrated:
    """A policy with the threshold of this environment.

    Args:
        policy: with that threshold.
        facts: how it was chosen, as plain JSON values.
    """

    policy: Policy
    facts: Mapping[str, Any]


def calibrate(policy: Policy, agent: LiveAgent, screens: Sequence[tuple[str, Screen]]) -> Calibrated:
    """Choose the threshold whose Image rate on unlabelled screens is that of the policy's training.

    Args:
        policy: with its own threshold.
        agent: has that policy, and the bank of the evaluation.
        screens: first screens by task.

    Raises:
        PolicyError: if the policy does not tell its Image rate, or no screen has a demonstration.
    """
    rate = policy.card.image_rate
    if not 0.0 <= rate <= 1.0:
        raise PolicyError(
            f"the policy must tell its Image rate in training to match it, got {rate}. Set `rollout.threshold: policy` "
            "to keep its own threshold, or train it again."
        )
    found = {task: agent.preference(s.goal, s.screenshot, s.elements) for task, s in screens}
    scores = {task: r for task, r in found.items() if r is not None}
    tau = match_rate_threshold(list(scores.values()), rate)
    there = choices(np.array(list(scores.values())), tau)
    facts = {
        "rule": "match_rate",
        "tau": tau,
        "own": policy.threshold,
        "wanted_image_rate": rate,
        "image_rate": float(there.mean()),
        "screens": len(scores),
        "r": scores,
    }
    return Calibrated(replace(policy, threshold=tau), facts)


def policy_digest(policy: Policy) -> str:
    """32 hexadecimal digits that change with the router, its threshold and its card."""
    digest = hashlib.blake2b(repr((policy.card, policy.threshold)).encode(), digest_size=16)
    for name, value in sorted(policy.router.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().to(torch.float64).numpy().tobytes())
    return digest.hexdigest()
