"""Vectors of steps, computed once, on one device or many.

A folder holds the shards of all ranks (`switchmem.memory.embedding_shards`) and, at the end, a ``manifest.json`` with
their sizes and digests.

Steps are cut into chunks at fixed places in the order of all steps. A chunk is embedded by one call and written as a
whole, so that its vectors are those of the same call whichever ranks and restarts computed them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from switchmem.memory.bank import StepSource
from switchmem.memory.embedder import Embedder
from switchmem.memory.embedding_shards import (
    MANIFEST,
    Embedded,
    EmbeddingError,
    EmbeddingWriter,
    Shard,
    file_digest,
    read_shards,
    shard_files,
    write_ascii,
)
from switchmem.memory.views import query_text
from switchmem.stages import Stage
from switchmem.steps import RecordError, Step

CHUNK = 64
"""Steps of a chunk."""


@dataclass(frozen=True)
class Damaged:
    """A step whose record cannot be read."""

    step_id: str
    reason: str


@dataclass(frozen=True)
class EmbeddingJob:
    """Steps to embed by their query text.

    Args:
        stage: gets the shards; its inputs name the steps and the embedder.
        source: where the steps are.
        step_ids: of all of them, each once, in the same order on every rank.
        embedder: embeds them.
    """

    stage: Stage
    source: StepSource
    step_ids: tuple[str, ...]
    embedder: Embedder

    def todo(self) -> list[tuple[str, ...]]:
        """The chunks that no shard holds. No rank may write before every rank has looked, or their shares differ.

        Steps found damaged by an earlier, interrupted run are read afresh.

        Raises:
            EmbeddingError: if a finished shard is damaged.
        """
        done = {step_id for shard in read_shards(self.stage.folder) for step_id in shard.ids}
        chunks = (self.step_ids[start : start + CHUNK] for start in range(0, len(self.step_ids), CHUNK))
        left = (tuple(step_id for step_id in chunk if step_id not in done) for chunk in chunks)
        return [chunk for chunk in left if chunk]

    def run(self, advance: Callable[[float, float], None] | None = None) -> None:
        """Embed what is left in this process, and finish the stage.

        Args:
            advance: called with the steps done and all steps to do.
        """
        self.stage.begin()
        todo, writer, done = self.todo(), EmbeddingWriter(self.stage.folder), 0
        total = sum(len(chunk) for chunk in todo)
        try:
            for chunk in todo:
                writer.append(embed(read(self.source, chunk), self.embedder))
                done += len(chunk)
                if advance is not None:
                    advance(done, total)
        finally:
            writer.flush()
        self.finish()

    def finish(self, write: bool = True) -> None:
        """Check that every step is there exactly once, as a vector or as damaged, and complete the stage.

        Args:
            write: whether to write; the other ranks check alone, so that all of them stop on an error.

        Raises:
            EmbeddingError: on a step twice, missing or not expected, or a damaged shard. What was embedded stays.
        """
        shards = read_shards(self.stage.folder)
        counts = Counter(step_id for shard in shards for step_id in shard.ids)
        damaged = {i: reason for shard in shards for i, reason in shard.damaged.items() if i not in counts}
        problems = {
            "twice": sorted(i for i, n in counts.items() if n > 1),
            "missing": sorted(set(self.step_ids) - set(counts) - set(damaged)),
            "not expected": sorted((set(counts) | set(damaged)) - set(self.step_ids)),
        }
        if any(problems.values()):
            found = ", ".join(f"{len(ids)} {what} (first {ids[0]!r})" for what, ids in problems.items() if ids)
            raise EmbeddingError(
                f"{self.stage.folder} must hold each of {len(self.step_ids)} steps once, got {counts.total()} vectors: "
                f"{found}. Missing steps: run again, finished ones are kept. Otherwise delete the folder."
            )
        if not write:
            return
        rows = []
        for shard in shards:
            shard.check(digest=True)
            facts = {"name": shard.name, "rows": len(shard.ids), "bytes": shard.bytes, "digest": shard.digest}
            rows.append({**facts, "index_digest": file_digest(shard.index)})
        cut = sorted(step_id for shard in shards for step_id in shard.cut)
        facts = {"embedder": self.embedder.name, "dim": self.embedder.dim, "vectors": len(counts)}
        write_ascii(self.stage.folder / MANIFEST, {**facts, "damaged": damaged, "cut": cut, "shards": rows})
        for leftover in self.stage.folder.glob(".rank-*.tmp"):  # of runs that were killed while they wrote
            leftover.unlink()
        self.stage.finish(vectors=len(counts), damaged=len(damaged), cut=len(cut))


def read(source: StepSource, step_ids: Iterable[str]) -> list[Step | Damaged]:
    """A chunk's steps, in order, with a reason in the place of each that cannot be read."""
    items: list[Step | Damaged] = []
    for step_id in step_ids:
        try:
            items.append(source[step_id])
        except RecordError as error:
            items.append(Damaged(step_id, str(error)))
    return items


