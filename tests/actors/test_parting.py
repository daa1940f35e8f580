"""One forward over the state prompt gives its states, and leaves the cache of the prefix, for every architecture."""

from dataclasses import replace

import pytest
import torch
from tiny_models import SPECIALS

from switchmem.actors.rows import shared_length
from switchmem.memory.views import Condition
from switchmem.prompts import POCKET

MEMORIES = (Condition.TEXT, Condition.IMAGE, Condition.BOTH)
TEMPLATES = (POCKET, POCKET.with_memory_first())


def pieces(actor, make_questions, seed, template=POCKET):
    images, (rows,) = actor.tokenise(make_questions(actor, [seed], template=template))
    return images, rows, shared_length(list(rows.values()))


@pytest.mark.parametrize("template", TEMPLATES, ids=("state first", "memory first"))
@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_it_equals_prefix_and_prompt_in_two_forwards(actor, make_questions, seed, template):
    images, rows, length = pieces(actor, make_questions, seed, template)
    assert 0 < length < len(rows[Condition.NONE])
    engine, layers = actor.engine, list(range(actor.num_layers))
    plain = engine.prefill([rows[Condition.NONE]], [length], images)
    prefixes, states = engine.prefill_reading(rows[Condition.NONE], length, images, layers)
    (expected,) = engine.extend(plain, [0], [rows[Condition.NONE]], layers)
    assert torch.allclose(states, expected.states[0], atol=1e-5)
    assert torch.equal(prefixes.mask, plain.mask) and prefixes.lengths == plain.lengths
    for condition in MEMORIES:
        (found,) = engine.extend(prefixes, [0], [rows[condition]], layers)
        (expected,) = engine.extend(plain, [0], [rows[condition]], layers)
        assert torch.allclose(found.states, expected.states, atol=1e-5)
        assert torch.allclose(found.logits, expected.logits, atol=1e-4)
        assert found.mask.shape == expected.mask.shape


@torch.no_grad()
def test_nothing_shared_is_a_prefix_of_no_tokens(actor, make_questions):
    images, rows, _ = pieces(actor, make_questions, 4)
    whole = actor.engine.prefill([rows[Condition.NONE]], [0], images)
    prefixes, states = actor.engine.prefill_reading(rows[Condition.NONE], 0, images, [0])
    assert prefixes.lengths == (0,) and prefixes.mask.shape == (1, 0)
    for condition in (Condition.NONE, Condition.TEXT):
        (found,) = actor.engine.extend(prefixes, [0], [rows[condition]], [0])
        (expected,) = actor.engine.extend(whole, [0], [rows[condition]], [0])
        assert torch.equal(found.logits, expected.logits)
    assert states.shape == (1, actor.hidden_size)


@pytest.mark.parametrize("where", ["before", "behind"])
@torch.no_grad()
def test_the_cache_knows_nothing_of_what_came_behind_the_prefix(actor, make_questions, where):
    """What is changed in the state prompt behind the prefix must not reach a memory's answer; before it, it must."""
    images, rows, length = pieces(actor, make_questions, 5)
    prompt = rows[Condition.NONE]
    words = prompt.ids >= len(SPECIALS) + 1
    words[:length] &= where == "before"
    words[length:] &= where == "behind"
    other = replace(prompt, ids=torch.where(words, 40, prompt.ids))
    assert not torch.equal(other.ids, prompt.ids)
    logits = []
    for row in (prompt, other):
        prefixes, _ = actor.engine.prefill_reading(row, length, images, [0])
        (extension,) = actor.engine.extend(prefixes, [0], [rows[Condition.TEXT]], [0])
        logits.append(extension.logits)
    assert torch.allclose(*logits, atol=1e-6) == (where == "behind")


@torch.no_grad()
def test_it_is_one_forward_and_leaves_no_hook(actor, make_questions):
    images, rows, length = pieces(actor, make_questions, 6)
    calls = []
    hook = actor.model.register_forward_hook(lambda *_: calls.append(1))
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in actor.model.modules()]
    actor.engine.prefill_reading(rows[Condition.NONE], length, images, [0])
    assert calls == [1]
    with pytest.raises(IndexError):
        actor.engine.prefill_reading(rows[Condition.NONE], length, images, [99])
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in actor.model.modules()]
    hook.remove()
