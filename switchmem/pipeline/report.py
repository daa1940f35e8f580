"""The report of a run: what the page shows is gathered from the run's folder and the stages that its results name.

No model is loaded, the original data is not read, and no step is scored again. A folder that lies alone, without the
stages, gives tables, figures and scores, and the page says what it lacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from lightning.pytorch.loggers import Logger, WandbLogger

from switchmem.actors.grammars.base import get_grammar
from switchmem.benchmarks import DataError
from switchmem.benchmarks.store import INDEX, StepStore
from switchmem.console import progress, say
from switchmem.evaluation import ResultsError, context_groups, read_results
from switchmem.harvest import Harvest
from switchmem.memory.views import Condition, text_state
from switchmem.pipeline.report_audit import audit_of
from switchmem.prompts import get_template
from switchmem.report import Browser, Demo, Router, ShownStep, all_figures, as_file, embed, render, standalone
from switchmem.runs import RunError, RunFolder
from switchmem.stages import Stages, make_folder, write_whole
from switchmem.steps import RecordError, Screenshot, Step

MEGABYTES = 60
"""Size that a page should not exceed."""

GOLDEN = 0.6180339887498949


def write_report(run: RunFolder, stages: Stages, pictures: int | None = None, megabytes: int = MEGABYTES) -> Path:
    """Write ``report/index.html`` into a run's folder, and beside it each figure as ``report/figures/NAME.svg``.

    Args:
        run: with the results of `test`.
        stages: where the stages lie that its results name.
        pictures: the most steps that carry their pictures; None takes as many as fit.
        megabytes: size of the page that pictures may fill, at least 1; tables and texts always go in.

    Returns:
        The page.

    Raises:
        RunError: if `test` has not finished in the run, or an argument is out of range.
        HarvestError: if the harvest is damaged.
    """
    for name, value, least in (("pictures", pictures, 0), ("megabytes", megabytes, 1)):
        if value is not None and value < least:
            raise RunError(f"`{name}` must be at least {least}, got {value}.")
    results = finished(run)
    rows = read_rows(run.scores)
    recordings = Recordings.find(results, stages)
    audit, told = audit_of(run)
    browser = make_browser(results, rows, recordings)
    browser = replace(browser, notes=[*browser.notes, *told])
    room = 1e6 * megabytes - len(render(results, browser, audit))
    browser = with_pictures(browser, recordings, rows, pictures, room)
    path = run.path / "report" / "index.html"
    make_folder(path.parent)
    write_whole(path, render(results, browser, audit).encode("utf-8", "replace"))  # a lone surrogate is no text
    make_folder(path.parent / "figures")
    for figure in all_figures(results):
        write_whole(path.parent / "figures" / f"{figure.name}.svg", as_file(figure).encode("utf-8", "replace"))
    for note in browser.notes:
        say(f"note: {note}")
    say(f"report: {path}, {path.stat().st_size / 1e6:.1f} MB")
    return path


def try_report(run: RunFolder, write: Callable[[], Path]) -> None:
    """Write a report at the end of a test or rollout; where that fails, say why and go on: the results are there."""
    try:
        write()
    except Exception as error:  # whatever it is, it must not make what has finished look as if it had failed
        say(
            f"note: the report could not be written: {error or type(error).__name__} The results are whole. "
            f"`python train.py report --run {run.path}` tries again."
        )


def finished(run: RunFolder, command: str = "report") -> dict[str, Any]:
    """The results of a run.

    Args:
        run: after `test`.
        command: which asks, for the message.

    Raises:
        RunError: if `test` has not finished in it.
    """
    if not run.results.is_file():
        raise RunError(f"`{command}` must find {run.results}, got none. Run `test` with this config first.")
    try:
        return read_results(run.results)
    except ResultsError as error:
        raise RunError(str(error)) from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of ``scores.parquet``.

    Raises:
        RunError: if the file is missing or damaged.
    """
    try:
        return list(pq.read_table(path).to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"`report` must find a whole {path}, got: {error}. Run `test` again.") from error


