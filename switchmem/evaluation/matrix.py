"""One table of scores, measured once; every offline policy is a choice between its columns.

Letters: `N` steps, `Z` memory conditions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import ArrayLike, NDArray

from switchmem.memory.views import Condition
from switchmem.policy import choices, oracle_scores, random_scores, routed_scores
from switchmem.router import Target

Floats = NDArray[np.float64]
Values = ArrayLike | torch.Tensor

BASELINE = "baseline_"
"""Opens the name of a memory baseline's column in a saved matrix."""


class MatrixError(ValueError):
    """Scores or router scores do not cover the steps exactly once; the message names what is wrong."""


class ScoreMatrix:
    """S[step, condition] of one fixed-seed run per condition.

    Args:
        step_ids: [N], without repeats.
        trajectories: [N], trajectory of each step.
        scores: condition -> [N] scores in [0, 1]; Text and Image are needed, None and Both may be left out.
        baselines: name -> [N] scores in [0, 1] under a memory baseline. They are no fixed condition: neither the best
            one nor the oracle looks at them.

    Raises:
        MatrixError: if an id repeats, a column is missing or of another length, or a score is NaN or outside [0, 1].

    >>> matrix = ScoreMatrix(["b/e/0", "b/e/1"], ["b/e", "b/e"], {"text": [1, 0], "image": [0, 0], "none": [0, 0]})
    >>> matrix.best_fixed, matrix.mean(Condition.TEXT)
    (<Condition.TEXT: 'text'>, 0.5)
    """

    def __init__(
        self,
        step_ids: Sequence[str],
        trajectories: Sequence[str],
        scores: Mapping[Condition | str, Values],
        baselines: Mapping[str, Values] | None = None,
    ) -> None:
        self.step_ids = tuple(step_ids)
        self.trajectories = tuple(trajectories)
        columns = {Condition(condition): column for condition, column in scores.items()}
        self.conditions = tuple(condition for condition in Condition if condition in columns)
        self._check_ids()
        self._columns = {c: self._checked(c.value, columns[c]) for c in self.conditions}
        self.baselines = {name: self._checked(name, column) for name, column in (baselines or {}).items()}

    def _check_ids(self) -> None:
        count = len(self.step_ids)
        if not count:
            raise MatrixError("`step_ids` must hold at least one step, got none. Score the test split first.")
        if len(set(self.step_ids)) != count:
            repeated = sorted(i for i, times in Counter(self.step_ids).items() if times > 1)
            raise MatrixError(
                f"`step_ids` must not repeat, got {repeated[:5]} more than once. Keep one score per step."
            )
        if len(self.trajectories) != count:
            raise MatrixError(f"`trajectories` must name one per step, {count}, got {len(self.trajectories)}.")
        missing = [c.value for c in (Condition.TEXT, Condition.IMAGE) if c not in self.conditions]
        if missing:
            raise MatrixError(
                f"`scores` must hold text and image, got none for {', '.join(missing)}. Run that condition."
            )

    def _checked(self, condition: str, column: Values) -> Floats:
        array = np.asarray(column, dtype=np.float64)
        if array.shape != (len(self.step_ids),):
            raise MatrixError(f"`scores` of {condition} must be [{len(self.step_ids)}], got {list(array.shape)}.")
        bad = np.flatnonzero(~((array >= 0.0) & (array <= 1.0)))
        if len(bad):
            raise MatrixError(
                f"`scores` of {condition} must lie in [0, 1], got {array[bad[0]]} for "
                f"{self.step_ids[bad[0]]}, and {len(bad)} such steps in all. An answer that cannot be parsed scores 0; "
                "a missing score is no score."
            )
        return array

    def __len__(self) -> int:
        return len(self.step_ids)

    def column(self, condition: Condition | str) -> Floats:
        """Scores [N] under one condition.

        Raises:
            MatrixError: if the condition was not run.
        """
        condition = Condition(condition)
        if condition not in self._columns:
            known = ", ".join(c.value for c in self.conditions)
            raise MatrixError(f"`condition` must be one that was run ({known}), got {condition.value}.")
        return self._columns[condition]

    def mean(self, condition: Condition | str) -> float:
        """Mean score of one condition over all steps, in [0, 1]."""
        return float(self.column(condition).mean())

    @cached_property
    def best_fixed(self) -> Condition:
        """The condition with the highest mean; of equal ones the first of None, Text, Image, Both."""
        return max(self.conditions, key=lambda c: math.fsum(self.column(c)))

    def save(
        self, path: str | Path, routings: Sequence[Routing] = (), extra: Mapping[str, Sequence[Any]] | None = None
    ) -> None:
        """Write a Parquet table of one row per step.

        Args:
            path: the file; no reader ever sees half of it.
            routings: each adds its router scores as a column, ``r_dcoe_42``.
            extra: more columns by name, [N] each, in the order of the matrix.
        """
        path = Path(path)
        table = {"step_id": list(self.step_ids), "trajectory": list(self.trajectories)}
        columns = {c.value: self.column(c) for c in self.conditions}
        columns |= {f"{BASELINE}{name}": column for name, column in self.baselines.items()}
        columns |= {f"r_{routing.target}_{routing.seed}": routing.aligned(self) for routing in routings}
        partial = path.with_name(f"{path.name}.part")
        pq.write_table(pa.table({**table, **columns, **(extra or {})}), partial)
        partial.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> ScoreMatrix:
        """Read the scores that `save` wrote.

        Raises:
            MatrixError: if the file is missing, damaged, or breaks a rule of the matrix.
        """
        try:
            table = pq.read_table(Path(path))
            names = [c.value for c in Condition if c.value in table.column_names]
            ids, trajectories = (table.column(name).to_pylist() for name in ("step_id", "trajectory"))
        except (OSError, KeyError, pa.ArrowException) as error:
            raise MatrixError(
                f"`path` must be a whole scores.parquet, got {path}: {error}. Run `test` again."
            ) from error
        baselines = [name for name in table.column_names if name.startswith(BASELINE)]
        return cls(
            ids,
            trajectories,
            {name: table.column(name).to_numpy() for name in names},
            {name.removeprefix(BASELINE): table.column(name).to_numpy() for name in baselines},
        )


