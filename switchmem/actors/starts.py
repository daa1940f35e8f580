"""The words that all prompts of all steps begin with, computed once for a whole run.

A system message with its action schema is a third of a prompt's prefix, and the same at every step. Which tokens those
are is not assumed but found: those that the prompts of a batch share with each other and with what came before. A new
kind of prompt shortens them, so that after a few steps they are what really stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Cache

from switchmem.actors.batching import FORWARD, SHORT
from switchmem.actors.rows import TokenRow


@dataclass(frozen=True)
class Start:
    """The first tokens of prompts, computed.

    Args:
        ids: ``[W]`` int64; no picture is among them.
        cache: of one row of these tokens; whoever goes on from it takes a copy.
    """

    ids: Tensor
    cache: Cache

    def __len__(self) -> int:
        return len(self.ids)


class StartKeeper:
    """Keeps the start that the prompts so far have in common; one at a time, of at most `FORWARD` tokens.

    Args:
        compute: makes the cache of one row from its tokens.
    """

    def __init__(self, compute: Callable[[TokenRow], Cache]) -> None:
        self._compute = compute
        self._seen: Tensor | None = None
        self._start: Start | None = None
        self._device: torch.device | None = None

    def find(self, rows: Sequence[TokenRow], lengths: Sequence[int], device: torch.device) -> Start | None:
        """The start that all rows have, in common with those of earlier calls; None for a short one or none.

        It costs no token more than prompts without it: when it is computed, one row at least goes on from it.

        Args:
            rows: whole prompts, one or more.
            lengths: how many of their first tokens are computed as prefixes; the last of each is left over.
            device: where the model lies; after a move everything begins anew.
        """
        if device != self._device:
            self._seen = self._start = None
            self._device = device
        limit, own = _limit(rows, lengths), [row.ids for row in rows]
        length = 0 if self._seen is None else _common([self._seen, *own], limit)
        if length < SHORT:  # another kind of prompt, or the first one
            self._seen = self._start = None
            length = _common(own, limit) if len(own) > 1 else 0
        if length < SHORT:
            self._seen = own[0][:limit].clone()  # the next ones are compared with it
            return None
        if self._start is None or length < len(self._start):
            self._start = None  # its memory first
            self._start = Start(own[0][:length].clone(), self._compute(rows[0].cut(0, length)))
            self._seen = self._start.ids
        return self._start


def common_start(rows: Sequence[TokenRow], lengths: Sequence[int]) -> int:
    """How many tokens the start of these rows has, if no others come before or behind; 0 for none. See `find`."""
    length = _common([row.ids for row in rows], _limit(rows, lengths)) if len(rows) > 1 else 0
    return length if length >= SHORT else 0


def _limit(rows: Sequence[TokenRow], lengths: Sequence[int]) -> int:
    """The most tokens of a start: no picture, and one token of every prefix at least is left over."""
    return max(0, min(FORWARD, *(length - 1 for length in lengths), *(row.starts[0] for row in rows if row.starts)))


def _common(ids: Sequence[Tensor], limit: int) -> int:
    """How many leading tokens all have in common, at most ``limit``."""
    first = ids[0]
    limit = min(limit, *map(len, ids))
    for other in ids[1:]:
        differing = (first[:limit] != other[:limit]).nonzero()
        limit = int(differing[0]) if len(differing) else limit
    return limit
