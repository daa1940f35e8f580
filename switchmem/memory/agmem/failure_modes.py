"""The failure modes of GUI agents (arXiv 2606.14106, table 1 and appendix C.1), and how a model names them."""

from __future__ import annotations

import re
from enum import Enum

from switchmem.memory.writing import Fault, Unusable


class FailureMode(str, Enum):
    """Why an agent failed. The first four are the paper's table 1; the fifth is in its labelling prompt alone."""

    COGNITIVE = "Cognitive Failure"
    VISUAL_STATE = "Visual State Misunderstanding"
    HIDDEN_OPERATION = "Hidden Operation Blindness"
    GROUNDING = "Grounding Error"
    MEMORY = "Memory Over-following"


TABLE_1 = (
    FailureMode.COGNITIVE,
    FailureMode.VISUAL_STATE,
    FailureMode.HIDDEN_OPERATION,
    FailureMode.GROUNDING,
)
"""What the recovery-state detector tells apart."""

SAID = {
    FailureMode.COGNITIVE: "a wrong decision about the goal, the subtask, the next step, the condition of success or "
    "the progress made: a failed action is taken for done, the task is ended too early, or an invalid plan is kept",
    FailureMode.VISUAL_STATE: "the visible screen is misread: a dialog, page, selection, focus or checkbox is believed "
    "to be in another state than it visibly is",
    FailureMode.HIDDEN_OPERATION: "the needed operation is not visible on this screen and its path is not found: a "
    "menu, a submenu, a context menu, a shortcut, settings, a picker, a scroll",
    FailureMode.GROUNDING: "the intended target is the right one, but the place or the low-level action misses it",
    FailureMode.MEMORY: "the answer repeats details of the retrieved memory that do not belong to the current task or "
    "screen",
}
"""Each in our own words, after the paper's definitions."""

_SIGNS = {
    FailureMode.COGNITIVE: "cognitive",
    FailureMode.VISUAL_STATE: "visual",
    FailureMode.HIDDEN_OPERATION: "hidden",
    FailureMode.GROUNDING: "grounding",
    FailureMode.MEMORY: "memory",
}


def read_mode(text: str) -> FailureMode:
    """The one failure mode that a text names.

    Raises:
        Unusable: if it names none, or several.

    >>> read_mode("**Grounding error**").value
    'Grounding Error'
    """
    words = set(re.findall(r"[a-z]+", text.lower()))
    found = [mode for mode, sign in _SIGNS.items() if sign in words]
    if len(found) != 1:
        raise Unusable(Fault.MALFORMED)
    return found[0]
