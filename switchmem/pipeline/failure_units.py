"""What a judge is shown of a run's failed units: of a test each answered step, of a rollout each played task."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchmem.evaluation import read_results
from switchmem.evaluation.failures import FailuresError
from switchmem.memory.agmem.failure_modes import SAID
from switchmem.memory.bank import action_text
from switchmem.memory.telling import tell_action, tell_screen
from switchmem.memory.views import Condition, Part, one_line
from switchmem.pipeline.report import Recordings, read_rows
from switchmem.rollout.results import read_rollout_results
from switchmem.rollout.trace import Trace, TraceError, read_facts, read_trace
from switchmem.runs import RunFolder
from switchmem.stages import Stages
from switchmem.steps import Action, Step

SYSTEM = "You find the root causes of failures of an agent that operates a phone."
RULES = (
    "\nName every root cause that applies, each once. A label needs direct evidence in what is shown: the screen, the "
    "agent's words, the action, the recorded action, the memory. That it failed is no evidence.\n"
    + "".join(f"- {mode.value}: {said}.\n" for mode, said in SAID.items())
    + "A wrong target that was chosen by reasoning is Cognitive Failure, or Visual State Misunderstanding where the "
    "screen was misread; the right target that was missed is Grounding Error; a path that was not found is Hidden "
    "Operation Blindness. Without a memory, Memory Over-following does not apply.\n"
    'Answer with one JSON object and nothing else: {"labels": [names from the list, perhaps none], "evidence": "one '
    'sentence"}'
)
PICTURES = 6
"""Screens of a played task that are shown, spread over it, the last one included."""


@dataclass(frozen=True)
class Unit:
    """One evaluated unit.

    Args:
        unit: its id.
        method: the condition or policy.
        score: in [0, 1].
        has_memory: whether a memory was shown.
        parts: what the judge is shown, made when it is asked.
        missing: why nothing can be shown, or "".
    """

    unit: str
    method: str
    score: float
    has_memory: bool
    parts: Callable[[], tuple[Part, ...]]
    missing: str = ""


def units_of(run: RunFolder, stages: Stages) -> tuple[str, list[Unit]]:
    """The evaluated units of a run, and in words what they are.

    Raises:
        FailuresError: if the folder holds no results.
    """
    if not run.results.is_file():
        raise FailuresError(f"`--run` must have results, got {run.path} without any. Run `test` or `rollout` first.")
    if is_rollout(run):
        return "played tasks (task level)", list(_played(run, stages))
    return "recorded steps (action level)", list(_recorded(run, stages))


def is_rollout(run: RunFolder) -> bool:
    """Whether the results are of played tasks.

    Raises:
        FailuresError: if they cannot be read.
    """
    try:
        return "episodes" in json.loads(run.results.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        raise FailuresError(f"{run.results} must be whole results, got: {error}. Run the command again.") from error


# --- recorded steps ---


def _recorded(run: RunFolder, stages: Stages) -> Iterator[Unit]:
    results, rows = read_results(run.results), read_rows(run.scores)
    recordings = Recordings.find(results, stages)
    methods = [name.removeprefix("answer_") for name in rows[0] if name.startswith("answer_")] if rows else []
    for method in methods:
        for row in rows:
            step = recordings.step(row["step_id"])
            missing = step if isinstance(step, str) else ""
            yield Unit(
                unit=row["step_id"],
                method=method,
                score=_score(row, method),
                has_memory=method != Condition.NONE.value,
                parts=_showing(recordings, row, method),
                missing=missing,
            )
    if rows and "choice" in rows[0]:
        for row in rows:
            chosen = str(row["choice"])
            missing = "" if isinstance(recordings.step(row["step_id"]), Step) else "its record is not at hand"
            yield Unit(
                row["step_id"], "switchmem", float(row[chosen]), True, _showing(recordings, row, chosen), missing
            )


def _score(row: Mapping[str, Any], method: str) -> float:
    """A form of memory has a column of its name; a memory baseline's says what it is."""
    column = f"baseline_{method}"
    return float(row[column if column in row else method])


