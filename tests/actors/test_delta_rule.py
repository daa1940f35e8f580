"""The in-place delta rule against a loop over the definition, and against the reference of transformers."""

from __future__ import annotations

import sys

import pytest
import torch
from transformers.models.qwen3_5 import modeling_qwen3_5

from switchmem.actors.delta_rule import many_tokens, one_token, own_rules


def arguments(rows=3, key_heads=2, heads=4, width=5, depth=6):
    query, key = torch.randn(rows, 1, key_heads, width), torch.randn(rows, 1, key_heads, width)
    value, state = torch.randn(rows, 1, heads, depth), torch.randn(rows, heads, width, depth)
    g, beta = -torch.rand(rows, 1, heads), torch.rand(rows, 1, heads)
    return query, key, value, g, beta, state


def by_definition(query, key, value, g, beta, state):
    """One head of one row at a time, in float64."""
    rows, heads = state.shape[:2]
    outputs, states = torch.zeros(rows, 1, heads, value.shape[-1]).double(), state.double().clone()
    for n in range(rows):
        for h in range(heads):
            q, k = (x[n, 0, h * query.shape[2] // heads].double() for x in (query, key))
            q, k = q / (q @ q + 1e-6).sqrt() / len(q) ** 0.5, k / (k @ k + 1e-6).sqrt()
            old = states[n, h] * g[n, 0, h].double().exp()
            states[n, h] = old + torch.outer(k, beta[n, 0, h].double() * (value[n, 0, h].double() - k @ old))
            outputs[n, 0, h] = q @ states[n, h]
    return outputs.float(), states.float()


@pytest.mark.parametrize("shape", [{}, {"rows": 1, "key_heads": 4}, {"width": 8, "depth": 2, "heads": 6}])
def test_against_the_definition_and_the_reference(shape):
    given = arguments(**shape)
    expected, state = by_definition(*given)
    reference = modeling_qwen3_5.torch_recurrent_gated_delta_rule(
        *given[:3], g=given[3], beta=given[4], initial_state=given[5].clone(), output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    output, new = one_token(*given[:3], g=given[3], beta=given[4], initial_state=given[5], use_qk_l2norm_in_kernel=True)
    for found, wanted in ((output, expected), (new, state), (reference[0], expected), (reference[1], state)):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert new is given[5]


def many_by_definition(query, key, value, g, beta, state):
    """Token by token."""
    outputs = []
    for t in range(query.shape[1]):
        output, state = by_definition(*(x[:, t : t + 1] for x in (query, key, value, g, beta)), state)
        outputs.append(output)
    return torch.cat(outputs, 1), state


@pytest.mark.parametrize("length", [1, 31, 32, 70])
@pytest.mark.parametrize("decay", [0.01, 2.0, 40.0])
def test_a_prompt_against_the_definition_and_the_reference(length, decay):
    rows, heads, key_heads, width, depth = 2, 4, 2, 5, 6
    query, key = torch.randn(2, rows, length, key_heads, width)
    value, state = torch.randn(rows, length, heads, depth), torch.randn(rows, heads, width, depth)
    g, beta = -decay * torch.rand(rows, length, heads), torch.rand(rows, length, heads)
    before = state.clone()
    for initial in (state, None):
        wanted = many_by_definition(query, key, value, g, beta, torch.zeros_like(state) if initial is None else state)
        options = {"g": g, "beta": beta, "initial_state": initial, "use_qk_l2norm_in_kernel": True}
        reference = modeling_qwen3_5.torch_chunk_gated_delta_rule(query, key, value, output_final_state=True, **options)
        for found in (many_tokens(query, key, value, **options), reference):
            torch.testing.assert_close(found[0], wanted[0], atol=2e-5, rtol=1e-5)
            torch.testing.assert_close(found[1], wanted[1], atol=2e-5, rtol=1e-5)
    assert torch.equal(state, before), "a shared prefix's state must stay"


def test_half_precision_comes_back_as_it_was():
    query, key, value, g, beta, state = arguments()
    half = [x.bfloat16() for x in (query, key, value)]
    expected, _ = by_definition(*(x.float() for x in half), g, beta, state)
    output, new = one_token(*half, g=g, beta=beta.bfloat16(), initial_state=state, use_qk_l2norm_in_kernel=True)
    assert output.dtype == torch.bfloat16 and new.dtype == torch.float32
    torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)


def test_the_reference_is_put_back(make_actor, monkeypatch):
    actor = make_actor(True)
    reference = modeling_qwen3_5.torch_recurrent_gated_delta_rule
    with pytest.raises(RuntimeError, match="stop"), own_rules(actor.engine.blocks):
        assert modeling_qwen3_5.torch_recurrent_gated_delta_rule is one_token
        raise RuntimeError("stop")
    assert modeling_qwen3_5.torch_recurrent_gated_delta_rule is reference
    monkeypatch.setitem(sys.modules, "fla", object())  # whose kernels are better still
    with own_rules(actor.engine.blocks):
        assert modeling_qwen3_5.torch_recurrent_gated_delta_rule is reference
    with own_rules(make_actor(False).engine.blocks):
        assert modeling_qwen3_5.torch_recurrent_gated_delta_rule is reference
