"""What lies around a step and around its demonstration, for the baselines of memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from PIL import Image
from torch import Tensor

from data_modules.pairs import AllowedOf
from data_modules.parts import Part
from switchmem.memory.bank import Bank
from switchmem.memory.embedder import Embedder
from switchmem.steps import RecordError, Step

_log = logging.getLogger(__name__)
T = TypeVar("T")

KEPT = 256
"""Steps that are kept decoded: those of a trajectory are asked for again and again."""


class PartSurroundings:
    """Surroundings of a part's queries; `switchmem.memory.baseline.Surroundings`.

    Nothing is seen that retrieval could not give: the same bank, categories and rules.

    Args:
        queries: the part.
        bank: its demonstrations as retrieval sees them.
        steps: their records.
        embedder: of retrieval.
        same_category: whether a query retrieves inside its own category.
        allowed: which demonstrations may be retrieved, beyond the rules above.
        own_trajectory: whether a query may retrieve other steps of its own trajectory.
    """

    def __init__(
        self,
        queries: Part,
        bank: Bank,
        steps: Part,
        embedder: Embedder,
        same_category: bool = False,
        allowed: AllowedOf | None = None,
        own_trajectory: bool = False,
    ) -> None:
        self._queries, self._steps, self._embedder = queries, steps, embedder
        self._ids = bank.ids
        self._metas = {i: (t, c) for i, t, c in zip(bank.ids, bank.trajectories, bank.categories, strict=True)}
        self._same_category, self._allowed, self._own = same_category, allowed, own_trajectory
        self._of_query, self._of_bank = _by_trajectory(queries, queries.step_ids), _by_trajectory(steps, bank.ids)
        self._made: dict[str, Any] = {}
        self._told: set[str] = set()
        self._read = lru_cache(maxsize=KEPT)(self._read_anew)

    def before(self, step: Step) -> tuple[Step, ...]:
        """See `Surroundings.before`; a damaged record is left out, and a warning says so."""
        earlier = [i for index, i in self._of_query.get(step.trajectory, ()) if index < step.index]
        return self._whole(self._queries, earlier)

    def trace(self, demo: Step) -> tuple[Step, ...]:
        """See `Surroundings.trace`; a damaged record is left out, and a warning says so."""
        return self._whole(self._steps, [i for _, i in self._of_bank.get(demo.trajectory, ())])

    def bank(self) -> Iterator[Step]:
        """See `Surroundings.bank`; a damaged record is left out, and a warning says so."""
        for step_id in self._ids:
            try:
                yield self._steps[step_id]
            except RecordError as error:
                self._warn(step_id, error)

    def demonstration(self, step_id: str) -> Step:
        """See `Surroundings.demonstration`.

        Raises:
            RecordError: if its record is damaged.
        """
        return self._steps[step_id]

    def usable(self, step: Step, ids: Sequence[str]) -> set[str]:
        """See `Surroundings.usable`; ids that are not in the bank are never usable."""
        found = [i for i in ids if i in self._metas and self._fits(step, i)]
        if not found or self._allowed is None:
            return set(found)
        allowed = self._allowed([step.step_id], found)
        if allowed is None:
            return set(found)
        if isinstance(allowed, Tensor):
            mask = np.asarray(allowed).reshape(-1)
            return {i for i, may in zip(found, mask, strict=True) if may}
        return set(found) & set(allowed[0])

    def _fits(self, step: Step, step_id: str) -> bool:
        trajectory, category = self._metas[step_id]
        apart = step_id != step.step_id if self._own else trajectory != step.trajectory
        return apart and (not self._same_category or category == step.category)

    def embed(self, texts: Sequence[str]) -> Tensor:
        """See `Surroundings.embed`."""
        return self._embedder.texts(list(texts))

    def embed_pictures(self, pictures: Sequence[Image.Image]) -> Tensor:
        """See `Surroundings.embed_pictures`."""
        return self._embedder.multimodal([("", picture) for picture in pictures])

    def once(self, name: str, make: Callable[[], T]) -> T:
        """See `Surroundings.once`."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found

    def _whole(self, part: Part, ids: Sequence[str]) -> tuple[Step, ...]:
        read = [self._read(part, step_id) for step_id in ids]
        return tuple(step for step in read if step is not None)

    def _read_anew(self, part: Part, step_id: str) -> Step | None:
        try:
            return part[step_id]
        except RecordError as error:
            self._warn(step_id, error)
            return None

    def _warn(self, step_id: str, error: RecordError) -> None:
        if step_id not in self._told:
            self._told.add(step_id)
            _log.warning("%s is left out of what the baselines see around a step: %s", step_id, error)


def _by_trajectory(part: Part, ids: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """Index and id of the steps of each trajectory, in order."""
    found: dict[str, list[tuple[int, str]]] = {}
    for step_id in ids:
        meta = part.meta(step_id)
        found.setdefault(meta.trajectory, []).append((meta.index, step_id))
    return {trajectory: sorted(steps) for trajectory, steps in found.items()}
