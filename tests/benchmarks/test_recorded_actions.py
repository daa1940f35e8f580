"""Written actions: every name and field of the table, and why the rest is refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchmem.benchmarks import recorded_actions
from switchmem.benchmarks.recorded_actions import FIELDS, NAMES, Frame, check_shape, read_action
from switchmem.steps import Action, ActionType, RecordError, Screenshot

FRACTIONS, PIXELS = Frame(None, "Say pixels."), Frame((200, 400), "Give the screen.")
TAP, SWIPE = ActionType.TAP, ActionType.SWIPE
UP, DOWN = ((0.5, 0.75), (0.5, 0.25)), ((0.5, 0.25), (0.5, 0.75))
LEFT, RIGHT = ((0.75, 0.5), (0.25, 0.5)), ((0.25, 0.5), (0.75, 0.5))


@pytest.mark.parametrize(
    "written, expected",
    [
        ({"type": "tap", "point": [0.5, 0.25]}, Action(TAP, (0.5, 0.25))),
        ({"type": "CLICK", "point": [0, 1], "text": None}, Action(TAP, (0.0, 1.0))),
        ({"type": "long_press", "point": [0.5, 0.25]}, Action(ActionType.LONG_PRESS, (0.5, 0.25))),
        ({"type": "long_click", "point": [0.5, 0.25]}, Action(ActionType.LONG_PRESS, (0.5, 0.25))),
        ({"type": "swipe", "point": [0.5, 0.9], "end": [0.5, 0.1]}, Action(SWIPE, (0.5, 0.9), (0.5, 0.1))),
        ({"type": "drag", "point": [0.5, 0.9], "end": [0.1, 0.1]}, Action(ActionType.DRAG, (0.5, 0.9), (0.1, 0.1))),
        # a swipe tells the finger, a scroll the view
        ({"type": "swipe", "direction": "up"}, Action(SWIPE, *UP)),
        ({"type": "scroll", "direction": "down"}, Action(SWIPE, *UP)),
        ({"type": "swipe", "direction": "Down"}, Action(SWIPE, *DOWN)),
        ({"type": "scroll", "direction": "UP"}, Action(SWIPE, *DOWN)),
        ({"type": "swipe", "direction": "left"}, Action(SWIPE, *LEFT)),
        ({"type": "scroll", "direction": "right"}, Action(SWIPE, *LEFT)),
        ({"type": "swipe", "direction": "right"}, Action(SWIPE, *RIGHT)),
        ({"type": "scroll", "direction": "left"}, Action(SWIPE, *RIGHT)),
        ({"type": "type", "text": ""}, Action(ActionType.TYPE, text="")),
        ({"type": "input_text", "text": " a "}, Action(ActionType.TYPE, text=" a ")),
        ({"type": "open", "text": "Clock"}, Action(ActionType.OPEN, text="Clock")),
        ({"type": "open_app", "text": "Clock"}, Action(ActionType.OPEN, text="Clock")),
        ({"type": "done"}, Action(ActionType.COMPLETE)),
        ({"type": "finish", "text": "42"}, Action(ActionType.COMPLETE, text="42")),
        (
            {"type": "infeasible", "description": "No such app."},
            Action(ActionType.IMPOSSIBLE, description="No such app."),
        ),
        *(({"type": name}, Action(ActionType.BACK)) for name in ("back", "navigate_back", "press_back")),
        *(({"type": name}, Action(ActionType.HOME)) for name in ("home", "navigate_home", "press_home")),
        *(({"type": name}, Action(ActionType.ENTER)) for name in ("enter", "keyboard_enter", "press_enter")),
        ({"type": "wait"}, Action(ActionType.WAIT)),
    ],
)
def test_the_table(written, expected):
    assert read_action(written, FRACTIONS) == expected


def test_the_documented_table_names_every_name_and_no_other():
    rows = re.findall(r"^\| ([a-z_, ]+) \| [a-z]+", recorded_actions.__doc__, re.MULTILINE)
    named = [name for row in rows for name in row.split(", ") if name != "written"]
    assert sorted(named) == sorted(NAMES)


@pytest.mark.parametrize(
    "written, reason",
    [
        (None, "must be an object"),
        ("back", "must be an object"),
        ({}, "`action.type` must be one of tap, long_press"),
        ({"type": ["tap"]}, "`action.type` must be one of"),
        ({"type": "double_tap", "point": [0, 0]}, "got 'double_tap'"),
        ({"type": "tapp", "point": [0, 0]}, "Did you mean 'tap'?"),
        ({"type": "tap", "pont": [0, 0]}, "unknown field 'pont'. Did you mean 'point'?"),
        ({"type": "tap"}, "`action.point` must be a list of 2 numbers, got None"),
        ({"type": "tap", "point": "12"}, "a list of 2 numbers, got '12'"),
        ({"type": "tap", "point": [0.5]}, "a list of 2 numbers"),
        ({"type": "tap", "point": [0.5, True]}, "a list of 2 numbers"),
        ({"type": "tap", "point": [0.5, "0.5"]}, "a list of 2 numbers"),
        ({"type": "tap", "point": [0.5, 1.01]}, "fractions of the screen in [0, 1], got [0.5, 1.01]. Say pixels."),
        ({"type": "tap", "point": [-0.1, 0.5]}, "Say pixels."),
        ({"type": "tap", "point": [float("nan"), 0.5]}, "Say pixels."),
        ({"type": "tap", "point": [10**400, 0.5]}, "Say pixels."),
        ({"type": "tap", "point": [0.1, 0.1], "end": [0.5, 0.5]}, "'tap' takes `point`, got `end`"),
        ({"type": "back", "point": [0.1, 0.1]}, "'back' takes nothing else, got `point`"),
        ({"type": "tap", "point": [0.1, 0.1], "text": "OK"}, "'tap' takes `point`, got `text`: 'OK'"),
        ({"type": "tap", "point": [0.1, 0.1], "direction": "up"}, "got `direction`"),
        ({"type": "swipe", "point": [0.1, 0.1]}, "`action.end` must be a list"),
        ({"type": "swipe", "point": [0.1, 0.1], "end": [0.1, 0.1]}, "must end elsewhere"),
        ({"type": "swipe", "point": [0.1, 0.1], "direction": "up"}, "got both"),
        ({"type": "swipe", "direction": "north"}, "up, down, left or right, got 'north'"),
        ({"type": "swipe", "direction": ["up"]}, "up, down, left or right"),
        ({"type": "scroll"}, "`action.direction` must be up"),
        ({"type": "scroll", "point": [0.1, 0.1], "end": [0.5, 0.5]}, "'scroll' takes `direction`, got `point`"),
        ({"type": "drag", "direction": "up"}, "'drag' takes `point` and `end`, got `direction`"),
        ({"type": "type"}, "needs a `text`"),
        ({"type": "type", "text": 42}, "`action.text` must be a text, got 42"),
        ({"type": "back", "description": ["a"]}, "`action.description` must be a text"),
    ],
)
def test_what_is_refused_says_why(written, reason):
    with pytest.raises(RecordError, match=re.escape(reason)):
        read_action(written, FRACTIONS)


def test_pixels_are_divided_by_the_screen():
    assert read_action({"type": "tap", "point": [50, 300]}, PIXELS).point == (0.25, 0.75)
    assert read_action({"type": "tap", "point": [200, 0]}, PIXELS).point == (1.0, 0.0)
    assert read_action({"type": "tap", "point": [99.5, 1]}, PIXELS).point == (0.4975, 0.0025)
    with pytest.raises(RecordError, match=r"pixels of the screen of 200 x 400, got \[201, 0\]. Give the screen."):
        read_action({"type": "tap", "point": [201, 0]}, PIXELS)
    with pytest.raises(RecordError, match="must be in pixels, got .* fractions of one"):
        read_action({"type": "tap", "point": [0.5, 300]}, PIXELS)


def test_boxes_in_pixels_are_cut_and_in_fractions_are_not():
    assert PIXELS.box([-20, 100, 100, 900], "box") == (0.0, 0.25, 0.5, 1.0)
    for gone in ([300, 0, 400, 10], [0, 0, 0, 0], [10, 50, 60, 40], [0, -50, 60, 0]):
        assert PIXELS.box(gone, "box") is None
    assert PIXELS.box([0, 0, float("inf"), 10**400], "box") == (0.0, 0.0, 1.0, 1.0)
    assert FRACTIONS.box([0.2, 0.1, 0.2, 0.5], "box") is None
    with pytest.raises(RecordError, match=r"`box` must be \[left, top, right, bottom\] in fractions"):
        FRACTIONS.box([0, 0, 1, 2], "box")
    with pytest.raises(RecordError, match="fractions of one"):
        PIXELS.box([0, 0, 0.5, 0.5], "box")


def test_a_picture_may_be_smaller_but_not_of_another_shape():
    for width, height in ((1080, 2400), (540, 1200), (90, 200), (100, 223)):
        check_shape((1080, 2400), Screenshot(b"", width, height))
    for width, height in ((2400, 1080), (1080, 2274), (100, 200)):
        with pytest.raises(RecordError, match=f"1080 x 2400, got a picture of {width} x {height}"):
            check_shape((1080, 2400), Screenshot(b"", width, height))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab\u2028", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\u2028", max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from([*NAMES, "up"]), max_size=6),
    st.sampled_from([FRACTIONS, PIXELS]),
)
def test_anything_is_an_action_or_a_record_error(values, frame):
    try:
        action = read_action(values, frame)
    except RecordError:
        return
    assert action.type is NAMES[values["type"].lower()]
