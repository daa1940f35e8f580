"""The sizes of an actor that decide how much it computes, keeps and reads, taken from its configuration alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Shapes:
    """The shapes of a model's work.

    Args:
        linears: weights ``[out, in]`` that every token passes.
        head: weights of the vocabulary.
        vision: weights that every patch passes.
        merger: weights that every visual token passes, each patch of it counted once.
        attention: (layers, query heads, heads of keys, width of a head).
        recurrent: (layers, heads, width of keys, width of values), zeros where there is none.
        seeing: (layers, heads, width of a head) of the vision tower.
        width: of the hidden states.
        widest: of the inner layer of a block's MLP.
        merge: patches of a visual token.
        parameters: all weights, the table of tokens included.
    """

    linears: list[torch.Tensor]
    head: torch.Tensor
    vision: list[torch.Tensor]
    merger: list[torch.Tensor]
    attention: tuple[int, int, int, int]
    recurrent: tuple[int, int, int, int]
    seeing: tuple[int, int, int]
    width: int
    widest: int
    merge: int
    parameters: int


def count(weights: Sequence[torch.Tensor]) -> int:
    """Numbers in weights."""
    return sum(weight.numel() for weight in weights)


def shapes_of(model: Any) -> Shapes:
    """Read off a model of the Qwen family; its weights may lie on the device ``meta``."""
    text, vision = model.config.get_text_config(), model.config.vision_config
    kinds = list(getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers)
    linear = kinds.count("linear_attention")
    recurrent = (0, 0, 0, 0)
    if linear:
        recurrent = (linear, text.linear_num_value_heads, text.linear_key_head_dim, text.linear_value_head_dim)
    visual = model.model.visual
    # Qwen3-VL merges the outputs of inner layers too.
    mergers = [visual.merger, *getattr(visual, "deepstack_merger_list", ())]
    inner = getattr(vision, "embed_dim", vision.hidden_size)
    return Shapes(
        linears=[m.weight for m in model.model.language_model.layers.modules() if isinstance(m, nn.Linear)],
        head=model.lm_head.weight,
        vision=[m.weight for m in visual.blocks.modules() if isinstance(m, nn.Linear)]
        + [visual.patch_embed.proj.weight.flatten(1)],
        merger=[m.weight for merger in mergers for m in merger.modules() if isinstance(m, nn.Linear)],
        attention=(
            kinds.count("full_attention"),
            text.num_attention_heads,
            text.num_key_value_heads,
            getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        ),
        recurrent=recurrent,
        seeing=(vision.depth, vision.num_heads, inner // vision.num_heads),
        width=text.hidden_size,
        widest=text.intermediate_size,
        merge=vision.spatial_merge_size**2,
        parameters=count(list(model.parameters())),
    )
