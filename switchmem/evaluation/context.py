"""Where modality preference shifts: dense and sparse screens, spatial and functional actions, first and later steps.

The groups are those of SwitchMem, section 6.1. They may overlap, and a step without a defined density is in neither
density group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from switchmem.evaluation.statistics import (
    REPLICATES,
    Interval,
    StatisticsError,
    Values,
    cluster_bootstrap,
    finite_column,
)

Bools = NDArray[np.bool_]
PAIRS = (("sparse", "dense"), ("spatial", "function"), ("initial", "later"))
"""Groups that are compared with each other."""


def density_quartiles(density: ArrayLike) -> tuple[float, float]:
    """Lower and upper quartile of the defined element densities, NaN where there is none.

    Args:
        density: [N], unique elements per fraction of the screen covered; NaN where undefined.

    >>> density_quartiles([1.0, 2.0, 3.0, 4.0, 5.0, float("nan")])
    (2.0, 4.0)
    """
    defined = np.asarray(density, dtype=np.float64)
    defined = defined[~np.isnan(defined)]
    if not len(defined):
        return float("nan"), float("nan")
    lower, upper = np.quantile(defined, [0.25, 0.75])
    return float(lower), float(upper)


def context_groups(
    density: ArrayLike, is_spatial: ArrayLike, index: ArrayLike, quartiles: tuple[float, float] | None = None
) -> dict[str, Bools]:
    """Membership of each step.

    Args:
        density: [N], element density; NaN where undefined.
        is_spatial: [N] bool, whether the gold action has a place on the screen.
        index: [N], place of the step in its trajectory, from 0.
        quartiles: density at and below which a screen is sparse, and at and above which it is dense; None takes the
            quartiles of these steps.

    Returns:
        Group -> bool [N], the names of `PAIRS`.

    Raises:
        StatisticsError: if the lengths differ.
    """
    values, spatial, places = np.asarray(density, np.float64), np.asarray(is_spatial, bool), np.asarray(index)
    if not len(values) == len(spatial) == len(places):
        raise StatisticsError(
            "`density`, `is_spatial` and `index` must have one entry per step, got "
            f"{len(values)}, {len(spatial)} and {len(places)}."
        )
    lower, upper = density_quartiles(values) if quartiles is None else quartiles
    return {
        "sparse": values <= lower,
        "dense": values >= upper,
        "spatial": spatial,
        "function": ~spatial,
        "initial": places == 0,
        "later": places > 0,
    }


@dataclass(frozen=True)
class ContextShift:
    """Preference and routing inside one group.

    Args:
        steps: their number.
        delta: mean of Delta = u^I - u^T with its trajectory interval; NaN without a step.
        image_rate: share of the steps in [0, 1] for which the policy chooses Image; NaN without a step.
    """

    steps: int
    delta: Interval
    image_rate: float


def context_shifts(
    groups: Mapping[str, Bools],
    delta: Values,
    image: ArrayLike,
    trajectories: Sequence[str],
    n: int = REPLICATES,
    seed: int = 0,
) -> dict[str, ContextShift]:
    """Mean Delta and Image rate of each group.

    Args:
        groups: of `context_groups`.
        delta: [N], utility or score under Image minus that under Text.
        image: [N] bool, where the policy chooses Image.
        trajectories: [N], trajectory of each step.
        n: replicates of the bootstrap.
        seed: of the bootstrap.

    Raises:
        StatisticsError: if the lengths differ or a difference is not finite.

    >>> shifts = context_shifts({"later": np.array([False, True])}, [0.0, 1.0], [True, True], ["a", "a"], n=100)
    >>> shifts["later"].steps, shifts["later"].delta.mean, shifts["later"].image_rate
    (1, 1.0, 1.0)
    """
    values, chosen, names = finite_column("delta", delta), np.asarray(image, bool), np.asarray(trajectories, np.str_)
    lengths = {len(values), len(chosen), len(names), *(len(member) for member in groups.values())}
    if len(lengths) != 1:
        raise StatisticsError(
            f"`groups`, `delta`, `image` and `trajectories` must have one entry per step, got {sorted(lengths)}."
        )
    nothing = ContextShift(0, Interval(float("nan"), float("nan"), float("nan")), float("nan"))
    return {
        name: ContextShift(
            int(member.sum()),
            cluster_bootstrap(values[member], names[member], n, seed),
            float(chosen[member].mean()),
        )
        if member.any()
        else nothing
        for name, member in groups.items()
    }
