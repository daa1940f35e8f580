"""Demonstrations from episodes that succeeded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from switchmem.agent import Decision, Timings, Tokens
from switchmem.envs.base import PhoneAction, Screen
from switchmem.memory.views import Condition
from switchmem.rollout.play import Job, failure
from switchmem.rollout.trace import Move, Trace
from switchmem.steps import Action, Step

BENCHMARK = "miniwob"
DEMONSTRATOR = "demonstrator"
"""Who plays where the bank is made by scripts."""


def bank_steps(traces: Iterable[Trace]) -> Iterator[Step]:
    """The steps of the successful episodes; moves whose answer was no action demonstrate nothing and are left out."""
    for trace in traces:
        if trace.success:
            for index, move in enumerate(trace.moves):
                if not move.note:
                    yield _step(trace, index, move)


def _step(trace: Trace, index: int, move: Move) -> Step:
    return Step(
        benchmark=BENCHMARK,
        episode_id=f"{trace.task}-{trace.seed}",
        index=index,
        instruction=move.screen.goal,
        screenshot=move.screen.screenshot,
        elements=move.screen.elements,
        action=Action.from_dict(move.decision["action"]),
    )


def demonstrated_move(screen: Screen, action: Action, done: PhoneAction) -> Move:
    """A demonstrator's step as a move; no actor was asked, so that it took no time."""
    decision = Decision(
        action, None, "", Condition.NONE, math.nan, math.nan, None, math.nan, Timings(), Tokens(0, 0, 0, 0)
    )
    return Move(screen, decision.to_dict(), done)


def play_demonstrator(env: Any, job: Job, fatal: tuple[type[Exception], ...] = ()) -> Trace:
    """Let the task's scripted demonstrator play; a task without one, or a script that loses its way, fails.

    Args:
        env: a `MiniWobEnv`.
        job: which episode.
        fatal: as of `play`.
    """
    from switchmem.envs.miniwob.demonstrators import DEMONSTRATORS, demonstrate

    if job.task not in DEMONSTRATORS:
        return job.trace("no_demonstrator")
    try:
        episode = demonstrate(env, job.task, job.seed)
    except Exception as error:  # a script may stumble over an instance in any way, and the others must be played
        return job.trace(*failure(error, fatal))
    moves = tuple(demonstrated_move(step.screen, step.action, step.phone_action) for step in episode.steps)
    ending = "lost" if episode.ending is None else episode.ending.value
    told = (ending, episode.detail, episode.raw_reward)
    return Trace(job.policy, job.task, job.seed, episode.utterance, moves, None, *told)