def log_figures(results: Mapping[str, Any], loggers: Iterable[Logger]) -> None:
    """Give the figures to Weights & Biases, as small pages; other loggers take none.

    Args:
        results: of a test.
        loggers: of the run.
    """
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            from wandb import Html  # there, as its logger is; no other run needs it

            pages = {f"figures/{figure.name}": standalone(figure) for figure in all_figures(results)}
            logger.experiment.log({name: Html(page, inject=False) for name, page in pages.items()})


# --- what the stages hold ---


@dataclass(frozen=True)
class Recordings:
    """Recorded steps and parsed answers of a run, as far as they are at hand.

    Args:
        steps: store of each step by id.
        actions, reasons: by step id, then by condition.
        lacking: why something is not at hand, one sentence each.
    """

    steps: Mapping[str, StepStore]
    actions: Mapping[str, Mapping[str, Any]]
    reasons: Mapping[str, Mapping[str, str | None]]
    lacking: Sequence[str]

    @classmethod
    def find(cls, results: Mapping[str, Any], stages: Stages) -> Recordings:
        """Follow the stages from the harvest that the results name to the steps it was made of."""
        harvest = stages.root / str(results["provenance"].get("harvest"))
        if not harvest.is_dir():
            return cls({}, {}, {}, [f"Screens and parsed answers are not in this page: there is no {harvest}."])
        opened = Harvest.open(harvest)
        actions = _by_step(opened, opened.actions)
        reasons = _by_step(opened, opened.reasons)
        try:
            memory = _inputs(harvest)["memory"]
            folder = stages.root / _inputs(stages.root / memory)["steps"]
            stores = _stores(folder)
        except (OSError, ValueError, KeyError, DataError) as error:
            return cls({}, actions, reasons, [f"Screens are not in this page: the steps are not at hand ({error})."])
        return cls({i: store for store in stores for i in store.step_ids}, actions, reasons, [])

    def step(self, step_id: str) -> Step | str:
        """A step, or why there is none."""
        store = self.steps.get(step_id)
        if store is None:
            return "Its record is not at hand."
        try:
            return store[step_id]
        except RecordError as error:
            return f"Its record is damaged: {error}"

    def screenshot(self, step_id: str) -> Screenshot | None:
        """A step's screenshot, or None."""
        step = self.step(step_id)
        return step.screenshot if isinstance(step, Step) else None


def _inputs(folder: Path) -> dict[str, Any]:
    """What a stage was made from, by the note in its folder."""
    return dict(json.loads((folder / "stage.json").read_text(encoding="utf-8"))["inputs"])


def _stores(folder: Path) -> list[StepStore]:
    found = [StepStore(index.parent) for index in sorted(folder.glob(f"*/{INDEX}"))]
    if not found:
        raise DataError(f"no step store in {folder}")
    return found


def _by_step(harvest: Harvest, column: Any) -> dict[str, dict[str, Any]]:
    """Of a greedy harvest's column the one sample of each step, by condition."""
    columns = {condition: column(condition) for condition in harvest.conditions}
    return {
        step_id: {condition: values[n][0] for condition, values in columns.items()}
        for n, step_id in enumerate(harvest.step_ids)
    }


# --- what the page shows ---


def make_browser(results: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], recordings: Recordings) -> Browser:
    """The step browser, without pictures.

    Args:
        results: of the run.
        rows: of its ``scores.parquet``.
        recordings: as far as they are at hand.
    """
    groups = _groups(results, rows)
    names = [(row["policy"], row["target"], row["seed"], row["threshold"]) for row in results["per_seed"]]
    routers = [Router(policy, seed, float(tau)) for policy, _, seed, tau in names]
    columns = [f"r_{target}_{seed}" for _, target, seed, _ in names]
    with progress("report: steps") as advance:
        steps = []
        for n, row in enumerate(rows):
            steps.append(_shown(row, columns, groups[n], recordings))
            advance(n + 1, len(rows))
    demos = {i: demo for i, demo in _demos(dict.fromkeys(row["memory_id"] for row in rows), results, recordings)}
    missing = [step.missing for step in steps] + [demo.missing for demo in demos.values()]
    damaged = sum(map(bool, missing)) if recordings.steps else 0
    notes = list(recordings.lacking)
    if damaged:
        records = "record of a step or a demonstration" if damaged == 1 else "records of steps or demonstrations"
        notes.append(f"{damaged} {records} cannot be read; where it belongs, the page says why.")
    limit = results["provenance"].get("actor", {}).get("state_tokens")
    if limit is not None:
        notes.append(f"Memories are shown whole; the actor reads at most {limit} tokens of a textual screen.")
    return Browser(steps, demos, routers, {}, notes)


