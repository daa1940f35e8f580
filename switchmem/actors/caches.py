"""Copies and unions of a model's cache, attention and linear-attention layers alike."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache


def select_rows(cache: Cache, rows: Tensor) -> Cache:
    """A copy of a cache with the given rows; the original stays as it is.

    Args:
        cache: of any batch size, empty ones included.
        rows: ``[R]`` int64; rows may be left out, repeated and reordered.
    """
    chosen = copy.copy(cache)
    chosen.layers = []
    layers: list[Any] = list(cache.layers)
    for layer in layers:
        twin = copy.copy(layer)
        for name, value in vars(layer).items():
            if isinstance(value, dict):  # linear-attention layers keep their states in dicts
                setattr(twin, name, dict(value))
        twin.reorder_cache(rows)  # puts new tensors in the place of the shared ones
        chosen.layers.append(twin)
    return chosen


def left_pad(x: Tensor, width: int, dim: int) -> Tensor:
    """The tensor with zeros before it, so that ``dim`` has the given width.

    >>> left_pad(torch.ones(1, 2), 3, dim=1)
    tensor([[0., 1., 1.]])
    """
    missing = width - x.shape[dim]
    if missing == 0:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x.new_zeros(shape), x], dim)


def merge_caches(caches: Sequence[Cache]) -> Cache:
    """One cache with the rows of several, in order; shorter ones are padded on the left.

    The caller masks the padding. The caches are used up: the merged one is the first of them.

    Args:
        caches: filled by the same model; one or more.
    """
    first = caches[0]
    if len(caches) == 1:
        return first
    stacks: list[tuple[Any, ...]] = list(zip(*(cache.layers for cache in caches), strict=True))
    for twins in stacks:
        layer = twins[0]
        if hasattr(layer, "recurrent_states"):
            for name in ("conv_states", "recurrent_states"):
                states = getattr(layer, name)
                setattr(layer, name, {i: torch.cat([getattr(twin, name)[i] for twin in twins]) for i in states})
        if getattr(layer, "keys", None) is not None:
            width = max(twin.keys.shape[-2] for twin in twins)
            layer.keys = torch.cat([left_pad(twin.keys, width, -2) for twin in twins])
            layer.values = torch.cat([left_pad(twin.values, width, -2) for twin in twins])
    return first
