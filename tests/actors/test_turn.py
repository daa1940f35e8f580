"""A step answered on its own gets the states and answers of the batches, for every architecture and prompt order."""

import pytest
import torch

from switchmem.actors.protocol import StepPrompts
from switchmem.actors.sampling import GREEDY
from switchmem.actors.turn import Turn
from switchmem.memory.views import Condition
from switchmem.prompts import POCKET, PromptError

LENGTH = 6
TEMPLATES = (POCKET, POCKET.with_memory_first())


@pytest.mark.parametrize("template", TEMPLATES, ids=("state first", "memory first"))
def test_states_and_answers_are_those_of_the_batch(actor, make_questions, template):
    questions = make_questions(actor, range(4), template=template)
    layers = range(actor.num_layers)
    observed = actor.observe(questions, list(Condition), layers, type(GREEDY)(0.0, (0,), LENGTH))
    for question, expected in zip(questions, observed, strict=True):
        for condition in (Condition.TEXT, Condition.IMAGE):
            turn = Turn(actor, question)
            state = turn.read_state(actor.num_layers - 1)
            assert torch.allclose(state, expected.state[-1], atol=1e-5)
            answer, drawn = turn.answer(turn.open(condition), LENGTH)
            assert answer == expected.answers[condition][0] and drawn == expected.new_tokens[condition][0]


def test_without_the_state_a_prompt_runs_whole(actor, make_questions):
    (question,) = make_questions(actor, [7])
    (expected,) = actor.observe([question], list(Condition), [0], type(GREEDY)(0.0, (0,), LENGTH))
    for condition in Condition:
        turn, widths = Turn(actor, question), []
        hook = actor.engine.blocks[0].register_forward_hook(lambda m, i, o, seen=widths: seen.append(o.shape[1]))
        extension = turn.open(condition)
        hook.remove()
        assert widths == [turn.length(condition)]
        assert turn.answer(extension, LENGTH)[0] == expected.answers[condition][0]


def test_a_state_prompt_alone_can_be_answered(actor, make_questions):
    (question,) = make_questions(actor, [8])
    alone = StepPrompts(question.step_id, {Condition.NONE: question.prompts[Condition.NONE]})
    (expected,) = actor.observe([alone], [Condition.NONE], [0], type(GREEDY)(0.0, (0,), LENGTH))
    turn = Turn(actor, alone)
    assert turn.answer(turn.open(Condition.NONE), LENGTH)[0] == expected.answers[Condition.NONE][0]


def test_the_state_prompt_must_be_there(actor, make_questions):
    (question,) = make_questions(actor, [9])
    prompts = {c: p for c, p in question.prompts.items() if c is not Condition.NONE}
    with pytest.raises(PromptError, match="must have the state prompt"):
        Turn(actor, StepPrompts(question.step_id, prompts))
