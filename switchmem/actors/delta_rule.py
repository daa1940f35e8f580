"""The gated delta rule of linear-attention layers for one token per row, without temporary copies of the states.

Where the kernels of flash-linear-attention are not installed, transformers takes a reference implementation that writes
the states of all heads anew for every operation. Decoding many rows then spends a third of its time on that. Here the
states are overwritten in place, and keys and queries read them in one product:

    S <- exp(g) S,  d = beta (v - S^T k),  S <- S + k d^T,  o = S^T q = (exp(g) S)^T q + (k . q) d
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_REFERENCE = "torch_recurrent_gated_delta_rule"


def delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """One token for every row, with the arguments of the reference.

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
        pair = pair * torch.rsqrt(pair.square().sum(-1, keepdim=True) + 1e-6)
    pair[:, :, 1] *= width**-0.5
    pair = pair.repeat_interleave(heads // pair.shape[1], 1)
    initial_state.mul_(g[:, 0].float().exp()[..., None, None])
    known, output = (pair.view(-1, 2, width) @ initial_state.view(-1, width, depth)).view(rows, heads, 2, -1).unbind(2)
    correction = (value[:, 0].float() - known) * beta[:, 0].float()[..., None]
    initial_state.addcmul_(pair[:, :, 0, :, None], correction[:, :, None])
    output = output + (pair[:, :, 0] * pair[:, :, 1]).sum(-1, keepdim=True) * correction
    return output[:, None].to(query.dtype), initial_state


@contextmanager
def states_in_place(blocks: nn.ModuleList) -> Iterator[None]:
    """Let linear-attention blocks overwrite the states of their cache, where they would take the reference.

    Args:
        blocks: the model's decoder blocks; each forward meanwhile is of one token per row, behind a filled cache.
    """
    mixers = [block.linear_attn for block in blocks if hasattr(block, "linear_attn")]
    modules = [] if "fla" in sys.modules else list({sys.modules[type(mixer).__module__] for mixer in mixers})
    before = [(module, getattr(module, _REFERENCE)) for module in modules if hasattr(module, _REFERENCE)]
    for module, _ in before:
        setattr(module, _REFERENCE, delta_rule)
    try:
        yield
    finally:
        for module, reference in before:
            setattr(module, _REFERENCE, reference)
