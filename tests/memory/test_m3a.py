"""M3A: the numbered screen, the history in summaries, and JSON actions that name a number."""

import json

import numpy as np
import pytest
from around import FIELD, MENU, SAVE, SIZE, TAP_MENU, TAP_SAVE, WORD, Says, make_scene, make_step, shown, text_of
from hypothesis import given
from hypothesis import strategies as st

from switchmem.memory.baseline import BaselineError, Charge
from switchmem.memory.index_actions import IndexReader
from switchmem.memory.m3a import M3a
from switchmem.memory.marks import GREEN, boxed, interactive, listed, tagged
from switchmem.memory.views import Condition, memory_parts
from switchmem.memory.writing import TemplateWriter
from switchmem.steps import Action, ActionType, UIElement

GONE = UIElement((0.2, 0.2, 0.2, 0.2), text="No area")
PAST = [
    make_step("q", 0, TAP_MENU, (MENU, FIELD)),
    make_step("q", 1, Action(ActionType.TYPE, text="milk"), (SAVE, MENU, FIELD)),
]
STEP = make_step("q", 2, Action(ActionType.IMPOSSIBLE), (SAVE, GONE, MENU, FIELD, WORD))
DEMO = make_step("d", 0, TAP_SAVE, instruction="Save the page")


def scene(step=STEP, demo=DEMO, past=PAST, **fields):
    return make_scene(step, demo, past, [DEMO], **fields)


def test_the_prompt_lists_the_screen_by_number_and_shows_it_twice():
    view, _ = shown(M3a(), scene(past=[]), Says("x"))
    assert text_of(view.current).count("<picture>") == 2
    raw, marked = (np.asarray(part) for part in view.current if not isinstance(part, str))
    assert np.array_equal(raw, np.asarray(STEP.screenshot.image())) and not np.array_equal(raw, marked)
    lines = [line for line in text_of(view.current).splitlines() if line.startswith("UI element ")]
    told = {int(line.split()[2].rstrip(":")): json.loads(line.partition(": ")[2]) for line in lines}
    assert list(told) == [0, 2, 3, 4]  # a gap where an element has no area
    assert told[0] == {"index": 0, "text": "Save", "type": "Button", "is_clickable": True}
    assert told[2]["content_description"] == "Menu" and told[3]["is_editable"] is True
    assert "You just started, no action has been performed yet." in text_of(view.current)
    assert "impossible" not in text_of((*view.current, *view.memory)).lower()


def test_the_retrieved_step_is_given_as_the_text_condition_gives_it():
    one = scene()
    view, _ = shown(M3a(), one, Says("x"))
    assert view.memory == memory_parts(DEMO, Condition.TEXT, one.style, one.layout)


def test_the_history_is_summarised_and_only_the_newest_call_is_charged_to_the_step():
    view, spent = shown(M3a(), scene(), Says("It opened.", "The name is milk.", cost=(7, 2, 1.0)))
    assert [call.charge for call in spent.calls] == [Charge.EARLIER, Charge.STEP]
    told = text_of(view.current)
    assert 'Step 1: Action selected: tap "Menu" (ImageView). It opened.\n' in told
    assert 'Step 2: Action selected: type "milk". The name is milk.\n' in told
    first = text_of(spent.calls[0].parts)
    assert first.count("<picture>") == 2 and '"text": "Save"' in first.partition("Elements after")[2]
    assert '"text": "Save"' not in first.partition("Elements after")[0]


def test_a_summary_is_asked_in_the_same_words_at_each_later_step():
    """So that it is found where it was kept, and made once."""
    writer = Says("x")
    shown(M3a(), scene(PAST[1], past=PAST[:1]), writer)
    shown(M3a(), scene(), writer)
    assert writer.asked[0].key("w") == writer.asked[1].key("w")


