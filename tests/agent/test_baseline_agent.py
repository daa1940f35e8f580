"""A memory baseline in an agent's own loop: the same answer as in a test, and an episode that it remembers."""

import json
import math
from dataclasses import replace

import pytest
from around import MENU, SAVE, TAP_MENU, TAP_SAVE, Around, make_step
from speaking_actor import Speaks

from switchmem.actors.showing import make_scene, show_and_ask
from switchmem.actors.writer import ModelWriter
from switchmem.agent import LiveBank
from switchmem.agent.baseline_agent import BaselineAgent
from switchmem.benchmarks.store import write_steps
from switchmem.memory.agmem import AGMemWhole
from switchmem.memory.app_agent import AppAgent
from switchmem.memory.baseline import Baseline, View
from switchmem.memory.echotrail import EchoTrail
from switchmem.memory.m3a import M3a
from switchmem.memory.rag_gui import RagGui
from switchmem.memory.writing import KeptWriter, TemplateWriter
from switchmem.steps import Action, ActionType


class AsText(Baseline):
    """Shows what the Text condition shows, and keeps the scenes."""

    name, words = "as_text", {}

    def __init__(self):
        self.past = []

    def show(self, scene):
        self.past.append([(s.index, s.action.type.value) for s in scene.surroundings.before(scene.step)])
        return View(memory=() if scene.demo is None else scene.as_text(scene.demo))
        yield


def act(agent, step, **fields):
    return agent.act(step.instruction, step.screenshot, step.elements, activity=step.activity, **fields)


def test_it_answers_as_under_the_same_view_in_a_test(actor, spec, bank, queries):
    agent = BaselineAgent(AsText(), spec, actor, bank, TemplateWriter(), 16)
    for step in queries[:4]:
        agent.reset()
        decision = act(agent, step)
        demo = bank.step(decision.memory)
        scene = make_scene(spec, actor, step, demo, Around())
        (shown,) = show_and_ask(spec, actor, agent.baseline, TemplateWriter(), [scene], 16)
        assert decision.answer == shown.answer.text and decision.tokens[0] == shown.answer.tokens_in
        assert (decision.action is None) != (decision.reason is None) and decision.seconds > 0
        assert 0 < decision.cosine <= 1 and decision.writing["calls"] == 0


def test_the_episode_is_remembered_until_it_is_reset(actor, spec, bank, queries):
    baseline = AsText()
    agent = BaselineAgent(baseline, spec, actor, bank, TemplateWriter(), 16)
    done = [act(agent, step) for step in queries[:3]]
    agent.reset()
    act(agent, queries[0])
    kinds = [decision.action.type.value for decision in done]
    assert baseline.past == [[], [(0, kinds[0])], [(0, kinds[0]), (1, kinds[1])], []]


@pytest.mark.parametrize("baseline", [RagGui(), M3a(), AppAgent(), EchoTrail()], ids=lambda b: b.name)
def test_each_baseline_acts_with_the_actor_as_its_writer(actor, spec, bank, queries, baseline, tmp_path):
    writer = KeptWriter(ModelWriter(actor, spec.fingerprint()), tmp_path)
    agent = BaselineAgent(baseline, spec, actor, bank, writer, 16)
    first = [act(agent, step) for step in queries[:2]]
    agent.reset()
    again = [act(agent, step) for step in queries[:2]]
    assert [d.answer for d in first] == [d.answer for d in again]
    assert [d.fallbacks for d in first] == [d.fallbacks for d in again]
    for one, two in zip(first, again, strict=True):
        assert one.writing["calls"] == two.writing["calls"]  # a kept answer counts as what it cost
        assert two.writing["kept"] == len(two.writing["offline"]) + two.writing["calls"]


def test_without_a_demonstration_there_is_none_and_no_cosine(actor, spec, bank, queries):
    agent = BaselineAgent(RagGui(), spec, actor, bank, TemplateWriter(), 16)
    decision = act(agent, queries[0], category="no such category")
    assert decision.memory is None and math.isnan(decision.cosine) and decision.writing["calls"] == 0


def test_an_answer_must_have_room(actor, spec, bank):
    with pytest.raises(ValueError, match="`max_new_tokens` must be at least 1"):
        BaselineAgent(RagGui(), spec, actor, bank, TemplateWriter(), 0)


