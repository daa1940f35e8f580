"""Score of the pocket world."""

from __future__ import annotations

from switchmem.steps import Action, ActionType, Step


class PocketBenchmark:
    """An action is right if it has the gold type and, for a tap, lands in the gold entry's box."""

    name = "pocket"

    def score(self, action: Action | None, gold: Step) -> float:
        """Score S_b of one action: 1.0 if right, else 0.0; an unparsable answer (None) is 0.0.

        The gold box is that of the smallest element which holds the gold point.
        """
        if action is None or action.type != gold.action.type:
            return 0.0
        if action.type is not ActionType.TAP:
            return 1.0
        if action.point is None or gold.action.point is None:
            return 0.0
        boxes = [e for e in gold.elements if e.contains(gold.action.point)]
        return float(min(boxes, key=lambda e: e.area).contains(action.point)) if boxes else 0.0
