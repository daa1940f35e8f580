"""Step shards: WebDataset tar files of steps with an index for random access.

A folder holds ``steps-00000.tar, ...`` and ``index.json``. Each step is two neighbouring members, ``<key>.json``
and ``<key>.png|webp|jpg``, so that any WebDataset reader can stream a shard; the index adds where each
member lies, its hash, and the light fields that retrieval and splits need without opening a shard.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from switchmem.benchmarks.base import DataError, DataReport
from switchmem.steps import RecordError, Screenshot, Step

FORMAT = "switchmem-steps/1"
INDEX = "index.json"


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


def _add_member(tar: tarfile.TarFile, name: str, data: bytes) -> int:
    """Append one file and return the offset of its bytes. Nothing in the header depends on time or user."""
    member = tarfile.TarInfo(name)  # mtime 0, owner 0, mode 0644
    member.size = len(data)
    offset = tar.offset + tarfile.BLOCKSIZE
    tar.addfile(member, io.BytesIO(data))
    return offset


def _write_shard(steps: Sequence[Step], folder: Path, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    rows = []
    with tarfile.open(folder / name, "w", format=tarfile.USTAR_FORMAT) as tar:
        for step in steps:
            record = json.dumps(step.to_dict(), ensure_ascii=True, separators=(",", ":")).encode("ascii")
            picture, key = step.screenshot.data, step_key(step.step_id)
            place = _Place(
                shard=name,
                json_offset=_add_member(tar, f"{key}.json", record),
                json_size=len(record),
                image_offset=_add_member(tar, f"{key}.{_suffix(picture)}", picture),
                image_size=len(picture),
                width=step.screenshot.width,
                height=step.screenshot.height,
                sha256=hashlib.sha256(record + picture).hexdigest(),
            )
            meta = StepMeta(step.step_id, step.trajectory, step.episode_id, step.index, step.category, step.instruction)
            rows.append(asdict(meta) | asdict(place))
    with (folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": name, "steps": len(steps), "bytes": (folder / name).stat().st_size, "sha256": digest}, rows


def _batches(steps: Iterable[Step], size: int) -> Iterator[list[Step]]:
    """Lists of at most `size` steps; a step id that comes twice is refused."""
    batch: list[Step] = []
    seen: set[str] = set()
    for step in steps:
        if step.step_id in seen:
            raise RecordError(
                f"`step_id` must be unique in a store, got {step.step_id!r} twice. Drop one in the reader."
            )
        seen.add(step.step_id)
        batch.append(step)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def write_steps(steps: Iterable[Step], folder: Path, steps_per_shard: int = 256) -> StepStore:
    """Write steps as shards and an index. The same steps in the same order give the same bytes.

    Everything is written beside `folder` first and renamed at the end: a folder that exists is whole.

    Args:
        steps: read once, never held together in memory beyond one shard.
        folder: must not exist yet, or be empty.
        steps_per_shard: > 0.

    Returns:
        The store, opened.

    Raises:
        DataError: if there is no step at all, or the folder already holds something.
        RecordError: if two steps share an id.
    """
    if steps_per_shard < 1:
        raise ValueError(f"`steps_per_shard` must be > 0, got {steps_per_shard}.")
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"`folder` must be new or empty, got {folder}. Open it with StepStore, or remove it first.")
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    temporary.mkdir(parents=True)
    shards: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    try:
        for number, batch in enumerate(_batches(steps, steps_per_shard)):
            shard_row, step_rows = _write_shard(batch, temporary, f"steps-{number:05d}.tar")
            shards.append(shard_row)
            rows.extend(step_rows)
        if not rows:
            raise DataError(
                f"No step to write to {folder}: the split is empty. Check the split's name and the data's folder."
            )
        index = {"format": FORMAT, "shards": shards, "steps": rows}
        (temporary / INDEX).write_text(json.dumps(index, ensure_ascii=True, indent=0), encoding="ascii")
        temporary.rename(folder)
    finally:
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

    def _members(self, step_id: str) -> tuple[bytes, bytes]:
        place = self._places[step_id]
        path = self.folder / place.shard
        try:
            with path.open("rb") as file:
                file.seek(place.json_offset)
                record = file.read(place.json_size)
                file.seek(place.image_offset)
                picture = file.read(place.image_size)
        except OSError as error:
            raise RecordError(f"step {step_id!r}: {path} cannot be read ({error}). Write the store again.") from error
        if len(record) + len(picture) < place.json_size + place.image_size:
            raise RecordError(f"step {step_id!r}: {path} is cut off before the step ends. Write the store again.")
        if hashlib.sha256(record + picture).hexdigest() != place.sha256:
            raise RecordError(f"step {step_id!r}: its bytes in {path} have changed (sha256). Write the store again.")
        return record, picture

    def __getitem__(self, step_id: str) -> Step:
        """Read one step from its shard.

        Raises:
            KeyError: if the store has no such step.
            RecordError: if the shard is missing, cut off or damaged at this step.
        """
        self.meta(step_id)
        record, picture = self._members(step_id)
        place = self._places[step_id]
        return Step.from_dict(json.loads(record), Screenshot(picture, place.width, place.height))

    def iterate(self, ids: Iterable[str]) -> Iterator[Step]:
        """Steps in the order of `ids`; raises as `__getitem__`."""
        for step_id in ids:
            yield self[step_id]

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
