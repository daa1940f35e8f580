"""Episodes of scripted demonstrators: every screen, what was done there, and the same as step records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from switchmem.envs.base import DIRECTIONS, OPPOSITE, Ending, PhoneAction, PhoneActionType, Screen
from switchmem.envs.miniwob.demonstrators.view import Actions, Lost, View
from switchmem.envs.miniwob.env import MiniWobEnv
from switchmem.steps import Action, ActionType, Step

Demonstrator = Callable[[View], Actions]
BENCHMARK = "miniwob"
_SWIPE = 0.25  # of the screen: the length of a recorded swipe, of which the phone's action keeps the direction alone

_PLAIN = {
    PhoneActionType.NAVIGATE_BACK: ActionType.BACK,
    PhoneActionType.NAVIGATE_HOME: ActionType.HOME,
    PhoneActionType.KEYBOARD_ENTER: ActionType.ENTER,
    PhoneActionType.WAIT: ActionType.WAIT,
}
_AT_POINT = {PhoneActionType.CLICK: ActionType.TAP, PhoneActionType.LONG_PRESS: ActionType.LONG_PRESS}


@dataclass(frozen=True, slots=True)
class DemonstratedStep:
    """One action of a demonstrator.

    Args:
        screen: before the action.
        phone_action: as it was carried out.
    """

    screen: Screen
    phone_action: PhoneAction

    @property
    def action(self) -> Action:
        """The same as an actor's action, as `as_action`."""
        return as_action(self.phone_action, self.screen.screenshot.width, self.screen.screenshot.height)


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode of a demonstrator.

    Args:
        task: name of the task.
        seed: of the instance.
        utterance: the page's instruction.
        steps: in order. There is no step that says "complete": the page ends a task by itself.
        ending: why it was over; None if the demonstrator gave up before.
        detail: a few words on that.
        raw_reward: what the page said, or None.
    """

    task: str
    seed: int
    utterance: str
    steps: tuple[DemonstratedStep, ...]
    ending: Ending | None
    detail: str
    raw_reward: float | None

    @property
    def succeeded(self) -> bool:
        """Whether the page gave a raw reward of exactly 1."""
        return self.ending is Ending.SUCCESS


def demonstrate(env: MiniWobEnv, task: str, seed: int, demonstrators: Mapping[str, Demonstrator]) -> Episode:
    """Let a task's demonstrator play an instance.

    Args:
        env: to play in.
        task: its name.
        seed: of the instance.
        demonstrators: by task.

    Raises:
        KeyError: if the task has no demonstrator.
        EpisodeError: if the page does not begin.
    """
    script = demonstrators[task]
    screen, info = env.reset(seed=seed, options={"task": task})
    view = View(info["utterance"], screen, env.geometry, env.evaluate)
    steps: list[DemonstratedStep] = []
    ending: Ending | None = None
    detail, raw_reward = "the script ended before the task", None
    try:
        for action in script(view):
            steps.append(DemonstratedStep(view.screen, action))
            view.screen, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                ending, detail, raw_reward = info["reason"], info["detail"], info["raw_reward"]
                break
    except Lost as error:
        detail = str(error)
    return Episode(task, seed, view.utterance, tuple(steps), ending, detail, raw_reward)


def episode_steps(episode: Episode) -> list[Step]:
    """An episode as step records: the screen before each action, the instruction as an agent is given it.

    Scripts tap a field before they type, as an actor's action says what is typed but not where.

    Raises:
        ValueError: if an action has no counterpart among an actor's (`as_action`): few scripts empty a field first.
    """
    return [
        Step(
            benchmark=BENCHMARK,
            episode_id=f"{episode.task}-{episode.seed}",
            index=index,
            instruction=step.screen.goal,
            screenshot=step.screen.screenshot,
            elements=step.screen.elements,
            action=step.action,
            category=episode.task,
        )
        for index, step in enumerate(episode.steps)
    ]


def as_action(action: PhoneAction, width: int, height: int) -> Action:
    """A phone's action as an actor's. `PhoneAction.from_action` leads back to the same pixel.

    Raises:
        ValueError: for what an actor has no word for: double taps, swipes over the whole screen, text that is typed at
            a point or replaces another, answers.
    """
    kind = action.type
    # the middle of the pixel: its edge could be rounded into the one before
    point = None if action.x is None or action.y is None else ((action.x + 0.5) / width, (action.y + 0.5) / height)
    if kind in _AT_POINT:
        return Action(_AT_POINT[kind], point)
    if kind in _PLAIN:
        return Action(_PLAIN[kind])
    if kind is PhoneActionType.INPUT_TEXT and point is None and not action.clear_text:
        return Action(ActionType.TYPE, text=action.text)
    if kind is PhoneActionType.SCROLL and point is not None and action.direction in DIRECTIONS:
        return Action(ActionType.SWIPE, point, _lift(point, OPPOSITE[action.direction]))
    raise ValueError(
        f"`action` must have a counterpart among an actor's actions, got {action.to_dict()}. Tap a field first and "
        "type without a point; scroll at a point."
    )


def _lift(point: tuple[float, float], finger: str) -> tuple[float, float]:
    (dx, dy) = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}[finger]
    x, y = (min(1.0, max(0.0, v + _SWIPE * d)) for v, d in zip(point, (dx, dy), strict=True))
    return x, y
