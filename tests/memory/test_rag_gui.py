"""RAG-GUI: what the writer is told, and that only a relevant guideline reaches the actor."""

import pytest
from around import TAP_MENU, TAP_SAVE, Says, make_scene, make_step, shown, text_of

from switchmem.memory.baseline import BaselineError
from switchmem.memory.rag_gui import RagGui
from switchmem.memory.writing import TemplateWriter
from switchmem.steps import Action, ActionType

DEMOS = [
    make_step("d", n, action, instruction="Save the page")
    for n, action in enumerate([TAP_MENU, TAP_MENU, TAP_SAVE, Action(ActionType.BACK), Action(ActionType.COMPLETE)])
]
PAST = make_step("q", 0, Action(ActionType.TYPE, text="milk"))
STEP = make_step("q", 1, Action(ActionType.IMPOSSIBLE))


def scene(demo=DEMOS[2], **fields):
    return make_scene(STEP, demo, [PAST], DEMOS, **fields)


def test_a_relevant_guideline_is_all_that_the_actor_sees_of_the_demonstration():
    writer = Says("Relevant: Yes.\nGuideline: Look for Save.")
    view, spent = shown(RagGui(window=1), scene(), writer)
    assert text_of(view.memory) == "\nA guideline from a similar task: Look for Save."
    assert view.current is view.system is view.closing is None and not view.fallbacks and not view.notes
    (call,) = spent.calls
    asked = text_of(call.parts)
    assert asked.startswith('Task: Keep the note\nPast actions: type "milk"\nCurrent screenshot:\n<picture>')
    assert "Task of the tutorial: Save the page\n" in asked
    assert '\n1. tap "Menu" (ImageView)\n2. tap "Save" (Button) (on a screen with: Save, Menu, Name, Noth' in asked
    assert "<- closest to the current screen\n3. go back\n" in asked and "complete" not in asked
    assert asked.count("<picture>") == 1 and "0.25" not in asked and "250" not in asked


def test_the_gold_action_is_nowhere():
    writer = Says("Relevant: yes\nGuideline: Go.")
    shown(RagGui(), scene(), writer)
    assert "impossible" not in text_of(writer.asked[0].parts).lower()


@pytest.mark.parametrize("text", ["Relevant: no\nGuideline: none", "Relevant: No", "relevant: FALSE\nGuideline: x"])
def test_an_irrelevant_demonstration_is_no_memory_and_counted(text):
    view, _ = shown(RagGui(), scene(), Says(text))
    assert view.memory == () and view.notes == ("irrelevant",) and not view.fallbacks


@pytest.mark.parametrize(
    "text, fault",
    [
        ("", "empty"),
        ("I'm sorry, I cannot judge that.", "refusal"),
        ("star ; tap r3c2", "malformed"),
        ("Relevant: maybe\nGuideline: Tap it.", "malformed"),
        ("Relevant: yes\nGuideline: none", "empty"),
        ("Relevant: yes\nGuideline:", "empty"),
        ("Relevant: yes", "malformed"),
        ("Relevant: yes\nGuideline: I cannot tell.", "refusal"),
    ],
)
def test_a_broken_answer_falls_back_to_no_memory_and_is_counted(text, fault):
    view, _ = shown(RagGui(), scene(), Says(text))
    assert view.memory == () and view.fallbacks == (f"guideline: {fault}",) and not view.notes


def test_without_a_demonstration_nothing_is_asked():
    writer = Says("Relevant: yes\nGuideline: Go.")
    view, spent = shown(RagGui(), scene(None), writer)
    assert view.memory == () and not spent.calls


def test_the_template_writes_the_same_fields_from_the_record():
    view, _ = shown(RagGui(), scene(), TemplateWriter())
    assert text_of(view.memory).endswith('In a similar task the next action was: tap "Save" (Button).')


def test_settings_and_words_are_its_identity():
    one, other = RagGui().identity(), RagGui(window=3).identity()
    assert one["settings"] != other["settings"] and one["words"] == other["words"] and one["name"] == "rag_gui"


@pytest.mark.parametrize("name", ["window", "history", "guideline_tokens", "guideline_characters"])
def test_a_setting_out_of_range_is_refused(name):
    with pytest.raises(BaselineError, match=f"`rag_gui.{name}` must be at least"):
        RagGui(**{name: -1})