def _shown(
    row: Mapping[str, Any], columns: Sequence[str], groups: tuple[str, ...], recordings: Recordings
) -> ShownStep:
    step_id, step = row["step_id"], recordings.step(row["step_id"])
    known = isinstance(step, Step)
    conditions = [c.value for c in Condition if c.value in row]
    return ShownStep(
        **{name: row[name] for name in ("step_id", "trajectory", "index", "category", "action_type")},
        groups=groups,
        memory_id=row["memory_id"],
        cosine=row["cosine"],
        scores={c: row[c] for c in conditions},
        answers={c: row[f"answer_{c}"] for c in conditions},
        actions=recordings.actions.get(step_id, dict.fromkeys(conditions)),
        reasons=recordings.reasons.get(step_id, dict.fromkeys(conditions)),
        r=tuple(row[column] for column in columns),
        t=row.get("t"),
        choice=row.get("choice"),
        instruction=step.instruction if isinstance(step, Step) else "",
        gold=step.action.to_dict() if isinstance(step, Step) else None,
        missing="" if known else str(step),
    )


def _demos(ids: Iterable[str], results: Mapping[str, Any], recordings: Recordings) -> Iterator[tuple[str, Demo]]:
    """Demonstrations with their text as the run's actor reads it."""
    actor = results["provenance"]["actor"]
    grammar, layout = get_grammar(actor["grammar"], actor.get("max_pixels")), get_template(actor["template"]).memory
    for step_id in ids:
        step = recordings.step(step_id)
        if isinstance(step, Step):
            style = grammar.for_screen((step.screenshot.width, step.screenshot.height))
            text = text_state(step, style, layout)
            yield step_id, Demo(step_id, step.instruction, step.action.to_dict(), text)
        else:
            yield step_id, Demo(step_id, missing=step)


def _groups(results: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Context groups of each step, with the bounds that the results name."""
    if "context" not in results:
        return [()] * len(rows)
    lower, upper = (float("nan") if bound is None else bound for bound in results["context"]["density_quartiles"])
    density, spatial, index = ([row[name] for row in rows] for name in ("density", "is_spatial", "index"))
    member = context_groups(density, spatial, index, (lower, upper))
    return [tuple(name for name, inside in member.items() if inside[n]) for n in range(len(rows))]


# --- pictures ---


def with_pictures(
    browser: Browser, recordings: Recordings, rows: Sequence[Mapping[str, Any]], most: int | None, room: float
) -> Browser:
    """The browser with as many pictures as there is room for, and a note where that is not all.

    Args:
        browser: without pictures.
        recordings: where screenshots are.
        rows: of ``scores.parquet``, in the browser's order.
        most: the most steps with pictures; None for no limit.
        room: bytes of the page left for them.
    """
    if not recordings.steps:
        return browser
    wanted = [(rows[n]["step_id"], rows[n]["memory_id"]) for n in by_interest(rows)][:most]
    with progress("report: pictures") as advance:
        pictures, steps = embed(wanted, recordings.screenshot, room, advance)
    notes = list(browser.notes)
    if steps < len(rows):
        notes.append(
            f"{steps:,} of {len(rows):,} steps carry their pictures, those where Text and Image score differently "
            "first. `--megabytes` and `--pictures` of the command `report` set how many."
        )
    return replace(browser, pictures=pictures, notes=notes)


def by_interest(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of the steps, those where Text and Image differ first; whatever is cut off, the rest is spread evenly.

    >>> by_interest([{"text": 1, "image": 1}, {"text": 0, "image": 1}, {"text": 1, "image": 0}])
    [1, 2, 0]
    """
    differ = [n for n, row in enumerate(rows) if row["text"] != row["image"]]
    tied = [n for n, row in enumerate(rows) if row["text"] == row["image"]]
    return [side[k] for side in (differ, tied) for k in sorted(range(len(side)), key=lambda k: k * GOLDEN % 1)]