def test_episodes_side_by_side_do_not_see_each_other(actor, spec, bank, queries):
    baseline = AsText()
    agent = BaselineAgent(baseline, spec, actor, bank, TemplateWriter(), 16)
    one, other = agent.episode(), agent.episode()
    kinds = [act(each, step).action.type.value for step in queries[:2] for each in (one, other)]
    act(agent, queries[0])
    assert baseline.past == [[], [], [(0, kinds[0])], [(0, kinds[1])], []]


# --- AGMem's guard ---


BACK = Action(ActionType.BACK)
BLOCKED = "Error: yes\nMode: Grounding Error"


@pytest.fixture
def detour_bank(tmp_path, embedder):
    """A trajectory that opened the menu by mistake, went back to the same screen, and saved."""
    actions = (TAP_MENU, BACK, TAP_SAVE, Action(ActionType.COMPLETE))
    steps = [make_step("detour", n, action, [SAVE, MENU]) for n, action in enumerate(actions)]
    steps[2] = replace(steps[2], screenshot=steps[0].screenshot)
    return LiveBank.build(write_steps(iter(steps), tmp_path / "bank"), embedder)


def detector(*answers):
    """Says in turn whether there is an error; labels, plans and modes have one answer each."""
    left = list(answers)

    def says(text):
        if "Proposed next action" in text:
            return left.pop(0)
        return "Mode: Grounding Error" if "then went back" in text else "1. Save the note\nSubtask: 1"

    return says


def guarded(spec, bank, actor, **guard):
    writer = ModelWriter(actor, "speaks")
    return BaselineAgent(AGMemWhole(guard=guard), spec, actor, bank, writer, 16)


def test_a_blocked_action_is_not_carried_out_and_recoveries_are_shown(spec, detour_bank):
    actor = Speaks(detector(BLOCKED, "Error: no"), lambda text: "back" if "blocked" in text else "tap r0c3")
    agent = guarded(spec, detour_bank, actor)
    first, second = (act(agent, make_step("query", n, TAP_SAVE)) for n in range(2))
    assert (first.action, first.answers, first.answer, first.proposal) == (BACK, 2, "back", "tap r0c3")
    assert first.notes[-2:] == ("checked", "blocked: Grounding Error") and first.tokens == (80, 6)
    again = actor.prompts[1][1]
    assert "The last proposal was blocked: Grounding Error" in again and 'tap "Menu" (ImageView)' in again
    assert "The current subtask: " in again and "Memory 1" not in again  # the plan stays, the memory goes
    assert (second.answers, second.proposal) == (1, "") and "Memory 1" in actor.prompts[2][1]
    assert "tap" not in told_as_done(actor.questions[-1]) and "back" in told_as_done(actor.questions[-1])
    # a plan, the current subtask and the detector; then again without the plan. Labels and the mode are the bank's.
    assert (first.writing["calls"], second.writing["calls"]) == (3, 2) and len(first.writing["offline"]) == 2
    assert first.timings.decoding == 0.5 and first.timings.memory == 0.75
    assert json.loads(json.dumps(first.to_dict()))["condition"] == "agmem_whole"


def told_as_done(question):
    return " ".join(line for line in question.splitlines() if line.startswith("Done there"))


def test_a_broken_detector_lets_the_action_pass_and_is_counted(spec, detour_bank):
    agent = guarded(spec, detour_bank, Speaks(detector("Perhaps.", "I cannot say."), lambda text: "tap r0c3"))
    told = [act(agent, make_step("query", n, TAP_SAVE)) for n in range(2)]
    assert [d.fallbacks[-1:] for d in told] == [("detector: malformed",), ("detector: refusal",)]
    assert all(d.answers == 1 and d.action.type is ActionType.TAP for d in told)


def test_an_answer_after_a_block_that_cannot_be_read_is_no_action(spec, detour_bank):
    actor = Speaks(detector(BLOCKED), lambda text: "hello" if "blocked" in text else "tap r0c3")
    decision = act(guarded(spec, detour_bank, actor), make_step("query", 0, TAP_SAVE))
    assert decision.action is None and decision.why == decision.reason == "unknown_action"


def test_what_is_no_action_is_not_checked_and_the_guard_can_be_left_out(spec, detour_bank):
    silent = Speaks(detector(), lambda text: "hello")
    assert act(guarded(spec, detour_bank, silent), make_step("query", 0, TAP_SAVE)).answers == 1
    unguarded = Speaks(detector())
    decision = act(guarded(spec, detour_bank, unguarded, enabled=False), make_step("query", 0, TAP_SAVE))
    assert decision.action is not None and "checked" not in decision.notes
    assert not any("Proposed" in question or "went back" in question for question in unguarded.questions)
