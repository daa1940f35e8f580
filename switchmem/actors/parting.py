"""One forward over a whole prompt that leaves the cache as it was after the prompt's first tokens.

Keys and values of later tokens can be cut off afterwards. The state of a linear-attention layer cannot: every token is
folded into it. Such a layer therefore runs in two parts, and its state between them is kept; everything else in the
model runs once over all tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

_STATES = ("conv_states", "recurrent_states")


@contextmanager
def parting(blocks: Iterable[nn.Module], cache: Cache, length: int) -> Iterator[None]:
    """While this is open, run one prompt; behind it, `cache` holds the prompt's first tokens alone.

    Args:
        blocks: the model's decoder blocks.
        cache: empty, of one row without padding.
        length: tokens that the cache keeps, more than 0 and fewer than the prompt's.
    """
    between: dict[int, dict[str, dict[int, Tensor]]] = {}
    handles, outputs = [], {}

    def first_part(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        hidden = kwargs["hidden_states"]
        outputs[module] = module.forward(*args, **{**kwargs, "hidden_states": hidden[:, :length]})
        layer = cache.layers[module.layer_idx]
        # Copies, as the layer overwrites its states in place.
        between[module.layer_idx] = {
            name: {n: state.clone() for n, state in getattr(layer, name).items()} for name in _STATES
        }
        return args, {**kwargs, "hidden_states": hidden[:, length:]}

    def both_parts(module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        return torch.cat([outputs.pop(module), output], 1)

    for block in blocks:
        mixer = getattr(block, "linear_attn", None)
        if mixer is not None:
            handles.append(mixer.register_forward_pre_hook(first_part, with_kwargs=True))
            handles.append(mixer.register_forward_hook(both_parts))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    layers: list[Any] = list(cache.layers)
    for n, layer in enumerate(layers):
        if n in between:
            vars(layer).update(between[n])
        else:
            layer.crop(length - layer.get_seq_length())
