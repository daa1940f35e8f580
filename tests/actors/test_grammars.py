"""Grammars: what is written is read back; what cannot be read gets its reason and never another action."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.actors.grammars.base import GrammarError, get_grammar
from switchmem.steps import Action, ActionType, UIElement

SIZE = (128, 224)
POINTS = {ActionType.TAP, ActionType.LONG_PRESS, ActionType.SWIPE, ActionType.DRAG}
unit = st.floats(0, 1)
words = st.text(st.characters(whitelist_categories=["L", "N", "P", "S", "Zs"]), max_size=20)


@st.composite
def actions(draw) -> Action:
    kind = draw(st.sampled_from(ActionType))
    point = (draw(unit), draw(unit)) if kind in POINTS else None
    end = (draw(unit), draw(unit)) if kind in {ActionType.SWIPE, ActionType.DRAG} else None
    return Action(kind, point, end, draw(words) if kind in {ActionType.TYPE, ActionType.OPEN} else None)


def near(a, b, x, y) -> bool:
    return (a is None) == (b is None) and (a is None or (abs(a[0] - b[0]) <= x and abs(a[1] - b[1]) <= y))


@settings(deadline=None)
@given(actions(), st.sampled_from(["", "star ; ", "type a ; b ; "]))
def test_pocket_reads_what_it_writes(action, thought):
    grammar = get_grammar("pocket")
    written = grammar.action(action)
    read = grammar.parse(thought + written, SIZE).action
    assert read.type is action.type
    assert near(read.point, action.point, 0.5 / 4 + 1e-9, 0.5 / 7 + 1e-9)
    assert near(read.end, action.end, 0.5 / 4 + 1e-9, 0.5 / 7 + 1e-9)
    assert grammar.action(read) == written, "a second time nothing may change"


@pytest.mark.parametrize(
    ("text", "kind", "point"),
    [
        ("star ; tap r3c2", "tap", (0.625, 0.5)),
        ("STAR ;  Tap   R3C2 \n", "tap", (0.625, 0.5)),
        ("tap r0c0", "tap", (0.125, 1 / 14)),
        ("a ; tap r0c0 ; hold r6c3", "long_press", (0.875, 13 / 14)),
        ("; home", "home", None),
        ("done", "complete", None),
    ],
)
def test_pocket_answers(text, kind, point):
    action = get_grammar("pocket").parse(text, SIZE).action
    assert action.type.value == kind and action.point == (pytest.approx(point) if point else None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("star ;", "no_action"),
        ("star", "unknown_action"),
        ("tap", "missing_argument"),
        ("swipe r1c1", "missing_argument"),
        ("tap r7c0", "bad_place"),
        ("tap r0c4", "bad_place"),
        ("tap r03c1", "bad_place"),
        ("tap r-1c1", "bad_place"),
        ("tap r3c2 r3c3", "extra_words"),
        ("back now", "extra_words"),
        ("tap r3c2;", "bad_place"),
    ],
)
def test_pocket_reasons(text, reason):
    assert get_grammar("pocket").parse(text, SIZE).reason.value == reason


def test_pocket_cells_and_elements():
    grammar = get_grammar("pocket")
    cells = {grammar.point((c + 0.5) / 4, (r + 0.5) / 7) for r in range(7) for c in range(4)}
    assert len(cells) == 28 and grammar.point(1.0, 1.0) == "r6c3" and grammar.point(0.0, 0.0) == "r0c0"
    assert grammar.element(UIElement((0.5, 0.4, 0.75, 0.6), text="Orbit\nView")) == "r3c2 orbit view"
    assert grammar.element(UIElement((0.5, 0.4, 0.75, 0.6), kind="Icon")) == "r3c2 unlabelled"


def call(**arguments) -> str:
    return json.dumps({"name": "mobile_use", "arguments": arguments})


@pytest.mark.parametrize(
    "text",
    [
        call(action="click", coordinate=[500, 120]),
        f"Thought: the button.\n<tool_call>\n{call(action='click', coordinate=[500, 120])}\n</tool_call>",
        f"<tool_call>{call(action='click', coordinate=[500, 120])}",
        "<tool_call>\n<function=mobile_use>\n<parameter=action>\nclick\n</parameter>\n<parameter=coordinate>\n"
        "[500, 120]\n</parameter>\n</function>\n</tool_call>",
        '{"action": "click", "coordinate": [500.0, 120]} {"action": "wait"}',
        '<think>{"action": "wait"}</think>{"action": "Click ", "coordinate": [500, 120]}',
        '{oops} {"action": "click", "coordinate": "[500, 120]"}',
    ],
)
def test_mobile_use_forms(text):
    assert get_grammar("mobile_use").parse(text, SIZE).action == Action(ActionType.TAP, (0.5, 0.12))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  ", "empty"),
        ("I would click.", "no_action"),
        ('{"action": "click", "coordinate": [500', "bad_syntax"),
        (call(), "bad_syntax"),
        (call(action="fly"), "unknown_action"),
        (call(action="click"), "missing_argument"),
        (call(action="swipe", coordinate=[1, 2]), "missing_argument"),
        (call(action="type"), "missing_argument"),
        (call(action="click", coordinate=[500, 1200]), "bad_place"),
        (call(action="click", coordinate=[-11, 5]), "bad_place"),
        (call(action="click", coordinate=[1011, 5]), "bad_place"),
        (call(action="click", coordinate="540 of 1080"), "bad_place"),
        (call(action="type", text=True), "missing_argument"),
        (call(action="type", text=None), "missing_argument"),
        ("<function=mobile_use>\n<parameter=coordinate>\n[1, 2]\n</parameter>", "bad_syntax"),
        (call(action="click", coordinate=[float("nan"), 5]), "bad_place"),
        (call(action="click", coordinate=[True, 5]), "bad_place"),
        (call(action="click", coordinate=[1, 2, 3, 4]), "bad_place"),
        (call(action="click", coordinate="[" * 100_000), "bad_place"),
        (call(action="system_button", button="Menu"), "unknown_action"),
        (call(action="terminate"), "missing_argument"),
        ("[" * 100_000 + "{" * 5, "bad_syntax"),
    ],
)
def test_mobile_use_reasons(text, reason):
    assert get_grammar("mobile_use").parse(text, SIZE).reason.value == reason


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"action": "system_button", "button": "Enter"}, Action(ActionType.ENTER)),
        ({"action": "key", "text": "ENTER"}, Action(ActionType.ENTER)),
        ({"action": "terminate", "status": "failure"}, Action(ActionType.IMPOSSIBLE)),
        ({"action": "answer", "text": "42"}, Action(ActionType.COMPLETE, text="42")),
        (
            {"action": "swipe", "coordinate1": [0, 0], "coordinate2": [0, 1000]},
            Action(ActionType.SWIPE, (0, 0), (0, 1)),
        ),
        ({"action": "click", "coordinate": [1001, 999.5]}, Action(ActionType.TAP, (1.0, 0.9995))),
        ({"action": "click", "coordinate": [-1, 1010]}, Action(ActionType.TAP, (0.0, 1.0))),
        ({"action": "click", "coordinate": "(500, 120)"}, Action(ActionType.TAP, (0.5, 0.12))),
        ({"action": "long_press", "coordinate": [0, 0], "time": 2}, Action(ActionType.LONG_PRESS, (0, 0))),
        ({"action": "type", "text": 42}, Action(ActionType.TYPE, text="42")),
        ({"action": "type", "text": "a\n"}, Action(ActionType.TYPE, text="a\n")),
        ({"action": "wait", "time": 2}, Action(ActionType.WAIT)),
    ],
)
def test_mobile_use_meanings(arguments, action):
    assert get_grammar("mobile_use").parse(call(**arguments), SIZE).action == action


def test_mobile_use_keeps_the_blanks_of_a_text_in_xml():
    xml = "<function=mobile_use>\n<parameter=action>\ntype\n</parameter>\n<parameter=text>\n  a\n b \n</parameter>"
    assert get_grammar("mobile_use").parse(xml, SIZE).action == Action(ActionType.TYPE, text="  a\n b ")
    assert get_grammar("mobile_use").parse(xml.removesuffix("\n</parameter>"), SIZE).action.text == "  a\n b "


def test_mobile_use_pixels_are_those_of_the_resized_picture():
    grammar = get_grammar("mobile_use_pixels")
    # 1080 x 2400 becomes 1092 x 2408
    assert grammar.parse(call(action="click", coordinate=[546, 602]), (1080, 2400)).action.point == (0.5, 0.25)
    assert grammar.for_screen((1080, 2400)).point(1, 1) == "(1092, 2408)"
    assert "(1092, 2408)" in grammar.for_screen((1080, 2400)).system and "pixels" in grammar.system
    assert grammar.parse(call(action="click", coordinate=[1200, 602]), (1080, 2400)).reason.value == "bad_place"


def test_mobile_use_schema_is_json_and_names_every_action_it_reads():
    system = get_grammar("mobile_use").system
    schema = json.loads(system.split("<tools>\n")[1].split("\n</tools>")[0])
    names = schema["function"]["parameters"]["properties"]["action"]["enum"]
    assert set(names) >= {"click", "long_press", "swipe", "type", "system_button", "open", "wait", "terminate"}


def test_unknown_grammar_lists_the_known():
    with pytest.raises(GrammarError, match="`grammar` must be one of pocket, miniwob, mobile_use, .*, got 'x'"):
        get_grammar("x")
