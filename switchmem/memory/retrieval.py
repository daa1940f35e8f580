"""Exact nearest-demonstration retrieval, the same id for every representation of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from switchmem.memory.bank import Bank
from switchmem.steps import Step

TIE = 1e-9
"""Cosines this close to the best count as equal: far above float64 rounding, far below any real difference."""


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
    queries: Tensor,
    bank: Bank,
    query_trajectories: Sequence[str],
    query_categories: Sequence[str] | None = None,
    allowed: Tensor | None = None,
    block_elements: int = 1 << 22,
) -> list[Hit | None]:
    """The allowed demonstration with the highest cosine for each query; of equal ones the smallest step id.

    A demonstration of the query's own trajectory is never allowed. Nothing is approximated: all cosines are computed,
    in float64, so that the result depends neither on the batch nor on the order of the bank.

    Args:
        queries: ``[B, E]``, rows of length 1.
        bank: ``M`` demonstrations.
        query_trajectories: the trajectory of each query.
        query_categories: when given, only demonstrations of the query's own category are allowed.
        allowed: bool ``[M]`` for all queries or ``[B, M]`` for each, True where a demonstration may be retrieved.
        block_elements: largest number of cosines held at once (8 bytes each), at least 1.

    Returns:
        ``B`` hits; None where no demonstration is allowed.

    Raises:
        RetrievalError: if shapes do not fit or a query is not finite.
    """
    _check(queries, bank, query_trajectories, query_categories, allowed)
    if not len(bank):
        return [None] * len(queries)
    order = np.argsort(np.array(bank.ids, dtype=object), kind="stable")
    trajectories, bank_trajectories = _codes(query_trajectories, bank.trajectories)
    categories, bank_categories = _codes(query_categories or [], bank.categories)
    order_tensor = torch.from_numpy(order)
    hits: list[Hit | None] = []
    rows = max(1, block_elements // len(bank))
    for start in range(0, len(queries), rows):
        part = slice(start, start + rows)
        cosines = _cosines(queries[part], bank.keys, block_elements)
        cosines[trajectories[part, None] == bank_trajectories[None]] = -torch.inf
        if query_categories is not None:
            cosines[categories[part, None] != bank_categories[None]] = -torch.inf
        if allowed is not None:
            cosines[~(allowed[part] if allowed.ndim == 2 else allowed.expand_as(cosines))] = -torch.inf
        hits += _first_best(cosines[:, order_tensor], [bank.ids[i] for i in order])
    return hits


def _first_best(cosines: Tensor, ids: Sequence[str]) -> list[Hit | None]:
    """Columns are in the order of their ids, so the first that reaches the best is the one to take."""
    best = cosines.max(dim=1, keepdim=True).values
    first = (cosines >= best - TIE).int().argmax(dim=1)
    values = cosines.gather(1, first[:, None])[:, 0]
    return [
        Hit(ids[i], max(-1.0, min(1.0, value))) if value > -torch.inf else None
        for i, value in zip(first.tolist(), values.tolist(), strict=True)
    ]


def _cosines(queries: Tensor, keys: Tensor, block_elements: int) -> Tensor:
    """``[b, M]`` float64; the keys are widened in blocks, since a float64 copy of all would double the bank."""
    queries = queries.double()
    cosines = torch.empty(len(queries), len(keys), dtype=torch.float64)
    rows = max(1, block_elements // keys.shape[1])
    for start in range(0, len(keys), rows):
        cosines[:, start : start + rows] = queries @ keys[start : start + rows].double().T
    return cosines


def _codes(queries: Sequence[str], bank: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The same integer for the same name."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys([*queries, *bank]))}
    return torch.tensor([numbers[n] for n in queries]), torch.tensor([numbers[n] for n in bank])


def _check(
    queries: Tensor,
    bank: Bank,
    query_trajectories: Sequence[str],
    query_categories: Sequence[str] | None,
    allowed: Tensor | None,
) -> None:
    if queries.ndim != 2 or (len(bank) and queries.shape[1] != bank.keys.shape[1]):
        raise RetrievalError(
            f"`queries` must have shape [B, E] with the bank's E = {bank.keys.shape[1]}, got {tuple(queries.shape)}. "
            "Embed queries and bank with the same embedder."
        )
    if not torch.isfinite(queries).all():
        bad = int((~torch.isfinite(queries).all(dim=1)).nonzero()[0])
        raise RetrievalError(f"`queries` must be finite, got NaN or infinity in row {bad}. Check the embedder.")
    for name, values in (("query_trajectories", query_trajectories), ("query_categories", query_categories)):
        if values is not None and len(values) != len(queries):
            raise RetrievalError(
                f"`{name}` must have one entry per query, got {len(values)} for {len(queries)} queries."
            )
    if allowed is not None and (
        allowed.dtype != torch.bool or tuple(allowed.shape) not in {(len(bank),), (len(queries), len(bank))}
    ):
        raise RetrievalError(
            f"`allowed` must be bool of shape [M] or [B, M] with M = {len(bank)} and B = {len(queries)}, "
            f"got {allowed.dtype} of shape {tuple(allowed.shape)}."
        )
