"""What many source files hold, step by step, before anything is converted.

A split needs to know every usable step, and most of a large benchmark is never converted. So the files are first read
without keeping or encoding a picture. What each file holds is kept on disk: after a kill the same call goes on with
the files that are left.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from switchmem.benchmarks.base import DataReport, Fault, require_steps
from switchmem.benchmarks.pool import OnRead, Task, run_tasks
from switchmem.benchmarks.sources import SourceFile, may_be_cut
from switchmem.stages import fingerprint
from switchmem.steps import Step

Advance = Callable[[float, float], None]
"""(bytes done, bytes in all) -> None; called often."""

FORMAT = "switchmem-survey/1"


class Seen(NamedTuple):
    """One usable step of a source file.

    Args:
        trajectory: ``benchmark/episode``.
        category: the step's category, or "".
        index: its place in the trajectory.
        length: steps that the whole trajectory has by the recording's own word, 0 where it does not say.
        ends: whether its action ends a task (complete, impossible).
    """

    trajectory: str
    category: str
    index: int  # type: ignore[assignment]  # hides a method of tuples that nobody needs here
    length: int = 0
    ends: bool = False


class StepReader(Protocol):
    """Reads the files of one benchmark. It is pickled into worker processes; its module imports no torch.

    Both methods count every record that they look at in ``report.read`` and what is unusable as a fault; who takes the
    steps counts ``report.kept``.
    """

    def survey(self, source: SourceFile, report: DataReport) -> Iterator[Seen]:
        """Every usable step, checked as fully as `read` checks it, in the file's order."""
        ...

    def read(self, source: SourceFile, wanted: Container[str], report: DataReport) -> Iterator[Step]:
        """The steps whose ids are wanted, in the file's order."""
        ...


@dataclass(frozen=True, slots=True)
class Episode:
    """One trajectory as the sources hold it.

    Args:
        trajectory: ``benchmark/episode``.
        category: of its first step.
        indices: of its usable steps, in the order of the sources.
        sources: number of the source that each step is taken from.
    """

    trajectory: str
    category: str
    indices: tuple[int, ...]
    sources: tuple[int, ...] = field(repr=False)

    @property
    def step_ids(self) -> tuple[str, ...]:
        """``trajectory/index`` of each step."""
        return tuple(f"{self.trajectory}/{index}" for index in self.indices)


@dataclass
class Survey:
    """What the sources hold.

    Args:
        reader: reads the sources.
        sources: the files, in order.
        episodes: trajectories in the order of their first steps.
        report: records, faults and notes of all sources.
    """

    reader: StepReader
    sources: tuple[SourceFile, ...]
    episodes: tuple[Episode, ...]
    report: DataReport


class EpisodeLog:
    """Gathers steps into episodes, whatever their order; of a step that comes twice, the first is kept."""

    def __init__(self, report: DataReport) -> None:
        self.report = report
        self._found: dict[str, tuple[str, dict[int, int]]] = {}
        self._lengths: dict[str, int] = {}
        self._last: dict[str, tuple[int, bool]] = {}

    def add(self, seen: Seen, number: int, source: str) -> bool:
        """Note a step of source `number`, called `source`; False, and a fault, where it is there already."""
        trajectory = seen.trajectory
        _, places = self._found.setdefault(trajectory, (seen.category, {}))
        if seen.index in places:
            reason = f"the step comes twice, again in {source}; the first is kept."
            self.report.add(f"{trajectory}/{seen.index}", reason)
            return False
        places[seen.index] = number
        self.report.kept += 1
        if seen.length:
            self._lengths[trajectory] = max(seen.length, self._lengths.get(trajectory, 0))
        if seen.index >= self._last.get(trajectory, (-1, False))[0]:
            self._last[trajectory] = seen.index, seen.ends
        return True

    def episodes(self) -> Iterator[Episode]:
        """The episodes in the order of their first steps."""
        for trajectory, (category, places) in self._found.items():
            yield Episode(trajectory, category, tuple(places), tuple(places.values()))

    def note(self) -> None:
        """Count in the report's notes what is unusual about the episodes."""
        notes = dict.fromkeys(("episodes", "episodes_incomplete"), 0)  # always there; the others where they occur
        for trajectory, (_, places) in self._found.items():
            found = {
                "episodes": True,
                "episodes_incomplete": len(places) < self._lengths.get(trajectory, 0),
                "episodes_out_of_order": list(places) != sorted(places),
                "episodes_not_numbered_through": max(places) != len(places) - 1,
                "episodes_in_several_files": len(set(places.values())) > 1,
                "episodes_without_end": not self._last[trajectory][1],
            }
            for name, holds in found.items():
                if holds:
                    notes[name] = notes.get(name, 0) + 1
        for name, count in notes.items():
            self.report.note(name, count)