@pytest.mark.parametrize("text, fault", [("", "empty"), ("I can't do that.", "refusal"), ("TAP", "action")])
def test_a_broken_summary_is_left_out_and_counted(text, fault):
    view, _ = shown(M3a(), scene(is_action=lambda line: line == "TAP"), Says(text, "Fine."))
    assert view.fallbacks == (f"summary: {fault}",)
    assert 'tap "Menu" (ImageView).\nStep 2' in text_of(view.current)


def test_summaries_are_cut_and_the_history_is_bounded():
    view, spent = shown(M3a(history=1, summary_words=2), scene(), Says("one two three"))
    assert len(spent.calls) == 1 and "Step 2:" not in text_of(view.current) and "one two…" in text_of(view.current)
    view, spent = shown(M3a(history=0), scene(), Says("x"))
    assert not spent.calls and "You just started" in text_of(view.current)


def test_the_record_tells_summaries_without_a_call():
    view, spent = shown(M3a(summaries="record"), scene(), Says("x"))
    assert not spent.calls and "The screen changed, new: Save." in text_of(view.current)
    same, _ = shown(M3a(), scene(), TemplateWriter())
    assert same.current[0] == view.current[0]


def test_the_actors_own_actions_can_be_left_to_it():
    own, other = M3a(), M3a(actions="actor")
    view, _ = shown(other, scene(), Says("x"))
    assert view.system is view.closing is None and other.reader(scene()) is None
    assert shown(own, scene(), Says("x"))[0].system and own.reader(scene()) is not None


def read(text):
    reading = IndexReader(listed(STEP)).parse(text, SIZE)
    return reading.action or reading.reason


@pytest.mark.parametrize(
    "call, action",
    [
        ({"action_type": "click", "index": 0}, Action(ActionType.TAP, SAVE.center)),
        ({"action_type": "click", "index": "2"}, Action(ActionType.TAP, MENU.center)),
        ({"action_type": "long_press", "index": 3}, Action(ActionType.LONG_PRESS, FIELD.center)),
        ({"action_type": "input_text", "text": "{b}", "index": 3}, Action(ActionType.TYPE, FIELD.center, text="{b}")),
        ({"action_type": "input_text", "text": "a"}, Action(ActionType.TYPE, text="a")),
        ({"action_type": "scroll", "direction": "down"}, Action(ActionType.SWIPE, (0.5, 0.5), (0.5, 0.0))),
        ({"action_type": "scroll", "direction": "right"}, Action(ActionType.SWIPE, (0.5, 0.5), (0.0, 0.5))),
        ({"action_type": "scroll", "direction": "up", "index": 0}, Action(ActionType.SWIPE, SAVE.center, (0.25, 0.1))),
        ({"action_type": "keyboard_enter"}, Action(ActionType.ENTER)),
        ({"action_type": "navigate_back"}, Action(ActionType.BACK)),
        ({"action_type": "navigate_home"}, Action(ActionType.HOME)),
        ({"action_type": "open_app", "app_name": "Notes"}, Action(ActionType.OPEN, text="Notes")),
        ({"action_type": "wait"}, Action(ActionType.WAIT)),
        ({"action_type": "answer", "text": "42"}, Action(ActionType.COMPLETE, text="42")),
        ({"action_type": "status", "goal_status": "complete"}, Action(ActionType.COMPLETE)),
        ({"action_type": "status", "goal_status": "infeasible"}, Action(ActionType.IMPOSSIBLE)),
    ],
)
@pytest.mark.parametrize("around", ["{}", "Reason: {{it}} fits\nAction: {}", "**Action**: {} and so on {{}}"])
def test_actions_are_read_to_the_middle_of_their_box(call, action, around):
    assert read(around.format(json.dumps(call))) == action


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "empty"),
        ("<think>{}</think>", "empty"),
        ("Reason: none\nAction: tap the star", "no_action"),
        ("star ; tap r3c2", "no_action"),
        ('Action: {"action_type": "click", "index": }', "bad_syntax"),
        ('Action: {"index": 1}', "bad_syntax"),
        ('{"action_type": "click"}', "missing_argument"),
        ('{"action_type": "click", "index": 1}', "bad_index"),  # no area, so it is not on the list
        ('{"action_type": "click", "index": 99}', "bad_index"),
        ('{"action_type": "click", "index": -1}', "bad_index"),
        ('{"action_type": "click", "index": true}', "bad_index"),
        ('{"action_type": "click", "index": [0]}', "bad_index"),
        ('{"action_type": "double_tap", "index": 0}', "unknown_action"),
        ('{"action_type": ["click"], "index": 0}', "unknown_action"),
        ('{"action_type": "scroll"}', "missing_argument"),
        ('{"action_type": "scroll", "direction": "inwards"}', "bad_place"),
        ('{"action_type": "scroll", "direction": ["up"]}', "bad_place"),
        ('{"action_type": "input_text", "index": 3}', "missing_argument"),
        ('{"action_type": "input_text", "index": 9, "text": "a"}', "bad_index"),
        ('{"action_type": "status"}', "missing_argument"),
        ('{"action_type": "status", "goal_status": "later"}', "unknown_action"),
        ("[" * 5000 + '{"action_type": ' * 5000, "bad_syntax"),
    ],
)
def test_what_is_no_action_has_a_reason(text, reason):
    assert read(text) == reason


