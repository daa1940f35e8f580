"""Aguvis: segments, Python code, and code that is no Python."""

from __future__ import annotations

import json
import warnings

import pytest

from switchmem.actors.grammars.base import get_grammar
from switchmem.actors.grammars.places import finger_direction
from switchmem.steps import Action, ActionType

SIZE = (1080, 2400)
TAP = Action(ActionType.TAP, (0.5, 0.12))


def read(text: str):
    return get_grammar("aguvis").parse(text, SIZE)


@pytest.mark.parametrize(
    "text",
    [
        "pyautogui.click(x=0.5, y=0.12)",
        "pyautogui.click(0.5, 0.12)",
        "pyautogui.click([0.5, 0.12])",
        "pyautogui.click((0.5, 0.12))",
        "pyautogui.click(x='0.5', y='0.12')",
        "pyautogui.click(x = 0.5 ,\n y = 0.12, clicks=1)",
        "click(x=0.5, y=0.12)",
        "os\npyautogui.click(x=0.5, y=0.12)",
        "```python\npyautogui.click(x=0.5, y=0.12)\n```",
        "pyautogui.click(x=0.5, y=0.12",
        "all\nThought: A click(x) is needed.\nAction: Tap it.\nassistantos\npyautogui.click(x=0.5, y=0.12)",
        "all\nThought: I call mobile.back() later.<|diff_marker|>\n<|im_start|>assistant<|recipient|>os\n"
        "pyautogui.click(x=0.5, y=0.12)<|diff_marker|>\n<|im_start|>assistant<|recipient|>os\nmobile.home()",
        "Action: pyautogui.click(x=0.5, y=0.12)",
        "pyautogui.click(x=0.5, y=0.12)\npyautogui.write(message='x')",
        "pyautogui.tap(x=0.5, y=0.12)",
    ],
)
def test_a_tap_in_many_forms(text):
    assert read(text).action == TAP


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (
            "mobile.swipe(from_coord=[0.5, 0.8], to_coord=[0.5, 0.2])",
            Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2)),
        ),
        ("mobile.swipe((0.5, 0.8), (0.5, 0.2))", Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))),
        ("mobile.swipe(0.5, 0.8, 0.5, 0.2)", Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))),
        ("mobile.swipe(from_coord=[0.5, 0.8], to_coord=[0.5, 0.2]", Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))),
        ("mobile.home()", Action(ActionType.HOME)),
        ("mobile.back()", Action(ActionType.BACK)),
        ("mobile.wait(seconds=3)", Action(ActionType.WAIT)),
        ("mobile.long_press(x=0.1, y=0.2)", Action(ActionType.LONG_PRESS, (0.1, 0.2))),
        ("mobile.open_app(app_name='Clock')", Action(ActionType.OPEN, text="Clock")),
        ('mobile.open_app("Clock")', Action(ActionType.OPEN, text="Clock")),
        ("mobile.terminate(status='success')", Action(ActionType.COMPLETE)),
        ("mobile.terminate('failure')", Action(ActionType.IMPOSSIBLE)),
        ("answer('42')", Action(ActionType.COMPLETE, text="42")),
        ("answer(42)", Action(ActionType.COMPLETE, text="42")),
        ("answer('')", Action(ActionType.COMPLETE)),
        ("pyautogui.write(message='hi')", Action(ActionType.TYPE, text="hi")),
        ("pyautogui.write('hi', interval=0.1)", Action(ActionType.TYPE, text="hi")),
        ("pyautogui.write(message='it\\'s\\n')", Action(ActionType.TYPE, text="it's\n")),
        ("pyautogui.write(message='it's')", Action(ActionType.TYPE, text="it's")),
        ("pyautogui.write(message='two\nlines')", Action(ActionType.TYPE, text="two\nlines")),
        ("pyautogui.write(message='hi", Action(ActionType.TYPE, text="hi")),
        ("pyautogui.write(message='\\d')", Action(ActionType.TYPE, text="\\d")),
        ("pyautogui.write(message='click(x=0.1, y=0.1)')", Action(ActionType.TYPE, text="click(x=0.1, y=0.1)")),
        ("pyautogui.press(keys=['enter'])", Action(ActionType.ENTER)),
        ("pyautogui.press(keys='Enter')", Action(ActionType.ENTER)),
        ("pyautogui.press('return')", Action(ActionType.ENTER)),
        ("pyautogui.hotkey(keys=['enter'])", Action(ActionType.ENTER)),
        (
            "pyautogui.moveTo(x=0.1, y=0.2)\npyautogui.dragTo(x=0.3, y=0.4)",
            Action(ActionType.DRAG, (0.1, 0.2), (0.3, 0.4)),
        ),
        ("pyautogui.moveTo(0.1, 0.2); pyautogui.dragTo(0.3, 0.4)", Action(ActionType.DRAG, (0.1, 0.2), (0.3, 0.4))),
        (
            "pyautogui.dragTo(from_coord=[0.1, 0.2], to_coord=[0.3, 0.4])",
            Action(ActionType.DRAG, (0.1, 0.2), (0.3, 0.4)),
        ),
        ("pyautogui.click(x=1.004, y=-0.004)", Action(ActionType.TAP, (1.0, 0.0))),
    ],
)  # fmt: skip
def test_meanings(text, action):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(text).action == action
        assert read(f"Thought: it's so\nAction: Do it.<|diff_marker|>\n<|recipient|>os\n{text}").action == action


