"""What a router does on the test steps, for the results document: behaviour, context and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from switchmem.evaluation.behaviour import routing_behaviour
from switchmem.evaluation.context import context_groups, context_shifts, density_quartiles
from switchmem.evaluation.frontier import budget_frontier
from switchmem.evaluation.matrix import Routing, ScoreMatrix
from switchmem.evaluation.statistics import REPLICATES, StatisticsError
from switchmem.memory.views import Condition
from switchmem.policy import choices

POINTS = 201
"""The most points of a frontier that are kept; a page or a plot shows no more."""


@dataclass(frozen=True, eq=False)
class StepFacts:
    """What is known of the test steps beside their scores, in the order of the matrix.

    Args:
        index: [N], place of each step in its trajectory, from 0.
        is_spatial: [N] bool, whether the gold action has a place on the screen.
        density: [N], unique elements per fraction of the screen that they cover; NaN where undefined.

    Raises:
        StatisticsError: if the lengths differ.
    """

    index: ArrayLike
    is_spatial: ArrayLike
    density: ArrayLike

    def __post_init__(self) -> None:
        lengths = {name: len(np.asarray(value)) for name, value in vars(self).items()}
        if len(set(lengths.values())) != 1:
            raise StatisticsError(f"step facts must have one entry per step, got {lengths}.")


def routing_analyses(
    matrix: ScoreMatrix,
    routings: Mapping[str, Routing],
    main: str,
    facts: StepFacts,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Any]:
    """Describe one router of each policy, and the main one in depth.

    Args:
        matrix: scores of the `N` test steps.
        routings: policy -> one of its routers, as deployed.
        main: the policy whose context shifts and frontier are computed.
        facts: of the steps.
        replicates: of the bootstrap behind the context intervals.
        seed: of that bootstrap.

    Returns:
        "behaviour" of each policy and of the oracle's choices; "context", the groups of SwitchMem, section 6.1, with
        the quartiles that bound them; "frontier", score and Image rate as the threshold moves, at most `POINTS` points.
    """
    text, image = matrix.column(Condition.TEXT), matrix.column(Condition.IMAGE)
    chosen = {name: choices(routing.aligned(matrix), routing.threshold) for name, routing in routings.items()}
    paths = chosen | {"oracle": image > text}
    index = np.asarray(facts.index)
    groups = context_groups(facts.density, facts.is_spatial, index)
    shifts = context_shifts(groups, image - text, chosen[main], matrix.trajectories, replicates, seed)
    curve = budget_frontier(routings[main].aligned(matrix), text, image, routings[main].threshold)
    kept = _spread(len(curve.image_rate))
    columns = ("threshold", "image_rate", "score", "random")
    return {
        "behaviour": {
            name: asdict(routing_behaviour(path, matrix.trajectories, index)) for name, path in paths.items()
        },
        "context": {
            "density_quartiles": list(density_quartiles(facts.density)),
            "groups": {
                name: {
                    "steps": shift.steps,
                    "delta": shift.delta.mean,
                    "ci95": [shift.delta.lo, shift.delta.hi],
                    "image_rate": shift.image_rate,
                }
                for name, shift in shifts.items()
            },
        },
        "frontier": {
            "policy": main,
            **{name: getattr(curve, name)[kept].tolist() for name in columns},
            "star": {"image_rate": curve.star[0], "score": curve.star[1]},
        },
    }


def _spread(count: int) -> NDArray[np.intp]:
    """Places of at most `POINTS` points, both ends among them."""
    kept: Sequence[float] = np.linspace(0, count - 1, min(count, POINTS)).round()  # type: ignore[assignment]
    return np.unique(np.asarray(kept, dtype=np.intp))
