"""Harvest shards: ``rank-000-00000.safetensors`` with the tensors, ``rank-000-00000.json`` with the rest.

The tensors are renamed into place first and the JSON last, so a shard counts when its JSON is there. What a killed run
leaves behind is either whole or ignored and written over.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from switchmem.harvest.record import HarvestError, Record
from switchmem.stages import make_folder, write_whole

SETTINGS = "settings.json"


@dataclass(frozen=True)
class Shard:
    """A finished shard: both files have the stem ``name``; ``rows`` have the order of the tensors' first dimension."""

    folder: Path
    name: str
    rows: list[dict[str, Any]]
    bytes: int
    digest: str

    @property
    def tensors(self) -> Path:
        """The safetensors file."""
        return self.folder / f"{self.name}.safetensors"

    def check(self, digest: bool = False) -> None:
        """Whether the tensors are as they were written: by size, or by content too.

        Raises:
            HarvestError: if not.
        """
        size = self.tensors.stat().st_size if self.tensors.is_file() else None
        if size != self.bytes or (digest and file_digest(self.tensors) != self.digest):
            found = "no file" if size is None else f"{size} bytes"
            raise HarvestError(
                f"{self.tensors} must hold the {self.bytes} bytes that were written, got {found} or other content. "
                f"Delete it and its .json beside it, and harvest again: only its {len(self.rows)} steps are redone."
            )


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write JSON; see `write_whole`. ASCII, since ids and answers may be no valid Unicode."""
    write_whole(path, json.dumps(dict(values), ensure_ascii=True, allow_nan=False).encode("ascii"))


def file_digest(path: Path) -> str:
    """Hex BLAKE2b of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def read_shards(folder: Path) -> list[Shard]:
    """All finished shards of a harvest, by name; none for a folder that is not there yet.

    Raises:
        HarvestError: if a shard's files do not fit.
    """
    shards = []
    for path in sorted(folder.glob("rank-*.json")):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            shard = Shard(folder, path.stem, values["rows"], values["bytes"], values["digest"])
        except (ValueError, KeyError, TypeError) as error:
            raise HarvestError(
                f"{path} must be a harvest shard's JSON, got: {error!r}. Delete it and harvest again."
            ) from error
        shard.check()
        shards.append(shard)
    return shards


def done_ids(folder: Path) -> set[str]:
    """Step ids that are in finished shards, of any rank of any earlier run."""
    return {row["step_id"] for shard in read_shards(folder) for row in shard.rows}


def bind_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Tie a harvest folder to what produced it; a resumed run must come with the same settings.

    Args:
        folder: the harvest folder; created if needed.
        settings: plain JSON values, "layers" and "parameters_hash" among them.

    Raises:
        HarvestError: if the folder was started with other settings.
        WriteError: if it cannot be written.
    """
    make_folder(folder)
    path = folder / SETTINGS
    if not path.is_file():
        write_json(path, dict(settings))
    earlier, now = read_settings(folder), json.loads(json.dumps(dict(settings)))
    differing = sorted(k for k in {*earlier, *now} if earlier.get(k) != now.get(k))
    if differing:
        values = "; ".join(f"{k} was {earlier.get(k)!r} and is now {now.get(k)!r}" for k in differing)
        raise HarvestError(
            f"{folder} must be continued with the settings it was started with, got: {values}. "
            "Restore them, or harvest into another folder."
        )


def read_settings(folder: Path) -> dict[str, Any]:
    """What `bind_settings` wrote.

    Raises:
        HarvestError: if it is not there or not JSON.
    """
    try:
        return dict(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise HarvestError(
            f"{folder} must be a harvest folder with {SETTINGS}, got: {error}. Harvest again."
        ) from error


class HarvestWriter:
    """Appends records to a harvest folder; each rank has a writer and shards of its own.

    `flush` may be called from any thread.

    Args:
        folder: the harvest folder; created if needed.
        rank: of this process, from 0.
        records_per_shard: records after which a shard is written, at least 1.
        flush_seconds: a shard is also written when its first record has waited this long, so that a kill costs no more.

    Raises:
        HarvestError: if `records_per_shard` is out of range, or a record's tensors differ in name or shape.
        WriteError: if a shard cannot be written; its records are kept for another `flush`.
    """

    def __init__(self, folder: Path, rank: int = 0, records_per_shard: int = 64, flush_seconds: float = 60.0) -> None:
        if records_per_shard < 1:
            raise HarvestError(f"`records_per_shard` must be at least 1, got {records_per_shard}.")
        self.folder, self.rank = folder, rank
        self.records_per_shard, self.flush_seconds = records_per_shard, flush_seconds
        make_folder(folder)
        numbers = [int(p.stem.rsplit("-", 1)[1]) for p in folder.glob(f"rank-{rank:03d}-*.json")]
        self._next = max(numbers, default=-1) + 1
        self._records: list[Record] = []
        self._since = 0.0
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._lock = threading.RLock()

    def append(self, record: Record) -> None:
        """Keep a record; writes a shard when enough have come together."""
        shapes = {name: tuple(value.shape) for name, value in record.tensors().items()}
        if self._shapes is None:
            self._shapes = shapes
        if shapes != self._shapes:
            differing = {n: (self._shapes.get(n), shapes.get(n)) for n in {*shapes, *self._shapes}}
            differing = {n: pair for n, pair in differing.items() if pair[0] != pair[1]}
            raise HarvestError(
                f"records of one harvest must have the same tensors, got {differing} (first record, this one) at "
                f"{record.step_id!r}. Give every step the same conditions, layers and number of samples."
            )
        with self._lock:
            if not self._records:
                self._since = time.monotonic()
            self._records.append(record)
            if len(self._records) >= self.records_per_shard or time.monotonic() - self._since >= self.flush_seconds:
                self.flush()

    def flush(self) -> None:
        """Write what has come together as a shard."""
        with self._lock:
            if self._records:
                self._write()

    def _write(self) -> None:
        name = f"rank-{self.rank:03d}-{self._next:05d}"
        rows = [record.tensors() for record in self._records]
        stacked: dict[str, Tensor] = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
        data = save(stacked)
        write_whole(self.folder / f"{name}.safetensors", data)
        facts = {"bytes": len(data), "digest": hashlib.blake2b(data, digest_size=16).hexdigest()}
        write_json(self.folder / f"{name}.json", {**facts, "rows": [record.row() for record in self._records]})
        self._next += 1
        self._records = []
