"""AppAgent: documents of elements from the bank's transitions, found again by element, and calls that name a tag."""

import pytest
from around import FIELD, MENU, SAVE, SIZE, TAP_MENU, TAP_SAVE, WORD, Says, make_scene, make_step, shown, text_of
from hypothesis import given
from hypothesis import strategies as st

from switchmem.memory.app_agent import AppAgent, element_name, make_index, use_of
from switchmem.memory.baseline import BaselineError, Charge
from switchmem.memory.marks import interactive
from switchmem.memory.tag_actions import TagReader
from switchmem.memory.writing import TemplateWriter
from switchmem.steps import Action, ActionType, UIElement

HOLD_SAVE = Action(ActionType.LONG_PRESS, (0.25, 0.05))
BANK = [
    make_step("d", 0, TAP_SAVE),
    make_step("d", 1, TAP_MENU, (MENU, WORD)),
    make_step("e", 0, TAP_SAVE, (SAVE, FIELD)),
    make_step("e", 1, HOLD_SAVE),
    make_step("e", 2, Action(ActionType.BACK)),
    make_step("q", 0, Action(ActionType.TYPE, text="mine")),
]
STEP = make_step("q", 1, Action(ActionType.IMPOSSIBLE), (WORD, FIELD, SAVE))


def scene(step=STEP, demo=BANK[1], bank=BANK, past=(), **fields):
    return make_scene(step, demo, past, bank, **fields)


def test_documents_of_the_screens_elements_stand_by_their_tags():
    writer = Says("It keeps.", "It holds.", "It opens.")
    view, spent = shown(AppAgent(), scene(), writer)
    assert text_of(view.memory) == (
        "\nWhat is known of elements:"
        "\nElement 1, tap: It keeps."
        "\nElement 1, long_press: It holds."
        '\nAn element that is not on this screen, "Menu" (ImageView), tap: It opens.'
    )
    assert {call.charge for call in spent.calls} == {Charge.OFFLINE} and not view.notes
    assert interactive(STEP, AppAgent().apart) == {1: SAVE, 2: FIELD}
    assert text_of(view.current) == "Task: Keep the note\nLast action: none\nCurrent screenshot with tags:\n<picture>"


def test_a_document_is_written_from_the_first_transition_that_retrieval_may_give():
    """The field was filled in the query's own trajectory alone: that tells nothing here."""
    writer = Says("It does.")
    shown(AppAgent(), scene(), writer)
    asked = [text_of(call.parts) for call in writer.asked]
    assert asked[0].startswith('A user did this on an element with the tag 1: tap "Save" (Button)\nBefore:\n<picture>')
    assert asked[0].count("<picture>") == 2 and writer.asked[0].draft == (
        'It was used to tap "Save" (Button); then gone: Save, Name.'
    )
    assert not any("mine" in question for question in asked)


def test_the_last_step_of_a_trajectory_has_no_screen_after_it():
    writer = Says("It does.")
    shown(AppAgent(), scene(bank=BANK[:1], demo=BANK[0]), writer)
    assert text_of(writer.asked[0].parts).count("<picture>") == 1 and "not recorded" in writer.asked[0].draft


def test_which_query_asks_first_does_not_change_a_document():
    first, second = Says("x"), Says("x")
    shown(AppAgent(), scene(), first)
    shown(AppAgent(), scene(make_step("r", 0, TAP_SAVE, (SAVE,), "Another task"), BANK[3]), second)
    keys = [{call.key("w") for call in writer.asked} for writer in (first, second)]
    assert keys[1] <= keys[0] and len(keys[1]) == 2


@pytest.mark.parametrize("text, fault", [("", "empty"), ("Sorry, no.", "refusal"), ("TAP", "action")])
def test_a_broken_document_is_left_out_and_counted(text, fault):
    view, _ = shown(AppAgent(), scene(is_action=lambda line: line == "TAP"), Says(text, "It holds."))
    assert view.fallbacks == (f"document: {fault}",) and "Element 1, tap" not in text_of(view.memory)
    assert "Element 1, long_press: It holds." in text_of(view.memory)
    none, _ = shown(AppAgent(), scene(is_action=lambda line: line == "TAP"), Says(text))
    assert none.memory == () and len(none.fallbacks) == 3


def test_a_screen_without_known_elements_is_counted():
    view, _ = shown(AppAgent(), scene(make_step("q", 1, TAP_SAVE, (WORD,))), Says("It opens."))
    assert view.notes == ("no_document_on_screen",) and "not on this screen" in text_of(view.memory)
    view, spent = shown(AppAgent(), scene(demo=None, bank=[]), Says("x"))
    assert view.memory == () and not spent.calls


def test_the_scope_and_the_number_of_documents_are_bounded():
    view, _ = shown(AppAgent(scope="trajectory"), scene(), Says("It does."))
    assert "long_press" not in text_of(view.memory) and "Element 1, tap" in text_of(view.memory)
    view, spent = shown(AppAgent(documents=1), scene(), Says("It does."))
    assert len(spent.calls) == 1


def test_the_last_action_is_told():
    view, _ = shown(AppAgent(), scene(past=[BANK[5]]), TemplateWriter())
    assert 'Last action: type "mine"' in text_of(view.current)


