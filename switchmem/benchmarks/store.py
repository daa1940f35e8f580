"""Step shards: WebDataset tar files of steps with an index for random access.

A folder holds ``steps-00000.tar, ...`` and ``index.json``. Each step is two neighbouring members, ``<key>.json``
and ``<key>.png|webp|jpg``, so that any WebDataset reader can stream a shard; the index adds where each
member lies, its hash, and the light fields that retrieval and splits need without opening a shard.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from switchmem.benchmarks.base import DataError, DataReport
from switchmem.steps import RecordError, Screenshot, Step

FORMAT = "switchmem-steps/1"
INDEX = "index.json"
STEPS_PER_SHARD = 256
_SHARD_NAME = re.compile(r"steps-\d{5,}\.tar")


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
class _Place:
    """Where a step lies. Offsets and sizes in bytes, picture size in pixels."""

    shard: str
    json_offset: int
    json_size: int
    image_offset: int
    image_size: int
    width: int
    height: int
    sha256: str


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


def _digest(record: bytes | memoryview, picture: bytes) -> str:
    digest = hashlib.sha256(record)
    digest.update(picture)
    return digest.hexdigest()


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
        self._digest, self._offset, self._count = hashlib.sha256(), 0, 0
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
            self._digest, self._offset, self._count = hashlib.sha256(), 0, 0
        meta = StepMeta(step.step_id, step.trajectory, step.episode_id, step.index, step.category, step.instruction)
        place = _Place(
            shard=self._name,
            json_offset=self._add_member(f"{key}.json", record),
            json_size=len(record),
            image_offset=self._add_member(f"{key}.{suffix}", picture),
            image_size=len(picture),
            width=step.screenshot.width,
            height=step.screenshot.height,
            sha256=_digest(record, picture),
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
        self._digest.update(data)
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
        digest = self._digest.hexdigest()
        self.shards.append({"name": self._name, "steps": self._count, "bytes": self._offset, "sha256": digest})
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
    temporary.write_text(json.dumps(index, ensure_ascii=True, indent=0), encoding="ascii")
    temporary.replace(folder / INDEX)


def _unique(steps: Iterable[Step]) -> Iterator[Step]:
    """The same steps; an id that comes twice is refused."""
    seen: set[str] = set()
    for step in steps:
        if step.step_id in seen:
            raise RecordError(
                f"`step_id` must be unique in a store, got {step.step_id!r} twice. Drop one in the reader."
            )
        seen.add(step.step_id)
        yield step


def write_steps(steps: Iterable[Step], folder: Path, steps_per_shard: int = STEPS_PER_SHARD) -> StepStore:
    """Write steps as shards and an index. The same steps in the same order give the same bytes.

    Everything is written beside `folder` first and renamed at the end: a folder that exists is whole.

    Args:
        steps: read once, one in memory at a time.
        folder: must not exist yet, or be empty.
        steps_per_shard: > 0.

    Returns:
        The store, opened.

    Raises:
        DataError: if there is no step at all, or the folder already holds something.
        RecordError: if two steps share an id.
    """
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"`folder` must be new or empty, got {folder}. Open it with StepStore, or remove it first.")
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    writer = ShardWriter(temporary, steps_per_shard)
    temporary.mkdir(parents=True)
    try:
        for step in _unique(steps):
            writer.add(step)
        shards, rows = writer.close()
        if not rows:
            raise DataError(
                f"No step to write to {folder}: the split is empty. Check the split's name and the data's folder."
            )
        write_index(temporary, shards, rows)
        temporary.rename(folder)
    finally:
        writer.abandon()
        if temporary.exists():
            shutil.rmtree(temporary)
    return StepStore(folder)


class StepStore:
    """Random access to a folder written by `write_steps`.

    No file stays open, so that a store can be forked or pickled into any number of workers.

    Args:
        folder: the folder with ``index.json``.

    Raises:
        DataError: if the folder or its index is missing, unreadable or empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        index = self._read_index()
        self._meta: dict[str, StepMeta] = {}
        self._places: dict[str, _Place] = {}
        try:
            for row in index["steps"]:
                meta = StepMeta(**{name: row[name] for name in StepMeta.__slots__})
                self._meta[meta.step_id] = meta
                self._places[meta.step_id] = _Place(**{name: row[name] for name in _Place.__slots__})
            self.shards: dict[str, str] = {row["name"]: row["sha256"] for row in index["shards"]}
            self._check_places()
        except (KeyError, TypeError) as error:
            raise DataError(f"{self.folder / INDEX} lacks {error}. Write the store again.") from error
        if not self._meta:
            raise DataError(f"{self.folder} holds no step: the split is empty. Write the store again from its source.")
        self.step_ids: tuple[str, ...] = tuple(self._meta)

    def _read_index(self) -> dict[str, Any]:
        path = self.folder / INDEX
        if not path.is_file():
            raise DataError(
                f"No step store in {self.folder}: {INDEX} is missing. A store is a folder with {INDEX} and "
                "steps-00000.tar, ... as `write_steps` leaves it; check the path."
            )
        try:
            index = json.loads(path.read_text(encoding="utf-8"))
            found = index["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a step index ({error}). Write the store again.") from error
        if found != FORMAT:
            raise DataError(f"{path} must have the format {FORMAT!r}, got {found!r}. Write the store again.")
        return dict(index)

    def _check_places(self) -> None:
        """Refuse an index that leads out of the folder, or to places that no writer leaves."""
        names = {place.shard for place in self._places.values()} | set(self.shards)
        for name in names:
            if _SHARD_NAME.fullmatch(name) is None:
                raise DataError(
                    f"{self.folder / INDEX} must name shards as steps-00000.tar, beside it, got {name!r}. Do not use "
                    "this store; write it again from its source."
                )
        for step_id, place in self._places.items():
            numbers = (place.json_offset, place.json_size, place.image_offset, place.image_size)
            if not all(type(n) is int and n >= 0 for n in numbers) or place.image_offset < sum(numbers[:2]):
                raise DataError(
                    f"{self.folder / INDEX} must give places in a shard, got {place} for {step_id!r}. Write the store "
                    "again."
                )

    def __len__(self) -> int:
        return len(self.step_ids)

    def meta(self, step_id: str) -> StepMeta:
        """Light fields of a step.

        Raises:
            KeyError: if the store has no such step.
        """
        if step_id not in self._meta:
            raise KeyError(f"{step_id!r} is not one of the {len(self)} steps of {self.folder}")
        return self._meta[step_id]

    def _open(self, step_id: str) -> BinaryIO:
        path = self.folder / self._places[step_id].shard
        try:
            return path.open("rb")
        except OSError as error:
            raise RecordError(f"step {step_id!r}: {path} cannot be read ({error}). Write the store again.") from error

    def _read(self, step_id: str, file: BinaryIO) -> Step:
        """Read one step from its open shard: both members at once, as they are neighbours."""
        place = self._places[step_id]
        skipped = place.image_offset - place.json_offset
        size = skipped + place.image_size
        try:
            whole = os.fstat(file.fileno()).st_size >= place.json_offset + size
            file.seek(place.json_offset)
            data = memoryview(file.read(size) if whole else b"")
        except OSError as error:
            raise RecordError(
                f"step {step_id!r}: {self.folder / place.shard} cannot be read ({error}). Write the store again."
            ) from error
        if len(data) < size:
            raise RecordError(
                f"step {step_id!r}: {self.folder / place.shard} is cut off before the step ends. Write the store again."
            )
        record, picture = data[: place.json_size], bytes(data[skipped:])
        if _digest(record, picture) != place.sha256:
            raise RecordError(
                f"step {step_id!r}: its bytes in {self.folder / place.shard} have changed (sha256). "
                "Write the store again."
            )
        return Step.from_dict(json.loads(bytes(record)), Screenshot(picture, place.width, place.height))

    def __getitem__(self, step_id: str) -> Step:
        """Read one step from its shard. Its picture stays encoded.

        Raises:
            KeyError: if the store has no such step.
            RecordError: if the shard is missing, cut off or damaged at this step.
        """
        self.meta(step_id)
        with self._open(step_id) as file:
            return self._read(step_id, file)

    def iterate(self, ids: Iterable[str]) -> Iterator[Step]:
        """Steps in the order of `ids`; raises as `__getitem__`.

        A shard stays open while its steps follow one another, so that reading in the store's order is fastest.
        """
        file: BinaryIO | None = None
        shard = ""
        try:
            for step_id in ids:
                self.meta(step_id)
                if file is None or self._places[step_id].shard != shard:
                    if file is not None:
                        file.close()
                    file, shard = self._open(step_id), self._places[step_id].shard
                yield self._read(step_id, file)
        finally:
            if file is not None:
                file.close()

    def verify(self, report: DataReport) -> tuple[str, ...]:
        """Read every step once and count damaged ones by id.

        Returns:
            Ids of the whole steps, in the store's order.
        """
        whole = []
        for step_id in self.step_ids:
            report.read += 1
            try:
                self[step_id]
            except RecordError as error:
                report.add(step_id, str(error))
            else:
                report.kept += 1
                whole.append(step_id)
        return tuple(whole)


def shard(ids: Sequence[str], rank: int, world: int, worker: int, workers: int) -> list[str]:
    """The ids that one worker of one rank reads.

    Over all ranks and workers each id is read exactly once, whatever the numbers are; shares differ by at
    most one id, and none is repeated to even them out.

    Args:
        ids: all ids, in the same order everywhere.
        rank: this process, 0 <= rank < world.
        world: number of processes.
        worker: this loader worker, 0 <= worker < workers.
        workers: number of loader workers of each process; 1 where the process loads by itself.

    Raises:
        ValueError: if a number is out of its range.

    Example:
        >>> [shard("abcde", rank, 2, worker, 2) for rank in (0, 1) for worker in (0, 1)]
        [['a', 'e'], ['c'], ['b'], ['d']]
    """
    if not 0 <= rank < world:
        raise ValueError(f"`rank` must be in [0, world), got {rank} of {world}.")
    if not 0 <= worker < workers:
        raise ValueError(f"`worker` must be in [0, workers), got {worker} of {workers}.")
    return list(ids[rank + world * worker :: world * workers])
