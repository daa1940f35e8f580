"""A memory baseline in an agent's own loop: the same answer as in a test, and an episode that it remembers."""

import math

import pytest
from around import Around

from switchmem.actors.showing import make_scene, show_and_ask
from switchmem.actors.writer import ModelWriter
from switchmem.agent.baseline_agent import BaselineAgent
from switchmem.memory.app_agent import AppAgent
from switchmem.memory.baseline import Baseline, View
from switchmem.memory.echotrail import EchoTrail
from switchmem.memory.m3a import M3a
from switchmem.memory.rag_gui import RagGui
from switchmem.memory.writing import KeptWriter, TemplateWriter


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
