"""What every benchmark offers, and how readers report what they could not read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from switchmem.steps import Action, Step


class DataError(Exception):
    """Data as a whole is unusable: the message says what was looked for, where, and the way out."""


def one_line(text: str) -> str:
    r"""The text with line breaks, and all else that could steer a terminal or a log, written as escapes.

    >>> one_line("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Benchmark(Protocol):
    """A benchmark's name and its official score."""

    name: str

    def score(self, action: Action | None, gold: Step) -> float:
        """Score one predicted action against one recorded step.

        Args:
            action: the predicted action; None for an answer that could not be parsed.
            gold: the recorded step, its elements included.

        Returns:
            S_b in [0, 1]; 0.0 for None.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """One record, or one whole file or run, that was left out. As text it is one printable line.

    Args:
        id: the step's id where it is known, else the benchmark, file and place.
        reason: what was found and which rule it breaks.
    """

    id: str
    reason: str

    def __str__(self) -> str:
        return one_line(f"{self.id}: {self.reason}")


@dataclass(slots=True)
class DataReport:
    """What a reader saw. Readers fill it while the rest of the data goes on.

    Args:
        read: records looked at.
        kept: records that became a `Step`.
        faults: what was left out, by id. A fault may name a whole file or run, so that
            ``read - kept`` need not equal their number.
        notes: counts of things that are no fault but worth knowing ("runs_finished").

    Example:
        >>> report = DataReport(read=2, kept=1)
        >>> report.add("aitw/7/1", "`image/encoded` is missing.")
        >>> report.note("episodes_incomplete")
        >>> report.summary()
        '1 of 2 records kept, 1 fault'
    """

    read: int = 0
    kept: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)

    def add(self, id: str, reason: str) -> None:
        """Count one fault under its id."""
        self.faults.append(Fault(id, reason))

    def note(self, name: str, count: int = 1) -> None:
        """Add to the count called `name`."""
        self.notes[name] = self.notes.get(name, 0) + count

    def merge(self, other: DataReport) -> None:
        """Add another reader's counts, faults and notes to this report."""
        self.read += other.read
        self.kept += other.kept
        self.faults.extend(other.faults)
        for name, count in other.notes.items():
            self.note(name, count)

    def summary(self) -> str:
        """One line for a log."""
        faults = len(self.faults)
        return f"{self.kept} of {self.read} records kept, {faults} fault{'' if faults == 1 else 's'}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write the report as JSON, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)


def require_steps(kept: int, report: DataReport, where: Iterable[object], way_out: str) -> None:
    """Refuse a source in which no record is usable.

    Args:
        kept: steps that this source gave.
        report: what was seen; its first faults are quoted.
        where: the places that were read.
        way_out: what to check.

    Raises:
        DataError: if `kept` is 0.
    """
    if kept:
        return
    places = ", ".join(str(place) for place in where)
    first = "; ".join(map(str, report.faults[:3]))
    found = f"{report.summary()} ({first})" if first else report.summary()
    raise DataError(f"No usable step in {places}: {found}. {way_out}")
