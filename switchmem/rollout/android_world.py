"""AndroidWorld: its agent interface around a live agent, and its MiniWoB++ tasks on an emulator as an environment.

The package `android_world` is asked for only where a device is opened; without it the agent still works on whatever has
the methods of its `AsyncEnv`. AndroidWorld seeds its suites' parameters but not the content of MiniWoB++ pages, so that
two episodes of one seed are different instances there.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from switchmem.agent import Decision
from switchmem.envs.base import GOAL, Ending, PhoneAction, PhoneActionType, Screen
from switchmem.memory.views import Condition
from switchmem.rollout.play import phone_action
from switchmem.rollout.protocol import LiveAgent
from switchmem.rollout.results import RolloutError
from switchmem.steps import Screenshot, UIElement

PAUSE = 2.0
"""Seconds between an action and the next look, as AndroidWorld's own agents wait."""
FAMILY = "miniwob"
INSTALL = "Install it from https://github.com/google-research/android_world; it is not on PyPI."


@dataclass
class JsonAction:
    """AndroidWorld's `JSONAction` where that package is not installed: the same fields, and nothing else."""

    action_type: str
    index: int | None = None
    x: int | None = None
    y: int | None = None
    text: str | None = None
    direction: str | None = None
    goal_status: str | None = None
    app_name: str | None = None
    keycode: str | None = None
    clear_text: bool | None = None


@dataclass
class AgentInteractionResult:
    """What AndroidWorld's runner reads of a step.

    Args:
        done: whether the agent calls the task over.
        data: of the step.
    """

    done: bool
    data: dict[str, Any] = field(default_factory=dict)


def json_action(action: PhoneAction) -> Any:
    """An action as AndroidWorld's own class, or as `JsonAction` where it is not installed."""
    values = action.to_dict()
    if action.type is PhoneActionType.OPEN_APP:
        values["app_name"] = values.pop("text")
    for name in ("x", "y"):
        if name in values:
            values[name] = int(values[name])
    try:
        make = importlib.import_module("android_world.env.json_action").JSONAction
    except ImportError:
        make = JsonAction
    return make(**values)


def screen_of(state: Any, goal: str) -> Screen:
    """What an agent sees of AndroidWorld's state.

    Args:
        state: has `pixels` ``[height, width, 3 or 4]`` in [0, 255], and `ui_elements`.
        goal: of the task.
    """
    image = Image.fromarray(state.pixels[..., :3])
    elements = (element_of(element, *image.size) for element in state.ui_elements)
    return Screen(Screenshot.from_image(image), tuple(e for e in elements if e is not None), goal)


def element_of(element: Any, width: int, height: int) -> UIElement | None:
    """AndroidWorld's element as a record; None for one that is invisible or outside the screen.

    Args:
        element: has the fields of AndroidWorld's `UIElement`; its pixels are ``x_min, x_max, y_min, y_max``.
        width: of the screen in pixels.
        height: of the screen in pixels.
    """
    box = element.bbox_pixels
    if box is None or element.is_visible is False:
        return None
    left, right = (min(max(x / width, 0.0), 1.0) for x in (box.x_min, box.x_max))
    top, bottom = (min(max(y / height, 0.0), 1.0) for y in (box.y_min, box.y_max))
    if right <= left or bottom <= top:
        return None
    return UIElement(
        box=(left, top, right, bottom),
        text=element.text or "",
        kind=element.class_name or "",
        description=element.content_description or "",
        resource_id=getattr(element, "resource_name", None) or getattr(element, "resource_id", None) or "",
        clickable=bool(element.is_clickable),
        editable=bool(element.is_editable),
        checked=bool(element.is_checked),
        scrollable=bool(element.is_scrollable),
    )


# --- the agent ---


class AndroidWorldAgent:
    """A live agent behind the interface of AndroidWorld's `EnvironmentInteractingAgent`.

    Args:
        env: AndroidWorld's `AsyncEnv`.
        agent: such as `SwitchMemAgent`.
        condition: the form of memory; None lets the agent's policy choose.
        name: under which AndroidWorld lists it.
        transition_pause: seconds before each look, >= 0; None asks the environment to wait until the screen is stable.

    Raises:
        ValueError: if the pause is negative.
    """

    def __init__(
        self,
        env: Any,
        agent: LiveAgent,
        condition: Condition | None = None,
        name: str = "SwitchMem",
        transition_pause: float | None = PAUSE,
    ) -> None:
        if transition_pause is not None and transition_pause < 0:
            raise ValueError(f"`transition_pause` must be >= 0 seconds or None, got {transition_pause}.")
        self.env, self.agent, self.condition, self.name = env, agent, condition, name
        self.transition_pause = transition_pause
        self.max_steps: int | None = None
        self.guidelines: tuple[str, ...] = ()

    def set_max_steps(self, max_steps: int) -> None:
        """How many steps there are; the agent makes no use of it."""
        self.max_steps = max_steps

    def set_task_guidelines(self, task_guidelines: Sequence[str]) -> None:
        """Sentences that the actor is given behind the goal."""
        self.guidelines = tuple(task_guidelines)

    def reset(self, go_home: bool = False) -> None:
        """Begin another episode."""
        self.env.reset(go_home=go_home)

    def get_post_transition_state(self) -> Any:
        """The state, once the last action has had its effect."""
        if self.transition_pause is None:
            return self.env.get_state(wait_to_stabilize=True)
        time.sleep(self.transition_pause)
        return self.env.get_state(wait_to_stabilize=False)

    def step(self, goal: str) -> AgentInteractionResult:
        """Look, decide, act.

        An answer that is no action, and an action that the phone does not have, use up the step, as they do for
        AndroidWorld's own agents. On completion an answer, if there is one, is given before.

        Returns:
            Whether the agent calls the task over, and ``{"decision", "action", "note", "raw_screenshot"}``.
        """
        state = self.get_post_transition_state()
        screen = screen_of(state, " ".join((goal, *self.guidelines)))
        decision = self.agent.act(screen.goal, screen.screenshot, screen.elements, condition=self.condition)
        action, note = phone_action(decision, screen)
        data = {"decision": decision.to_dict(), "note": note, "raw_screenshot": state.pixels}
        if note:
            return AgentInteractionResult(False, {**data, "action": None})
        for done in _with_answer(decision, action):
            if done.type is not PhoneActionType.STATUS:
                self.env.execute_action(json_action(done))
        return AgentInteractionResult(action.type is PhoneActionType.STATUS, {**data, "action": action.to_dict()})


