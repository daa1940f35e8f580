"""UI-TARS: sloppy answers as they are seen, what they mean, and the authors' own parser where that one is right."""

from __future__ import annotations

import ast
import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.actors.grammars.base import get_grammar
from switchmem.actors.grammars.places import finger_direction
from switchmem.steps import Action, ActionType

SIZE = (1080, 2400)
TAP = Action(ActionType.TAP, (0.197, 0.525))


def read(text: str, name: str = "ui_tars"):
    return get_grammar(name).parse(text, SIZE)


@pytest.mark.parametrize(
    "text",
    [
        "click(start_box='(197,525)')",
        "Thought: Open it.\nAction: click(start_box='<|box_start|>(197,525)<|box_end|>')",
        "Thought: Open it. Action:click(start_box='(197, 525)')",
        "Action: click(start_box='<|box_start|>(197, 525)<|box_end|>')<|im_end|>\n",
        "Action: click(start_box='<|box_start|>(197, 525)<|im_end|>",
        "Action: click(start_box='[187, 515, 207, 535]')",
        "Action: click(start_box='(187,515,207,535)')",
        "Action: click(point='<point>197 525</point>')",
        'Action: click(start_box="(197,525)")',
        "Action: click(start_box=(197,525))",
        "Action: click(start_box=<|box_start|>(197,525)<|box_end|>)",
        "Action: click('(197,525)')",
        "Action: click(197, 525)",
        "Action: click(x=197, y=525)",
        "Action: click(start_box='(197,525)'",
        "Action: click(start_box='(197,525)",
        "Action: click(start_box='(197,525",
        "Action:\nclick(\n  start_box='(197,525)'\n)",
        "**Action:** `click(start_box='(197,525)')`",
        "ACTION : Click (start_box='(197.0,525.0)')",
        "Action: left_single(start_box='(197,525)')",
        "Thought: I should press_back() or type(content='x').\nAction: click(start_box='(197,525)')",
        "Thought: 'Action: wait()' was wrong.\nAction: click(start_box='(197,525)')",
        "Action: wait()\nThought: again\nAction: click(start_box='(197,525)')",
        "Action: click(start_box='(197,525)')\n\ntype(content='x')",
        "Action: click(start_box='(197,525)')\nThought: and then\nAction: ",
        "Action: I will click(start_box='(197,525)')",
        "Thought: no marker\nclick(start_box='(197,525)')",
        "Reflection: fine\nAction_Summary: tap\nAction: click(start_box='(197,525)')",
    ],
)
def test_a_tap_in_many_forms(text):
    assert read(text).action == TAP


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type(content='hi')", "hi"),
        ('type(content="hi")', "hi"),
        ("type(content='it's')", "it's"),
        (r"type(content='it\'s')", "it's"),
        ("type(content='say \"hi\"')", 'say "hi"'),
        ("type(content='say ('hi') now')", "say ('hi') now"),
        ("type(content='a, b')", "a, b"),
        ("type(content='f(x)')", "f(x)"),
        ("type(content='hi\\n')", "hi"),
        ("type(content='hi\n')", "hi"),
        ("type(content='two\nlines')", "two\nlines"),
        (r"type(content='two\nlines')", "two\nlines"),
        (r"type(content='C:\\dir \d')", r"C:\dir \d"),
        ("type(content='hi'", "hi"),
        ("type(content='hi", "hi"),
        ("type(content='hi)", "hi"),
        ("type(content=hi there)", "hi there"),
        ("type('hi')", "hi"),
        ("type(content='')", ""),
        ("type(content='hi')<|im_end|>", "hi"),
        ("type(content='hi')\n\nclick(start_box='(1,2)')", "hi"),
        ("type(content='hi') type(content='ho')", "hi"),
        ("type(content='hi', submit=True)", "hi"),
        ("type(content='Action: wait()')", "Action: wait()"),
    ],
)
def test_texts(text, expected):
    for answer in (text, f"Thought: It's (not) easy.\nAction: {text}"):
        assert read(answer).action == Action(ActionType.TYPE, text=expected)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (r"type(content='\n')", Action(ActionType.ENTER)),
        ("type(content='\n')", Action(ActionType.ENTER)),
        ("press_enter()", Action(ActionType.ENTER)),
        ("press_home()", Action(ActionType.HOME)),
        ("press_back", Action(ActionType.BACK)),
        ("Action: wait.", Action(ActionType.WAIT)),
        ("wait(t='')", Action(ActionType.WAIT)),
        ("finished()", Action(ActionType.COMPLETE)),
        ("finished(content='')", Action(ActionType.COMPLETE)),
        ("finished(content='It's 5.')", Action(ActionType.COMPLETE, text="It's 5.")),
        ("call_user()", Action(ActionType.IMPOSSIBLE)),
        ("call_user(content='help')", Action(ActionType.IMPOSSIBLE)),
        ("open_app(app_name='Play Store')", Action(ActionType.OPEN, text="Play Store")),
        ("long_press(start_box='(197,525)', time='2')", Action(ActionType.LONG_PRESS, (0.197, 0.525))),
        ("scroll(start_box='(500,800)', end_box='(500,200)')", Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))),
        ("scroll(end_box='(500,200)', start_box='(500,800)')", Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))),
        ("scroll('(500,800)', '(500,200)')", Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))),
        ("scroll(start_box='(500,800)',\n end_box='(500,200)'", Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))),
        (
            "drag(start_point='<point>0 0</point>', end_point='<point>1000 1000</point>')",
            Action(ActionType.DRAG, (0, 0), (1, 1)),
        ),
    ],
)
def test_meanings(text, action):
    assert read(text).action == action
    assert read(f"Thought: yes\nAction: {text}").action == action


