"""AndroidWorld's interface, on a simulated controller: neither an emulator nor that package is there in the tests."""

import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest

from switchmem.actors.spec import ActorSpec
from switchmem.envs.base import PhoneAction, PhoneActionType
from switchmem.memory import HashingEmbedder
from switchmem.memory.views import Condition
from switchmem.pipeline.rollout import Rollout
from switchmem.rollout.android_world import AndroidWorldAgent, AndroidWorldEnv, JsonAction, json_action, screen_of
from switchmem.rollout.play import Job, play
from switchmem.rollout.results import RolloutError
from switchmem.rollout.world import emulator
from switchmem.runs import RunFolder
from switchmem.settings import RolloutSettings
from switchmem.stages import Stages, make_folder
from switchmem.steps import Action, ActionType

WIDTH, HEIGHT = 108, 240


def ui(box, **changes):
    """An element with the fields of AndroidWorld's `UIElement`; its box is x_min, x_max, y_min, y_max in pixels."""
    names = ("text", "content_description", "class_name", "resource_name", "is_checked", "is_clickable", "is_editable",
             "is_scrollable", "is_visible")  # fmt: skip
    edges = (
        None if box is None else SimpleNamespace(**dict(zip(("x_min", "x_max", "y_min", "y_max"), box, strict=True)))
    )
    return SimpleNamespace(**{**dict.fromkeys(names), **changes, "bbox_pixels": edges})


class Phone:
    """AndroidWorld's `AsyncEnv`, of a screen with one button: what a tap on it is worth depends on the task."""

    interaction_cache = ""

    def __init__(self):
        self.controller, self.done, self.resets, self.waits = SimpleNamespace(reward=""), [], [], []
        self.task = None

    def reset(self, go_home=False):
        self.resets.append(go_home)

    def get_state(self, wait_to_stabilize=False):
        self.waits.append(wait_to_stabilize)
        pixels = np.full((HEIGHT, WIDTH, 3), 10 * len(self.done) % 256, np.uint8)
        elements = [
            ui((20, 60, 100, 120), text="OK", class_name="android.widget.Button", is_clickable=True, is_visible=True),
            ui((-5, 200, -5, 300), content_description="whole", is_scrollable=True, resource_name="app:id/page"),
            ui((0, 10, 0, 10), text="hidden", is_visible=False),
            ui((300, 400, 0, 10), text="beside"),
            ui(None, text="nowhere"),
        ]
        return SimpleNamespace(pixels=pixels, forest=None, ui_elements=elements)

    def execute_action(self, action):
        self.done.append(action)
        if action.action_type == "answer":
            self.interaction_cache = action.text
        if action.action_type == "click" and 20 <= action.x <= 60 and 100 <= action.y <= 120:
            self.controller.reward = {"whole": "1", "part": "0.83", "wrong": "-1"}.get(self.task, "")


class Task:
    """AndroidWorld's `TaskEval`; the module-level list notes what is called."""

    calls: list = []

    def __init__(self, params):
        self.params = params

    @classmethod
    def set_device_time(cls, env):
        cls.calls.append("time")

    @classmethod
    def generate_random_params(cls):
        return {"task_name": cls.name}

    def initialize_task(self, env):
        env.task, env.controller.reward, env.done = self.name, "", []
        self.calls.append(("begin", self.name))

    @property
    def goal(self):
        return f"Follow the instructions shown on the top of the screen: Tap OK for {self.name}"

    def tear_down(self, env):
        self.calls.append(("end", self.name))


TASKS = {name: type(name, (Task,), {"name": name}) for name in ("whole", "part", "wrong", "silent")}


def reward(controller):
    """As AndroidWorld reads it: a reward that is no whole number raises."""
    return 0.0 if not controller.reward else float(int(controller.reward))


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    monkeypatch.setattr(Task, "calls", [])
    return Task.calls


@pytest.fixture
def installed(monkeypatch):
    """A package `android_world` with what is asked of it, and its phone."""
    phone, opened = Phone(), []

    class JSONAction(JsonAction):
        pass

    def open_env(**asked):
        opened.append(asked)
        return phone

    modules = {
        "android_world": {},
        "android_world.env": {},
        "android_world.env.json_action": {"JSONAction": JSONAction},
        "android_world.env.env_launcher": {"load_and_setup_env": open_env},
        "android_world.registry": {
            "TaskRegistry": lambda: SimpleNamespace(get_registry=lambda family: {"miniwob": TASKS}[family])
        },
        "android_world.task_evals": {},
        "android_world.task_evals.miniwob": {},
        "android_world.task_evals.miniwob.miniwob_base": {"get_episode_reward": reward},
    }
    for name, held in modules.items():
        module = types.ModuleType(name)
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, name, module)
    return SimpleNamespace(phone=phone, opened=opened, action=JSONAction)


class Saying:
    """Gives its decisions one after the other."""

    def __init__(self, *decisions):
        self.left, self.asked = list(decisions), []

    def act(self, goal, screenshot, ui_elements=(), *, condition=None):
        self.asked.append((goal, screenshot, ui_elements, condition))
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


OK = (0.4, 110 / HEIGHT)


def test_a_state_becomes_a_screen():
    screen = screen_of(Phone().get_state(), "goal")
    assert (screen.screenshot.width, screen.screenshot.height) == (WIDTH, HEIGHT)
    button, page = screen.elements
    assert (button.text, button.kind, button.clickable, button.editable) == ("OK", "android.widget.Button", True, False)
    assert button.box == pytest.approx((20 / WIDTH, 100 / HEIGHT, 60 / WIDTH, 120 / HEIGHT))
    assert (page.box, page.description, page.resource_id, page.scrollable) == (
        (0, 0, 1, 1),
        "whole",
        "app:id/page",
        True,
    )


