"""Which demonstration each query gets, and the stream of steps with their memories."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from torch.utils.data import IterableDataset, get_worker_info

from data_modules.parts import REPORT, Part
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.store import shard
from switchmem.memory.bank import Bank
from switchmem.memory.embeddings import Embeddings
from switchmem.memory.retrieval import Allowed, Hit, StepWithMemory, top1
from switchmem.stages import Stage, write_json
from switchmem.steps import RecordError

PAIRS = "pairs.json"
NO_MEMORY = "no demonstration may be retrieved for it"

AllowedOf = Callable[[Sequence[str], Sequence[str]], Allowed | None]
"""(query ids, bank ids) -> what each query may retrieve, as `top1` takes it; None where that is everything."""


@dataclass(frozen=True)
class Pairs:
    """Queries with a memory, in the part's order, and those without one.

    Args:
        hits: the retrieved demonstration by query id.
        skipped: reasons by id of the queries that cannot be used.
    """

    hits: dict[str, Hit] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def part_bank(part: Part, embeddings: Embeddings, fraction: float = 1.0) -> Bank:
    """The steps of a part that have a vector, as a bank; the keys stay in the embeddings' files.

    Args:
        part: the steps.
        embeddings: of them.
        fraction: share of the trajectories that are taken, in (0, 1], at least one; a smaller bank is part of a larger
            one.
    """
    ids = tuple(step_id for step_id in part.step_ids if step_id in embeddings)
    if fraction < 1.0:
        drawn = sorted({part.meta(step_id).trajectory for step_id in ids}, key=_lot)
        taken = set(drawn[: math.ceil(fraction * len(drawn))])
        ids = tuple(step_id for step_id in ids if part.meta(step_id).trajectory in taken)
    metas = [part.meta(step_id) for step_id in ids]
    # Steps of a trajectory share the name's string: a million copies would count.
    shared: dict[str, str] = {}
    trajectories = tuple(shared.setdefault(meta.trajectory, meta.trajectory) for meta in metas)
    categories = tuple(shared.setdefault(meta.category, meta.category) for meta in metas)
    return Bank(ids, trajectories, categories, embeddings.rows(ids))


def _lot(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def make_pairs(
    queries: Part,
    bank: Part,
    embeddings: Embeddings,
    stage: Stage,
    same_category: bool,
    allowed: AllowedOf,
    own_trajectory: bool = False,
    bank_fraction: float = 1.0,
) -> Pairs:
    """Retrieve for the queries of a part, and keep the result in a stage.

    Args:
        queries: steps that need a memory.
        bank: demonstrations.
        embeddings: of both.
        stage: gets the pairs, and a report of damaged records.
        same_category: whether a query retrieves inside its own category.
        allowed: which demonstrations may be retrieved, beyond the rules above.
        own_trajectory: whether a query may retrieve other steps of its own trajectory, which leaks.
        bank_fraction: share of the bank's trajectories that may be retrieved, in (0, 1].

    Raises:
        DataError: if no query gets a memory.
    """
    stage.begin()
    report, pairs = DataReport(read=len(queries)), Pairs()
    damaged, cut = embeddings.damaged, embeddings.cut
    for step_id in bank.step_ids:
        if step_id in damaged:
            report.add(step_id, damaged[step_id])
    pairs.skipped.update({step_id: damaged[step_id] for step_id in queries.step_ids if step_id in damaged})
    keys, asked = part_bank(bank, embeddings, bank_fraction), part_bank(queries, embeddings)
    # Retrieval leaves out the query's group: its trajectory, or a group that is the step alone.
    found = top1(
        asked.keys,
        replace(keys, trajectories=keys.ids) if own_trajectory else keys,
        asked.ids if own_trajectory else asked.trajectories,
        asked.categories if same_category else None,
        allowed(asked.ids, keys.ids),
    )
    for query, hit in zip(asked.ids, found, strict=True):
        if hit is None:
            pairs.skipped[query] = NO_MEMORY
        else:
            pairs.hits[query] = hit
    other = "step" if own_trajectory else "trajectory"
    _require_pairs(pairs, queries, bank, f"another {other}{' of the same category' if same_category else ''}")
    for step_id, reason in pairs.skipped.items():
        report.add(step_id, f"skipped as a {queries.name} query: {reason}")
    report.kept = len(pairs.hits)
    report.note(f"{queries.name}_without_memory", sum(r == NO_MEMORY for r in pairs.skipped.values()))
    if cut:
        report.note(f"{queries.name}_texts_cut_by_embedder", sum(i in cut for i in {*asked.ids, *keys.ids}))
    write_json(stage.folder / PAIRS, {"hits": pairs.hits, "skipped": pairs.skipped})
    report.save(stage.folder / REPORT)
    stage.finish(queries=len(queries), paired=len(pairs.hits), skipped=len(pairs.skipped), bank=len(keys))
    return pairs


def _require_pairs(pairs: Pairs, queries: Part, bank: Part, source: str) -> None:
    if pairs.hits:
        return
    damaged = sum(reason != NO_MEMORY for reason in pairs.skipped.values())
    raise DataError(
        f"part {queries.name!r} must have at least one step with a retrievable memory, got 0 of {len(queries)} steps "
        f"({queries.trajectories} trajectories, {damaged} damaged steps) over a bank of {len(bank)} steps "
        f"({bank.trajectories} trajectories). A memory comes from {source}: add trajectories to the bank."
    )


def load_pairs(stage: Stage) -> Pairs:
    """Pairs of a finished stage.

    Raises:
        DataError: if the stage does not hold what it should.
    """
    try:
        values = json.loads((stage.folder / PAIRS).read_text(encoding="utf-8"))
        return Pairs({query: Hit(*hit) for query, hit in values["hits"].items()}, values["skipped"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{stage.folder} must hold retrieved pairs, got: {error!r}. Remove the folder; it is made again."
        ) from error


class HarvestStream(IterableDataset[StepWithMemory]):
    """Steps with their memories, each exactly once over all ranks and workers.

    It has no length: loaders would round it per worker, and the trainer would then stop before the last batches. A
    record that was damaged after it was paired is left out, and told to `on_damaged`.

    Args:
        queries: the part of the steps.
        bank: the part of their memories.
        hits: the retrieved demonstration by query id.
        step_ids: the steps to read, in the same order on every rank.
        rank, world: this process and their number.
        on_damaged: called with a step's id and the reason, in the process that reads it.
    """

    def __init__(
        self,
        queries: Part,
        bank: Part,
        hits: Mapping[str, Hit],
        step_ids: Sequence[str],
        rank: int = 0,
        world: int = 1,
        *,
        on_damaged: Callable[[str, str], None],
    ) -> None:
        self.queries, self.bank, self.on_damaged = queries, bank, on_damaged
        self.step_ids = tuple(step_ids)
        self.hits = {step_id: hits[step_id] for step_id in self.step_ids}
        self.rank, self.world = rank, world

    def __iter__(self) -> Iterator[StepWithMemory]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        for step_id in shard(self.step_ids, self.rank, self.world, worker, workers):
            hit = self.hits[step_id]
            try:
                item = StepWithMemory(self.queries[step_id], self.bank[hit.step_id], hit.cosine)
            except RecordError as error:
                self.on_damaged(step_id, f"left out of the harvest: {error}")
            else:
                yield item
