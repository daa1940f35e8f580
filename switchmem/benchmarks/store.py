"""Step shards: WebDataset tar files of steps with an index for random access.

A folder holds ``steps-00000.tar, ...`` and ``index.json``. Each step is two neighbouring members, ``<key>.json``
and ``<key>.png|webp|jpg``, so that any WebDataset reader can stream a shard; the index adds where each
member lies, its hash, and the light fields that retrieval and splits need without opening a shard.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.shard_writer import (
    FORMAT,
    INDEX,
    STEPS_PER_SHARD,
    Place,
    ShardWriter,
    StepMeta,
    member_digest,
    step_key,
    write_index,
)
from switchmem.steps import RecordError, Screenshot, Step

__all__ = ["StepMeta", "StepStore", "shard", "step_key", "write_steps"]

_SHARD_NAME = re.compile(r"steps-\d{5,}\.tar")


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
        self._places: dict[str, Place] = {}
        try:
            for row in index["steps"]:
                meta = StepMeta(**{name: row[name] for name in StepMeta.__slots__})
                self._meta[meta.step_id] = meta
                self._places[meta.step_id] = Place(**{name: row[name] for name in Place.__slots__})
            self.shards: dict[str, str] = {row["name"]: row["digest"] for row in index["shards"]}
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
        if member_digest(record, picture) != place.digest:
            raise RecordError(
                f"step {step_id!r}: its bytes in {self.folder / place.shard} have changed. Write the store again."
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
