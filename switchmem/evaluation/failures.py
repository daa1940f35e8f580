"""Failure modes of a run: how answers of a judge are read, who counts, and the table (arXiv 2606.14106, appendix C.1).

The unit is a task where episodes were played and an action where recorded steps were answered. Percentages are of all
evaluated units, successful ones included; a unit may have several modes and counts once for each. Only units below the
threshold of success are labelled. A unit whose label could not be had stays in the denominator and is told.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from switchmem.memory.agmem.failure_modes import FailureMode
from switchmem.memory.writing import Fault, Unusable, checked_text

SUCCESS = 0.999
"""Scores below are failed or partial (appendix C.1)."""
SHORT = {
    FailureMode.COGNITIVE: "cognitive",
    FailureMode.VISUAL_STATE: "visual mis.",
    FailureMode.HIDDEN_OPERATION: "hidden op.",
    FailureMode.GROUNDING: "grounding",
    FailureMode.MEMORY: "memory",
}
PAPER = {
    "Vanilla agent": (18.3, 82.6, 73.1, 67.1, 27.5),
    "+ visual memory": (20.4, 75.0, 69.6, 78.8, 36.1),
    "+ crop": (25.8, 72.4, 68.3, 60.3, 32.1),
    "AGMem": (27.2, 67.1, 32.3, 52.5, 22.5),
}
"""The paper's table 2 (OSWorld, GPT-5.4-mini): accuracy and its four modes in percent; not ours."""
_EVIDENCE = 400


class FailuresError(ValueError):
    """Failure modes cannot be told as asked; the message says why, and the way out."""


@dataclass(frozen=True)
class Labels:
    """What a judge said of a unit.

    Args:
        modes: in the order of `FailureMode`, each once; may be empty, where none of the five applies.
        evidence: one sentence.
    """

    modes: tuple[FailureMode, ...]
    evidence: str


@dataclass(frozen=True)
class Judged:
    """One evaluated unit.

    Args:
        unit: its id.
        score: in [0, 1]; of the unit, by its benchmark.
        labels: of a failed unit; None for a successful one, and where no usable label could be had.
        fault: why a failed unit has none, or "".
    """

    unit: str
    score: float
    labels: Labels | None = None
    fault: str = ""

    @property
    def failed(self) -> bool:
        """Whether it failed, wholly or in part."""
        return self.score < SUCCESS


def read_labels(text: str, has_memory: bool) -> Labels:
    """The labels of a judge's answer: a JSON object with "labels", a list of the five names, and "evidence".

    Args:
        text: the raw answer.
        has_memory: whether the unit was shown a memory; without one, nothing can have followed it.

    Raises:
        Unusable: if the answer is empty, refuses, is no such object, names something else, gives labels without
            evidence, or blames a memory that was not shown.

    >>> read_labels('{"labels": ["Grounding Error"], "evidence": "The tap misses the button."}', False).modes[0].name
    'GROUNDING'
    """
    checked_text(text, len(text) + 1)
    values = _object(text)
    named, evidence = values.get("labels"), values.get("evidence")
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise Unusable(Fault.MALFORMED)
    names = {mode.value.lower(): mode for mode in FailureMode}
    found = {names.get(" ".join(name.lower().split())) for name in named}
    if None in found or (FailureMode.MEMORY in found and not has_memory):
        raise Unusable(Fault.MALFORMED)
    if found and not (isinstance(evidence, str) and evidence.strip()):
        raise Unusable(Fault.MALFORMED)
    said = checked_text(evidence, _EVIDENCE) if isinstance(evidence, str) and evidence.strip() else ""
    return Labels(tuple(mode for mode in FailureMode if mode in found), said)


def _object(text: str) -> dict[str, Any]:
    """The first JSON object of an answer, behind its thinking and whatever stands around it."""
    answer, decoder = text.rpartition("</think>")[2], json.JSONDecoder()
    start = answer.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            start = answer.find("{", start + 1)
            continue
        if isinstance(value, dict):
            return value
        break
    raise Unusable(Fault.MALFORMED)


def failure_row(judged: Sequence[Judged]) -> dict[str, Any]:
    """Counts and rates of the units of one method.

    Returns:
        "units", "successes", "failed"; "score", their mean in percent; "modes", by name "count" and "percent" of all
        units; "none", labelled units to which no mode applies; "unlabelled", by fault, whose modes are not known, so
        that each mode's percentage could be that much higher.

    Raises:
        FailuresError: if there is no unit, one is there twice, or a successful one is labelled.
    """
    ids = Counter(unit.unit for unit in judged)
    twice = [name for name, count in ids.items() if count > 1]
    if not judged or twice:
        raise FailuresError(
            f"`judged` must hold at least one unit and each once, got {len(judged)}, {len(twice)} of them twice "
            f"{twice[:1]}. Drop the copies."
        )
    wrong = [unit.unit for unit in judged if not unit.failed and (unit.labels is not None or unit.fault)]
    if wrong:
        raise FailuresError(f"`judged` must label failed units alone, got {wrong[0]!r}, which succeeded.")
    failed = [unit for unit in judged if unit.failed]
    counts = Counter(mode for unit in failed if unit.labels is not None for mode in unit.labels.modes)
    return {
        "units": len(judged),
        "successes": len(judged) - len(failed),
        "failed": len(failed),
        "score": 100.0 * sum(unit.score for unit in judged) / len(judged),
        "modes": {m.value: {"count": counts[m], "percent": 100.0 * counts[m] / len(judged)} for m in FailureMode},
        "none": sum(unit.labels is not None and not unit.labels.modes for unit in failed),
        "unlabelled": dict(sorted(Counter(u.fault or "not asked" for u in failed if u.labels is None).items())),
    }


def failure_text(rows: Mapping[str, Mapping[str, Any]], title: str) -> str:
    """The paper's table 2 with our rows, and the paper's own below, as plain text.

    Args:
        rows: of `failure_row`, by method.
        title: what was judged.
    """
    heads = ["method", "units", "score %", *SHORT.values(), "none", "unlabelled"]
    lines = [heads]
    for name, row in rows.items():
        modes = [f"{row['modes'][mode.value]['percent']:.1f}" for mode in FailureMode]
        unlabelled = sum(row["unlabelled"].values())
        lines.append([name, str(row["units"]), f"{row['score']:.1f}", *modes, str(row["none"]), str(unlabelled)])
    for name, (accuracy, *rates) in PAPER.items():
        lines.append([f"paper: {name}", "", f"{accuracy:.1f}", *(f"{rate:.1f}" for rate in rates), "", "", ""])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    text = "\n".join(
        "  ".join(
            cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
    return (
        f"{title}\n{text}\nModes are in percent of all units; a unit may have several. The paper's rows are OSWorld "
        "with GPT-5.4-mini, at task level.\n"
    )


def failure_markdown(row: Mapping[str, Any]) -> str:
    """The table of appendix C.1 for one method."""
    lines = ["| Root cause | Count | Ratio |", "|---|---:|---:|"]
    lines += [f"| {name} | {cell['count']} | {cell['percent']:.1f}% |" for name, cell in row["modes"].items()]
    return "\n".join(lines) + "\n"
