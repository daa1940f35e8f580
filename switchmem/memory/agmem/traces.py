"""The memory bank as trajectories."""

from __future__ import annotations

from collections.abc import Iterator

from switchmem.memory.baseline import Surroundings
from switchmem.steps import Step


def bank_traces(around: Surroundings) -> Iterator[tuple[Step, ...]]:
    """Each trajectory of the bank once, in the bank's order."""
    seen: set[str] = set()
    for step in around.bank():
        if step.trajectory not in seen:
            seen.add(step.trajectory)
            yield around.trace(step) or (step,)
