"""The form of memory can be fixed by the caller: the same actor, bank and words, and no router."""

import functools
import math

import pytest

from switchmem.actors.spec import ActorSpec
from switchmem.agent import SwitchMemAgent
from switchmem.memory.views import Condition
from switchmem.policy import PolicyError
from switchmem.rollout.world import live_agents


def screen_of(step):
    return step.instruction, step.screenshot, step.elements


@pytest.fixture
def bare(spec, actor, bank):
    """An agent without a policy."""
    return SwitchMemAgent(None, spec, actor, bank, max_new_tokens=16)


def test_a_fixed_form_is_what_a_policy_that_always_takes_it_does(queries, bare, make_agent):
    always = {Condition.IMAGE: make_agent(-math.inf), Condition.TEXT: make_agent(math.inf)}
    for step in queries[:4]:
        for form, agent in always.items():
            fixed, routed = bare.act(*screen_of(step), condition=form), agent.act(*screen_of(step))
            assert (fixed.answer, fixed.condition, fixed.memory) == (routed.answer, form, routed.memory)
            assert math.isnan(fixed.r) and math.isnan(fixed.threshold) and fixed.timings.routing == 0.0
            assert fixed.explain().endswith("as the caller fixed it")
            assert agent.act(*screen_of(step), condition=form).answer == fixed.answer  # a policy does not disturb it


def test_both_shows_more_than_either(queries, bare):
    answers = {form: bare.act(*screen_of(queries[0]), condition=form) for form in Condition}
    whole = {form: d.tokens.shared + d.tokens.memory for form, d in answers.items()}
    assert whole[Condition.BOTH] > max(whole[Condition.TEXT], whole[Condition.IMAGE]) > whole[Condition.NONE]


def test_without_a_memory_nothing_is_retrieved(queries, bare, spec, actor):
    step = queries[1]
    alone = bare.act(*screen_of(step), condition=Condition.NONE)
    assert (alone.memory, alone.condition) == (None, Condition.NONE) and math.isnan(alone.cosine)
    without_bank = SwitchMemAgent(None, spec, actor, None, max_new_tokens=16)
    for form in (Condition.NONE, Condition.TEXT):  # a form of a memory that is not there
        decision = without_bank.act(*screen_of(step), condition=form)
        assert (decision.answer, decision.condition) == (alone.answer, Condition.NONE)


def test_a_preference_is_the_score_that_would_decide(queries, make_agent, bare, bank):
    agent = make_agent()
    for step in queries[:3]:
        assert agent.preference(*screen_of(step)) == agent.act(*screen_of(step)).r
    assert agent.preference(*screen_of(queries[0]), category="no such category") is None
    with pytest.raises(PolicyError, match="must have a policy to tell a preference"):
        bare.preference(*screen_of(queries[0]))


def test_a_rollouts_agents_share_one_actor(queries, bare, spec, bank, make_policy, actor, monkeypatch):
    loads = []
    monkeypatch.setattr(ActorSpec, "load", lambda spec: loads.append(spec) or actor)
    make = live_agents(spec, 16, functools.cache(spec.load))
    assert loads == []
    agents = [make(None, None), make(make_policy(), bank)]
    assert loads == [spec] and agents[0].actor is agents[1].actor
    expected = bare.act(*screen_of(queries[0]), condition=Condition.NONE)
    assert agents[0].act(*screen_of(queries[0]), condition=Condition.NONE).answer == expected.answer
    assert (
        agents[1].act(*screen_of(queries[0])).memory
        == bare.act(*screen_of(queries[0]), condition=Condition.TEXT).memory
    )


def test_without_a_policy_a_form_must_be_named(queries, bare):
    with pytest.raises(PolicyError, match="`condition` must be given to an agent without a policy, got None"):
        bare.act(*screen_of(queries[0]))
