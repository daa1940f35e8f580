"""Recorded steps of MobileMiniWoB++ and their step score; online, the page's reward decides, see `switchmem.envs`."""

from __future__ import annotations

from switchmem.benchmarks.general_score import main_direction, tapped_element
from switchmem.steps import Action, Step

NEAR = 0.02
"""How far a place may be from the recorded one, as a share of the screen, where no element is known there."""


class MiniWobBenchmark:
    """Name and score of recorded steps of web tasks: switchmem's own, stricter than that of phone recordings.

    Controls are small and close together, and one letter makes a task fail, so that places have to be in the element
    that was touched, and texts have to be equal.
    """

    name = "miniwob"

    def score(self, action: Action | None, gold: Step) -> float:
        """Whether an action does what the recorded one did: 1.0 or 0.0, and 0.0 for None.

        Args:
            action: the predicted action; None for an answer that could not be parsed.
            gold: the recorded step, its elements included.
        """
        if action is None or action.type is not gold.action.type:
            return 0.0
        if (action.text or "").split() != (gold.action.text or "").split():
            return 0.0
        if action.end is not None:
            return float(main_direction(action) == main_direction(gold.action))
        if action.point is None or gold.action.point is None:
            return float(action.point is gold.action.point)
        element = tapped_element(gold, gold.action.point)
        if element is not None:
            return float(element.contains(action.point))
        (x, y), (gold_x, gold_y) = action.point, gold.action.point
        return float(abs(x - gold_x) <= NEAR and abs(y - gold_y) <= NEAR)
