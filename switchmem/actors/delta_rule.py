"""The gated delta rule and the short convolution of linear-attention layers, with fewer copies than the reference.

Where the kernels of flash-linear-attention are not installed, transformers takes a reference implementation that writes
large tensors anew for every operation; a fifth of a harvest goes into that. The rule, for a state S of every head, is

    S <- exp(g) S,  d = beta (v - S^T k),  S <- S + k d^T,  o = S^T q

`one_token` runs it in place. `many_tokens` runs a prompt in chunks: within a chunk, all d solve one triangular system,
so that S is only read and written once per chunk (Yang et al., 2024, "Gated Delta Networks").

Before it, every channel is convolved with its own four weights over the last tokens. PyTorch's convolution treats each
channel as a picture; `mix_tokens` and `mix_token` are four multiplications instead, and ten times as fast on a CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

# What a chunk costs within itself grows with its length, what it costs to pass on the state falls with it; 32 tokens
# were fastest for heads of 32 and of 128 numbers.
_CHUNK = 32


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def one_token(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """One token for every row, in place.

    After the decay, keys and queries read the state in one product: o = S^T q + (k . q) d.

    Args:
        query: ``[N, 1, H_k, d_k]``; each head serves ``H / H_k`` heads of values.
        key: like ``query``.
        value: ``[N, 1, H, d_v]``.
        g: ``[N, 1, H]`` logarithm of the decay, <= 0.
        beta: ``[N, 1, H]`` how much of the correction is written.
        initial_state: ``[N, H, d_k, d_v]`` float32; it is overwritten.
        use_qk_l2norm_in_kernel: whether keys and queries are brought to length 1 first.

    Returns:
        ``[N, 1, H, d_v]`` in the type of ``query``, and the new state, which is ``initial_state``.
    """
    rows, heads, width, depth = initial_state.shape
    pair = torch.stack([key[:, 0], query[:, 0]], 2).float()  # [N, H_k, 2, d_k]
    if use_qk_l2norm_in_kernel:
        pair = _unit(pair)
    pair[:, :, 1] *= width**-0.5
    pair = pair.repeat_interleave(heads // pair.shape[1], 1)
    initial_state.mul_(g[:, 0].float().exp()[..., None, None])
    known, output = (pair.view(-1, 2, width) @ initial_state.view(-1, width, depth)).view(rows, heads, 2, -1).unbind(2)
    correction = (value[:, 0].float() - known) * beta[:, 0].float()[..., None]
    initial_state.addcmul_(pair[:, :, 0, :, None], correction[:, :, None])
    output = output + (pair[:, :, 0] * pair[:, :, 1]).sum(-1, keepdim=True) * correction
    return output[:, None].to(query.dtype), initial_state


def many_tokens(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """T tokens for every row.

    Args:
        query: ``[N, T, H_k, d_k]``; each head serves ``H / H_k`` heads of values.
        key: like ``query``.
        value: ``[N, T, H, d_v]``.
        g: ``[N, T, H]`` logarithm of the decay, <= 0.
        beta: ``[N, T, H]`` how much of the correction is written.
        initial_state: ``[N, H, d_k, d_v]``; it stays as it is. None for zeros.
        use_qk_l2norm_in_kernel: whether keys and queries are brought to length 1 first.

    Returns:
        ``[N, T, H, d_v]`` in the type of ``query``, and the new state, float32.
    """
    rows, length, _heads, width = key.shape
    heads, depth = value.shape[2:]
    keys, queries, values, decay, share = (_cut(x) for x in (key, query, value, g, beta))  # [N, heads, chunks, C, ...]
    if use_qk_l2norm_in_kernel:
        keys, queries = _unit(keys), _unit(queries)
    queries = queries * width**-0.5
    decay = decay.cumsum(-1)
    # Pairs above the diagonal are not used; the limit keeps them from overflowing.
    fading = (decay[..., None] - decay[..., None, :]).clamp_(max=0.0).exp_()
    repeats = heads // keys.shape[1]
    products = (torch.cat([keys, queries], -2) @ keys.transpose(-1, -2)).repeat_interleave(repeats, 1)
    known, seen = products.split(_CHUNK, -2)
    keys, queries = (x.repeat_interleave(repeats, 1) for x in (keys, queries))
    since_start, share = decay.exp()[..., None], share[..., None]
    right = torch.cat([values, keys * since_start], -1).mul_(share)
    solved = torch.linalg.solve_triangular((known * fading).mul_(share), right, upper=False, unitriangular=True)
    corrections, reading = solved.split([depth, width], -1)
    reading = torch.cat([reading, queries * since_start], -2)
    to_end = (decay[..., -1:] - decay).exp()[..., None]
    writing = torch.cat([(seen * fading).tril_(), (keys * to_end).transpose(-1, -2)], -2)
    state = value.new_zeros(rows, heads, width, depth) if initial_state is None else initial_state
    state, kept, outputs = state.float(), since_start[..., -1:, :], torch.empty_like(values)
    for n in range(values.shape[2]):
        old, far = (reading[:, :, n] @ state).split(_CHUNK, -2)
        near, new = (writing[:, :, n] @ (corrections[:, :, n] - old)).split([_CHUNK, width], -2)
        torch.add(far, near, out=outputs[:, :, n])
        state = torch.addcmul(new, state, kept[:, :, n])
    return outputs.flatten(2, 3)[:, :, :length].transpose(1, 2).to(query.dtype).contiguous(), state


def _cut(x: Tensor) -> Tensor:
    """``[N, T, heads, ...]`` as float32 ``[N, heads, chunks, C, ...]``, with zeros behind the last token."""
    x = x.transpose(1, 2).float()
    missing = -x.shape[2] % _CHUNK
    if missing:
        x = F.pad(x, (0, 0) * (x.dim() - 3) + (0, missing))
    return x.reshape(x.shape[0], x.shape[1], -1, _CHUNK, *x.shape[3:])


def mix_tokens(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **_: Any,
) -> Tensor:
    """Convolve every channel with its own weights over the tokens up to each one; before the first stand zeros.

    Args:
        hidden_states: ``[N, C, T]`` in any memory order, which the result keeps.
        weight: ``[C, W]``, that of the token itself last.
        bias: ``[C]``.
        activation: name of the function that is applied to the result.

    Returns:
        ``[N, C, T]`` in the type of ``hidden_states``.
    """
    x, length = hidden_states.to(weight.dtype), hidden_states.shape[-1]
    mixed = x * weight[:, -1:]
    for back in range(1, min(weight.shape[1], length)):
        mixed[..., back:].addcmul_(x[..., : length - back], weight[:, -1 - back, None])
    return _finish(mixed, bias, activation).to(hidden_states.dtype)


def mix_token(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """`mix_tokens` for one token behind those that the cache holds.

    Args:
        hidden_states: ``[N, C, 1]``.
        conv_state: ``[N, C, W]`` the last tokens; it is overwritten.
        weight: ``[C, W]``.
        bias: ``[C]``.
        activation: name of the function that is applied to the result.

    Returns:
        ``[N, C, 1]`` in the type of ``hidden_states``.
    """
    conv_state.copy_(torch.cat([conv_state[..., 1:], hidden_states], -1))
    mixed = (conv_state.to(weight.dtype) * weight).sum(-1, keepdim=True)
    return _finish(mixed, bias, activation).to(hidden_states.dtype)


def _finish(mixed: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    if bias is not None:
        mixed.add_(bias[:, None])
    result: Tensor = mixed if activation is None else ACT2FN[activation](mixed)
    return result


# What is put in the place of each reference, and the package whose own kernel is better still.
_RULES = {
    "torch_recurrent_gated_delta_rule": (one_token, "fla"),
    "torch_chunk_gated_delta_rule": (many_tokens, "fla"),
    "causal_conv1d_fn": (mix_tokens, "causal_conv1d"),
    "causal_conv1d_update": (mix_token, "causal_conv1d"),
}


@contextmanager
def own_rules(blocks: nn.ModuleList) -> Iterator[None]:
    """Let linear-attention blocks run these rules where they would take the reference.

    Args:
        blocks: the model's decoder blocks. A forward of one token overwrites the states of its cache, as any does.
    """
    mixers = {type(block.linear_attn) for block in blocks if hasattr(block, "linear_attn")}
    modules = [sys.modules[mixer.__module__] for mixer in mixers]
    rules = {name: rule for name, (rule, package) in _RULES.items() if package not in sys.modules}
    before = [(module, name, getattr(module, name)) for module in modules for name in rules if hasattr(module, name)]
    for module, name, _ in before:
        setattr(module, name, rules[name])
    try:
        yield
    finally:
        for module, name, reference in before:
            setattr(module, name, reference)
