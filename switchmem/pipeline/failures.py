"""``train.py failures``: a judge behind any chat endpoint, or a local one, labels why the failed units of a run failed.

Its answers are kept by content in the endpoint's `cache`, so that a killed run goes on and a second one is free.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from switchmem.actors.spec import ActorSpec
from switchmem.arguments import CONFIGS, find_config
from switchmem.console import progress, say
from switchmem.evaluation.failures import (
    FailuresError,
    Judged,
    failure_markdown,
    failure_row,
    failure_text,
    read_labels,
)
from switchmem.flags import PlainParser
from switchmem.memory.baseline import Writer, WriterCall
from switchmem.memory.writing import Unusable
from switchmem.pipeline.failure_units import SYSTEM, Unit, units_of
from switchmem.runs import RunFolder
from switchmem.stages import Stages, write_json, write_whole

ANSWER_TOKENS = 256
TOGETHER = 32
"""Units whose pictures are in memory at once."""


def failures_parser() -> ArgumentParser:
    """The parser of `failures`."""
    parser = PlainParser(
        prog="train.py failures",
        allow_abbrev=False,
        description="Label the failed steps of a test, or the failed tasks of a rollout, with five failure modes.",
    )
    parser.add_argument("--run", required=True, type=str, help="the folder of a run")
    parser.add_argument(
        "--stages", type=str | None, default=None, help="folder of the stages (default: beside the run)"
    )
    parser.add_argument("--methods", type=list[str] | None, default=None, help="conditions or policies (default: all)")
    parser.add_argument("--limit", type=int | None, default=None, help="units of each method, spread over all of them")
    parser.add_argument("--tokens", type=int, default=ANSWER_TOKENS, help="the most tokens of a judge's answer")
    parser.add_class_arguments(ActorSpec, "judge")
    return parser


def run_failures(words: Sequence[str]) -> int:
    """Judge a run, print the table, and write ``failures.json`` and ``failures.txt`` into its folder.

    Args:
        words: the arguments behind "failures".

    Returns:
        0.

    Raises:
        FailuresError: if an argument is out of range, or the folder holds nothing to judge.
        ActorError: if the judge cannot be asked; what was answered is kept.
    """
    parser = failures_parser()
    chosen = parser.instantiate(parser.parse_args(list(_with_judge(words))))
    spec: ActorSpec = chosen.judge
    for name in ("limit", "tokens"):
        if chosen[name] is not None and chosen[name] < 1:
            raise FailuresError(f"`--{name}` must be at least 1, got {chosen[name]}.")
    run = RunFolder(Path(chosen.run))
    stages = Stages(Path(chosen.stages).absolute() if chosen.stages else run.path.parent / "stages")
    what, units = units_of(run, stages)
    units = picked(units, chosen.methods, chosen.limit)
    judged = judge(units, _writer(spec), chosen.tokens)
    rows = {method: failure_row(found) for method, found in judged.items()}
    text = failure_text(rows, f"failure modes of {run.path.name}: {what}, judged by {spec.model}")
    document = {"units": what, "judge": spec.model, "limit": chosen.limit, "methods": rows, "labels": _told(judged)}
    write_json(run.path / "failures.json", document)
    tables = "".join(f"\n{method}\n{failure_markdown(row)}" for method, row in rows.items())
    write_whole(run.path / "failures.txt", (text + tables).encode("utf-8", "replace"))
    say(text + f"labels and evidence: {run.path / 'failures.json'}")
    return 0


def _with_judge(words: Sequence[str]) -> Iterator[str]:
    """The arguments with ``--judge NAME.yaml`` found in ``configs/actor/``."""
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag != "--judge":
            yield word
            continue
        name = value if equals else next(rest, "")
        yield f"--judge={find_config(name, CONFIGS / 'actor', '--judge') if name.endswith(('.yaml', '.yml')) else name}"


def _writer(spec: ActorSpec) -> Writer:
    from switchmem.actors.writer import ModelWriter  # with it comes transformers

    return ModelWriter(spec.load(), spec.fingerprint(), TOGETHER)


def picked(units: Sequence[Unit], methods: Sequence[str] | None, limit: int | None) -> list[Unit]:
    """The units of some methods, and of each at most `limit`, spread evenly.

    Raises:
        FailuresError: if a method has no unit.
    """
    by_method: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        by_method[unit.method].append(unit)
    unknown = sorted(set(methods or ()) - set(by_method))
    if unknown or not by_method:
        raise FailuresError(f"`--methods` must be among {', '.join(by_method) or 'none'}, got {', '.join(unknown)}.")
    chosen: list[Unit] = []
    for method in methods or by_method:
        found = by_method[method]
        count = len(found) if limit is None else min(limit, len(found))
        chosen += [found[n * len(found) // count] for n in range(count)]
    return chosen


def judge(units: Sequence[Unit], writer: Writer, tokens: int = ANSWER_TOKENS) -> dict[str, list[Judged]]:
    """Ask for the labels of failed units.

    Args:
        units: successful ones are not asked about.
        writer: the judge.
        tokens: the most tokens of an answer.

    Returns:
        Every unit, by method, in the order given.
    """
    found: dict[str, list[Judged]] = {unit.method: [] for unit in units}
    done, stream = 0, iter(units)
    with progress("failures") as advance:
        while some := list(itertools.islice(stream, TOGETHER)):
            for unit, one in zip(some, _judged(some, writer, tokens), strict=True):
                found[unit.method].append(one)
            done += len(some)
            advance(done, len(units))
    return found


def _judged(units: Sequence[Unit], writer: Writer, tokens: int) -> Iterable[Judged]:
    plain = [Judged(unit.unit, unit.score) for unit in units]
    asked = [n for n, unit in enumerate(units) if plain[n].failed and not unit.missing]
    calls = [WriterCall(units[n].parts(), tokens, "", SYSTEM) for n in asked]
    answers = dict(zip(asked, writer.write(calls) if calls else (), strict=True))
    for n, unit in enumerate(units):
        if not plain[n].failed:
            yield plain[n]
        elif n not in answers:
            yield Judged(unit.unit, unit.score, None, "not at hand")
        else:
            try:
                yield Judged(unit.unit, unit.score, read_labels(answers[n].text, unit.has_memory))
            except Unusable as error:
                yield Judged(unit.unit, unit.score, None, error.fault.value)


def _told(judged: dict[str, list[Judged]]) -> dict[str, dict[str, Any]]:
    """Labels and evidence of the failed units, by method and unit."""
    return {
        method: {
            one.unit: {
                "score": one.score,
                "labels": [mode.value for mode in one.labels.modes] if one.labels is not None else None,
                "evidence": one.labels.evidence if one.labels is not None else one.fault,
            }
            for one in found
            if one.failed
        }
        for method, found in judged.items()
    }
