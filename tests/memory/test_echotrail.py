"""EchoTrail: the trace around the retrieved step, its critic, and hybrid retrieval against BM25 written out."""

import math

import numpy as np
import pytest
import torch
from around import MENU, SAVE, TAP_MENU, TAP_SAVE, WORD, Says, make_scene, make_step, shown, text_of

from switchmem.memory.baseline import BaselineError, Charge
from switchmem.memory.echotrail import EchoTrail
from switchmem.memory.embedder import HashingEmbedder
from switchmem.memory.hybrid import HybridIndex
from switchmem.memory.writing import TemplateWriter
from switchmem.steps import Action, ActionType

TRACE = [
    make_step("d", 0, TAP_MENU, (MENU,)),
    make_step("d", 1, Action(ActionType.TYPE, text="milk"), (MENU, SAVE)),
    make_step("d", 2, TAP_SAVE, (SAVE, WORD)),
    make_step("d", 3, Action(ActionType.COMPLETE), (WORD,)),
]
FAILED = [make_step("f", 0, TAP_MENU), make_step("f", 1, Action(ActionType.IMPOSSIBLE))]
STEP = make_step("q", 0, Action(ActionType.HOME), instruction="Keep another note")


def scene(demo=TRACE[2], bank=(*TRACE, *FAILED), **fields):
    return make_scene(STEP, demo, [], bank, grammar="pocket", **fields)


def test_the_trace_tells_states_intents_actions_and_transitions_around_the_retrieved_step():
    view, spent = shown(EchoTrail(window=1), scene(), Says("x"))
    assert not spent.calls and view.current is None
    assert text_of(view.memory) == (
        "\nA trace of a past task that succeeded.\nTask of the trace: Keep the note\n"
        '1. Screen: Menu, Save. Intent: type "milk". Action: type milk. Then: new: Nothing to do here; gone: Menu.\n'
        '2. (closest to the current screen) Screen: Save, Nothing to do here. Intent: tap "Save" (Button). '
        "Action: tap r0c1. Then: gone: Save.\n"
        "3. Screen: Nothing to do here. Intent: finish: the task is complete. Action: done. Then: the trace ends."
    )


def test_a_window_of_none_shows_the_step_alone():
    view, _ = shown(EchoTrail(window=0), scene(), Says("x"))
    assert text_of(view.memory).count("Screen:") == 1 and "2." not in text_of(view.memory)


def test_a_trajectory_that_gave_up_is_dropped_and_counted():
    view, _ = shown(EchoTrail(), scene(FAILED[0]), Says("x"))
    assert view.memory == () and view.notes == ("dropped_by_critic",)


@pytest.mark.parametrize("grade, kept", [(5, True), (4, True), (3, False), (1, False)])
def test_the_writers_grade_decides_and_is_made_once_for_the_bank(grade, kept):
    view, spent = shown(EchoTrail(critic="writer"), scene(), Says(f"Grade: {grade}\nReason: It did."))
    assert bool(view.memory) is kept and view.notes == (() if kept else ("dropped_by_critic",))
    (call,) = spent.calls
    assert call.charge is Charge.OFFLINE and '2. type "milk"\n' in text_of(call.parts)


@pytest.mark.parametrize(
    "text, fault",
    [
        ("", "empty"),
        ("I cannot grade.", "refusal"),
        ("Five stars", "malformed"),
        ("Grade: 9", "malformed"),
        ("Grade: good", "malformed"),
    ],
)
def test_a_broken_grade_falls_back_to_the_recording_and_is_counted(text, fault):
    view, _ = shown(EchoTrail(critic="writer"), scene(), Says(text))
    assert view.memory and view.fallbacks == (f"grade: {fault}",) and not view.notes
    view, _ = shown(EchoTrail(critic="writer"), scene(FAILED[0]), Says(text))
    assert not view.memory and view.fallbacks == (f"grade: {fault}",) and view.notes == ("dropped_by_critic",)


def test_the_template_grades_by_the_recording():
    assert shown(EchoTrail(critic="writer"), scene(), TemplateWriter())[0].memory
    assert not shown(EchoTrail(critic="writer"), scene(FAILED[0]), TemplateWriter())[0].memory