def _showing(recordings: Recordings, row: Mapping[str, Any], method: str) -> Callable[[], tuple[Part, ...]]:
    def parts() -> tuple[Part, ...]:
        step = recordings.step(row["step_id"])
        if not isinstance(step, Step):
            raise FailuresError(f"Step {row['step_id']!r} must be at hand to be judged: {step}")
        found = recordings.actions.get(step.step_id, {}).get(method)
        acted = action_text(Action.from_dict(found)) if found else "as the answer says; it may be no action at all"
        told = (
            f"\nThe agent's answer: {row[f'answer_{method}']}\nThe action it was read as: {acted}\n"
            f"The recorded, correct action: {tell_action(step)}, {action_text(step.action)}\n"
            f"Score: {_score(row, method):.3f} of 1"
        )
        memory = _memory(recordings, row, method)
        return (
            f"Task: {one_line(step.instruction)}\nThe current screen:\n",
            step.screenshot.image(),
            *memory,
            told + RULES,
        )

    return parts


def _memory(recordings: Recordings, row: Mapping[str, Any], method: str) -> tuple[Part, ...]:
    if method == Condition.NONE.value:
        return ("\nThe agent was shown no memory.",)
    demo = recordings.step(row["memory_id"])
    if not isinstance(demo, Step):
        return (f"\nThe agent was shown a memory as {method}, which is not at hand.",)
    words = f"\nThe agent was shown a memory, as {method}. Its task: {one_line(demo.instruction)}\n"
    words += f"Its screen: {tell_screen(demo)}\nIts action: {tell_action(demo)}, {action_text(demo.action)}"
    if method in (Condition.TEXT.value, "rag_gui", "echotrail", "m3a"):
        return (words,)
    return (f"{words}\nIts screenshot:\n", demo.screenshot.image())


# --- played tasks ---


def _played(run: RunFolder, stages: Stages) -> Iterator[Unit]:
    results = read_rollout_results(run.results)
    for policy, key in results["episodes"].items():
        for task in results["tasks"]:
            path = stages.root / key / f"{task}.tar"
            try:
                facts = read_facts(path)
            except TraceError as error:
                success = bool(results["by_task"][task][policy])
                yield _not_shown(str(task), policy, success, f"no trace: {error}")
                continue
            if not facts.look:  # it counts as failed, as in the results
                yield _not_shown(str(task), policy, facts.success, f"it did not begin: {facts.ending}")
                continue
            memory = any(found is not None for found in facts.memories)
            yield Unit(str(task), policy, 1.0 if facts.success else 0.0, memory, _episode(path))


def _not_shown(task: str, policy: str, success: bool, why: str) -> Unit:
    return Unit(task, policy, 1.0 if success else 0.0, False, _no_parts, why)


def _no_parts() -> tuple[Part, ...]:
    return ()


def _episode(path: Path) -> Callable[[], tuple[Part, ...]]:
    return lambda: episode_parts(read_trace(path))


def episode_parts(trace: Trace) -> tuple[Part, ...]:
    """A played task as a judge is shown it: every move in words, some screens as pictures, the end."""
    screens = trace.screens
    last = len(screens) - 1
    shown = sorted(
        {round(n * last / max(1, min(PICTURES, len(screens)) - 1)) for n in range(min(PICTURES, len(screens)))}
    )
    parts: list[Part] = [f"Task: {one_line(trace.utterance)}\n"]
    for number, move in enumerate(trace.moves):
        parts.append(f"\nScreen {number + 1}:")
        if number in shown:
            parts.append(screens[number].screenshot.image())
        decision = move.decision
        memory = decision.get("memory")
        parts.append(
            f"\nMemory: {'none' if memory is None else memory}, as {decision.get('condition')}\n"
            f"The agent's answer: {decision.get('answer')}\nDone: {move.action.to_dict()} {move.note}\n"
        )
    if last in shown and len(screens) > len(trace.moves):
        parts += ["\nThe last screen:\n", screens[last].screenshot.image()]
    return (*parts, f"\nIt ended: {trace.ending} {trace.detail}; reward {trace.raw_reward}." + RULES)
