"""A model's cache as a tree: tokens that several rows share are kept once, whatever the number of rows.

The prompts of a step share its prefix, the K answers to a prompt share the prompt. `select_rows` makes a cache whose
rows look at rows of another one: keys and values of attention layers are shared, never copied, while the states of
linear-attention layers, which are overwritten by every token, are copied. New tokens belong to one row each.

While answers are decoded, `SharedLayer` hands itself to the attention function `attend_shared` in the place of keys and
values. It multiplies the queries of all rows that share a level with that level's keys in one matrix product, and joins
the levels by the sums of their exponentials, so that K answers read their prompt once and not K times.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, Cache
from transformers.cache_utils import CacheLayerMixin

_NAME = "switchmem_shared"


class Owners:
    """Which row of a level each row of the cache looks at, and how queries are packed for it.

    Args:
        rows: ``[N]`` int64 on the CPU, values in [0, R).
        count: R.
        mask: ``[R, W]`` bool, which tokens of the level are no padding; None where there is no padding.
        device: where the cache lies.
    """

    def __init__(self, rows: Tensor, count: int, mask: Tensor | None, device: torch.device) -> None:
        self.rows, self.count, self.mask, self.device = rows, count, mask, device
        self.is_identity = len(rows) == count and bool((rows == torch.arange(count)).all())
        looking = torch.bincount(rows, minlength=count)
        self.most = int(looking.max())
        order = rows.argsort(stable=True)
        nth = torch.empty_like(rows)
        nth[order] = torch.arange(len(rows)) - (looking.cumsum(0) - looking)[rows[order]]
        slots = rows * self.most + nth
        pack = torch.zeros(count * self.most, dtype=torch.long)
        pack[slots] = torch.arange(len(rows))
        self._index, self._slots, self._pack = rows.to(device), slots.to(device), pack.to(device)

    def select(self, rows: Tensor) -> Owners:
        """For a cache whose rows are the given ones of this; int64 on the CPU."""
        return Owners(self.rows[rows], self.count, self.mask, self.device)

    def spread(self, level: Tensor) -> Tensor:
        """``[R, ...]`` of the level as ``[N, ...]`` of the cache."""
        return level if self.is_identity else level[self._index]

    def pack(self, query: Tensor) -> Tensor:
        """Queries ``[N, H, G, d]`` as ``[R, H, most * G, d]``; places that no row fills repeat the first row."""
        if self.is_identity:
            return query
        heads, group, width = query.shape[1:]
        packed = query[self._pack].view(self.count, self.most, heads, group, width)
        return packed.transpose(1, 2).reshape(self.count, heads, self.most * group, width)

    def unpack(self, result: Tensor, group: int) -> Tensor:
        """Back from ``[R, H, most * G, x]`` to ``[N, H, G, x]``."""
        if self.is_identity:
            return result
        heads, width = result.shape[1], result.shape[-1]
        wide = result.view(self.count, heads, self.most, group, width).transpose(1, 2)
        return wide.reshape(self.count * self.most, heads, group, width)[self._slots]


class SharedLayer(CacheLayerMixin):
    """The cache of one attention layer: levels that rows share, and tokens of each row's own.

    Args:
        levels: ``(keys, values)``, ``[R, H, W, d]`` each, from the first token on.
        owners: of each level; one list for all layers of a cache.
    """

    is_sliding = False

    def __init__(self, levels: Sequence[tuple[Tensor, Tensor]], owners: list[Owners]) -> None:
        super().__init__()
        self.levels, self.owners = list(levels), owners
        self.is_initialized = True
        self.hands_itself = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the layer begins with what it shares."""

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Any, Any]:
        """Append ``[N, H, T, d]`` to the rows' own tokens.

        Returns:
            All keys and values, ``[N, H, W, d]``; while decoding, the layer itself twice, for `attend_shared`.
        """
        own = [] if self.keys is None or self.values is None else [(self.keys, self.values)]
        if self.hands_itself:
            self.keys, self.values = _join([*own, (key_states, value_states)])
            return self, self
        shared = [(o.spread(k), o.spread(v)) for o, (k, v) in zip(self.owners, self.levels, strict=True)]
        keys, values = _join([*shared, *own, (key_states, value_states)])
        start = sum(k.shape[-2] for k, _ in self.levels)
        self.keys, self.values = _join([*own, (key_states, value_states)]) if start else (keys, values)
        return keys, values

    def get_seq_length(self) -> int:
        """Tokens of every row, padding included."""
        own = 0 if self.keys is None else self.keys.shape[-2]
        return sum(level[0].shape[-2] for level in self.levels) + own

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Width of the mask for that many new tokens, and the first token that it covers."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """There is no limit."""
        return -1

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        """Attention of one new token per row.

        Args:
            query: ``[N, H * G, 1, d]``: G query heads for every head of keys.
            scaling: factor on the products.

        Returns:
            ``[N, 1, H * G, d]``.
        """
        rows, heads, _, width = query.shape
        assert self.keys is not None and self.values is not None
        group = heads // self.keys.shape[1]
        grouped = query.view(rows, -1, group, width) * scaling
        parts = [_partial(grouped, self.keys, self.values, None)]
        for owners, (keys, values) in zip(self.owners, self.levels, strict=True):
            part = _partial(owners.pack(grouped), keys, values, owners.mask)
            parts.append(tuple(owners.unpack(x, group) for x in part))  # type: ignore[arg-type]
        top = torch.stack([part[0] for part in parts]).amax(0)
        total, output = torch.zeros_like(top), torch.zeros_like(parts[0][2])
        for highest, mass, weighted in parts:
            factor = (highest - top).exp_()
            total.addcmul_(factor, mass)
            output.addcmul_(factor, weighted)
        return (output / total).to(query.dtype).view(rows, 1, heads, width)


def _join(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Keys and values, one after the other; a single part as it is."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat([keys for keys, _ in parts], -2), torch.cat([values for _, values in parts], -2)


def _partial(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Attention to a part of the tokens: highest score, sum of exponentials, and their weighted sum of values.

    Args:
        query: ``[R, H, Q, d]``, scaled.
        keys: ``[R, H, W, d]``.
        values: ``[R, H, W, d]``.
        mask: ``[R, W]`` or None.

    Returns:
        ``[R, H, Q, 1]``, ``[R, H, Q, 1]`` and ``[R, H, Q, d]``, float32.
    """
    scores = (query @ keys.transpose(-1, -2)).float()
    if mask is not None:
        # The lowest number and not -inf: a row of padding alone then weighs nothing, instead of giving NaN.
        scores.masked_fill_(~mask[:, None, None], torch.finfo(torch.float32).min)
    highest = scores.amax(-1, keepdim=True)
    scores.sub_(highest).exp_()
    return highest, scores.sum(-1, keepdim=True), (scores.to(values.dtype) @ values).float()


