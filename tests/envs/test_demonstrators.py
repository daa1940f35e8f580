"""Scripted demonstrators: what they solve in a real Chromium, and their episodes as step records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from switchmem.envs.base import DIRECTIONS, Ending, PhoneAction, PhoneActionType, Screen
from switchmem.envs.miniwob import TASKS, instance_seed
from switchmem.envs.miniwob.demonstrators import (
    DEMONSTRATORS,
    OUT_OF_REACH,
    PARTLY_OUT_OF_REACH,
    Episode,
    Lost,
    View,
    as_action,
    demonstrate,
    episode_steps,
    menus,
)
from switchmem.envs.miniwob.demonstrators.episodes import DemonstratedStep
from switchmem.envs.miniwob.env import MiniWobEnv
from switchmem.envs.miniwob.geometry import Geometry
from switchmem.steps import ActionType, Screenshot, UIElement

WIDTH, HEIGHT = 1080, 2180


@pytest.fixture
def env(browser):
    opened = MiniWobEnv(browser)
    yield opened
    opened.close()


def screen(*elements):
    pixels = Image.fromarray(np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    return Screen(Screenshot.from_image(pixels), elements, "Follow the instructions: tap")


def element(left, top, right, bottom, text="", kind="Button", **flags):
    """An element at CSS pixels of the page."""
    return UIElement((left / 216, top / 436, right / 216, bottom / 436), text=text, kind=kind, **flags)


def view(*elements, utterance='Click on the "Ok" button.'):
    return View(utterance, screen(*elements), Geometry(), lambda script: None)


def test_every_task_has_a_script_or_a_reason():
    assert DEMONSTRATORS.keys() | OUT_OF_REACH.keys() == set(TASKS)
    assert not DEMONSTRATORS.keys() & OUT_OF_REACH.keys()
    assert PARTLY_OUT_OF_REACH.keys() <= DEMONSTRATORS.keys()
    assert len(DEMONSTRATORS) >= 60


# One of each kind of script and of each kind of action; together they are kept short.
SAMPLE = (
    "click-color", "click-tab-2-medium", "click-checkboxes-soft", "choose-list", "enter-date", "email-inbox-forward",
    "social-media-some", "read-table-2", "count-sides", "grid-coordinate", "guess-number", "click-menu-2",
)  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize("task", SAMPLE)
def test_a_demonstrator_solves_an_instance_that_it_has_not_seen(env, task):
    episode = demonstrate(env, task, instance_seed(6, task))
    assert (episode.ending, episode.raw_reward) == (Ending.SUCCESS, 1.0), episode.detail
    assert episode.succeeded and 1 <= len(episode.steps) <= env.max_steps


@pytest.mark.browser
def test_an_episode_becomes_step_records(env):
    seed = instance_seed(6, "enter-text")
    episode = demonstrate(env, "enter-text", seed)
    steps = episode_steps(episode)
    assert [s.action.type for s in steps] == [ActionType.TAP, ActionType.TYPE, ActionType.TAP]
    assert [s.index for s in steps] == [0, 1, 2]
    assert {(s.benchmark, s.episode_id, s.category) for s in steps} == {("miniwob", f"enter-text-{seed}", "enter-text")}
    assert all(episode.utterance in s.instruction for s in steps)
    typed = steps[1].action.text
    assert f'"{typed}"' in episode.utterance
    # each screen is the one before its action: the typed text is first seen on the last
    assert [typed in {e.text for e in s.elements if e.editable} for s in steps] == [False, False, True]


@pytest.mark.browser
def test_an_actor_that_repeats_the_records_solves_the_task(env):
    task, seed = "click-scroll-list", instance_seed(6, "click-scroll-list")
    episode = demonstrate(env, task, seed)
    env.reset(seed=seed, options={"task": task})
    answers = [env.step(PhoneAction.from_action(s.action, WIDTH, HEIGHT))[1] for s in episode_steps(episode)]
    assert answers == [0.0] * (len(answers) - 1) + [1.0]


@pytest.mark.browser
def test_a_script_that_is_lost_gives_up_with_the_reason(env, monkeypatch):
    monkeypatch.setitem(DEMONSTRATORS, "click-test", DEMONSTRATORS["click-dialog"])
    episode = demonstrate(env, "click-test", instance_seed(6, "click-test"))
    assert (episode.ending, episode.steps, episode.succeeded) == (None, (), False)
    assert "no quotation" in episode.detail


points = st.tuples(st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1))


@given(points, st.sampled_from((PhoneActionType.CLICK, PhoneActionType.LONG_PRESS)))
def test_a_tap_leads_back_to_its_pixel(point, kind):
    action = PhoneAction(kind, *point)
    assert PhoneAction.from_action(as_action(action, WIDTH, HEIGHT), WIDTH, HEIGHT) == action


@given(points, st.sampled_from(DIRECTIONS))
def test_a_scroll_leads_back_to_its_pixel_and_direction(point, direction):
    action = PhoneAction(PhoneActionType.SCROLL, *point, direction=direction)
    assert PhoneAction.from_action(as_action(action, WIDTH, HEIGHT), WIDTH, HEIGHT) == action


@pytest.mark.parametrize(
    "action",
    [
        PhoneAction(PhoneActionType.WAIT),
        PhoneAction(PhoneActionType.KEYBOARD_ENTER),
        PhoneAction(PhoneActionType.NAVIGATE_BACK),
        PhoneAction(PhoneActionType.INPUT_TEXT, text="abc"),
    ],
)
def test_actions_without_a_point_lead_back(action):
    assert PhoneAction.from_action(as_action(action, WIDTH, HEIGHT), WIDTH, HEIGHT) == action


@pytest.mark.parametrize(
    "action",
    [
        PhoneAction(PhoneActionType.INPUT_TEXT, 5, 5, text="abc"),
        PhoneAction(PhoneActionType.INPUT_TEXT, text="abc", clear_text=True),
        PhoneAction(PhoneActionType.DOUBLE_TAP, 5, 5),
        PhoneAction(PhoneActionType.SWIPE, direction="up"),
        PhoneAction(PhoneActionType.SCROLL, direction="up"),
    ],
)
def test_what_an_actor_has_no_word_for_is_refused(action):
    episode = Episode("t", 1, "u", (DemonstratedStep(screen(), action),), None, "", None)
    with pytest.raises(ValueError, match="must have a counterpart among an actor's actions"):
        episode_steps(episode)


def test_the_instruction_is_not_among_the_elements():
    heading, button = element(3, 3, 111, 14, "Ok", "TextView"), element(2, 117, 35, 138, "Ok")
    shown = view(heading, button)
    assert shown.one("Ok") == shown.button("Ok") == button
    assert shown.tap(button) == PhoneAction(PhoneActionType.CLICK, round(18.5 * 5), round(127.5 * 5))


def test_a_button_under_another_is_tapped_where_it_is_seen():
    below, above = element(42, 71, 82, 111, "ONE"), element(54, 53, 94, 93, "TWO")
    shown = view(below, above)
    tapped = shown.tap(shown.button("ONE"))
    x, y = tapped.x / WIDTH, tapped.y / HEIGHT
    assert below.contains((x, y)) and not above.contains((x, y))
    hidden = view(element(60, 60, 70, 70, "ONE"), above)
    with pytest.raises(Lost, match="'ONE' must be in sight, got it under another"):
        hidden.tap(hidden.button("ONE"))


def test_what_is_missing_is_named():
    with pytest.raises(Lost, match="must show Button 'Ok', got none"):
        view().one("Ok", "Button")
    with pytest.raises(Lost, match="instruction must hold"):
        view().words(r"Tab #(\d)")


def test_a_list_without_the_wanted_element_is_left_at_its_end():
    shown = view(element(0, 60, 160, 200, kind="View", scrollable=True))
    scroll = shown.scroll_to(lambda: [], "a mail by Ann")
    assert next(scroll).direction == "down"
    with pytest.raises(Lost, match="must hold a mail by Ann, got to its end"):
        next(scroll)


def test_the_player_takes_a_win_and_blocks_a_loss():
    assert menus.best_cell((1, 1, 0, -1, -1, 0, 0, 0, 0)) == 2
    assert menus.best_cell((1, 0, 0, -1, -1, 0, 0, 0, 1)) == 5
