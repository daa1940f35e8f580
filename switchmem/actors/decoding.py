"""Sampling K answers to each of many prompts, sharing every row of the batch that can be shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from switchmem.actors.caches import merge_caches, reorder_rows, sharing
from switchmem.actors.delta_rule import own_rules
from switchmem.actors.endings import Ending
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
    ending: Ending,
    keys: Tensor,
    temperature: float,
    max_new_tokens: int,
) -> list[list[list[int]]]:
    """Sample K answers to each prompt.

    Samples that have drawn the same tokens so far share one row of the batch and part where they part: an actor
    that is sure of itself gives K answers at nearly the cost of one. The caches of the extensions are used up.

    Args:
        model: the actor's.
        extensions: R prompts in all.
        ending: what ends an answer.
        keys: ``[R, K]`` int64 noise keys, rows in the order of the extensions.
        temperature: >= 0.
        max_new_tokens: the most tokens of one answer.

    Returns:
        R lists of K answers as tokens, each with its end token where one was drawn.
    """
    rows, samples = keys.shape
    branches = _Branches(model, extensions)
    keys = keys.flatten()
    alive = list(range(rows * samples))
    branch = [sample // samples for sample in alive]
    answers: list[list[int]] = [[] for _ in alive]
    with branches.growing():
        for position in range(max_new_tokens):
            logits = branches.logits
            index = torch.tensor(branch, device=logits.device)
            drawn = choose(logits, temperature, keys[alive].to(logits.device), position, index).tolist()
            for sample, token in zip(alive, drawn, strict=True):
                answers[sample].append(token)
            going = [n for n, sample in enumerate(alive) if not _is_ended(answers[sample], ending)]
            if not going or position + 1 == max_new_tokens:
                break
            alive = [alive[n] for n in going]
            branch = branches.grow([(branch[n], drawn[n]) for n in going])
    return [answers[r * samples : (r + 1) * samples] for r in range(rows)]


def _is_ended(answer: Sequence[int], ending: Ending) -> bool:
    return answer[-1] in ending.tokens and ending.is_reached(answer)


class _Branches:
    """The different answers so far: one row of the batch for each."""

    def __init__(self, model: Any, extensions: Sequence[Extension]) -> None:
        self._model = model
        self._cache = merge_caches([e.cache for e in extensions], [e.mask for e in extensions])
        self._positions = torch.cat([e.positions for e in extensions])
        self.logits = torch.cat([e.logits for e in extensions])

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Around all calls of `grow`."""
        blocks = self._model.model.language_model.layers
        with sharing(self._model.config.get_text_config(), self._cache), own_rules(blocks):
            yield

    def grow(self, drawn: Sequence[tuple[int, int]]) -> list[int]:
        """Feed every different (branch, token) once.

        Args:
            drawn: of each living sample its row so far, and what it has drawn.

        Returns:
            The new row of each sample.
        """
        rows = {pair: row for row, pair in enumerate(sorted(set(drawn)))}
        parents = [branch for branch, _ in rows]
        device = self._positions.device
        if parents != list(range(len(self._positions))):
            index = torch.tensor(parents)
            reorder_rows(self._cache, index)
            self._positions = self._positions[index.to(device)]
        self._positions = self._positions + 1
        output = self._model(
            input_ids=torch.tensor([[token] for _, token in rows], device=device),
            position_ids=self._positions[None, :, None].expand(3, -1, 1),
            cache=self._cache,
            use_cache=True,
        )
        self.logits = output.logits[:, -1]
        return [rows[pair] for pair in drawn]
