"""The parts of a benchmark's data as step stores, written once and then only read."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from switchmem.benchmarks.base import DataError, DataReport, Fault
from switchmem.benchmarks.store import StepMeta, StepStore, write_steps
from switchmem.stages import Stage, write_json
from switchmem.steps import Step

PARTS = ("preference", "bank", "test", "test_bank")
"""Preference queries and what they may retrieve, test queries and what they may retrieve."""

DEFAULTS = {"bank": ("preference",), "test_bank": ("bank",)}
BANKS = {"preference": "bank", "test": "test_bank"}
"""Which part the queries of a part retrieve from."""

LAYOUT = "parts.json"
REPORT = "data_report.json"

PartSteps = Iterable[Step] | tuple[str, ...] | None
"""Steps of a part (not in a tuple), a tuple of the names of the other parts that it consists of, or None: no steps."""


class Part:
    """Steps of one part by id, from one or more stores.

    Args:
        name: of the part.
        stores: its stores; an id that lies in several is taken from the first.
    """

    def __init__(self, name: str, stores: Iterable[StepStore]) -> None:
        self.name = name
        self._stores: dict[str, StepStore] = {}
        for store in stores:
            for step_id in store.step_ids:
                self._stores.setdefault(step_id, store)
        self.step_ids = tuple(self._stores)

    def __len__(self) -> int:
        return len(self.step_ids)

    def __getitem__(self, step_id: str) -> Step:
        """Read a step.

        Raises:
            KeyError: if the part has no such step.
            RecordError: if its record is damaged.
        """
        return self._stores[step_id][step_id]

    def meta(self, step_id: str) -> StepMeta:
        """Light fields of a step, without opening a shard."""
        return self._stores[step_id].meta(step_id)

    @property
    def trajectories(self) -> int:
        """Number of trajectories."""
        return len({self.meta(step_id).trajectory for step_id in self.step_ids})


def write_parts(parts: Mapping[str, PartSteps], stage: Stage, report: DataReport) -> None:
    """Write the stores of all parts into a stage, with ``data_report.json`` beside them.

    Args:
        parts: steps by part; "bank" is "preference" and "test_bank" is "bank" where they are not given. Two parts that
            are the same object, or a part that names others, are stored once. "test" may be None: there is nothing to
            test on.
        stage: where to; whatever an interrupted run left there is written again.
        report: filled by the readers while the steps are drawn.

    Raises:
        DataError: if a part is unknown, missing or empty.
        RecordError: if two steps of a part share an id.
    """
    check_names(parts)
    shutil.rmtree(stage.folder, ignore_errors=True)
    folder = stage.begin()
    layout: dict[str, list[str]] = {}
    written: dict[int, str] = {}
    counts: dict[str, int] = {}
    for name in PARTS:
        steps = parts[name] if name in parts else DEFAULTS[name]
        if steps is None:
            layout[name] = []
        elif isinstance(steps, tuple):
            layout[name] = list(steps)
        elif id(steps) in written:
            layout[name] = [written[id(steps)]]
        else:
            layout[name], written[id(steps)] = [name], name
            counts[name] = _write(steps, folder / name)
    finish_parts(stage, layout, counts, report)


def finish_parts(
    stage: Stage, layout: Mapping[str, Sequence[str]], counts: Mapping[str, int], report: DataReport
) -> None:
    """Finish a stage whose step stores are written: their layout, ``data_report.json``, and the mark of completion.

    Args:
        stage: holds a store, a folder of the part's name, for each part that has steps of its own.
        layout: for each part of `PARTS` the parts that it consists of; itself where it has a store. Parts that are left
            out are as in `DEFAULTS`, and "test" may consist of none.
        counts: steps of each store.
        report: what the readers saw.

    Raises:
        DataError: if a store is empty, or parts consist of each other.
    """
    empty = [name for name, count in counts.items() if not count]
    if empty:
        raise DataError(
            f"part {empty[0]!r} must have at least one step, got " + describe(counts) + f" ({report.summary()}). "
            "Add trajectories to the data, or change how it is split."
        )
    whole = {**DEFAULTS, **layout}
    write_json(stage.folder / LAYOUT, {name: _stored(name, whole) for name in PARTS})
    report.save(stage.folder / REPORT)
    stage.finish(steps=dict(counts), kept=report.kept, faults=len(report.faults))


def check_names(parts: Mapping[str, PartSteps]) -> None:
    """Refuse unknown and missing parts.

    Raises:
        DataError: if a part is not one of `PARTS`, queries are missing, a part other than "test" is None, or a part
            names no or unknown parts.
    """
    unknown, missing = set(parts) - set(PARTS), set(BANKS) - set(parts)
    if unknown or missing:
        raise DataError(
            f"`read` must give {sorted(BANKS)} and may give {sorted(set(PARTS) - set(BANKS))}, got {sorted(parts)}. "
            "Rename or add the part in the data module."
        )
    for name, steps in parts.items():
        if steps is None and name != "test":
            raise DataError(f"part {name!r} must have steps, got None. Only 'test' may be left without.")
        if isinstance(steps, tuple) and not (steps and set(steps) <= set(PARTS) - {name}):
            raise DataError(
                f"part {name!r} must consist of other parts, got {steps}. Known parts are {', '.join(PARTS)}."
            )


def describe(counts: Mapping[str, int]) -> str:
    """Counts by part in words.

    >>> describe({"preference": 12, "test": 0})
    '12 preference and 0 test steps'
    """
    return " and ".join(f"{count} {name}" for name, count in counts.items()) + " steps"


def _write(steps: Iterable[Step], folder: Path) -> int:
    """Number of steps written; an empty part leaves no store."""
    stream = iter(steps)
    first = next(stream, None)
    return 0 if first is None else len(write_steps(itertools.chain([first], stream), folder))


def _stored(name: str, layout: Mapping[str, Sequence[str]], path: tuple[str, ...] = ()) -> list[str]:
    """The stores behind a part, with the parts that it names resolved, in order and without repeats."""
    if name in path:
        raise DataError(
            f"parts must not consist of each other, got {' -> '.join([*path, name])}. Give one of them steps."
        )
    found: list[str] = []
    for other in layout[name]:
        found += [other] if other == name else _stored(other, layout, (*path, name))
    return list(dict.fromkeys(found))


def stores_of(stage: Stage, name: str) -> list[str]:
    """Names of the stores behind a part of a finished stage, in order.

    Raises:
        DataError: if the stage does not hold what it should.
    """
    try:
        return list(json.loads((stage.folder / LAYOUT).read_text(encoding="utf-8"))[name])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{stage.folder} must hold the data's parts, got: {error!r}. Remove the folder; it is written again."
        ) from error


def open_part(stage: Stage, name: str) -> Part:
    """A part of a finished stage.

    Raises:
        DataError: if the stage does not hold what it should, or the part has no steps.
    """
    stores = stores_of(stage, name)
    if not stores:
        raise DataError(
            f"part {name!r} must have steps, got none: the data has too few trajectories to hold some out for it. "
            "Add trajectories to the data."
        )
    return Part(name, [StepStore(stage.folder / store) for store in stores])


def load_report(path: Path) -> DataReport:
    """Inverse of `DataReport.save`; an empty report where there is no file."""
    if not path.is_file():
        return DataReport()
    values = json.loads(path.read_text(encoding="utf-8"))
    return DataReport(values["read"], values["kept"], [Fault(**fault) for fault in values["faults"]], values["notes"])
