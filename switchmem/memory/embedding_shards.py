"""Shards of embeddings: what ranks write, and a kill does not lose.

``rank-000-00000.npy`` holds [n, E] float32, ``rank-000-00000.json`` the ids of its rows. The JSON is renamed into place
last, so a shard counts when it is there; what a killed run leaves behind is either whole or written over.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from switchmem.memory.bank import write_rows
from switchmem.stages import StageError

MANIFEST = "manifest.json"


class EmbeddingError(StageError):
    """Kept embeddings are inconsistent or damaged; the message names the folder, the rule and the way out."""


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
        if size != self.bytes or (digest and file_digest(self.rows) != self.digest):
            found = "no file" if size is None else f"{size} bytes"
            raise EmbeddingError(
                f"{self.rows} must hold the {self.bytes} bytes that were written, got {found} or other content. "
                f"Delete {shard_files(self.index)}: only its {len(self.ids)} steps are embedded again."
            )


def shard_files(index: Path) -> str:
    """What to delete for a shard to be made again, in words."""
    return f"{index}, the .npy beside it, {MANIFEST} and stage.json, and run again"


def file_digest(path: Path) -> str:
    """Hex BLAKE2b of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def write_ascii(path: Path, values: Any) -> None:
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
                f"{path} must hold the ids of a shard of embeddings, got: {error!r}. Delete {shard_files(path)}."
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
        facts = {"bytes": partial.stat().st_size, "digest": file_digest(partial)}
        partial.replace(self.folder / f"{name}.npy")
        damaged = {step_id: reason for chunk in self._chunks for step_id, reason in chunk.damaged.items()}
        lists = {n: [step_id for c in self._chunks for step_id in getattr(c, n)] for n in ("ids", "cut")}
        write_ascii(self.folder / f"{name}.json", {**lists, "damaged": damaged, **facts})
        self._next += 1
        self._chunks = []