def _with_answer(decision: Decision, action: PhoneAction) -> list[PhoneAction]:
    text = decision.action.text if decision.action is not None else None
    if action.type is PhoneActionType.STATUS and text:
        return [PhoneAction(PhoneActionType.ANSWER, text=text), action]
    return [action]


# --- the environment ---

Reward = Callable[[Any], float]
"""The reward of the task that runs on a device, 0 while it runs; AndroidWorld's `get_episode_reward`."""


class AndroidWorldEnv:
    """AndroidWorld's MiniWoB++ tasks on one device, as an environment of a rollout.

    Args:
        env: AndroidWorld's `AsyncEnv`.
        tasks: classes of tasks by name.
        reward: asked after every action.
        max_steps: actions in an episode, >= 1.
        pause: seconds between an action and the next look, >= 0.
    """

    def __init__(
        self, env: Any, tasks: Mapping[str, Any], reward: Reward, max_steps: int = 30, pause: float = PAUSE
    ) -> None:
        self.env, self.tasks, self.reward = env, tasks, reward
        self.max_steps, self.pause = max_steps, pause
        self._task: Any = None
        self._goal, self._steps = "", 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Screen, dict[str, Any]]:
        """Begin a task. The seed is that of its parameters, of which these tasks have none but their name."""
        self._leave()
        name = (options or {})["task"]
        kind = self.tasks[name]
        kind.set_device_time(self.env)
        random.seed(seed)
        self._task = kind({**kind.generate_random_params(), "seed": seed})
        self._task.initialize_task(self.env)
        self.env.reset(go_home=False)
        self._goal, self._steps = str(self._task.goal), 0
        before, _, after = GOAL.partition("{utterance}")
        utterance = self._goal.removeprefix(before).removesuffix(after)
        return self._look(), {"task": name, "seed": seed, "utterance": utterance}

    def step(self, action: PhoneAction) -> tuple[Screen, float, bool, bool, dict[str, Any]]:
        """Carry out an action, and ask for the reward.

        Raises:
            RolloutError: if no task is running.
        """
        if self._task is None:
            raise RolloutError("`step` must follow `reset`, got no running task. Call `reset` first.")
        self._steps += 1
        if action.type is not PhoneActionType.STATUS:
            self.env.execute_action(json_action(action))
        screen = self._look()
        reward, detail = self._reward()
        ending = None
        if reward is not None:
            ending = Ending.SUCCESS if reward == 1.0 else Ending.FAILURE
        elif action.type is PhoneActionType.STATUS:
            ending = Ending.AGENT_DONE
        elif self._steps >= self.max_steps:
            ending = Ending.BUDGET
        told = {"reason": ending, "detail": detail, "raw_reward": reward}
        out_of_steps = ending is Ending.BUDGET
        return screen, float(ending is Ending.SUCCESS), ending is not None and not out_of_steps, out_of_steps, told

    def _reward(self) -> tuple[float | None, str]:
        """What the page said, None while the task runs; AndroidWorld cannot read one that is no whole number."""
        try:
            found = self.reward(self.env.controller)
        except ValueError as error:
            if "invalid literal for int" not in str(error):
                raise
            return float("nan"), f"a reward that is no whole number: {error}"
        return (found, "") if found != 0.0 else (None, "")

    def _look(self) -> Screen:
        time.sleep(self.pause)
        return screen_of(self.env.get_state(wait_to_stabilize=False), self._goal)

    def _leave(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.tear_down(self.env)

    def close(self) -> None:
        """End the task; the device stays open, as others may go on with it."""
        self._leave()


def miniwob_tasks() -> Mapping[str, Any]:
    """AndroidWorld's classes of the 92 tasks by name, in its order.

    Raises:
        RolloutError: if the package is not installed.
    """
    registry = _module("android_world.registry").TaskRegistry()
    tasks: Mapping[str, Any] = registry.get_registry(FAMILY)
    return tasks


def open_device(console_port: int, adb_path: str) -> Any:
    """AndroidWorld's environment on a running emulator that was set up by AndroidWorld before.

    Args:
        console_port: of the emulator, 5554 for the first one.
        adb_path: of Android's debug bridge.

    Raises:
        RolloutError: if the package is not installed.
    """
    launcher = _module("android_world.env.env_launcher")
    return launcher.load_and_setup_env(console_port=console_port, emulator_setup=False, adb_path=adb_path)


def episode_reward() -> Reward:
    """AndroidWorld's reward of a MiniWoB++ task.

    Raises:
        RolloutError: if the package is not installed.
    """
    reward: Reward = _module("android_world.task_evals.miniwob.miniwob_base").get_episode_reward
    return reward


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RolloutError(f"AndroidWorld must be installed to play on a phone, got: {error}. {INSTALL}") from error
