"""Many source files to step shards: all cores, bounded memory, resumable, and the same bytes for the same input.

    found = survey(reader, files, folder / "survey", None, advance)
    convert(reader, found, {"train": ids_1, "test": ids_2}, folder, None, advance)
    StepStore(folder / "train")

The work is cut into chunks of consecutive sources by what the survey says, never by the number of workers. A chunk
writes its own tars and then, last, one file that says what is in them; a part's index is put together at the end.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchmem.benchmarks.base import DataError, DataReport, Fault
from switchmem.benchmarks.pool import OnRead, Task, run_tasks
from switchmem.benchmarks.shard_writer import INDEX, STEPS_PER_SHARD, ShardWriter, write_index
from switchmem.benchmarks.sources import SourceFile, may_be_cut
from switchmem.benchmarks.survey import (
    Advance,
    Episode,
    Metered,
    Seen,
    StepReader,
    Survey,
    progress,
    reader_key,
    remove_temporary,
    source_key,
    survey,
    write_whole,
)
from switchmem.stages import fingerprint
from switchmem.steps import Step

__all__ = ["Advance", "Episode", "Seen", "StepReader", "Survey", "convert", "survey"]

FORMAT = "switchmem-chunk/1"
CHUNKS = ".chunks"
CHUNK_STEPS = 256  # a whole tar where there is one part; enough chunks for many cores
CHUNK_BYTES = 1 << 30  # of sources, about half a minute of work, which is what a kill can cost

Wanted = dict[str, tuple[str, ...]]
"""Parts by step id."""


@dataclass(frozen=True)
class _Chunk:
    """Consecutive sources and what is wanted from each.

    Args:
        sources: the files with their wanted steps.
        first: number of the first tar of each part.
    """

    sources: tuple[tuple[SourceFile, Wanted], ...]
    first: Mapping[str, int]

    @property
    def name(self) -> str:
        names = [source.name for source, _ in self.sources]
        return names[0] if len(names) == 1 else f"one of {len(names)} files, {names[0]} to {names[-1]}"

    def key(self, reader: str) -> str:
        """A hash of everything that its tars depend on."""
        sources = [[source_key(source), sorted(wanted.items())] for source, wanted in self.sources]
        return fingerprint([FORMAT, reader, sources, sorted(self.first.items()), STEPS_PER_SHARD])


def convert(
    reader: StepReader,
    survey: Survey,
    parts: Mapping[str, Collection[str]],
    folder: Path,
    workers: int | None,
    advance: Advance,
) -> dict[str, int]:
    """Write the steps of each part as a store, ``folder/<part>/``, in the order of the sources.

    A call that follows a kill goes on with the chunks that are left. The bytes depend neither on kills nor on the
    number of workers. A step that the survey has found and that cannot be read any more is a fault in
    ``survey.report``.

    Args:
        reader: of the benchmark.
        survey: what the sources hold.
        parts: step ids by part; a step may be in several. A part that gets no step gets no store.
        folder: where to; what is finished stays in ``folder/.chunks`` until the caller removes it.
        workers: processes, at least 1; None takes one per core.
        advance: told the bytes read so far and in all.

    Returns:
        Steps written, by part.

    Raises:
        DataError: if a part names a step that the survey does not have, a source cannot be read, or a worker dies.
    """
    chunks = list(_chunks(survey, parts))
    for name in (CHUNKS, *parts):
        (folder / name).mkdir(parents=True, exist_ok=True)
        remove_temporary(folder / name)
    identity = reader_key(reader)
    paths = [folder / CHUNKS / f"{chunk.key(identity)}.json" for chunk in chunks]
    left = [(chunk, path) for chunk, path in zip(chunks, paths, strict=True) if not _is_done(chunk, path, folder)]
    tasks = [Task(chunk.name, _convert_chunk, (reader, chunk, folder, path)) for chunk, path in left]
    run_tasks(tasks, workers, progress(advance, _files(chunks), _files([chunk for chunk, _ in left])))
    results = [json.loads(path.read_text(encoding="ascii")) for path in paths]
    for result in results:
        survey.report.kept -= len(result["faults"])
        survey.report.faults.extend(Fault(*fault) for fault in result["faults"])
    return {part: _finish(folder / part, [result["parts"].get(part) for result in results]) for part in parts}


def _files(chunks: Collection[_Chunk]) -> list[SourceFile]:
    return [source for chunk in chunks for source, _ in chunk.sources]


def _chunks(survey: Survey, parts: Mapping[str, Collection[str]]) -> Iterator[_Chunk]:
    """Cut the sources that have wanted steps into chunks, and number every part's tars through."""
    first = dict.fromkeys(parts, 0)
    gathered: list[tuple[SourceFile, Wanted]] = []
    counts = dict.fromkeys(parts, 0)
    wanted = _wanted(survey, parts)
    for number in sorted(wanted):
        gathered.append((survey.sources[number], wanted[number]))
        for names in wanted[number].values():
            for name in names:
                counts[name] += 1
        if sum(counts.values()) >= CHUNK_STEPS or sum(source.size for source, _ in gathered) >= CHUNK_BYTES:
            yield _Chunk(tuple(gathered), dict(first))
            first = {name: first[name] - (-counts[name] // STEPS_PER_SHARD) for name in parts}
            gathered, counts = [], dict.fromkeys(parts, 0)
    if gathered:
        yield _Chunk(tuple(gathered), dict(first))


def _wanted(survey: Survey, parts: Mapping[str, Collection[str]]) -> dict[int, Wanted]:
    """What is wanted from each source, by its number."""
    parts_of: dict[str, tuple[str, ...]] = {}
    for part, ids in parts.items():
        for step_id in ids:
            parts_of[step_id] = (*parts_of.get(step_id, ()), part)
    by_source: dict[int, Wanted] = {}
    for episode in survey.episodes:
        for step_id, number in zip(episode.step_ids, episode.sources, strict=True):
            if step_id in parts_of:
                by_source.setdefault(number, {})[step_id] = parts_of.pop(step_id)
    if parts_of:
        step_id, (part, *_) = next(iter(parts_of.items()))
        raise DataError(
            f"part {part!r} must consist of steps that the survey has found, got {step_id!r} and {len(parts_of) - 1} "
            "others. Survey the data again and draw the parts from it."
        )
    return by_source


def _is_done(chunk: _Chunk, path: Path, folder: Path) -> bool:
    """Whether a chunk's result and all its tars are there, and no step is missing that a second try could find."""
    if not path.exists():
        return False
    result = json.loads(path.read_text(encoding="ascii"))
    parts = result["parts"]
    if result["faults"] and any(may_be_cut(source) for source, _ in chunk.sources):
        return False
    tars = [(folder / part / row["name"], row["bytes"]) for part, (rows, _) in parts.items() for row in rows]
    return all(tar.is_file() and tar.stat().st_size == size for tar, size in tars)


def _convert_chunk(payload: tuple[StepReader, _Chunk, Path, Path], on_read: OnRead) -> None:
    """Write a chunk's tars, then what is in them."""
    reader, chunk, folder, path = payload
    writers = {part: ShardWriter(folder / part, first=first) for part, first in chunk.first.items()}
    faults: list[tuple[str, str]] = []
    try:
        for source, wanted in chunk.sources:
            report, left = DataReport(), dict(wanted)
            with Metered(source, on_read) as metered:
                for step in _take(reader, metered, left, report):
                    for part in wanted[step.step_id]:
                        writers[part].add(step)
            faults += _lost(left, source, report)
        parts = {part: writer.close() for part, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.abandon()
    write_whole(path, {"parts": {part: found for part, found in parts.items() if found[1]}, "faults": faults})


def _take(reader: StepReader, source: SourceFile, left: Wanted, report: DataReport) -> Iterator[Step]:
    """The first copy of each wanted step; it is taken out of `left`, and reading stops when nothing is left."""
    if not left:
        return
    for step in reader.read(source, frozenset(left), report):
        if left.pop(step.step_id, None) is None:
            continue
        yield step
        if not left:
            return


def _lost(left: Wanted, source: SourceFile, report: DataReport) -> Iterator[tuple[str, str]]:
    """Faults of steps that the survey has found and that could not be read."""
    reasons = {fault.id: fault.reason for fault in report.faults}
    damage = f" ({report.faults[0]})" if report.faults else ""
    for step_id in left:
        changed = f"the step was whole in the survey and is not found in {source.name} any more{damage}."
        yield step_id, reasons.get(step_id, changed)


def _finish(folder: Path, found: list[Any]) -> int:
    """Write a part's index, remove what no index names, and count the steps."""
    shards = [row for result in found if result for row in result[0]]
    rows = [row for result in found if result for row in result[1]]
    names = {row["name"] for row in shards}
    for path in folder.glob("steps-*.tar"):
        if path.name not in names:  # of an earlier, different conversion
            path.unlink()
    if not rows:
        (folder / INDEX).unlink(missing_ok=True)
        folder.rmdir()
        return 0
    write_index(folder, shards, rows)
    return len(rows)
