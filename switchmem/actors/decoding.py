"""Sampling K answers to each of many prompts, sharing every row of the batch that can be shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from switchmem.actors.caches import left_pad, merge_caches, select_rows
from switchmem.actors.sampling import choose


@dataclass
class Extension:
    """Prompts that ran up to their last input token.

    Args:
        rows: R indices: which of the prompts given to `PrefixEngine.extend`.
        states: ``[R, L, D]`` float32 outputs of the probed blocks at the last input token.
        logits: ``[R, V]`` of the next token.
        cache: of the whole prompts.
        mask: ``[R, W]`` which cached tokens are no padding.
        positions: ``[R]`` rotary position of the last token.
    """

    rows: list[int]
    states: Tensor
    logits: Tensor
    cache: Cache
    mask: Tensor
    positions: Tensor


def decode(
    model: Any,
    extensions: Sequence[Extension],
    end_tokens: Tensor,
    keys: Tensor,
    temperature: float,
    max_new_tokens: int,
) -> list[list[list[int]]]:
    """Sample K answers to each prompt.

    Samples that have drawn the same tokens so far share one row of the batch and part where they part: an actor
    that is sure of itself gives K answers at nearly the cost of one. A row ends with its end token. The caches
    of the extensions are used up.

    Args:
        model: the actor's.
        extensions: R prompts in all.
        end_tokens: int64, those that end an answer.
        keys: ``[R, K]`` int64 noise keys, rows in the order of the extensions.
        temperature: >= 0.
        max_new_tokens: the most tokens of one answer.

    Returns:
        R lists of K answers as tokens, each with its end token where one was drawn.
    """
    branches = _Branches(model, extensions)
    rows, samples = keys.shape
    device = branches.logits.device
    keys, ends = keys.flatten().to(device), end_tokens.to(device)
    alive = torch.arange(rows * samples, device=device)
    branch = alive // samples
    answers: list[list[int]] = [[] for _ in range(rows * samples)]
    for position in range(max_new_tokens):
        tokens = choose(branches.logits[branch], temperature, keys[alive], position)
        for sample, token in zip(alive.tolist(), tokens.tolist(), strict=True):
            answers[sample].append(token)
        going = ~torch.isin(tokens, ends)
        alive, branch, tokens = alive[going], branch[going], tokens[going]
        if len(alive) == 0 or position + 1 == max_new_tokens:
            break
        branch = branches.grow(branch, tokens)
    return [answers[r * samples : (r + 1) * samples] for r in range(rows)]


class _Branches:
    """The different answers so far: one row of the batch for each."""

    def __init__(self, model: Any, extensions: Sequence[Extension]) -> None:
        width = max(e.mask.shape[1] for e in extensions)
        self._model = model
        self._cache = merge_caches([e.cache for e in extensions])
        self._mask = torch.cat([left_pad(e.mask, width, 1) for e in extensions])
        self._positions = torch.cat([e.positions for e in extensions])
        self.logits = torch.cat([e.logits for e in extensions])

    def grow(self, branch: Tensor, tokens: Tensor) -> Tensor:
        """Feed every different (branch, token) once.

        Args:
            branch: ``[S]`` int64, the row of each living sample.
            tokens: ``[S]`` int64, what it has drawn.

        Returns:
            ``[S]`` int64, the new row of each sample.
        """
        vocab = self.logits.shape[-1]
        pairs, rows = torch.unique(branch * vocab + tokens, return_inverse=True)
        parents, new = pairs // vocab, pairs % vocab
        if len(parents) != len(self._positions) or bool((parents[1:] == parents[:-1]).any()):
            self._cache = select_rows(self._cache, parents)
            self._mask, self._positions = self._mask[parents], self._positions[parents]
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(parents), 1)], 1)
        self._positions = self._positions + 1
        output = self._model(
            input_ids=new[:, None],
            attention_mask=self._mask,
            position_ids=self._positions[None, :, None].expand(3, -1, 1),
            cache=self._cache,
            use_cache=True,
        )
        self.logits = output.logits[:, -1]
        return rows