@pytest.mark.parametrize(
    ("direction", "finger"), [("down", "up"), ("up", "down"), ("left", "right"), ("Right", "left")]
)
def test_a_scroll_with_a_direction_moves_the_finger_the_other_way(direction, finger):
    for name, place in [
        ("ui_tars", ""),
        ("ui_tars", "start_box='(400,500)', "),
        ("ui_tars_15", "point='(437,1204)', "),
    ]:
        action = read(f"scroll({place}direction='{direction}')", name).action
        assert action.type is ActionType.SWIPE and finger_direction(action.point, action.end) == finger
        assert action.point == pytest.approx((0.4, 0.5), abs=1e-3) or not place
    written = get_grammar("ui_tars_15").for_screen(SIZE).action(Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2)))
    assert written == "scroll(point='<point>546 1926</point>', direction='down')"


def test_generation_15_counts_pixels_of_the_resized_picture():
    # README of 1.5: 1080 x 2400 is seen as 1092 x 2408
    assert read("Action: click(start_box='(546,602)')", "ui_tars_15").action.point == (0.5, 0.25)
    assert read("Action: click(start_box='(546,602)')", "ui_tars").action.point == (0.546, 0.602)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("<|im_end|>", "empty"),
        ("Thought: I do not know.", "no_action"),
        ("Thought: I do not know.\nAction: ", "no_action"),
        ("Action: click", "missing_argument"),
        ("Action: click()", "missing_argument"),
        ("Action: click(start_box='')", "missing_argument"),
        ("Action: click(start_box='=')", "bad_place"),
        ("Action: click(start_box='(197)')", "bad_place"),
        ("Action: click(start_box='(1,2,3)')", "bad_place"),
        ("Action: click(start_box='(1097,525)')", "bad_place"),
        ("Action: click(start_box='(197,525)(197,525)(197,525)", "bad_place"),
        ("Action: click(start_box='(" + "197,525," * 2000, "bad_place"),
        ("Action: scroll(start_box='(1,2)')", "missing_argument"),
        ("Action: scroll(start_box='(1,2)', end_box='x')", "bad_place"),
        ("Action: scroll(direction='inwards')", "bad_place"),
        ("Action: drag(start_box='(1,2)', direction='up')", "missing_argument"),
        ("Action: type()", "missing_argument"),
        ("Action: open_app()", "missing_argument"),
        ("Action: hotkey(key='ctrl c')", "unknown_action"),
        ("Action: left_double(start_box='(1,2)')", "unknown_action"),
        ("Action: fly", "unknown_action"),
    ],
)
def test_reasons(text, reason):
    assert read(text).reason.value == reason


