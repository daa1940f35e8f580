"""Decoding shares what answers have in common, and ends each answer by itself."""

from __future__ import annotations

import pytest
import torch

from switchmem.actors.decoding import decode
from switchmem.actors.endings import Ending
from switchmem.actors.rows import shared_length
from switchmem.actors.sampling import Sampling, noise_key
from switchmem.memory.views import Condition

SEEDS = (42, 43, 44, 45, 46, 47, 48)


def opened(actor, questions, condition=Condition.TEXT):
    """Extensions of the questions' prompts, ready to be decoded."""
    table, rows = actor.tokenise(questions)
    lengths = [shared_length(list(prompts.values())) for prompts in rows]
    with torch.no_grad():
        prefixes = actor.engine.prefill([prompts[Condition.NONE] for prompts in rows], lengths, table)
        steps = range(len(questions))
        return actor.engine.extend(prefixes, steps, [prompts[condition] for prompts in rows], [0])


def keys_of(extensions, questions, condition=Condition.TEXT):
    order = [row for extension in extensions for row in extension.rows]
    return torch.tensor([[noise_key(questions[n].step_id, condition, seed) for seed in SEEDS] for n in order])


@pytest.mark.parametrize("temperature", [0.7, 0.05])
def test_every_different_beginning_is_fed_once(actor, make_questions, temperature):
    questions = make_questions(actor, range(3))
    extensions = opened(actor, questions)
    fed = []
    hook = actor.engine.blocks[0].register_forward_hook(lambda m, i, o: fed.append(o.shape[0]))
    with torch.no_grad():
        answers = decode(actor.model, extensions, Ending((10_000,)), keys_of(extensions, questions), temperature, 6)
    hook.remove()
    expected = [
        sum(len({tuple(answer[:length]) for answer in of_prompt}) for of_prompt in answers) for length in range(1, 6)
    ]
    assert fed == expected
    assert (max(expected) > 3) and (temperature > 0.1 or max(expected) < 21), "some part, and not all of them"


def test_an_answer_ends_only_behind_the_tokens_that_must_come_first(make_actor, make_questions):
    """With two frequent tokens: `1 2` must have come before `2` can end an answer."""
    actor = make_actor("full")
    push = torch.zeros(actor.model.config.get_text_config().vocab_size)
    push[[11, 12]] = 1e4
    hook = actor.model.lm_head.register_forward_hook(lambda m, i, o: o * 1e-3 + push)
    questions = make_questions(actor, [0])
    extensions = opened(actor, questions)
    with torch.no_grad():
        (answers,) = decode(
            actor.model, extensions, Ending((12,), after=(11, 12)), keys_of(extensions, questions), 0.7, 9
        )
    hook.remove()
    assert len({len(answer) for answer in answers}) > 1
    for answer in answers:
        ends = [n for n in range(1, len(answer)) if answer[n - 1 : n + 1] == [11, 12]]
        assert ends[:1] == [len(answer) - 1] or (not ends and len(answer) == 9)


def test_the_same_answers_whatever_the_extensions_are_grouped_by(make_actor, make_questions):
    """A model of equal lengths runs prompts one by one, another in groups; what they share stays the same."""
    actor = make_actor("hybrid")
    questions = make_questions(actor, range(4))
    sampling = Sampling(seeds=SEEDS, max_new_tokens=5)
    together = actor.observe(questions, (Condition.TEXT,), (0,), sampling)
    extensions = opened(actor, questions)
    assert len(extensions) > 1
    with torch.no_grad():
        tokens = decode(actor.model, extensions[::-1], Ending((10_000,)), keys_of(extensions[::-1], questions), 0.7, 5)
    order = [row for extension in extensions[::-1] for row in extension.rows]
    for row, answers in zip(order, tokens, strict=True):
        found = together[row]
        for answer, count, drawn in zip(
            found.answers[Condition.TEXT], found.new_tokens[Condition.TEXT], answers, strict=True
        ):
            assert actor.text(drawn[:count]) == answer
