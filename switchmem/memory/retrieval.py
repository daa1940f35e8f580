"""Exact nearest-demonstration retrieval, the same id for every representation of the memory.

Two steps, for banks of any size in bounded memory. A float32 product of a block of queries and a block of keys is fast
and nearly right: for any order of summation, with or without fused operations, it is off by at most
``g |q| |k|`` with ``g = E u / (1 - E u)`` and ``u = 2^-24`` (Higham, Accuracy and Stability of Numerical Algorithms,
2nd edition, section 3.1; 1.2e-4 for E = 2048). Only demonstrations whose float32 cosine is so near the best that the
bound cannot rule them out are computed again, in float64. So nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from switchmem.memory.bank import Bank, Rows
from switchmem.steps import Step

TIE = 1e-9
"""Cosines this close to the best count as equal: far above float64 rounding, far below any real difference."""

LENGTH = 1e-3
"""Rows must be of length 1 up to this."""

BLOCK = (1024, 4096)
"""Queries and keys whose cosines are held at once; with E = 2048 a search needs about 0.2 GB beyond the bank."""

FRONT = 1024
"""Largest number of tied demonstrations remembered for a query; a query with more is looked at a second time."""

_PAIRS = 2048  # pairs whose float64 products are held at once
_SLACK = 1e-6  # covers the rounding of the float32 threshold itself

Allowed = Tensor | Sequence[Collection[str]]
"""Bool ``[M]`` for all queries, bool ``[B, M]`` for each, or for each query the ids that it may retrieve."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class RetrievalError(ValueError):
    """A query does not fit the bank; the message names the rule and what was found."""


class Hit(NamedTuple):
    """The retrieved demonstration and its cosine with the query, in [-1, 1]."""

    step_id: str
    cosine: float


@dataclass(frozen=True, slots=True)
class StepWithMemory:
    """A step and the demonstration that was retrieved for it.

    Args:
        step: the step to act on.
        memory: the demonstration, or None where none was allowed.
        cosine: of the two in [-1, 1]; NaN without a memory.
    """

    step: Step
    memory: Step | None
    cosine: float


def top1(
    queries: Rows,
    bank: Bank,
    query_trajectories: Sequence[str],
    query_categories: Sequence[str] | None = None,
    allowed: Allowed | None = None,
    block: tuple[int, int] = BLOCK,
) -> list[Hit | None]:
    """The allowed demonstration with the highest cosine for each query; of equal ones the smallest step id.

    Equal are cosines within `TIE` of the best. A demonstration of the query's own trajectory is never allowed. The
    result depends neither on the blocks nor on the order of the bank. Memory beyond the bank and the queries, either
    of which may lie in mapped files, is bounded by `block`; "the ids that it may retrieve" costs what the ids cost.

    Args:
        queries: ``[B, E]`` float32, rows of length 1.
        bank: ``M`` demonstrations.
        query_trajectories: the trajectory of each query.
        query_categories: when given, only demonstrations of the query's own category are allowed.
        allowed: bool ``[M]`` for all queries or ``[B, M]`` for each, True where a demonstration may be retrieved; or
            for each query the ids that it may retrieve, of which those that are not in the bank do not count.
        block: queries and keys whose cosines are held at once, each at least 1.

    Returns:
        ``B`` hits; None where no demonstration is allowed.

    Raises:
        RetrievalError: if shapes do not fit, or a row is not float32, not finite or not of length 1.
    """
    _check(queries, bank, query_trajectories, query_categories, allowed, block)
    if not len(bank):
        return [None] * len(query_trajectories)
    search = _Search(queries, bank, query_trajectories, query_categories, allowed, block)
    hits: list[Hit | None] = []
    for start in range(0, queries.shape[0], block[0]):
        hits += search.block(slice(start, min(start + block[0], queries.shape[0])))
    return hits


