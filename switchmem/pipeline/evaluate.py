"""The test: one score matrix, a row for every policy, results that say where they come from."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from rich.console import Console

from switchmem.evaluation import (
    Routing,
    ScoreMatrix,
    StepFacts,
    build_results,
    policy_table,
    policy_text,
    table_rows,
    write_results,
)
from switchmem.evaluation.results import COLUMNS
from switchmem.harvest import Harvest
from switchmem.memory.views import Condition
from switchmem.pipeline.used import Used
from switchmem.policy import Policy, choices
from switchmem.preference import PreferenceEstimator
from switchmem.runs import RunError, RunFolder
from switchmem.stages import check_files


@dataclass(frozen=True)
class FrozenPolicies:
    """Everything that `fit` froze.

    Args:
        policies: one per target and seed; the first is the run's own.
        training: "n_pref", "counts" and "probe_auroc" of the training side.
        estimator: tells the soft preference t of a step's shift.
    """

    policies: list[Policy]
    training: dict[str, Any]
    estimator: PreferenceEstimator

    @classmethod
    def load(cls, folder: Path) -> FrozenPolicies:
        """Read a run's policy folder.

        Raises:
            RunError: if `fit` has not finished there.
            PolicyError: if a policy is damaged.
            PreferenceError, StageError: if the estimator is.
        """
        index = folder / "policies.json"
        if not index.is_file():
            raise RunError(f"`test` must find a frozen policy in {folder}, got none. Run `fit` with this config first.")
        values = json.loads(index.read_text(encoding="utf-8"))
        check_files(folder, values.get("digests", {}), "Run `fit` again.")
        policies = [Policy.load(folder / row["folder"]) for row in values["policies"]]
        return cls(policies, values["training"], PreferenceEstimator.load(folder / "preference"))


def score_matrix(harvest: Harvest) -> ScoreMatrix:
    """S[step, condition] of a greedy harvest."""
    columns = {condition: harvest.scores(condition)[:, 0] for condition in harvest.conditions}
    return ScoreMatrix(harvest.step_ids, harvest.trajectories, columns)


def step_facts(harvest: Harvest) -> StepFacts:
    """What the analyses read of the steps of a harvest."""
    density = [math.nan if value is None else value for value in harvest.context("density")]
    return StepFacts(harvest.context("index"), harvest.context("is_spatial"), density)


def step_columns(used: Used, frozen: FrozenPolicies, main: Routing) -> dict[str, list[Any]]:
    """Columns of ``scores.parquet`` beside scores and router scores, [N] each.

    They are: the demonstration and its cosine; the soft preference ``t`` of the step's own shift, which no policy can
    know beforehand; the ``choice`` of the run's own policy; the context features; the actor's ``seconds`` per step;
    and the raw answer under each condition.

    Args:
        used: the harvest of the test part.
        frozen: the policies.
        main: the run's own router on the steps.
    """
    harvest = used.harvest
    image = choices(main.r, main.threshold)
    features = ("index", "category", "action_type", "is_spatial", "density")
    return {
        "memory_id": list(harvest.memory_ids),
        "cosine": harvest.cosines.tolist(),
        "t": frozen.estimator.decision(used.shift()).tolist(),
        "choice": [(Condition.IMAGE if chosen else Condition.TEXT).value for chosen in image],
        **{name: harvest.context(name) for name in features},
        "seconds": harvest.seconds,
        **{f"answer_{c}": [answers[0] for answers in harvest.answers(c)] for c in harvest.conditions},
    }


def test_results(
    used: Used,
    frozen: FrozenPolicies,
    run: RunFolder,
    *,
    provenance: Mapping[str, Any],
    notes: Sequence[str],
    replicates: int,
) -> dict[str, Any]:
    """Score every policy on a greedy harvest, and write ``results.json`` and ``scores.parquet`` into the run.

    Args:
        used: the harvest of the test part, under all conditions.
        frozen: the policies; they were frozen before any test step was read.
        run: gets the files.
        provenance: where the numbers come from.
        notes: sentences that must be read with the numbers.
        replicates: of the bootstrap.
    """
    harvest, batch = used.harvest, used.router_batch()
    matrix = score_matrix(harvest)
    routings = [
        Routing(p.card.target, p.card.seed, p.threshold, harvest.step_ids, p.route(batch)[1]) for p in frozen.policies
    ]
    auroc = frozen.training["probe_auroc"].items()
    results = build_results(
        matrix,
        routings,
        benchmark=harvest.step_ids[0].split("/")[0],
        n_pref=frozen.training["n_pref"],
        parse_failures={c: sum(reasons.values()) for c, reasons in harvest.parse_failures().items()},
        probe_auroc={int(layer): float("nan") if value is None else value for layer, value in auroc},
        provenance=provenance,
        notes=notes,
        facts=step_facts(harvest),
        replicates=replicates,
    )
    matrix.save(run.scores, routings, step_columns(used, frozen, routings[0]))
    write_results(results, run.results)
    return results


def show(results: Mapping[str, Any]) -> None:
    """Print the policy table: styled on a terminal, plain lines elsewhere."""
    if sys.stdout.isatty():
        Console().print(policy_table(results))
    else:
        sys.stdout.write(policy_text(results))
    sys.stdout.flush()


def log_results(results: Mapping[str, Any], loggers: Sequence[Logger]) -> None:
    """Give scores to every logger, and the whole table to those that take one (Weights & Biases does)."""
    rows = table_rows(results)
    metrics = {f"test/{row['policy']}/{name}": row[name] for row in rows for name in ("score", "image_rate")}
    metrics |= {"test/oracle_gap": results["oracle_gap"], "test/diff": results["comparison"]["diff"]}
    for logger in loggers:
        logger.log_metrics(metrics)
        log_table = getattr(logger, "log_table", None)
        if log_table is not None:
            log_table("test/policies", columns=list(COLUMNS), data=[[_cell(row[c]) for c in COLUMNS] for row in rows])
        logger.save()


def _cell(value: Any) -> Any:
    """Intervals as text: a table's column has one type."""
    return f"[{value[0]}, {value[1]}]" if isinstance(value, list) else value
