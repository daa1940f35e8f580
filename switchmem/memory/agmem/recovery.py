"""Recovery memory: is the agent in an error, of which mode, and how others got out of one (appendix B.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from switchmem.memory.agmem.config import CropConfig
from switchmem.memory.agmem.failure_modes import SAID, TABLE_1, FailureMode, read_mode
from switchmem.memory.agmem.view import crop_of
from switchmem.memory.bank import action_text
from switchmem.memory.baseline import Charge, WriterCall
from switchmem.memory.telling import tell_action
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Fault, Unusable, checked_text, read_fields
from switchmem.steps import Action, ActionType, Step

WORDS = {
    "system": "You watch an agent that operates a phone and say when it has gone wrong.",
    "task": "Task: {instruction}\n",
    "past": "\nA past screen:\n",
    "done": "\nDone there: {action}\n",
    "now": "\nThe current screen:\n",
    "ask": "\nProposed next action: {action}\nIs the agent in an erroneous state? The modes of failure are:\n"
    + "".join(f"- {mode.value}: {SAID[mode]}\n" for mode in TABLE_1)
    + "Answer in two lines:\nError: yes or no\nMode: one of the names above, or none",
    "draft": "Error: no\nMode: none",
    "faulty": "Task: {instruction}\nAn agent did this and then went back:\n{steps}\nWhich mode of failure was it?\n"
    + "".join(f"- {mode.value}: {SAID[mode]}\n" for mode in TABLE_1)
    + "Answer in one line:\nMode: one of the names above",
    "faulty_draft": f"Mode: {FailureMode.COGNITIVE.value}",
}
_YES_NO = re.compile(r"\W*(yes|no|true|false)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """What the detector says of a proposed action.

    Args:
        mode: the failure mode of the erroneous state; None where there is no error.
        fault: why the answer was not usable, or ""; then there is no error, and the action is carried out.
    """

    mode: FailureMode | None = None
    fault: str = ""

    @property
    def blocked(self) -> bool:
        """Whether the proposed action is not to be carried out."""
        return self.mode is not None


@dataclass(frozen=True)
class Recovery:
    """A faulty piece of a trajectory and the step that restored a valid state.

    Args:
        faulty: the steps that went astray, in order.
        correction: the step that led back.
        mode: of the failure; None where it could not be told, which matches every mode.
    """

    faulty: tuple[Step, ...]
    correction: Step
    mode: FailureMode | None = None


def detector_call(step: Step, past: Sequence[Step], proposal: Action, recent: int, tokens: int) -> WriterCall:
    """The question before an action is carried out.

    Args:
        step: the current step.
        past: the steps before it.
        proposal: what the agent wants to do.
        recent: past screens that are shown, at least 0.
        tokens: the most of the answer.
    """
    parts: list[Part] = [WORDS["task"].format(instruction=one_line(step.instruction))]
    for earlier in past[len(past) - min(recent, len(past)) :]:
        parts += [WORDS["past"], earlier.screenshot.image(), WORDS["done"].format(action=tell_action(earlier))]
    ask = WORDS["ask"].format(action=action_text(proposal))
    return WriterCall((*parts, WORDS["now"], step.screenshot.image(), ask), tokens, WORDS["draft"], WORDS["system"])


def read_verdict(text: str) -> Verdict:
    r"""The detector's answer; a broken one is no error, and says why.

    >>> read_verdict("Error: yes\nMode: Grounding Error").mode.name, read_verdict("maybe").fault
    ('GROUNDING', 'malformed')
    """
    try:
        checked_text(text)
        said = _YES_NO.match(read_fields(text, ("Error",))["Error"])
        if said is None:
            raise Unusable(Fault.MALFORMED)
        if said[1].lower() in ("no", "false"):
            return Verdict()
        mode = read_mode(read_fields(text, ("Error", "Mode"))["Mode"])
        if mode not in TABLE_1:
            raise Unusable(Fault.MALFORMED)
        return Verdict(mode)
    except Unusable as error:
        return Verdict(fault=error.fault.value)


def find_recoveries(trace: Sequence[Step], longest: int = 4, config: CropConfig | None = None) -> list[Recovery]:
    """Detours of a trajectory: it left a screen, came back to it, and went on in another way.

    The step that leads back is the correction, the ones before it the fault. Screens are the same where the
    action-grounded crop sees no change between them.

    Args:
        trace: a trajectory in order.
        longest: the most steps of a fault, at least 1.
        config: of the crop.
    """
    found: list[Recovery] = []
    start = 0
    while start < len(trace):
        back = _return(trace, start, longest, config)
        if back is None:
            start += 1
            continue
        found.append(Recovery(tuple(trace[start : back - 1]), trace[back - 1]))
        start = back
    return found


def _return(trace: Sequence[Step], start: int, longest: int, config: CropConfig | None) -> int | None:
    """Place of the first later step on the same screen as `start` from which another way is taken."""
    for back in range(start + 2, min(len(trace), start + longest + 2)):
        leads_back = trace[back - 1].action.type is not ActionType.WAIT
        if leads_back and trace[back].action != trace[start].action and same_screen(trace[start], trace[back], config):
            return back
    return None


def same_screen(one: Step, other: Step, config: CropConfig | None = None) -> bool:
    """Whether nothing but clocks, bars and cursors differs."""
    if (one.screenshot.width, one.screenshot.height) != (other.screenshot.width, other.screenshot.height):
        return False
    if one.screenshot.data == other.screenshot.data:
        return True
    if np.array_equal(np.asarray(one.screenshot.image()), np.asarray(other.screenshot.image())):
        return True
    return crop_of(one, other, config).change is None


def mode_call(recovery: Recovery, tokens: int) -> WriterCall:
    """The question of which mode a found fault was, asked once for the bank."""
    steps = "\n".join(f"{n}. {tell_action(step)}" for n, step in enumerate(recovery.faulty, 1))
    question = WORDS["faulty"].format(instruction=one_line(recovery.correction.instruction), steps=steps)
    return WriterCall((question,), tokens, WORDS["faulty_draft"], WORDS["system"], Charge.OFFLINE)


def read_fault_mode(text: str) -> FailureMode:
    """The mode of a found fault.

    Raises:
        Unusable: if the answer is empty, refuses, or names none of table 1.
    """
    mode = read_mode(read_fields(text, ("Mode",))["Mode"])
    if mode not in TABLE_1:
        raise Unusable(Fault.MALFORMED)
    return mode
