"""The report of a rollout: its page shows every step of every episode, from the traces that its results name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from switchmem.actors.grammars.base import get_grammar
from switchmem.benchmarks import DataError
from switchmem.benchmarks.store import StepStore
from switchmem.console import progress, say
from switchmem.memory.views import Condition, text_state
from switchmem.pipeline.report import GOLDEN, MEGABYTES
from switchmem.prompts import get_template
from switchmem.report import Browser, Demo, Router, ShownStep, embed
from switchmem.report.online import render_online
from switchmem.rollout.results import SWITCHMEM, read_rollout_results, rollout_rows
from switchmem.rollout.trace import Move, Trace, TraceError, read_screenshot, read_trace
from switchmem.runs import RunError, RunFolder
from switchmem.stages import Stages, make_folder, write_whole
from switchmem.steps import RecordError, Screenshot

Results = Mapping[str, Any]


def write_rollout_report(
    run: RunFolder, stages: Stages, pictures: int | None = None, megabytes: int = MEGABYTES
) -> Path:
    """Write ``report/index.html`` into a rollout's folder.

    Args:
        run: with the results of `rollout`.
        stages: where the episodes lie that its results name.
        pictures: the most steps that carry their pictures; None takes as many as fit.
        megabytes: size of the page that pictures may fill, at least 1.

    Returns:
        The page.

    Raises:
        RunError: if an argument is out of range.
        RolloutError: if there are no results.
    """
    for name, value, least in (("pictures", pictures, 0), ("megabytes", megabytes, 1)):
        if value is not None and value < least:
            raise RunError(f"`{name}` must be at least {least}, got {value}.")
    results = read_rollout_results(run.results)
    rows = rollout_rows(results)
    shelf = Shelf(results, stages)
    browser = shelf.browser()
    room = 1e6 * megabytes - len(render_online(results, rows, browser))
    browser = with_pictures(browser, shelf, results, pictures, room)
    path = run.path / "report" / "index.html"
    make_folder(path.parent)
    write_whole(path, render_online(results, rows, browser).encode("utf-8", "replace"))
    for note in browser.notes:
        say(f"note: {note}")
    say(f"report: {path}, {path.stat().st_size / 1e6:.1f} MB")
    return path


class Shelf:
    """The traces and demonstrations of a rollout, as far as they are at hand.

    Args:
        results: of the rollout.
        stages: where they lie.
    """

    def __init__(self, results: Results, stages: Stages) -> None:
        self.results = results
        self._places: dict[str, tuple[Path, int]] = {}  # screen -> its trace, and which one it is there
        self._folders = {name: stages.root / key for name, key in results["episodes"].items()}
        self._store, self.lacking = _bank(results, stages)

    def browser(self) -> Browser:
        """The step browser, without pictures."""
        steps: list[ShownStep] = []
        with progress("report: episodes") as advance:
            for n, task in enumerate(self.results["tasks"]):
                for policy in self.results["policies"]:
                    steps += self._episode(policy, task)
                advance(n + 1, len(self.results["tasks"]))
        ids = dict.fromkeys(step.memory_id for step in steps if step.memory_id)
        demos = {"": Demo("", missing="No demonstration was shown."), **{i: self._demo(i) for i in ids}}
        found = self.results["threshold"]
        routers = [] if found is None else [Router(SWITCHMEM, 0, float(found["tau"]))]
        notes = [*self.lacking, "The score of a step is that of its whole episode: 1 if the task was done."]
        return Browser(steps, demos, routers, {}, notes, online=True)

    def _episode(self, policy: str, task: str) -> Iterator[ShownStep]:
        path = self._folders[policy] / f"{task}.tar"
        try:
            trace = read_trace(path, pictures=False)
        except TraceError as error:
            self.lacking.append(str(error))
            return
        for index, move in enumerate(trace.moves):
            step = _shown(trace, index, move)
            self._places[step.step_id] = (path, index)
            yield step
        over = _over(trace)
        if trace.last is not None:
            self._places[over.step_id] = (path, len(trace.moves))
        yield over

    def _demo(self, step_id: str) -> Demo:
        if self._store is None:
            return Demo(step_id, missing="Its record is not at hand.")
        try:
            step = self._store[step_id]
        except (KeyError, RecordError) as error:
            return Demo(step_id, missing=f"Its record cannot be read: {error}")
        actor = self.results["provenance"]["actor"]
        grammar = get_grammar(actor["grammar"], actor.get("max_pixels"))
        style = grammar.for_screen((step.screenshot.width, step.screenshot.height))
        text = text_state(step, style, get_template(actor["template"]).memory)
        return Demo(step_id, step.instruction, step.action.to_dict(), text)

    def has_screen(self, step: ShownStep) -> bool:
        """Whether there is a screen to be shown; a task that did not begin has none."""
        return step.step_id in self._places

    def screenshot(self, step_id: str) -> Screenshot | None:
        """A step's or a demonstration's screen, or None."""
        if step_id in self._places:
            path, number = self._places[step_id]
            return read_screenshot(path, number)
        if self._store is None or step_id not in self._store.step_ids:
            return None
        try:
            return self._store[step_id].screenshot
        except RecordError:
            return None  # the demonstration says so itself


def _bank(results: Results, stages: Stages) -> tuple[StepStore | None, list[str]]:
    if results["bank"] is None:
        return None, []
    try:
        return StepStore(stages.root / results["bank"]["stage"] / "bank"), []
    except DataError as error:
        return None, [f"Demonstrations are not in this page: {error}"]


def _shown(trace: Trace, index: int, move: Move) -> ShownStep:
    decision, form = move.decision, move.decision["condition"]
    r = decision["r"]
    routed = not isinstance(r, str)  # what is not finite is kept as text
    action = decision["action"]
    reason = decision["reason"] or (move.note or None)
    return ShownStep(
        step_id=f"{trace.policy}/{trace.task}/{index}",
        trajectory=f"{trace.policy}/{trace.task}",
        index=index,
        category=trace.task,
        action_type=action["type"] if action else "no action",
        groups=_groups(trace),
        memory_id=decision["memory"] or "",
        cosine=float(decision["cosine"]),
        scores={form: float(trace.success)},
        answers={form: decision["answer"]},
        actions={form: action},
        reasons={form: None if action else reason},
        r=(r,) if routed else (),
        t=None,
        choice=form if routed and form in (Condition.TEXT.value, Condition.IMAGE.value) else None,
        instruction=trace.utterance,
        gold=action,
    )


def _over(trace: Trace) -> ShownStep:
    """The screen at the end of an episode."""
    detail = f": {trace.detail}" if trace.detail else ""
    return ShownStep(
        step_id=f"{trace.policy}/{trace.task}/{len(trace.moves)}",
        trajectory=f"{trace.policy}/{trace.task}",
        index=len(trace.moves),
        category=trace.task,
        action_type=f"over ({trace.ending})",
        groups=_groups(trace),
        memory_id="",
        cosine=float("nan"),
        scores={},
        answers={},
        actions={},
        reasons={},
        r=(),
        t=None,
        choice=None,
        instruction=trace.utterance or trace.task,
        missing=f"{trace.ending}{detail}" if trace.last is None else "",
    )


def _groups(trace: Trace) -> tuple[str, ...]:
    return (trace.policy, "done" if trace.success else "not done")


def with_pictures(browser: Browser, shelf: Shelf, results: Results, most: int | None, room: float) -> Browser:
    """The browser with as many pictures as there is room for, and a note where that is not all.

    Args:
        browser: without pictures.
        shelf: where screenshots are.
        results: of the rollout.
        most: the most steps with pictures; None for no limit.
        room: bytes of the page left for them.
    """
    differs = {task: len(set(done.values())) > 1 for task, done in results["by_task"].items()}
    shown = [step for step in browser.steps if shelf.has_screen(step)]
    order = sorted(range(len(shown)), key=lambda n: (not differs[shown[n].category], n * GOLDEN % 1))
    wanted = [[i for i in (shown[n].step_id, shown[n].memory_id) if i] for n in order][:most]
    with progress("report: pictures") as advance:
        pictures, steps = embed(wanted, shelf.screenshot, room, advance)
    notes = list(browser.notes)
    if steps < len(shown):
        notes.append(
            f"{steps:,} of {len(shown):,} steps carry their pictures, those of tasks on which policies differ "
            "first. `--megabytes` and `--pictures` of the command `report` set how many."
        )
    return replace(browser, pictures=pictures, notes=notes)
