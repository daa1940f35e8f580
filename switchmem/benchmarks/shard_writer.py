"""Writes steps into WebDataset tars one by one; `switchmem.benchmarks.store` reads them."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from switchmem.steps import RecordError, Step

FORMAT = "switchmem-steps/2"
INDEX = "index.json"
STEPS_PER_SHARD = 256


@dataclass(frozen=True, slots=True)
class StepMeta:
    """The light fields of a step, known without opening its shard."""

    step_id: str
    trajectory: str
    episode_id: str
    index: int
    category: str
    instruction: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step lies. Offsets and sizes in bytes, picture size in pixels."""

    shard: str
    json_offset: int
    json_size: int
    image_offset: int
    image_size: int
    width: int
    height: int
    digest: str


def step_key(step_id: str) -> str:
    """File-name-safe key of a step: 32 hex digits. Ids hold slashes, quotes and hundreds of characters."""
    return hashlib.blake2b(step_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _suffix(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpg"
    raise RecordError(
        f"`screenshot` must be PNG, WebP or JPEG bytes, got {data[:8].hex(' ')}. Use Screenshot.from_image."
    )


def member_digest(record: bytes | memoryview, picture: bytes) -> str:
    """32 hexadecimal digits of a step's two members, one after the other; BLAKE2b is the fastest of its strength."""
    digest = hashlib.blake2b(record, digest_size=16)
    digest.update(picture)
    return digest.hexdigest()


def shard_digest(step_digests: Iterable[str]) -> str:
    """32 hexadecimal digits of a tar's steps in their order, from those of the steps: no byte is read twice."""
    return hashlib.blake2b("".join(step_digests).encode("ascii"), digest_size=16).hexdigest()


class ShardWriter:
    """Writes steps into tars one after another, holding one step at a time.

    Each tar has a temporary name until it is whole. Nothing in it depends on time, user or machine.

    Args:
        folder: an existing folder.
        steps_per_shard: most steps of one tar, > 0.
        first: number of the first tar, from 0: ``steps-00000.tar``.
    """

    def __init__(self, folder: Path, steps_per_shard: int = STEPS_PER_SHARD, first: int = 0) -> None:
        if steps_per_shard < 1:
            raise ValueError(f"`steps_per_shard` must be > 0, got {steps_per_shard}.")
        self._folder, self._limit, self._number = Path(folder), steps_per_shard, first
        self._file: BinaryIO | None = None
        self._offset, self._count = 0, 0
        self.shards: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []

    @property
    def _name(self) -> str:
        return f"steps-{self._number:05d}.tar"

    @property
    def _temporary(self) -> Path:
        return self._folder / f"{self._name}.{os.getpid()}.tmp"

    def add(self, step: Step) -> None:
        """Append a step. Its picture is written as it is."""
        picture, key = step.screenshot.data, step_key(step.step_id)
        suffix = _suffix(picture)
        record = json.dumps(step.to_dict(), ensure_ascii=True, separators=(",", ":")).encode("ascii")
        if self._file is None:
            self._file = self._temporary.open("wb")
            self._offset, self._count = 0, 0
        meta = StepMeta(step.step_id, step.trajectory, step.episode_id, step.index, step.category, step.instruction)
        place = Place(
            shard=self._name,
            json_offset=self._add_member(f"{key}.json", record),
            json_size=len(record),
            image_offset=self._add_member(f"{key}.{suffix}", picture),
            image_size=len(picture),
            width=step.screenshot.width,
            height=step.screenshot.height,
            digest=member_digest(record, picture),
        )
        self.rows.append({name: getattr(part, name) for part in (meta, place) for name in part.__slots__})
        self._count += 1
        if self._count == self._limit:
            self._end_shard()

    def _add_member(self, name: str, data: bytes) -> int:
        """Append one file and return the offset of its bytes."""
        member = tarfile.TarInfo(name)  # mtime 0, owner 0, mode 0644
        member.size = len(data)
        offset = self._offset + tarfile.BLOCKSIZE
        self._write(member.tobuf(tarfile.USTAR_FORMAT))
        self._write(data)
        self._write(bytes(-len(data) % tarfile.BLOCKSIZE))
        return offset

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._offset += len(data)

    def _end_shard(self) -> None:
        """Write the end mark of a tar, fill its last record, and give it its name."""
        if self._file is None:
            return
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        self._write(bytes(-self._offset % tarfile.RECORDSIZE))
        self._file.close()
        self._file = None
        self._temporary.replace(self._folder / self._name)
        digest = shard_digest(row["digest"] for row in self.rows[-self._count :])
        self.shards.append({"name": self._name, "steps": self._count, "bytes": self._offset, "digest": digest})
        self._number += 1

    def close(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """End the last tar and return the index's rows of all tars and of all steps."""
        self._end_shard()
        return self.shards, self.rows

    def abandon(self) -> None:
        """Remove a tar that is not whole; nothing where `close` was called."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._temporary.unlink()


def write_index(folder: Path, shards: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Write ``index.json`` from the rows of one or more writers, whole or not at all; it makes a folder a store."""
    index = {"format": FORMAT, "shards": shards, "steps": rows}
    temporary = folder / f"{INDEX}.{os.getpid()}.tmp"
    # a field a line, and no `indent`, with which the standard library takes an encoder ten times as slow
    temporary.write_text(json.dumps(index, ensure_ascii=True, separators=(",\n", ":")), encoding="ascii")
    temporary.replace(folder / INDEX)