class _Search:
    """One call of `top1`; the arguments are its own."""

    def __init__(
        self,
        queries: Rows,
        bank: Bank,
        query_trajectories: Sequence[str],
        query_categories: Sequence[str] | None,
        allowed: Allowed | None,
        block: tuple[int, int],
    ) -> None:
        self.queries, self.bank, self.columns = queries, bank, block[1]
        m, e = bank.keys.shape
        order = np.array(sorted(range(m), key=bank.ids.__getitem__), dtype=np.int64)
        self.by_rank, self.rank = order, np.empty(m, dtype=np.int64)
        self.rank[order] = np.arange(m)  # a number for each id, in the ids' order
        self.masks = [_codes(query_trajectories, bank.trajectories)]
        if query_categories is not None:
            self.masks.append(_codes(query_categories, bank.categories))
        self.allowed = allowed.numpy() if isinstance(allowed, Tensor) else None
        self.sets = None if allowed is None or isinstance(allowed, Tensor) else allowed
        self.places = {i: n for n, i in enumerate(bank.ids)} if self.sets is not None else {}
        roundings = e * 2.0**-24
        self.error = roundings / (1 - roundings) * (1 + 2 * LENGTH) ** 2  # lengths are measured in float32 too
        self.keys_checked = False

    def block(self, part: slice) -> list[Hit | None]:
        """Hits of a block of queries."""
        vectors = _rows(self.queries[part], "queries", part.start)
        best = _Best(len(vectors))
        for found in self._candidates(vectors, part, best.values, range(len(vectors))):
            best.add(*found)
        self.keys_checked = True
        again = best.unresolved()
        if len(again):
            floors = best.values[again]
            for rows, values, ranks in self._candidates(vectors[again], part, floors, again):
                tied = values >= floors[rows] - TIE
                np.minimum.at(best.first, again[rows[tied]], ranks[tied])
        return [self._hit(vector, rank) for vector, rank in zip(vectors, best.ranks(), strict=True)]

    def _hit(self, vector: NDArray[np.float32], rank: int) -> Hit | None:
        if rank < 0:
            return None
        place = int(self.by_rank[rank])
        key = _rows(self.bank.keys[place : place + 1], "keys", place)[0]
        # A dot product of its own, so that the number does not depend on the block in which the pair was found.
        cosine = float(np.dot(vector.astype(np.float64), key.astype(np.float64)))
        return Hit(self.bank.ids[place], max(-1.0, min(1.0, cosine)))

    def _candidates(
        self, vectors: NDArray[np.float32], part: slice, best: Floats, rows: Sequence[int] | Ints
    ) -> Iterator[tuple[Ints, Floats, Ints]]:
        """Every pair that may be within `TIE` of the query's best, some more, and their float64 cosines.

        Args:
            vectors: ``[b, E]`` of the queries.
            part: of all queries that `rows` count from.
            best: ``[b]``, the best cosine known; read again for every block of keys.
            rows: the queries' places in `part`.

        Yields:
            Rows of `vectors`, cosines and id ranks, a block of keys at a time.
        """
        numbers = np.asarray(rows, dtype=np.int64) + part.start
        if self.sets is not None:
            yield from self._listed(vectors, numbers)
            return
        for start in range(0, len(self.bank), self.columns):
            columns = slice(start, min(start + self.columns, len(self.bank)))
            keys = _rows(self.bank.keys[columns], "keys", start, check=not self.keys_checked)
            cosines = vectors @ keys.T
            cosines[~self._may(numbers, columns)] = -np.inf
            floor = np.maximum(best - self.error, cosines.max(axis=1) - 2 * self.error) - TIE - _SLACK
            floor[np.isneginf(floor)] = np.inf  # nothing is allowed so far
            found, places = np.nonzero(cosines >= floor.astype(np.float32)[:, None])
            if len(found):
                exact = _exact(vectors, keys, found, places)
                yield found, exact, self.rank[places + start]

    def _may(self, numbers: Ints, columns: slice) -> NDArray[np.bool_]:
        """``[b, m]``: which demonstrations the queries may retrieve."""
        queries, bank = self.masks[0]
        may = queries[numbers, None] != bank[None, columns]
        for queries, bank in self.masks[1:]:
            may &= queries[numbers, None] == bank[None, columns]
        if self.allowed is not None:
            may &= self.allowed[columns] if self.allowed.ndim == 1 else self.allowed[numbers, columns]
        return may

    def _listed(self, vectors: NDArray[np.float32], numbers: Ints) -> Iterator[tuple[Ints, Floats, Ints]]:
        """As `_candidates`, where each query has a list of its own."""
        assert self.sets is not None
        for row, number in enumerate(numbers):
            places = np.array(sorted({self.places[i] for i in self.sets[number] if i in self.places}), dtype=np.int64)
            for (queries, bank), same in zip(self.masks, (False, True), strict=False):
                places = places[(bank[places] == queries[number]) == same]
            for start in range(0, len(places), self.columns):
                some = places[start : start + self.columns]
                keys = _rows(self.bank.keys[some], "keys", int(some[0]))
                rows = np.full(len(some), row)
                yield rows, _exact(vectors, keys, rows, np.arange(len(some))), self.rank[some]


