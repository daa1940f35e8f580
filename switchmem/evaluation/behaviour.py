"""How a policy routes along trajectories (SwitchMem, section 6.2): how often it switches, in runs of what length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from switchmem.evaluation.statistics import StatisticsError


@dataclass(frozen=True)
class Behaviour:
    """Routing along trajectories.

    Args:
        both: share of trajectories in [0, 1] in which either modality is chosen at least once.
        image: share of steps in [0, 1] with Image.
        switches: mean number of changes of modality per trajectory, >= 0.
        run: mean length of contiguous runs of one modality in steps, >= 1; runs end with their trajectory.
        trajectories: their number.
    """

    both: float
    image: float
    switches: float
    run: float
    trajectories: int


def routing_behaviour(image: ArrayLike, trajectories: Sequence[str], index: ArrayLike) -> Behaviour:
    """Describe the choices of a policy.

    Args:
        image: [N] bool, where Image is chosen.
        trajectories: [N], trajectory of each step.
        index: [N], place of each step in its trajectory. Steps that are not there leave no gap: neighbours are
            those that follow each other among the steps given.

    Raises:
        StatisticsError: if there is no step, the lengths differ, or a trajectory has two steps at one place.

    >>> routing_behaviour([True, True, False, False], ["a", "a", "a", "b"], [0, 1, 2, 0])
    Behaviour(both=0.5, image=0.5, switches=0.5, run=1.3333333333333333, trajectories=2)
    """
    chosen, places = np.asarray(image, dtype=bool), np.asarray(index)
    if not len(chosen) or not len(chosen) == len(trajectories) == len(places):
        raise StatisticsError(
            "`image`, `trajectories` and `index` must have one entry per step and at least one, got "
            f"{len(chosen)}, {len(trajectories)} and {len(places)}."
        )
    names, member = np.unique(np.asarray(trajectories, dtype=np.str_), return_inverse=True)
    order = np.lexsort((places, member))
    chosen, member, places = chosen[order], member[order], places[order]
    same = member[1:] == member[:-1]
    if bool((same & (places[1:] == places[:-1])).any()):
        twice = str(names[member[1:][same & (places[1:] == places[:-1])][0]])
        raise StatisticsError(f"`index` must not repeat within a trajectory, got two steps at one place of {twice!r}.")
    switches = int((same & (chosen[1:] != chosen[:-1])).sum())
    count = len(names)
    return Behaviour(
        both=float((_any(chosen, member, count) & _any(~chosen, member, count)).mean()),
        image=float(chosen.mean()),
        switches=switches / count,
        run=len(chosen) / (count + switches),
        trajectories=count,
    )


def _any(flags: NDArray[np.bool_], member: NDArray[np.intp], count: int) -> NDArray[np.bool_]:
    """Whether any flag of each group is set, [G]."""
    return np.bincount(member, weights=flags, minlength=count) > 0
