"""One episode: look, decide, act, until the environment says that it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from switchmem.actors.api.actor import RequestsFailedError
from switchmem.agent import BaselineDecision, Decision
from switchmem.envs.base import ActionError, PhoneAction, PhoneActionType, Screen
from switchmem.memory.budget import BudgetError
from switchmem.prompts import PromptError
from switchmem.rollout.trace import ENVIRONMENT_ERROR, REQUEST_FAILED, Move, Trace
from switchmem.steps import RecordError

_log = logging.getLogger(__name__)

AGENT_ERROR = "agent_error"
"""The agent could not be asked: a prompt too long, or a damaged demonstration."""
STUCK = "stuck"
"""The same screen came so often that the rollout's own limit was reached; the paper has none."""
SEEN = "seen"
"""Only the first screen was asked for."""

NOTHING = PhoneAction(PhoneActionType.WAIT)
"""What is done with an answer that is no action: the step is used up, and time goes by."""


class Environment(Protocol):
    """What is asked of an environment; `MiniWobEnv` and `AndroidWorldEnv` are such.

    An error of `reset` that has an `ending` tells why the task did not begin.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Screen, dict[str, Any]]:
        """Begin the task ``options["task"]``; returns the first screen, and a dict with its "utterance"."""

    def step(self, action: PhoneAction) -> tuple[Screen, float, bool, bool, dict[str, Any]]:
        """Carry out an action: screen, reward, over, out of steps, and "reason", "detail" and "raw_reward"."""

    def close(self) -> None:
        """Let go of it."""


Decided = Decision | BaselineDecision
Decide = Callable[[Screen], Decided]
"""From a screen to what to do on it."""


@dataclass(frozen=True, slots=True)
class Job:
    """An episode to be played.

    Args:
        policy: who chooses the memory's form.
        task: name of the task.
        seed: of the instance.
    """

    policy: str
    task: str
    seed: int

    def trace(self, ending: str, detail: str = "", utterance: str = "", last: Screen | None = None) -> Trace:
        """The trace of an episode without a move."""
        return Trace(self.policy, self.task, self.seed, utterance, (), last, ending, detail)


class Watcher(Protocol):
    """Told what happens in an episode."""

    def saw(self, job: Job, number: int, screen: Screen, decision: Decided | None) -> None:
        """A screen, and what was decided on it; None on the last one."""


def play(
    env: Environment,
    job: Job,
    decide: Decide | None,
    stuck: int | None = None,
    watcher: Watcher | None = None,
    fatal: tuple[type[Exception], ...] = (),
) -> Trace:
    """Play an episode. Whatever the page or the actor does, it ends with a reason.

    Args:
        env: counts the steps and ends the episode when they are used up.
        job: which episode.
        decide: the agent; None looks at the first screen alone.
        stuck: end it when so many equal screens came in a row, >= 2; None never does.
        watcher: is told of each screen.
        fatal: errors that mean that there is no environment at all, and so no failure of the actor; they come through.

    Raises:
        RequestsFailedError: if the actor's endpoint cannot be reached, or refuses its key.
    """
    try:
        screen, info = env.reset(seed=job.seed, options={"task": job.task})
    except Exception as error:  # a page can fail in any way, and the next episode must be played
        return job.trace(*failure(error, fatal))
    moves: list[Move] = []
    utterance, ending, detail, reward = str(info["utterance"]), SEEN, "", None
    while decide is not None:
        if stuck is not None and _is_stuck(moves, screen, stuck):
            ending, detail = STUCK, f"{stuck} equal screens in a row"
            break
        try:
            decision = decide(screen)
        except (PromptError, BudgetError, RecordError, RequestsFailedError) as error:
            ending, detail = _unasked(error)
            break
        if watcher is not None:
            watcher.saw(job, len(moves), screen, decision)
        action, note = phone_action(decision, screen)
        started = time.perf_counter()
        try:
            after, _, terminated, truncated, told = env.step(action)
        except Exception as error:
            moves.append(Move(screen, decision.to_dict(), action, note, time.perf_counter() - started))
            ending, detail = failure(error, fatal)
            break
        moves.append(Move(screen, decision.to_dict(), action, note, time.perf_counter() - started))
        screen = after
        if terminated or truncated:
            ending, detail, reward = str(told["reason"].value), str(told["detail"]), told["raw_reward"]
            break
    if watcher is not None:
        watcher.saw(job, len(moves), screen, None)
    return Trace(job.policy, job.task, job.seed, utterance, tuple(moves), screen, ending, detail, reward)


def phone_action(decision: Decided, screen: Screen) -> tuple[PhoneAction, str]:
    """What is done with a decision, and why that is not what the actor said, or ""."""
    if decision.action is None:
        return NOTHING, f"unparsable: {decision.why}"
    try:
        return PhoneAction.from_action(decision.action, screen.screenshot.width, screen.screenshot.height), ""
    except ActionError as error:
        return NOTHING, str(error)


def failure(error: Exception, fatal: tuple[type[Exception], ...] = ()) -> tuple[str, str]:
    """How an error of an environment ends an episode, and a few words on it; a fatal one is raised again."""
    if isinstance(error, fatal):
        raise error
    ending = getattr(error, "ending", None)
    if ending is None:
        _log.warning("An episode's environment broke: %r. The episode counts as failed.", error)
        return ENVIRONMENT_ERROR, repr(error)
    return str(ending.value), str(error)


def _unasked(error: Exception) -> tuple[str, str]:
    """How an episode ends whose agent has no answer; an endpoint that answers nobody is no failure of the actor."""
    if not isinstance(error, RequestsFailedError):
        return AGENT_ERROR, str(error)
    if error.hopeless:  # the rollout stops, and goes on from here
        raise error
    return REQUEST_FAILED, str(error)


def _is_stuck(moves: list[Move], screen: Screen, limit: int) -> bool:
    """Whether the last screens are all the same, this one included."""
    last = [move.screen for move in moves[-(limit - 1) :]]
    return len(last) == limit - 1 and all(one.screenshot.data == screen.screenshot.data for one in last)