fields = st.dictionaries(
    st.sampled_from(["action_type", "index", "text", "direction", "goal_status", "app_name"]),
    st.one_of(
        st.sampled_from(["click", "scroll", "down", "complete"]),
        st.integers(),
        st.none(),
        st.text(),
        st.lists(st.integers()),
    ),
)


@given(st.one_of(st.text(), fields.map(json.dumps)))
def test_reading_never_raises(text):
    reading = IndexReader(listed(STEP)).parse(text, SIZE)
    assert (reading.action is None) != (reading.reason is None)


def test_boxes_are_drawn_where_the_elements_are():
    image = STEP.screenshot.image()
    drawn = np.asarray(boxed(image, {7: FIELD}))
    green = np.argwhere((drawn == GREEN).all(-1))
    top, bottom = round(0.3 * (SIZE[1] - 1)), round(0.4 * (SIZE[1] - 1))
    assert green[:, 0].min() >= top and green[:, 0].max() == bottom and green[:, 1].max() == SIZE[0] - 1
    outside = np.r_[0 : top - 1, bottom + 2 : SIZE[1]]
    assert np.array_equal(drawn[outside], np.asarray(image)[outside])
    assert np.array_equal(np.asarray(image), np.asarray(STEP.screenshot.image()))  # the original is left alone


def test_tags_are_drawn_at_the_middle_and_differ_by_number():
    image = STEP.screenshot.image()
    one, two = (np.asarray(tagged(image, {n: FIELD})) for n in (1, 2))
    changed = np.argwhere((one != np.asarray(image)).any(-1)).mean(0) / (SIZE[1], SIZE[0])
    assert abs(changed[0] - FIELD.center[1]) < 0.06 and abs(changed[1] - FIELD.center[0]) < 0.06
    assert not np.array_equal(one, two)


def test_what_can_be_acted_on_is_numbered_from_one_and_not_twice_at_one_place():
    inner = UIElement((0.0, 0.0, 0.5, 0.1), text="Save inside", editable=True)
    step = make_step("q", 0, TAP_SAVE, (WORD, inner, SAVE, FIELD))
    assert interactive(step, 0.02) == {1: SAVE, 2: FIELD}
    assert interactive(step, 0.0) == {1: SAVE, 2: inner, 3: FIELD}
    assert interactive(make_step("q", 0, TAP_SAVE, (WORD, GONE)), 0.0) == {1: WORD}


@pytest.mark.parametrize("name", ["history", "summary_tokens", "summary_words"])
def test_a_setting_out_of_range_is_refused(name):
    with pytest.raises(BaselineError, match=f"`m3a.{name}` must be at least"):
        M3a(**{name: -1})