class _Best:
    """The best of each of ``b`` queries so far.

    What may still win is, for each query, a front: of two demonstrations within `TIE` of the best, one with the smaller
    id and a cosine at least as high makes the other superfluous.
    """

    def __init__(self, b: int) -> None:
        self.values = np.full(b, -np.inf)
        self.first = np.full(b, np.iinfo(np.int64).max)  # smallest rank found by a second look
        self._fronts: list[tuple[Floats, Ints]] = [(np.empty(0), np.empty(0, dtype=np.int64))] * b
        self._dropped = np.full(b, -np.inf)  # highest cosine that a full front had no room for

    def add(self, rows: Ints, values: Floats, ranks: Ints) -> None:
        """Take in pairs: ascending rows, their cosines and id ranks."""
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            row, (held, held_ranks) = int(rows[start]), self._fronts[int(rows[start])]
            front = _front(np.append(held, values[start:stop]), np.append(held_ranks, ranks[start:stop]))
            self.values[row] = front[0][-1]
            if len(front[0]) > FRONT:
                self._dropped[row] = max(self._dropped[row], front[0][-FRONT - 1])
                front = front[0][-FRONT:], front[1][-FRONT:]
            self._fronts[row] = front

    def unresolved(self) -> Ints:
        """Queries for which a demonstration that was dropped ties with the best."""
        return np.flatnonzero((self._dropped >= self.values - TIE) & (self._dropped > -np.inf))

    def ranks(self) -> list[int]:
        """The winner's id rank for each query, -1 where there is none."""
        none = np.iinfo(np.int64).max
        held = [int(ranks[0]) if len(ranks) else none for _, ranks in self._fronts]
        winners = np.minimum(np.array(held, dtype=np.int64), self.first)
        return [-1 if winner == none else int(winner) for winner in winners]


def _front(values: Floats, ranks: Ints) -> tuple[Floats, Ints]:
    """Those within `TIE` of the best that no other makes superfluous, by ascending rank and cosine."""
    near = values >= values.max() - TIE
    order = np.argsort(ranks[near])
    values, ranks = values[near][order], ranks[near][order]
    higher = values > np.maximum.accumulate(np.append(-np.inf, values[:-1]))
    return values[higher], ranks[higher]


def _exact(vectors: NDArray[np.float32], keys: NDArray[np.float32], rows: Ints, places: Ints) -> Floats:
    """Float64 cosines ``[P]`` of pairs (row of `vectors`, row of `keys`)."""
    if len(rows) * 8 > len(vectors) * len(keys):  # so many that the whole product is faster
        return np.asarray((vectors.astype(np.float64) @ keys.astype(np.float64).T)[rows, places])
    values = np.empty(len(rows))
    for start in range(0, len(rows), _PAIRS):
        some = slice(start, start + _PAIRS)
        left, right = vectors[rows[some]].astype(np.float64), keys[places[some]].astype(np.float64)
        values[some] = np.einsum("pe,pe->p", left, right)
    return values


def _rows(rows: Tensor, name: str, start: int, check: bool = True) -> NDArray[np.float32]:
    """A block as an array, after a look at it; `start` is the number of its first row, for the message."""
    if rows.dtype != torch.float32:
        raise RetrievalError(f"`{name}` must be float32, got {rows.dtype}. Convert them with `.float()`.")
    array: NDArray[np.float32] = rows.detach().cpu().numpy()
    if check:
        lengths = np.sqrt(np.einsum("me,me->m", array, array))
        wrong = np.flatnonzero(~(np.abs(lengths - 1) <= LENGTH))
        if len(wrong):
            raise RetrievalError(
                f"`{name}` must be finite rows of length 1, got length {lengths[wrong[0]]:.4g} in row "
                f"{start + wrong[0]}. Check the embedder."
            )
    return array


def _codes(queries: Sequence[str], bank: Sequence[str]) -> tuple[Ints, Ints]:
    """The same integer for the same name."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys([*queries, *bank]))}
    return np.array([numbers[n] for n in queries], dtype=np.int64), np.array([numbers[n] for n in bank], dtype=np.int64)


def _check(
    queries: Rows,
    bank: Bank,
    query_trajectories: Sequence[str],
    query_categories: Sequence[str] | None,
    allowed: Allowed | None,
    block: tuple[int, int],
) -> None:
    shape = tuple(queries.shape)
    if len(shape) != 2 or (len(bank) and shape[1] != bank.keys.shape[1]):
        raise RetrievalError(
            f"`queries` must have shape [B, E] with the bank's E = {bank.keys.shape[1]}, got {shape}. "
            "Embed queries and bank with the same embedder."
        )
    if min(block) < 1:
        raise RetrievalError(f"`block` must be two numbers of at least 1, got {block}.")
    columns = {"query_trajectories": query_trajectories, "query_categories": query_categories}
    if allowed is not None and not isinstance(allowed, Tensor):
        columns["allowed"] = allowed  # type: ignore[assignment]
    for name, values in columns.items():
        if values is not None and len(values) != shape[0]:
            raise RetrievalError(f"`{name}` must have one entry per query, got {len(values)} for {shape[0]} queries.")
    if isinstance(allowed, Tensor):
        if allowed.dtype != torch.bool or tuple(allowed.shape) not in {(len(bank),), (shape[0], len(bank))}:
            raise RetrievalError(
                f"`allowed` must be bool of shape [M] or [B, M] with M = {len(bank)} and B = {shape[0]}, "
                f"got {allowed.dtype} of shape {tuple(allowed.shape)}."
            )