def test_the_agent_has_androidworlds_interface(kit):
    phone = Phone()
    saying = Saying(
        kit.tap(OK), kit.decision(None), kit.decision(Action(ActionType.DRAG, (0, 0), (1, 1))),
        kit.decision(Action(ActionType.COMPLETE, text="42")),
    )  # fmt: skip
    agent = AndroidWorldAgent(phone, saying, Condition.TEXT, transition_pause=0.0)
    assert agent.env is phone and agent.name == "SwitchMem" and agent.transition_pause == 0.0
    agent.reset(True)
    agent.set_max_steps(10)
    agent.set_task_guidelines(["Stay in the app.", "Be quick."])
    results = [agent.step("Tap OK.") for _ in range(4)]
    assert [result.done for result in results] == [False, False, False, True]
    assert phone.resets == [True] and agent.max_steps == 10
    assert [(a.action_type, a.x, a.y, a.text) for a in phone.done] == [
        ("click", 43, 110, None), ("answer", None, None, "42"),
    ]  # fmt: skip
    assert phone.interaction_cache == "42"
    assert "unparsable" in results[1].data["note"] and "drag" in results[2].data["note"]
    assert results[1].data["action"] is None and results[3].data["action"]["goal_status"] == "complete"
    assert results[0].data["raw_screenshot"].shape == (HEIGHT, WIDTH, 3)
    goal, screenshot, elements, condition = saying.asked[0]
    assert goal == "Tap OK. Stay in the app. Be quick." and condition is Condition.TEXT
    assert screenshot.width == WIDTH and len(elements) == 2


def test_the_pause_can_be_left_to_the_phone(kit):
    phone = Phone()
    AndroidWorldAgent(phone, Saying(kit.tap(OK)), transition_pause=None).step("Tap OK.")
    assert phone.waits == [True]
    with pytest.raises(ValueError, match="`transition_pause` must be >= 0 seconds or None, got -1"):
        AndroidWorldAgent(phone, Saying(), transition_pause=-1)


def test_actions_are_androidworlds_own_where_it_is_installed(installed):
    action = json_action(PhoneAction(PhoneActionType.CLICK, x=1.9, y=2.0))
    assert type(action) is installed.action and (action.x, action.y) == (1, 2)
    assert json_action(PhoneAction(PhoneActionType.OPEN_APP, text="Clock")).app_name == "Clock"


@pytest.mark.parametrize(
    ("task", "where", "ending", "raw"),
    [
        ("whole", OK, "success", 1.0),
        ("wrong", OK, "failure", -1.0),
        ("part", OK, "failure", "nan"),
        ("silent", OK, "budget", None),
        ("whole", (0.9, 0.9), "budget", None),
    ],
)
def test_an_episode_on_the_phone(kit, calls, task, where, ending, raw):
    env = AndroidWorldEnv(Phone(), TASKS, reward, max_steps=3, pause=0.0)
    trace = play(env, Job("none", task, 5), lambda _: kit.tap(where))
    assert trace.ending == ending and str(trace.raw_reward) == str(raw)
    assert trace.utterance == f"Tap OK for {task}" and trace.screens[0].goal.endswith(trace.utterance)
    assert len(trace.moves) == (3 if ending == "budget" else 1)
    env.close()
    assert calls == ["time", ("begin", task), ("end", task)]


def test_an_agent_that_calls_it_done_without_a_reward_has_failed(kit):
    env = AndroidWorldEnv(Phone(), TASKS, reward, pause=0.0)
    trace = play(env, Job("none", "whole", 5), lambda _: kit.decision(Action(ActionType.COMPLETE)))
    assert trace.ending == "agent_done" and env.env.done == []
    env.close()
    with pytest.raises(RolloutError, match="Call `reset` first"):
        env.step(PhoneAction(PhoneActionType.WAIT))


def test_a_phone_that_does_not_answer_ends_the_episode(kit):
    def lost(controller):
        raise ValueError("Could not extract reward; something went wrong.")

    trace = play(AndroidWorldEnv(Phone(), TASKS, lost, pause=0.0), Job("none", "whole", 5), lambda _: kit.tap(OK))
    assert trace.ending == "environment_error" and "Could not extract reward" in trace.detail


def test_a_rollout_on_the_phone(installed, kit, tmp_path):
    make_folder(tmp_path / "run")
    settings = RolloutSettings(policies=["none"], max_steps=3, workers=4, bootstrap=100)
    world = emulator(5556, "/sdk/adb", settings.max_steps, pause=0.0)
    rollout = Rollout(
        world, ActorSpec(device="cpu"), HashingEmbedder(dim=64), settings, Stages(tmp_path / "stages"),
        RunFolder(tmp_path / "run"), lambda policy, bank: Saying(kit.tap(OK)),
    )  # fmt: skip
    results = rollout.play({})
    assert results["by_task"] == {
        "whole": {"none": True}, "part": {"none": False}, "wrong": {"none": False}, "silent": {"none": False},
    }  # fmt: skip
    assert results["policies"]["none"]["success"] == 25.0
    assert any("does not seed the content" in note for note in results["notes"])
    assert installed.opened == [{"console_port": 5556, "emulator_setup": False, "adb_path": "/sdk/adb"}]
    assert all(type(action) is installed.action for action in installed.phone.done)


def test_without_the_package_the_way_out_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "android_world", None)
    with pytest.raises(RolloutError, match=r"AndroidWorld must be installed .* it is not on PyPI"):
        emulator()