def attend_shared(
    module: Any, query: Tensor, key: Any, value: Any, attention_mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Attention function of transformers for caches of `SharedLayer`, which come in the place of keys and values."""
    output: Tensor = key.attend(query, scaling)
    return output, None


AttentionInterface.register(_NAME, attend_shared)


@contextmanager
def sharing(text_config: Any, cache: Cache) -> Iterator[None]:
    """Decode token by token with `attend_shared` in all attention layers.

    Args:
        text_config: the configuration that the model's text blocks read their attention function from.
        cache: of `select_rows` or `merge_caches`.
    """
    layers = [layer for layer in cache.layers if isinstance(layer, SharedLayer)]
    before = text_config._attn_implementation
    text_config._attn_implementation = _NAME
    for layer in layers:
        layer.hands_itself = True
    try:
        yield
    finally:
        text_config._attn_implementation = before
        for layer in layers:
            layer.hands_itself = False


def select_rows(cache: Cache, rows: Tensor) -> Cache:
    """A cache with the given rows of another; the other stays as it is and must not grow any more.

    Args:
        cache: of any batch size, empty ones included.
        rows: ``[R]`` int64; rows may be left out, repeated and reordered.
    """
    chosen = copy.copy(cache)
    chosen.layers = []
    owners: list[Owners] = []
    rows = rows.cpu()
    for layer in cache.layers:
        if hasattr(layer, "recurrent_states"):
            chosen.layers.append(_copy_states(layer, rows))
            continue
        old = layer.owners if isinstance(layer, SharedLayer) else []
        levels = list(layer.levels) if isinstance(layer, SharedLayer) else []
        keys, values = layer.keys, layer.values
        if keys is not None and values is not None and keys.numel() > 0:
            levels.append((keys, values))
        if not owners and levels:
            owners += [level.select(rows) for level in old]
            owners += [Owners(rows, len(k), None, k.device) for k, _ in levels[len(old) :]]
        chosen.layers.append(SharedLayer(levels, owners))
    return chosen


def _copy_states(layer: Any, rows: Tensor) -> Any:
    """A linear-attention layer with the given rows."""
    twin = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):
            setattr(twin, name, dict(value))
    twin.reorder_cache(rows)  # puts new tensors in the place of the shared ones
    return twin


def reorder_rows(cache: Cache, rows: Tensor) -> None:
    """Keep the given rows of a cache of `merge_caches`, in place; int64 on the CPU, repetition allowed."""
    owners: list[Owners] | None = None
    layers: list[Any] = list(cache.layers)
    for layer in layers:
        if not isinstance(layer, SharedLayer):
            layer.reorder_cache(rows)
            continue
        if owners is None:
            owners = layer.owners
            owners[:] = [level.select(rows) for level in owners]
        if layer.keys is not None and layer.values is not None:
            index = rows.to(layer.keys.device)
            layer.keys, layer.values = layer.keys[index], layer.values[index]


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


def stack_caches(caches: Sequence[Cache], masks: Sequence[Tensor]) -> tuple[Cache, Tensor]:
    """One cache with the rows of several, in order; shorter ones are padded on the left.

    Args:
        caches: of `transformers.DynamicCache`, filled by whole prefixes; one or more. They are used up.
        masks: of each cache ``[R, W]``, nonzero where a token is no padding.

    Returns:
        The cache, and its mask.
    """
    if len(caches) == 1:
        return caches[0], masks[0]
    width = max(mask.shape[1] for mask in masks)
    stacks: list[tuple[Any, ...]] = list(zip(*(cache.layers for cache in caches), strict=True))
    for twins in stacks:
        if hasattr(twins[0], "recurrent_states"):
            _merge_states(twins)
        elif width > 0:
            twins[0].keys, twins[0].values = _pad_and_join(twins)
    return caches[0], torch.cat([left_pad(mask, width, 1) for mask in masks])


def _pad_and_join(twins: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Keys and values of the same layer of several caches; theirs are let go."""
    width = max(twin.keys.shape[-2] for twin in twins)
    joined = []
    for name in ("keys", "values"):
        joined.append(torch.cat([left_pad(getattr(twin, name), width, -2) for twin in twins]))
        for twin in twins:
            setattr(twin, name, None)  # lest both copies of all layers lie in memory at once
    return joined[0], joined[1]


def merge_caches(caches: Sequence[Cache], masks: Sequence[Tensor]) -> Cache:
    """One cache with the rows of several, in order; what they share stays shared, and their own tokens become a level.

    Args:
        caches: of `select_rows` from one cache, each grown by some tokens; one or more. They are used up.
        masks: of each cache ``[R, W]``, nonzero where a token is no padding.
    """
    merged = copy.copy(caches[0])
    merged.layers = []
    owners: list[Owners] = []
    stacks: list[tuple[Any, ...]] = list(zip(*(cache.layers for cache in caches), strict=True))
    for twins in stacks:
        if not isinstance(twins[0], SharedLayer):
            merged.layers.append(_merge_states(twins))
            continue
        if not owners:
            owners += _merge_owners(twins, masks)
        merged.layers.append(SharedLayer([*twins[0].levels, _pad_and_join(twins)], owners))
    return merged


def _merge_states(twins: Sequence[Any]) -> Any:
    first = twins[0]
    for name in ("conv_states", "recurrent_states"):
        states = getattr(first, name)
        setattr(first, name, {i: torch.cat([getattr(twin, name)[i] for twin in twins]) for i in states})
    return first


def _merge_owners(twins: Sequence[SharedLayer], masks: Sequence[Tensor]) -> list[Owners]:
    """Of the levels that all caches share, and of one more for their own tokens."""
    merged, start = [], 0
    for number, (keys, _) in enumerate(twins[0].levels):
        rows = torch.cat([twin.owners[number].rows for twin in twins])
        end = start + keys.shape[-2]
        mask = torch.ones(len(keys), end - start, dtype=torch.bool, device=keys.device)
        mask[rows.to(keys.device)] = torch.cat([m[:, start:end] for m in masks]).bool()
        merged.append(Owners(rows, len(keys), None if bool(mask.all()) else mask, keys.device))
        start = end
    width = max(m.shape[1] for m in masks) - start
    own = torch.cat([left_pad(m[:, start:], width, 1) for m in masks]).bool()
    rows = torch.arange(len(own))
    return [*merged, Owners(rows, len(own), None if bool(own.all()) else own, own.device)]