def embed(items: Sequence[Step | Damaged], embedder: Embedder) -> Embedded:
    """A chunk's vectors: of the query text, which is the key text too."""
    steps = [item for item in items if isinstance(item, Step)]
    texts = [query_text(step) for step in steps]
    return Embedded(
        ids=[step.step_id for step in steps],
        vectors=embedder.texts(texts),
        damaged={item.step_id: item.reason for item in items if isinstance(item, Damaged)},
        cut=[step.step_id for step, cut in zip(steps, embedder.cut(texts), strict=True) if cut],
    )


class MappedRows:
    """Some rows of shards, in any order, read from their files when they are asked for.

    Args:
        files: ``.npy`` files of ``[n, E]`` float32.
        lengths: rows of each.
        places: ``[M]``, which rows of all files in sequence.
        dim: E.
    """

    def __init__(self, files: Sequence[Path], lengths: Sequence[int], places: NDArray[np.int64], dim: int) -> None:
        self._files, self._places, self._dim = files, places, dim
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(M, E)``."""
        return len(self._places), self._dim

    def __getitem__(self, index: slice | NDArray[np.int64]) -> Tensor:
        """A copy of some rows, ``[m, E]``."""
        places = self._places[index]
        rows = np.empty((len(places), self._dim), dtype=np.float32)
        file_of = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(file_of):
            mine = file_of == number
            # Mapped anew each time: thousands of open maps would use up the process's file handles.
            mapped = np.load(self._files[number], mmap_mode="r", allow_pickle=False)
            rows[mine] = mapped[places[mine] - self._starts[number]]
        return torch.from_numpy(rows)


class Embeddings:
    """Finished embeddings.

    Attributes:
        damaged: reasons by id of the steps that have no vector.
        cut: ids of the steps whose text is longer than the embedder reads.
        dim: E.
    """

    def __init__(self, shards: Sequence[Shard], damaged: Mapping[str, str], cut: Iterable[str], dim: int) -> None:
        self.damaged, self.cut, self.dim = dict(damaged), frozenset(cut), dim
        self._shards = tuple(shards)
        self._rows = {step_id: n for n, step_id in enumerate(i for shard in shards for i in shard.ids)}

    @classmethod
    def open(cls, folder: Path) -> Embeddings:
        """Open a finished stage's folder, after a look at every byte of it.

        Raises:
            EmbeddingError: if it is not finished, or a file is not as it was written.
        """
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="ascii"))
            kept = [(row["name"], row["rows"], row["index_digest"]) for row in manifest["shards"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EmbeddingError(
                f"{folder} must hold finished embeddings, got: {error!r}. Delete stage.json in it and run again."
            ) from error
        shards = {shard.name: shard for shard in read_shards(folder)}
        for name, rows, digest in kept:
            shard = shards.get(name)
            if shard is None or file_digest(shard.index) != digest:
                path = folder / f"{name}.json"
                raise EmbeddingError(
                    f"{path} must be as it was written, got {'no file' if shard is None else 'other content'}. "
                    f"Delete {shard_files(path)}: only its {rows} steps are embedded again."
                )
            shard.check(digest=True)
        return cls([shards[name] for name, _, _ in kept], manifest["damaged"], manifest["cut"], int(manifest["dim"]))

    def joined(self, other: Embeddings) -> Embeddings:
        """These and others of the same embedder; a step that is in both is taken from either."""
        shards = (*self._shards, *other._shards)
        return Embeddings(shards, self.damaged | other.damaged, self.cut | other.cut, self.dim)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, step_id: object) -> bool:
        return step_id in self._rows

    def rows(self, step_ids: Iterable[str]) -> MappedRows:
        """The vectors of steps, in their order; nothing is read yet.

        Raises:
            KeyError: if a step has no vector.
        """
        places = np.array([self._rows[step_id] for step_id in step_ids], dtype=np.int64)
        filled = [shard for shard in self._shards if shard.ids]
        return MappedRows([s.rows for s in filled], [len(s.ids) for s in filled], places, self.dim)