def test_an_element_is_found_again_by_identifier_or_label_but_not_by_a_content():
    step = make_step("d", 0, TAP_SAVE, activity="app.Main")
    moved = UIElement((0.1, 0.8, 0.6, 0.9), text="Save", kind=SAVE.kind)
    assert element_name(step, SAVE) == element_name(step, moved)
    assert element_name(step, SAVE) != element_name(make_step("d", 0, TAP_SAVE, activity="app.Other"), SAVE)
    named = UIElement((0.0, 0.0, 0.5, 0.1), text="A", resource_id="app:id/save")
    assert element_name(step, named) == "app.Main|app.id_save|A"
    long = UIElement((0.0, 0.0, 0.5, 0.1), text="The first of all the mails", kind="Row")
    other = UIElement((0.0, 0.0, 0.5, 0.1), text="Quite another mail than that", kind="Row")
    assert element_name(step, long) == element_name(step, other) == "app.Main|Row_50_10|"


def test_the_index_has_every_use_of_an_element_once_per_step():
    index = make_index(BANK)
    assert index["|android.widget.Button|Save"] == {"tap": ["hand/d/0", "hand/e/0"], "long_press": ["hand/e/1"]}
    assert sum(len(ids) for uses in index.values() for ids in uses.values()) == 5  # going back uses none
    up = Action(ActionType.SWIPE, (0.5, 0.8), (0.5, 0.2))
    across = Action(ActionType.SWIPE, (0.8, 0.5), (0.2, 0.5))
    assert [use_of(make_step("d", 0, action)) for action in (up, across)] == ["v_swipe", "h_swipe"]


def test_the_actors_own_actions_can_be_left_to_it():
    view, _ = shown(AppAgent(actions="actor"), scene(), Says("x"))
    assert view.system is view.closing is None and AppAgent(actions="actor").reader(scene()) is None
    assert AppAgent().reader(scene()).elements == {1: SAVE, 2: FIELD}


def read(text, size=SIZE):
    reading = TagReader({1: SAVE, 2: FIELD}).parse(text, size)
    return reading.action or reading.reason


@pytest.mark.parametrize(
    "call, action",
    [
        ("tap(1)", Action(ActionType.TAP, SAVE.center)),
        ('tap("2")', Action(ActionType.TAP, FIELD.center)),
        ("long_press(2)", Action(ActionType.LONG_PRESS, FIELD.center)),
        ('text("a, b) \\ "c"")', Action(ActionType.TYPE, text='a, b) \\ "c"')),
        ("text(it's)", Action(ActionType.TYPE, text="it's")),
        ("FINISH", Action(ActionType.COMPLETE)),
        ("`finish`.", Action(ActionType.COMPLETE)),
    ],
)
def test_calls_are_read_to_the_middle_of_their_box(call, action):
    assert read(f"Observation: tap(9)\nThought: go\nAction: {call}\nSummary: text") == action


@pytest.mark.parametrize("length, times", [("short", 1), ("medium", 2), ("long", 3)])
def test_a_swipe_is_measured_in_tenths_of_the_width(length, times):
    action = read(f'Action: swipe(2, "down", "{length}")', (1000, 4000))
    moved = (action.end[1] - action.point[1]) * 4000
    assert action.point == FIELD.center and moved == pytest.approx(200 * times)
    action = read(f'Action: swipe(2, "left", "{length}")', (1000, 4000))
    assert (action.point[0] - action.end[0]) * 1000 == pytest.approx(100 * times)


def test_a_swipe_ends_at_the_edge_of_the_screen():
    assert read('Action: swipe(1, "up", "long")', (1000, 1000)).end == (0.25, 0.0)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "empty"),
        ("tap(1)", "no_action"),
        ("star ; tap r3c2", "no_action"),
        ("Action:", "no_action"),
        ("Action: tap 1", "bad_syntax"),
        ("Action: tap()", "missing_argument"),
        ("Action: tap(3)", "bad_index"),
        ("Action: tap(0)", "bad_index"),
        ("Action: tap(one)", "bad_index"),
        ("Action: tap(²)", "bad_index"),
        ("Action: tap(" + "9" * 5000 + ")", "bad_index"),
        ("Action: swipe(1, up)", "missing_argument"),
        ("Action: swipe(1, inwards, long)", "bad_place"),
        ("Action: swipe(1, up, far)", "bad_place"),
        ("Action: grid()", "unknown_action"),
    ],
)
def test_what_is_no_action_has_a_reason(text, reason):
    assert read(text) == reason


@given(st.one_of(st.text(), st.text("tapswie(12,\"' upmdlong)FINSH").map("Action: {}".format)))
def test_reading_never_raises(text):
    reading = TagReader({1: SAVE, 2: FIELD}).parse(text, SIZE)
    assert (reading.action is None) != (reading.reason is None)


@pytest.mark.parametrize("field, value", [("documents", 0), ("document_tokens", 0), ("apart", 1.5), ("apart", -0.1)])
def test_a_setting_out_of_range_is_refused(field, value):
    with pytest.raises(BaselineError, match=f"`app_agent.{field}` must be"):
        AppAgent(**{field: value})
