"""Subtasks in words: of an instruction before anything is done, and of a trajectory after all of it (section 3).

Each is written by a model and checked; what is put in the place of a broken answer is made from the record by rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from switchmem.memory.baseline import Charge, WriterCall
from switchmem.memory.telling import tell_action, tell_change, tell_screen
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Fault, Unusable, checked_text
from switchmem.steps import Step

WORDS = {
    "system": "You break phone tasks into subtasks.",
    "plan": "Task: {instruction}\nWrite its subtasks in order, from what the task says alone, one per line as "
    '"number. subtask", at most {most} lines and nothing else.',
    "label": "Task: {instruction}\nWhat was done:\n{steps}\nDivide these {count} steps into subtasks, in order, by "
    'what really happened. One per line as "first-last: subtask", every step in exactly one, and nothing else.',
    "step": "{number}. on {screen}: {action}; then {change}",
    "end": "the end",
    "current": "Task: {instruction}\nSubtasks:\n{plan}\nDone so far: {history}\nCurrent screen:\n",
    "current_ask": '\nWhich subtask is being carried out now? Answer "Subtask: number" and nothing else.',
}
_PLANNED = re.compile(r"\s*(?:\d+\s*[.):]|[-*])\s*(.+)")
_SPAN = re.compile(r"\s*(\d{1,4})\s*(?:[-–]\s*(\d{1,4}))?\s*[:.)]\s*(.+)")
_CURRENT = re.compile(r"\W*(?:subtask\W*)?(\d{1,4})\b", re.IGNORECASE)
_LONGEST = 160


def plan_call(instruction: str, most: int, tokens: int, charge: Charge) -> WriterCall:
    """The question for the subtasks of an instruction. The draft is the instruction as its only subtask."""
    text = one_line(instruction)
    question = WORDS["plan"].format(instruction=text, most=most)
    return WriterCall((question,), tokens, f"1. {text}", WORDS["system"], charge)


def read_plan(text: str, most: int) -> tuple[str, ...]:
    r"""The subtasks of an answer, in order.

    Raises:
        Unusable: if the answer is empty, refuses, has no line of a subtask, or more than `most`.

    >>> read_plan("1. Open mail\n2. Write to Ann", 5)
    ('Open mail', 'Write to Ann')
    """
    checked_text(text)
    lines = [match[1] for line in _answer(text).splitlines() if (match := _PLANNED.fullmatch(line)) is not None]
    if not 1 <= len(lines) <= most:
        raise Unusable(Fault.MALFORMED)
    return tuple(checked_text(line, _LONGEST) for line in lines)


def label_call(trace: Sequence[Step], tokens: int) -> WriterCall:
    """The question for the subtask labels of a whole trajectory; words alone, so that it costs little."""
    lines = [
        WORDS["step"].format(
            number=n,
            screen=tell_screen(step, 12),
            action=tell_action(step).rstrip("."),
            change=tell_change(step, trace[n], 8) if n < len(trace) else WORDS["end"],
        )
        for n, step in enumerate(trace, 1)
    ]
    question = WORDS["label"].format(
        instruction=one_line(trace[0].instruction), steps="\n".join(lines), count=len(trace)
    )
    draft = "\n".join(f"{first}-{last}: {label}" for first, last, label in _spans(template_labels(trace)))
    return WriterCall((question,), tokens, draft, WORDS["system"], Charge.OFFLINE)


def read_labels(text: str, count: int) -> tuple[str, ...]:
    r"""One label per step.

    Args:
        text: the raw answer.
        count: steps of the trajectory.

    Raises:
        Unusable: if the answer is empty, refuses, or its spans do not cover the steps in order, each once.

    >>> read_labels("1-2: Open mail\n3: Send", 3)
    ('Open mail', 'Open mail', 'Send')
    """
    checked_text(text, len(text) + 1)
    labels: list[str] = []
    for line in _answer(text).splitlines():
        match = _SPAN.fullmatch(line)
        if match is None:
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if first != len(labels) + 1 or not first <= last <= count:
            raise Unusable(Fault.MALFORMED)
        labels += [checked_text(match[3], _LONGEST)] * (last - first + 1)
    if len(labels) != count:
        raise Unusable(Fault.MALFORMED)
    return tuple(labels)


def template_labels(trace: Sequence[Step]) -> tuple[str, ...]:
    """Labels by rule: the instruction, with the app or activity of each run of steps where the recording tells it."""
    instruction = one_line(trace[0].instruction)
    places = [one_line(step.activity.rpartition("/")[2]) for step in trace]
    return tuple(f"{instruction} ({place})" if place else instruction for place in places)


def current_call(step: Step, past: Sequence[Step], plan: Sequence[str], tokens: int) -> WriterCall:
    """The question which subtask is being carried out: the self-report before an action."""
    told = "; ".join(tell_action(earlier).rstrip(".") for earlier in past) or "nothing"
    listed = "\n".join(f"{n}. {subtask}" for n, subtask in enumerate(plan, 1))
    question = WORDS["current"].format(instruction=one_line(step.instruction), plan=listed, history=told)
    parts: tuple[Part, ...] = (question, step.screenshot.image(), WORDS["current_ask"])
    return WriterCall(parts, tokens, f"Subtask: {template_current(past, plan) + 1}", WORDS["system"])


def read_current(text: str, count: int) -> int:
    """Place of the current subtask in the plan, from 0.

    Raises:
        Unusable: if the answer is empty, refuses, or names none of `count` subtasks.

    >>> read_current("Subtask: 2", 3)
    1
    """
    checked_text(text)
    match = _CURRENT.match(_answer(text))
    if match is None or not 1 <= int(match[1]) <= count:
        raise Unusable(Fault.MALFORMED)
    return int(match[1]) - 1


def template_current(past: Sequence[Step], plan: Sequence[str]) -> int:
    """By rule: one subtask per step, and the last one from then on."""
    return min(len(past), len(plan) - 1)


def _answer(text: str) -> str:
    return text.rpartition("</think>")[2].strip()


def _spans(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    spans: list[tuple[int, int, str]] = []
    for number, label in enumerate(labels, 1):
        if spans and spans[-1][2] == label:
            spans[-1] = spans[-1][0], number, label
        else:
            spans.append((number, number, label))
    return spans