@pytest.mark.parametrize(
    ("text", "finger"),
    [
        ("pyautogui.scroll(page=-0.1)", "up"),
        ("pyautogui.scroll(-0.5)", "up"),
        ("pyautogui.scroll(page=0.1)", "down"),
        ("pyautogui.hscroll(page=0.1)", "left"),
        ("pyautogui.hscroll(page=-0.1)", "right"),
    ],
)
def test_scrolls_tell_where_the_content_goes(text, finger):
    action = read(text).action
    assert action.type is ActionType.SWIPE and finger_direction(action.point, action.end) == finger


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("all\nThought: hm.\nAction: Tap it.<|diff_marker|>", "no_action"),
        ("mobile.back()<|recipient|>os\n", "no_action"),
        ("I would write (a letter).", "no_action"),
        ("pyautogui.click()", "missing_argument"),
        ("pyautogui.click(x=0.5)", "bad_place"),
        ("pyautogui.click(x=540, y=1200)", "bad_place"),
        ("pyautogui.click(x=None, y=0.5)", "bad_place"),
        ("pyautogui.click(x=1j, y=0.5)", "bad_place"),
        ("pyautogui.click(x=True, y=0.5)", "bad_place"),
        ("pyautogui.click(x=__import__('os').getpid(), y=0.5)", "bad_place"),
        ("mobile.swipe(from_coord=[0.5, 0.8])", "missing_argument"),
        ("pyautogui.scroll()", "missing_argument"),
        ("pyautogui.scroll(page=0)", "missing_argument"),
        ("pyautogui.write()", "missing_argument"),
        ("pyautogui.press(keys=['ctrl', 'c'])", "missing_argument"),
        ("pyautogui.hotkey('ctrl', 'c')", "unknown_action"),
        ("pyautogui.press('back', 'back')", "unknown_action"),
        ("pyautogui.press('tab')", "unknown_action"),
        ("mobile.terminate(status='maybe')", "unknown_action"),
        ("pyautogui.doubleClick(x=0.5, y=0.5)", "unknown_action"),
        ("pyautogui.rightClick(x=0.5, y=0.5)", "unknown_action"),
        ("pyautogui.moveTo(x=0.5, y=0.5)", "unknown_action"),
        ("pyautogui.dragTo(x=0.5, y=0.5)", "missing_argument"),
        ("browser.select_option(x=0.5, y=0.5, value='a')", "unknown_action"),
        ("pyautogui.click(" + "(" * 300 + ")" * 300 + ")", "bad_place"),
    ],
)
def test_reasons(text, reason):
    assert read(text).reason.value == reason


def test_code_is_never_run(tmp_path):
    trap = tmp_path / "trap"
    for text in (
        f"pyautogui.write(message=open({str(trap)!r}, 'w').write('x'))",
        f"pyautogui.click(x=open({str(trap)!r}, 'w').write('x'), y=0.5)",
        f"answer(f\"{{open({str(trap)!r}, 'w')}}\")",
    ):
        read(text)
    assert not trap.exists()


def test_the_system_message_lists_functions_as_json():
    grammar = get_grammar("aguvis")
    schemas = [json.loads(line) for line in grammar.system.splitlines() if line.startswith("{")]
    names = {schema["name"] for schema in schemas}
    assert names >= {
        "mobile.swipe",
        "mobile.home",
        "mobile.back",
        "mobile.wait",
        "mobile.long_press",
        "mobile.open_app",
    }
    for schema in schemas:  # each can be read with its own parameters
        values = {"array": "[0.1, 0.2]", "number": "0.5", "string": "'success'"}
        arguments = ", ".join(f"{k}={values[v['type']]}" for k, v in schema["parameters"]["properties"].items())
        assert read(f"{schema['name']}({arguments})").action is not None, schema["name"]