def test_the_screens_summary_is_one_call_of_the_step():
    baseline = EchoTrail(screen_summary=True, critic="writer")
    view, spent = shown(baseline, scene(), Says("Grade: 5", "A list of notes."))
    assert [call.charge for call in spent.calls] == [Charge.OFFLINE, Charge.STEP]
    assert text_of(view.memory).endswith("What the current screen shows: A list of notes.")
    view, _ = shown(EchoTrail(screen_summary=True), scene(is_action=lambda line: True), Says("tap"))
    assert view.fallbacks == ("summary: action",) and "What the current screen shows" not in text_of(view.memory)


def test_hybrid_retrieval_finds_trajectories_by_their_instruction():
    near = [
        make_step("n", 1, TAP_SAVE, instruction="Keep another note"),
        make_step("n", 0, TAP_MENU, instruction="Keep another note"),
    ]
    own = [make_step("q", 5, TAP_SAVE, instruction="Keep another note")]
    far = [make_step("z", 0, TAP_SAVE, instruction="Play some music")]
    one = scene(bank=[*TRACE, *far, *near, *own])
    view, _ = shown(EchoTrail(retrieval="hybrid"), one, Says("x"))
    told = text_of(view.memory)
    assert told.count("Task of the trace:") == 1 and "Keep another note" in told and "closest" not in told
    view, _ = shown(EchoTrail(retrieval="hybrid", trajectories=2), one, Says("x"))
    assert "Task of the trace: Keep the note" in text_of(view.memory) and "closest" in text_of(view.memory)
    view, _ = shown(EchoTrail(retrieval="hybrid"), scene(bank=own, demo=own[0]), Says("x"))
    assert view.memory == ()


TEXTS = ["Keep the note", "keep keep a list", "Play the music in the car", "note"]


def bm25(query, texts, k1=1.5, b=0.75):
    """Robertson's BM25 with the inverse document frequency that cannot be negative, as Lucene has it."""
    words = [text.lower().split() for text in texts]
    mean = sum(map(len, words)) / len(words)
    scores = []
    for document in words:
        score = 0.0
        for term in query.lower().split():
            containing = sum(term in other for other in words)
            rarity = math.log(1 + (len(words) - containing + 0.5) / (containing + 0.5))
            times = document.count(term)
            score += rarity * times / (times + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return np.array(scores)


@pytest.mark.parametrize("query", ["keep the note", "music", "nothing of it", "the the"])
def test_the_sparse_score_is_bm25(query):
    index = HybridIndex(TEXTS, torch.eye(4))
    unit, mine = index.sparse(query), bm25(query, TEXTS)
    # implementations differ by the constant k1 + 1 and by whether a term that is asked twice counts twice
    assert (unit > 0).tolist() == (mine > 0).tolist()
    if unit.max() > 0:
        assert unit / unit.max() == pytest.approx(mine / mine.max(), abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_mix_is_weighted_by_alpha(alpha):
    embedder = HashingEmbedder(64)
    vectors, query = embedder.texts(TEXTS), "Keep a note"
    vector = embedder.texts([query])[0]
    sparse = bm25(query, TEXTS)[[3, 0, 1]]
    wanted = alpha * (vectors[[3, 0, 1]].double() @ vector.double()).numpy() + (1 - alpha) * sparse / sparse.max()
    assert HybridIndex(TEXTS, vectors).scores(query, vector, [3, 0, 1], alpha) == pytest.approx(wanted, abs=1e-5)


def test_hybrid_without_its_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    with pytest.raises(BaselineError, match=r"`echotrail.retrieval` must be 'shared' where bm25s is not installed"):
        HybridIndex(TEXTS, torch.eye(4))


def test_hybrid_over_an_empty_bank_is_refused():
    with pytest.raises(BaselineError, match="must have at least one trajectory"):
        HybridIndex([], torch.zeros(0, 4))


@pytest.mark.parametrize(
    "field, value",
    [
        ("window", -1),
        ("state_words", 0),
        ("trajectories", 0),
        ("written_tokens", 0),
        ("least_grade", 6),
        ("alpha", 1.1),
    ],
)
def test_a_setting_out_of_range_is_refused(field, value):
    with pytest.raises(BaselineError, match=f"`echotrail.{field}` must be"):
        EchoTrail(**{field: value})