def survey(
    reader: StepReader, sources: Sequence[SourceFile], folder: Path, workers: int | None, advance: Advance
) -> Survey:
    """Read every source once and tell which usable steps it holds.

    The result depends neither on the number of workers nor on kills. Of a step that several sources hold, the first
    source's is taken, and each later copy is a fault.

    Args:
        reader: of the benchmark.
        sources: in the order that decides which copy of a step is the first.
        folder: keeps what each source holds; a second call reads only sources that are new or have changed, and those
            with a fault whose server does not say their length: the connection may have ended early.
        workers: processes, at least 1; None takes one per core.
        advance: told the bytes read so far and in all.

    Raises:
        DataError: if a source cannot be read, a worker dies, or no source has a usable step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_temporary(folder)
    identity = reader_key(reader)
    paths = [folder / f"{fingerprint([FORMAT, identity, *source_key(source)])}.json" for source in sources]
    left = [(source, path) for source, path in zip(sources, paths, strict=True) if not _is_known(source, path)]
    tasks = [Task(source.name, _survey_source, (reader, source, path)) for source, path in left]
    run_tasks(tasks, workers, progress(advance, sources, [source for source, _ in left]))
    report = DataReport()
    log = EpisodeLog(report)
    for number, (source, path) in enumerate(zip(sources, paths, strict=True)):
        runs, own_report = _load(path)
        report.merge(own_report)
        for seen in runs:
            log.add(seen, number, source.name)
    names = [source.url for source in sources[:3]]
    require_steps(report.kept, report, names, "Check that the files are whole and of the official release.")
    log.note()
    return Survey(reader, tuple(sources), tuple(log.episodes()), report)


def _is_known(source: SourceFile, path: Path) -> bool:
    """Whether an earlier call has read the whole source."""
    return path.exists() and not (may_be_cut(source) and _load(path)[1].faults)


def reader_key(reader: StepReader) -> str:
    """A hash of the reader's class and settings."""
    return blake2b(pickle.dumps(reader), digest_size=8).hexdigest()


def source_key(source: SourceFile) -> list[str | int]:
    """What tells one state of one file from another."""
    return [source.url, source.name, source.size, source.stamp]


def progress(advance: Advance, sources: Sequence[SourceFile], left: Sequence[SourceFile]) -> OnRead:
    """Turn reads into `advance`; what an earlier call has done counts as done."""
    total = sum(source.size for source in sources)
    done = total - sum(source.size for source in left)

    def on_read(count: int) -> None:
        nonlocal done
        done += count
        advance(min(done, total), total)

    on_read(0)
    return on_read


class Metered:
    """A source whose reads are told, and which counts as wholly read at its end, even if reading stops before.

    Args:
        source: the file.
        on_read: told the bytes.
    """

    def __init__(self, source: SourceFile, on_read: OnRead) -> None:
        self._count, self._on_read = 0, on_read
        self.source = replace(source, on_read=self._read)

    def _read(self, count: int) -> None:
        self._count += count
        self._on_read(count)

    def __enter__(self) -> SourceFile:
        return self.source

    def __exit__(self, *_: object) -> None:
        if self._count < self.source.size:
            self._on_read(self.source.size - self._count)


def remove_temporary(folder: Path) -> None:
    """Remove what a killed process has left half written."""
    for path in folder.glob("*.tmp"):
        path.unlink(missing_ok=True)


def write_whole(path: Path, value: Any) -> None:
    """Write compact JSON under a temporary name and rename it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")), encoding="ascii")
    temporary.replace(path)


def _survey_source(payload: tuple[StepReader, SourceFile, Path], on_read: OnRead) -> None:
    """Write what one source holds: neighbouring steps of a trajectory share one row."""
    reader, source, path = payload
    report = DataReport()
    rows: list[list[Any]] = []
    with Metered(source, on_read) as metered:
        for seen in reader.survey(metered, report):
            head = [seen.trajectory, seen.category, seen.length]
            if not rows or rows[-1][:3] != head:
                rows.append([*head, [], []])
            rows[-1][3].append(seen.index)
            rows[-1][4].append(int(seen.ends))
    write_whole(path, {"rows": rows, "report": report.to_dict()})


def load_report(values: dict[str, Any]) -> DataReport:
    """Inverse of `DataReport.to_dict`."""
    return DataReport(values["read"], values["kept"], [Fault(**fault) for fault in values["faults"]], values["notes"])


def _load(path: Path) -> tuple[Iterator[Seen], DataReport]:
    values = json.loads(path.read_text(encoding="ascii"))
    steps = (
        Seen(trajectory, category, index, length, bool(ends))
        for trajectory, category, length, indices, marks in values["rows"]
        for index, ends in zip(indices, marks, strict=True)
    )
    return steps, load_report(values["report"])
