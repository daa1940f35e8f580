"""Episodes in a real Chromium: rewards, endings and what is seen, through the public action space alone."""

import re

import gymnasium
import pytest

from switchmem.envs.base import Ending, PhoneAction, PhoneActionType
from switchmem.envs.miniwob import instance_seed
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv

pytestmark = pytest.mark.browser


@pytest.fixture
def env(browser):
    opened = MiniWobEnv(browser)
    yield opened
    opened.close()


def begin(env, task, suite=42):
    return env.reset(seed=instance_seed(suite, task), options={"task": task})


def tap(screen, element):
    x, y = element.center
    return PhoneAction(PhoneActionType.CLICK, x * screen.screenshot.width, y * screen.screenshot.height)


def quoted(text):
    return re.search('"(.*?)"', text)[1]


def test_the_right_button_succeeds_and_a_wrong_one_fails(env):
    screen, info = begin(env, "click-button")
    buttons = [e for e in screen.elements if e.kind == "Button"]
    wanted = quoted(info["utterance"])
    screen, *answer = env.step(tap(screen, next(e for e in buttons if e.text == wanted)))
    assert answer == [1.0, True, False, {"reason": Ending.SUCCESS, "detail": "", "raw_reward": 1.0}]
    screen, _ = begin(env, "click-button")
    screen, reward, terminated, truncated, info = env.step(tap(screen, next(e for e in buttons if e.text != wanted)))
    assert (reward, terminated, truncated, info["reason"]) == (0.0, True, False, Ending.FAILURE)
    with pytest.raises(gymnasium.error.ResetNeeded, match="Call `reset` first"):
        env.step(PhoneAction(PhoneActionType.WAIT))


def test_text_is_typed_where_it_was_tapped(env):
    screen, info = begin(env, "enter-text")
    field = next(e for e in screen.elements if e.editable)
    x, y = (v * s for v, s in zip(field.center, env.geometry.size, strict=True))
    screen, *_ = env.step(PhoneAction(PhoneActionType.INPUT_TEXT, x, y, text=quoted(info["utterance"])))
    assert next(e for e in screen.elements if e.editable).text == quoted(info["utterance"])
    _, reward, *_ = env.step(tap(screen, next(e for e in screen.elements if e.kind == "Button")))
    assert reward == 1.0


def test_a_missing_page_is_named(env):
    with pytest.raises(EpisodeError, match="'drag-item' must have a page") as raised:
        begin(env, "drag-item")
    assert raised.value.ending is Ending.MISSING_PAGE
