"""A phone of two buttons and an agent that knows on which tasks each form of memory helps: no browser, no model."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from PIL import Image

from switchmem.actors.grammars.base import ParseReason
from switchmem.agent import Decision, Timings, Tokens
from switchmem.envs.base import Ending, PhoneActionType, Screen
from switchmem.memory.views import Condition
from switchmem.rollout.world import World
from switchmem.steps import Action, ActionType, Screenshot, UIElement

WIDTH, HEIGHT = 40, 80
LEFT, RIGHT = (0.25, 0.5), (0.75, 0.5)
TASKS = ("both-help", "text-helps", "image-helps", "nothing-helps", "always-alike", "missing")
SOLVED = {
    Condition.NONE: {"both-help", "always-alike"},
    Condition.TEXT: {"both-help", "text-helps", "always-alike"},
    Condition.IMAGE: {"both-help", "image-helps", "always-alike"},
    Condition.BOTH: {"both-help", "always-alike"},
}


class Missing(RuntimeError):
    ending = Ending.MISSING_PAGE


class TwoButtons:
    """Every task takes two taps: any first one, then the right button. "always-alike" looks the same for every seed."""

    opened: list[TwoButtons] = []

    def __init__(self, max_steps=4):
        self.max_steps, self.closed = max_steps, False
        TwoButtons.opened.append(self)

    def reset(self, *, seed=None, options=None):
        self.task, self.seed, self.steps = options["task"], seed, 0
        if self.task == "missing":
            raise Missing("the task 'missing' must have a page, got none.")
        return self._look(), {"task": self.task, "seed": seed, "utterance": f"do {self.task}"}

    def _look(self):
        seed = 0 if self.task == "always-alike" else self.seed
        colour = (seed % 251, seed // 251 % 251, 90 + self.steps)  # screens are not all equal
        elements = tuple(
            UIElement((x - 0.2, 0.4, x + 0.2, 0.6), text, "android.widget.Button", clickable=True)
            for text, (x, _) in (("no", LEFT), ("yes", RIGHT))
        )
        return Screen(
            Screenshot.from_image(Image.new("RGB", (WIDTH, HEIGHT), colour)), elements, f"Do: do {self.task} {seed}"
        )

    def step(self, action):
        self.steps += 1
        reason, reward = None, None
        if action.type is PhoneActionType.CLICK and self.steps >= 2:
            reward = 1.0 if action.x > WIDTH / 2 else -1.0
            reason = Ending.SUCCESS if reward == 1.0 else Ending.FAILURE
        elif self.steps >= self.max_steps:
            reason = Ending.BUDGET
        over = reason not in (None, Ending.BUDGET)
        told = {"reason": reason, "detail": "", "raw_reward": reward}
        return self._look(), float(reward == 1.0), over, reason is Ending.BUDGET, told

    def close(self):
        self.closed = True


def decision(action, condition=Condition.NONE, memory=None, r=math.nan):
    reason = ParseReason.EMPTY if action is None else None
    seconds = Timings(retrieval=1.0, state=0.25, decoding=0.5)
    return Decision(action, reason, "raw", condition, r, 0.0, memory, 0.5, seconds, Tokens(1, 2, 3, 4))


def tap(point):
    return decision(Action(ActionType.TAP, point))


class Knowing:
    """Taps the right button where its form of memory helps. Its r of a task does not depend on the seed."""

    def __init__(self, policy, bank, asked):
        self.policy, self.bank, self.asked = policy, bank, asked

    def act(self, goal, screenshot, ui_elements=(), *, condition=None):
        task = goal.split()[2]
        r = math.nan
        self.asked.append((task, condition))
        if condition is None:
            r = self.preference(goal, screenshot, ui_elements)
            condition = Condition.IMAGE if r >= self.policy.threshold else Condition.TEXT
        memory = None
        if condition is not Condition.NONE:
            memory = self.bank.find(goal).step_id
        point = RIGHT if task in SOLVED[condition] else LEFT
        return decision(Action(ActionType.TAP, point), condition, memory, r)

    def preference(self, goal, screenshot, ui_elements=()):
        return {"both-help": -0.5, "text-helps": -1.0, "image-helps": 3.0, "nothing-helps": -2.0}.get(
            goal.split()[2], 0.0
        )


@pytest.fixture
def phones(monkeypatch):
    """The phones that were opened."""
    monkeypatch.setattr(TwoButtons, "opened", [])
    return TwoButtons.opened


@pytest.fixture
def two_buttons(phones):
    return World(TASKS, lambda suite, task: 1000 * suite + len(task), TwoButtons, {"environment": "two buttons"})


@pytest.fixture
def asked():
    """(task, form) of every call of the agent."""
    return []


@pytest.fixture
def make_agent(asked):
    return lambda policy, bank: Knowing(policy, bank, asked)


@pytest.fixture
def kit():
    """What tests build episodes from."""
    return SimpleNamespace(
        TwoButtons=TwoButtons, decision=decision, tap=tap, LEFT=LEFT, RIGHT=RIGHT, TASKS=TASKS, SOLVED=SOLVED
    )
