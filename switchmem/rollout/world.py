"""The environment of a rollout, and the agents that play in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from switchmem.actors.spec import ActorSpec
from switchmem.agent import EndpointAgent, LiveBank, SwitchMemAgent
from switchmem.envs.miniwob.tasks import instance_seed
from switchmem.policy import Policy
from switchmem.rollout.android_world import PAUSE, AndroidWorldEnv, episode_reward, miniwob_tasks, open_device
from switchmem.rollout.play import Environment
from switchmem.rollout.protocol import LiveAgent, MakeAgent
from switchmem.rollout.results import RolloutError


@dataclass(frozen=True)
class World:
    """The environment of a rollout.

    Args:
        tasks: all that there are, in order.
        seed: of a suite's instance of a task.
        make_env: opens an environment for one worker.
        facts: what its episodes depend on, as plain JSON values.
        why: errors that mean that it cannot be had at all; their message tells the way out.
        most_workers: episodes that it can play at a time; None for no limit.
        scripts: changes with the scripted demonstrators; "" where there are none.
        notes: what its results must be read with.
    """

    tasks: Sequence[str]
    seed: Callable[[int, str], int]
    make_env: Callable[[], Environment]
    facts: Mapping[str, Any]
    why: tuple[type[Exception], ...] = ()
    most_workers: int | None = None
    scripts: str = ""
    notes: tuple[str, ...] = ()


def miniwob(html_root: str | None = None, max_steps: int = 30, padded: bool = False) -> World:
    """MobileMiniWoB++ in headless Chromium.

    Args:
        html_root: the folder of the pages; None takes those of the package `miniwob`.
        max_steps: actions in an episode, >= 1.
        padded: whether screenshots show the phone's whole screen.

    Raises:
        RolloutError: if it is not installed, or has no browser or no pages.
    """
    try:
        from switchmem.envs.miniwob.browser import BrowserError
        from switchmem.envs.miniwob.env import STEP_MS, MiniWobEnv
        from switchmem.envs.miniwob.identity import identity, scripts_digest
        from switchmem.envs.miniwob.tasks import TASKS, PagesError, pages_root
    except ImportError as error:
        raise RolloutError(
            f'MobileMiniWoB++ must be installed, got: {error}. Run pip install "switchmem[envs]".'
        ) from error
    try:
        root, found = pages_root(html_root), identity(html_root)
    except (BrowserError, PagesError) as error:
        raise RolloutError(str(error)) from error

    def make_env() -> Environment:
        return MiniWobEnv(html_root=root, max_steps=max_steps, padded=padded)

    facts = {**found, "padded": padded, "step_ms": STEP_MS, "max_steps": max_steps}
    return World(TASKS, instance_seed, make_env, facts, (BrowserError, PagesError), scripts=scripts_digest())


def emulator(console_port: int = 5554, adb_path: str = "adb", max_steps: int = 30, pause: float = PAUSE) -> World:
    """AndroidWorld's MiniWoB++ tasks on a running Android emulator, one episode at a time.

    Args:
        console_port: of the emulator.
        adb_path: of Android's debug bridge.
        max_steps: actions in an episode, >= 1.
        pause: seconds between an action and the next look, >= 0.

    Raises:
        RolloutError: if AndroidWorld is not installed.
    """
    tasks, reward = miniwob_tasks(), episode_reward()
    devices: list[Any] = []

    def make_env() -> Environment:
        if not devices:
            devices.append(open_device(console_port, adb_path))
        return AndroidWorldEnv(devices[0], tasks, reward, max_steps, pause)

    facts = {"environment": "android_world", "console_port": console_port, "max_steps": max_steps, "pause": pause}
    note = (
        "AndroidWorld does not seed the content of its MiniWoB++ pages: policies played the same tasks, not the same "
        "instances, and a seed does not bring an instance back."
    )
    return World(tuple(tasks), instance_seed, make_env, facts, most_workers=1, notes=(note,))


def live_agents(spec: ActorSpec, max_new_tokens: int, load: Callable[[], Any]) -> MakeAgent:
    """Agents that share one loaded actor.

    Args:
        spec: the actor's.
        max_new_tokens: the most tokens of an answer.
        load: gives the loaded actor, always the same one.
    """

    def make(policy: Policy | None, bank: LiveBank | None) -> LiveAgent:
        if spec.endpoint is not None:  # a rollout refuses policies for one
            return EndpointAgent(spec, load(), bank, max_new_tokens)
        return SwitchMemAgent(policy, spec, load(), bank, max_new_tokens)

    return make
