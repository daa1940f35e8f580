"""AndroidWorld's action space, and an actor's actions in it; where pixels lie on the page; seeds."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchmem.envs.base import DIRECTIONS, ActionError, PhoneAction, PhoneActionType
from switchmem.envs.miniwob import TASKS, available, instance_seed
from switchmem.envs.miniwob.geometry import Geometry
from switchmem.envs.miniwob.gestures import scroll_path, swipe_path
from switchmem.envs.miniwob.tasks import PagesError
from switchmem.envs.spaces import PhoneActionSpace
from switchmem.steps import Action, ActionType, UIElement

WIDTH, HEIGHT = 1080, 2180
unit = st.floats(0, 1)


@given(x=unit, y=unit)
def test_a_tap_lands_on_the_pixel_under_its_point(x, y):
    action = PhoneAction.from_action(Action(ActionType.TAP, (x, y)), WIDTH, HEIGHT)
    assert action.type is PhoneActionType.CLICK
    assert action.x <= x * WIDTH <= action.x + 1 and action.y <= y * HEIGHT <= action.y + 1
    assert PhoneActionSpace(WIDTH, HEIGHT).contains(action)


@pytest.mark.parametrize(
    "end, direction", [((0.5, 0.2), "down"), ((0.5, 0.8), "up"), ((0.1, 0.45), "right"), ((0.95, 0.5), "left")]
)
def test_a_swipe_becomes_a_scroll_the_other_way_where_the_finger_touched(end, direction):
    action = PhoneAction.from_action(Action(ActionType.SWIPE, (0.5, 0.5), end), WIDTH, HEIGHT)
    assert action == PhoneAction(PhoneActionType.SCROLL, 540, 1090, direction=direction)


def test_a_swipe_is_measured_in_pixels_not_in_fractions():
    action = PhoneAction.from_action(Action(ActionType.SWIPE, (0.5, 0.5), (0.75, 0.3)), WIDTH, HEIGHT)
    assert action.direction == "down"  # 270 pixels to the right, 436 up


@pytest.mark.parametrize(
    "action, expected",
    [
        (Action(ActionType.LONG_PRESS, (0.5, 0.5)), {"action_type": "long_press", "x": 540, "y": 1090}),
        (Action(ActionType.TYPE, text="a b"), {"action_type": "input_text", "text": "a b"}),
        (Action(ActionType.BACK), {"action_type": "navigate_back"}),
        (Action(ActionType.HOME), {"action_type": "navigate_home"}),
        (Action(ActionType.ENTER), {"action_type": "keyboard_enter"}),
        (Action(ActionType.WAIT), {"action_type": "wait"}),
        (Action(ActionType.OPEN, text="Clock"), {"action_type": "open_app", "text": "Clock"}),
        (Action(ActionType.COMPLETE, text="12"), {"action_type": "status", "goal_status": "complete"}),
        (Action(ActionType.IMPOSSIBLE), {"action_type": "status", "goal_status": "infeasible"}),
    ],
)
def test_other_actions_have_one_counterpart(action, expected):
    converted = PhoneAction.from_action(action, WIDTH, HEIGHT)
    assert converted.to_dict() == expected
    assert PhoneAction.from_dict(expected) == converted


def test_text_can_be_typed_at_a_place():
    action = PhoneAction.from_action(Action(ActionType.TYPE, (1.0, 0.0), text="x"), WIDTH, HEIGHT)
    assert (action.x, action.y, action.text) == (1079, 0, "x")


def test_a_drag_has_no_counterpart_and_says_why():
    with pytest.raises(ActionError, match="got a drag from .* nothing can be picked up"):
        PhoneAction.from_action(Action(ActionType.DRAG, (0.1, 0.1), (0.2, 0.2)), WIDTH, HEIGHT)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"action_type": "click"}, "`x` must be given for 'click'"),
        ({"action_type": "click", "x": 1}, "must be given together"),
        ({"action_type": "click", "x": -1, "y": 3}, "must be >= 0"),
        ({"action_type": "wait", "x": 1, "y": 1}, "must be left out of 'wait'"),
        ({"action_type": "scroll"}, "`direction` must be given for 'scroll'"),
        ({"action_type": "scroll", "direction": "north"}, "must be one of"),
        ({"action_type": "click", "x": 1, "y": 1, "direction": "up"}, "`direction` must be left out"),
        ({"action_type": "input_text"}, "`text` must be given"),
        ({"action_type": "status"}, "`goal_status` must be given"),
        ({"action_type": "status", "goal_status": "won"}, "must be one of"),
        ({"action_type": "drag_and_drop"}, "must have an `action_type` of click"),
        ({"action_type": "wait", "index": 3}, "known fields"),
        ({}, "must have an `action_type`"),
    ],
)
def test_what_breaks_a_rule_is_told(fields, message):
    with pytest.raises(ActionError, match=message):
        PhoneAction.from_dict(fields)


def test_the_page_lies_below_the_status_bar_of_a_padded_screen():
    page, phone = Geometry(), Geometry(padded=True)
    assert (page.size, phone.size) == ((1080, 2180), (1080, 2400))
    assert page.to_page(1079, 2179) == (1079 / 5, 2179 / 5)
    assert phone.to_page(500, 154) == (100, 0) and phone.to_page(500, 153) is None
    assert phone.to_page(500, 2334) is None and page.to_page(500, 2180) is None


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_scroll_goes_from_the_middle_of_what_scrolls_to_its_edge(direction):
    boxes = (0.0, 0.0, 1.0, 1.0), (0.1, 0.2, 0.5, 0.4), (0.2, 0.25, 0.3, 0.3)
    outer, inner, label = (UIElement(box, scrollable=n < 2) for n, box in enumerate(boxes))
    start, end = scroll_path([outer, inner, label], Geometry(), direction, 0.25 * WIDTH, 0.28 * HEIGHT)
    assert start == pytest.approx((0.3 * 216, 0.3 * 436))
    dx, dy = end[0] - start[0], end[1] - start[1]
    wanted = {"down": (0, -1), "up": (0, 1), "right": (-1, 0), "left": (1, 0)}[direction]
    assert (round(dx / (0.2 * 216 - 1)), round(dy / (0.1 * 436 - 1))) == wanted
    start, _ = scroll_path([inner], Geometry(), direction, None, None)
    assert start == (108, 218)


def test_swipes_cross_the_screen_as_androidworld_has_them():
    finger = {name: (swipe_path(name)[1][0] - swipe_path(name)[0][0], swipe_path(name)[1][1] - swipe_path(name)[0][1])
              for name in DIRECTIONS}  # fmt: skip
    assert finger["up"] == (0, -434) and finger["down"] == (0, 434)
    assert finger["left"] == (214, 0) and finger["right"] == (-214, 0)


def test_the_92_tasks_and_the_one_without_a_page():
    assert len(TASKS) == len(set(TASKS)) == 92 and list(TASKS) == sorted(TASKS)
    assert set(TASKS) - set(available()) == {"drag-item"}


def test_other_pages_can_be_named(tmp_path):
    (tmp_path / "miniwob").mkdir()
    (tmp_path / "miniwob" / "drag-item.html").write_text("")
    assert available(tmp_path) == ("drag-item",)
    with pytest.raises(PagesError, match="`html_root` must be a folder that holds miniwob/NAME.html"):
        available(tmp_path / "miniwob")


@given(suite=st.integers(0, 2**31), index=st.integers(0, 9))
def test_seeds_follow_androidworlds_rule(suite, index):
    digest = hashlib.new("sha256", f"{suite}_click-pie_{index}".encode("ascii")).digest()
    assert instance_seed(suite, "click-pie", index) == int.from_bytes(digest[-4:], "big")


def test_no_instance_is_in_two_suites():
    seeds = [instance_seed(suite, task) for suite in (1001, 43, 42) for task in TASKS]
    assert len(set(seeds)) == 3 * 92
