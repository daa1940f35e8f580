"""LearnGUI's strings as an actor writes them, with and without words around."""

from __future__ import annotations

import pytest

from switchmem.actors.grammars.base import get_grammar
from switchmem.actors.grammars.places import finger_direction
from switchmem.steps import Action, ActionType

SIZE = (1080, 2400)
TAP = Action(ActionType.TAP, (0.5, 0.25))


def read(text: str):
    return get_grammar("learngui").parse(text, SIZE)


@pytest.mark.parametrize(
    "text",
    [
        "CLICK[540,600]",
        "CLICK[540, 600]",
        "CLICK [ 540.0 , 600.0 ]",
        "click[540,600].",
        "CLICK[(540, 600)]",
        "CLICK(540, 600)",
        "CLICK[530,590,550,610]",
        "CLICK[540,600",
        "Action: CLICK[540,600]",
        "**Action:** `CLICK[540,600]`",
        "```\nCLICK[540,600]\n```",
        '{"action": "CLICK[540,600]"}',
        "- CLICK[540,600]\nCLICK[1,2]",
        "I should not press_back, so TYPE[x] is wrong and CLICK[540,600] is right.",
        "I could press_back.\nCLICK[540,600]",
        "Wait for it (now).\nClick (the button).\nCLICK[540,600]",
        "Type the text [x].\nAction: CLICK[540,600] because it is there",
    ],
)
def test_a_tap_in_many_forms(text):
    assert read(text).action == TAP


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("LONG_PRESS[540,600]", Action(ActionType.LONG_PRESS, (0.5, 0.25))),
        ("long press[540,600]", Action(ActionType.LONG_PRESS, (0.5, 0.25))),
        ("TYPE[hello world]", Action(ActionType.TYPE, text="hello world")),
        ("type[a]b]", Action(ActionType.TYPE, text="a]b")),
        ("TYPE[see CLICK[1,2]]", Action(ActionType.TYPE, text="see CLICK[1,2]")),
        ("TYPE[it's]", Action(ActionType.TYPE, text="it's")),
        ("TYPE[]", Action(ActionType.TYPE, text="")),
        ("TYPE[:)", Action(ActionType.TYPE, text=":)")),
        ("PRESS_BACK", Action(ActionType.BACK)),
        ("press_back", Action(ActionType.BACK)),
        ("Press Back.", Action(ActionType.BACK)),
        ("So I PRESS_HOME now", Action(ActionType.HOME)),
        ("PRESS_ENTER[]", Action(ActionType.ENTER)),
        ("TASK_COMPLETE", Action(ActionType.COMPLETE)),
        ("TASK_COMPLETE[]", Action(ActionType.COMPLETE)),
        ("Task_Complete[5 pm]", Action(ActionType.COMPLETE, text="5 pm")),
        ("TASK_IMPOSSIBLE", Action(ActionType.IMPOSSIBLE)),
        ("TASK_IMPOSSIBLE[no such app]", Action(ActionType.IMPOSSIBLE)),
        ("OPEN[Clock]", Action(ActionType.OPEN, text="Clock")),
        ("WAIT", Action(ActionType.WAIT)),
    ],
)
def test_meanings(text, action):
    assert read(text).action == action


@pytest.mark.parametrize("finger", ["up", "down", "left", "right"])
def test_a_swipe_is_the_fingers_direction(finger):
    for text in (f"SWIPE[{finger.upper()}]", f"swipe[ '{finger}' ]", f"Then SWIPE [{finger}] it."):
        action = read(text).action
        assert action.type is ActionType.SWIPE and finger_direction(action.point, action.end) == finger


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("I will wait and then type something.", "no_action"),
        ("CLICK", "no_action"),
        ("CLICK[]", "missing_argument"),
        ("CLICK[540]", "bad_place"),
        ("CLICK[the button]", "bad_place"),
        ("CLICK[1200,600]", "bad_place"),
        ("CLICK[0.5 of the width, 3]", "bad_place"),
        ("SWIPE[]", "missing_argument"),
        ("SWIPE[SIDEWAYS]", "bad_place"),
        ("FLY[1,2]", "unknown_action"),
    ],
)
def test_reasons(text, reason):
    assert read(text).reason.value == reason


def test_the_system_message_names_the_screenshots_size():
    assert "1080 x 2400" in get_grammar("learngui").for_screen(SIZE).system
    assert "CLICK[x,y]" in get_grammar("learngui").system and "pixels." not in get_grammar("learngui").system