def test_the_system_message_names_every_call_that_is_written():
    for name in ("ui_tars", "ui_tars_15"):
        grammar = get_grammar(name).for_screen(SIZE)
        for kind in ActionType:
            point, end = (0.1, 0.2) if kind.is_spatial else None, (0.3, 0.4) if kind in (ActionType.SWIPE,) else None
            if kind is ActionType.DRAG:
                continue  # the first generation was not shown a drag
            call = grammar.action(Action(kind, point, end, "x" if kind in (ActionType.TYPE, ActionType.OPEN) else None))
            assert f"\n{call.partition('(')[0]}(" in grammar.system
        assert all(part in grammar.system for part in ("## Output Format", "## Action Space", "## Note"))


def official(text: str, generation_15: bool) -> tuple[str, dict]:
    """The authors' parser: name and arguments of the first action it finds."""
    parser = pytest.importorskip("ui_tars.action_parser", reason="ui-tars 0.1.4, of the dev extra, is not installed")
    with contextlib.redirect_stdout(io.StringIO()):
        found = parser.parse_action_to_structure_output(
            text, 1000, SIZE[1], SIZE[0], model_type="qwen25vl" if generation_15 else "qwen2vl"
        )[0]
    return found["action_type"], found["action_inputs"]


# Where the authors' parser is right: whole numbers, single quotes, no box tokens, a blank behind `Action:`.
plain = st.text(st.characters(whitelist_categories=["L", "N", "Zs"], whitelist_characters=".,!?\"'-"), min_size=1)
pairs = st.tuples(st.integers(0, 1000), st.integers(0, 1000))


@settings(deadline=None)
@given(st.booleans(), st.sampled_from(["click", "long_press"]), pairs, st.booleans())
def test_places_agree_with_the_authors_parser(generation_15, name, pair, as_point):
    place = "point='<point>{} {}</point>'" if as_point else "start_box='({},{})'"
    text = f"Thought: Tap it.\nAction: {name}({place.format(*pair)})"
    kind, inputs = official(text, generation_15)
    box = ast.literal_eval(inputs["start_box"])
    action = read(text, "ui_tars_15" if generation_15 else "ui_tars").action
    assert action.type.value == {"click": "tap"}.get(kind, kind)
    assert action.point == pytest.approx(box[:2])


@settings(deadline=None)
@given(st.booleans(), st.sampled_from(["scroll", "drag"]), pairs, pairs)
def test_paths_agree_with_the_authors_parser(generation_15, name, start, end):
    text = "Thought: Go.\nAction: {}(start_box='({},{})', end_box='({},{})')".format(name, *start, *end)
    _, inputs = official(text, generation_15)
    action = read(text, "ui_tars_15" if generation_15 else "ui_tars").action
    assert action.type is (ActionType.SWIPE if name == "scroll" else ActionType.DRAG)
    assert action.point == pytest.approx(ast.literal_eval(inputs["start_box"])[:2])
    assert action.end == pytest.approx(ast.literal_eval(inputs["end_box"])[:2])


@settings(deadline=None)
@given(plain)
def test_texts_agree_with_the_authors_parser(text):
    typed = text.strip().strip("'\"")  # it drops blanks in front, and a quote at the end is no whole text to it
    if not typed.strip():
        return
    answer = f"Thought: Write.\nAction: type(content='{typed}')"
    assert read(answer).action.text == official(answer, False)[1]["content"]


def test_of_several_actions_both_take_the_first_behind_the_last_marker():
    text = "Thought: a\nAction: wait()\nThought: b\nAction: click(start_box='(10,20)')\n\ntype(content='x')"
    assert official(text, False) == ("click", {"start_box": "[0.01, 0.02, 0.01, 0.02]"})
    assert read(text).action == Action(ActionType.TAP, (0.01, 0.02))