@dataclass(frozen=True, eq=False)
class Routing:
    """What one trained router says about the test steps.

    Args:
        target: what it learned.
        seed: seed of its training.
        threshold: tau, frozen before any test step was read.
        step_ids: [N], in any order.
        r: [N], its scores in the order of `step_ids`.
    """

    target: Target
    seed: int
    threshold: float
    step_ids: Sequence[str]
    r: Values

    def aligned(self, matrix: ScoreMatrix) -> Floats:
        """Router scores [N] in the order of the matrix.

        Raises:
            MatrixError: if a step is missing, superfluous or given twice, or a score is not finite.
        """
        r = np.asarray(self.r, dtype=np.float64)
        place = {step_id: k for k, step_id in enumerate(self.step_ids)}
        given, wanted = set(place), set(matrix.step_ids)
        if not len(self.step_ids) == r.size == len(given) or given != wanted:
            raise MatrixError(
                f"router scores ({self.target}, seed {self.seed}) must cover the {len(matrix)} test steps once each, "
                f"got {r.size} scores of {len(given)} different steps among {len(self.step_ids)}: "
                f"{len(wanted - given)} missing, {len(given - wanted)} unknown. "
                "Samplers that pad give a step twice; drop the repeats."
            )
        ordered: Floats = r[[place[step_id] for step_id in matrix.step_ids]]
        if not np.isfinite(ordered).all():
            bad = matrix.step_ids[int(np.flatnonzero(~np.isfinite(ordered))[0])]
            raise MatrixError(
                f"router scores ({self.target}, seed {self.seed}) must be finite, got NaN or inf for {bad}."
            )
        return ordered


@dataclass(frozen=True, eq=False)
class PolicyRow:
    """A policy on the matrix.

    Args:
        scores: [N], its score on each step in [0, 1].
        image_rate: share of steps in [0, 1] at which the actor is shown the demonstration's screenshot.
    """

    scores: Floats
    image_rate: float

    @property
    def percent(self) -> float:
        """Mean score in percent."""
        return 100.0 * float(self.scores.mean())


def routed_row(matrix: ScoreMatrix, routing: Routing) -> PolicyRow:
    """The policy of one trained router."""
    image = choices(routing.aligned(matrix), routing.threshold)
    scores = routed_scores(matrix.column(Condition.TEXT), matrix.column(Condition.IMAGE), image)
    return PolicyRow(scores, float(image.mean()))


def mean_row(rows: Sequence[PolicyRow]) -> PolicyRow:
    """A policy over several training seeds: each step's score and the Image rate are means over the seeds."""
    return PolicyRow(np.mean([row.scores for row in rows], axis=0), float(np.mean([row.image_rate for row in rows])))


def reference_rows(matrix: ScoreMatrix, random_rate: float) -> dict[str, PolicyRow]:
    """The policies without a router: each fixed condition that was run, oracle and random.

    Args:
        matrix: the scores.
        random_rate: probability of Image under random, in [0, 1].

    Returns:
        Name -> policy. The oracle counts as Image only where Image is strictly better.
    """
    text, image = matrix.column(Condition.TEXT), matrix.column(Condition.IMAGE)
    rows = {c.value: PolicyRow(matrix.column(c), float(c.shows_image)) for c in matrix.conditions}
    rows["oracle"] = PolicyRow(oracle_scores(text, image), float((image > text).mean()))
    rows["random"] = PolicyRow(random_scores(text, image, random_rate), random_rate)
    return rows
