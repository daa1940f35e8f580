"""Vectors of steps, computed once for all parts and kept in shards that ranks write and a kill does not lose.

A folder holds ``rank-000-00000.npy`` [n, E] float32, ``rank-000-00000.json`` with the ids of its rows, and so on; at
the end a ``manifest.json`` with sizes and digests. The JSON is renamed into place last, so a shard counts when it is
there; what a killed run leaves behind is either whole or written over.

Steps are cut into chunks at fixed places in the order of all steps. A chunk is embedded by one call and written as a
whole, so that its vectors are those of the same call whichever ranks and restarts computed them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from switchmem.memory.bank import StepSource, write_rows
from switchmem.memory.embedder import Embedder
from switchmem.memory.views import query_text
from switchmem.stages import Stage, StageError
from switchmem.steps import RecordError, Step

MANIFEST = "manifest.json"
CHUNK = 64
"""Steps of a chunk."""


class EmbeddingError(StageError):
    """Kept embeddings are inconsistent or damaged; the message names the folder, the rule and the way out."""


@dataclass(frozen=True)
class Damaged:
    """A step whose record cannot be read."""

    step_id: str
    reason: str


@dataclass
class Embedded:
    """What came of some steps.

    Args:
        ids: of the rows of `vectors`.
        vectors: ``[n, E]`` float32, rows of length 1.
        damaged: reasons by id of the steps that could not be read.
        cut: ids of those whose text is longer than the embedder reads.
    """

    ids: list[str]
    vectors: Tensor
    damaged: dict[str, str] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Shard:
    """A finished shard: both files have the stem ``name``."""

    folder: Path
    name: str
    ids: list[str]
    damaged: dict[str, str]
    cut: list[str]
    bytes: int
    digest: str

    @property
    def rows(self) -> Path:
        """The file of the vectors."""
        return self.folder / f"{self.name}.npy"

    @property
    def index(self) -> Path:
        """The file of the ids."""
        return self.folder / f"{self.name}.json"

    def check(self, digest: bool = False) -> None:
        """Whether the vectors are as they were written: by size, or by content too.

        Raises:
            EmbeddingError: if not.
        """
        size = self.rows.stat().st_size if self.rows.is_file() else None
        if size != self.bytes or (digest and _digest(self.rows) != self.digest):
            found = "no file" if size is None else f"{size} bytes"
            raise EmbeddingError(
                f"{self.rows} must hold the {self.bytes} bytes that were written, got {found} or other content. "
                f"Delete {_shard_files(self.index)}: only its {len(self.ids)} steps are embedded again."
            )


def _shard_files(index: Path) -> str:
    return f"{index}, the .npy beside it, {MANIFEST} and stage.json, and run again"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _write(path: Path, values: Any) -> None:
    """Write JSON under a temporary name, to the disk, and rename it. ASCII, since ids may be no valid Unicode."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with partial.open("w", encoding="ascii") as file:
        json.dump(values, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_shards(folder: Path) -> list[Shard]:
    """All finished shards, by name; none for a folder that is not there yet.

    Raises:
        EmbeddingError: if a shard's files do not fit.
    """
    shards = []
    for path in sorted(folder.glob("rank-*.json")):
        try:
            values = json.loads(path.read_text(encoding="ascii"))
            names = ("ids", "damaged", "cut", "bytes", "digest")
            shard = Shard(folder, path.stem, *(values[name] for name in names))
        except (ValueError, KeyError, TypeError) as error:
            raise EmbeddingError(
                f"{path} must hold the ids of a shard of embeddings, got: {error!r}. Delete {_shard_files(path)}."
            ) from error
        shard.check()
        shards.append(shard)
    return shards


class EmbeddingWriter:
    """Appends chunks to a folder of embeddings; each rank has a writer and shards of its own.

    Args:
        folder: created if needed.
        rank: of this process, from 0.
        rows_per_shard: rows after which a shard is written, at least 1.
        flush_seconds: a shard is also written when its first chunk has waited this long, so that a kill costs no more.
    """

    def __init__(self, folder: Path, rank: int = 0, rows_per_shard: int = 4096, flush_seconds: float = 60.0) -> None:
        self.folder, self.rank = folder, rank
        self.rows_per_shard, self.flush_seconds = rows_per_shard, flush_seconds
        folder.mkdir(parents=True, exist_ok=True)
        numbers = [int(p.stem.rsplit("-", 1)[1]) for p in folder.glob(f"rank-{rank:03d}-*.json")]
        self._next = max(numbers, default=-1) + 1
        self._chunks: list[Embedded] = []
        self._since = 0.0

    def append(self, chunk: Embedded) -> None:
        """Keep a chunk; writes a shard when enough have come together."""
        if not self._chunks:
            self._since = time.monotonic()
        self._chunks.append(chunk)
        rows = sum(len(c.ids) for c in self._chunks)
        if rows >= self.rows_per_shard or time.monotonic() - self._since >= self.flush_seconds:
            self.flush()

    def flush(self) -> None:
        """Write what has come together as a shard."""
        if not self._chunks:
            return
        name = f"rank-{self.rank:03d}-{self._next:05d}"
        partial = self.folder / f".{name}.{os.getpid()}.tmp"
        write_rows(partial, torch.cat([chunk.vectors for chunk in self._chunks]))
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        facts = {"bytes": partial.stat().st_size, "digest": _digest(partial)}
        partial.replace(self.folder / f"{name}.npy")
        damaged = {step_id: reason for chunk in self._chunks for step_id, reason in chunk.damaged.items()}
        lists = {n: [step_id for c in self._chunks for step_id in getattr(c, n)] for n in ("ids", "cut")}
        _write(self.folder / f"{name}.json", {**lists, "damaged": damaged, **facts})
        self._next += 1
        self._chunks = []


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
            rows.append({**facts, "index_digest": _digest(shard.index)})
        cut = sorted(step_id for shard in shards for step_id in shard.cut)
        facts = {"embedder": self.embedder.name, "dim": self.embedder.dim, "vectors": len(counts)}
        _write(self.stage.folder / MANIFEST, {**facts, "damaged": damaged, "cut": cut, "shards": rows})
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

    def __init__(self, shards: Sequence[Shard], manifest: dict[str, Any]) -> None:
        self.damaged: dict[str, str] = manifest["damaged"]
        self.cut = frozenset(manifest["cut"])
        self.dim = int(manifest["dim"])
        self._shards = shards
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
            if shard is None or _digest(shard.index) != digest:
                path = folder / f"{name}.json"
                raise EmbeddingError(
                    f"{path} must be as it was written, got {'no file' if shard is None else 'other content'}. "
                    f"Delete {_shard_files(path)}: only its {rows} steps are embedded again."
                )
            shard.check(digest=True)
        return cls([shards[name] for name, _, _ in kept], manifest)

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
