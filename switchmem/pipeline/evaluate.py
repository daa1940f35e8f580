"""The test: one score matrix, a row for every policy, results that say where they come from."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from rich.console import Console

from switchmem.console import say
from switchmem.evaluation import (
    Routing,
    ScoreMatrix,
    StepFacts,
    baseline_text,
    build_results,
    policy_table,
    policy_text,
    routerless_results,
    table_rows,
    write_results,
)
from switchmem.evaluation.results import COLUMNS
from switchmem.harvest import Harvest
from switchmem.memory.views import Condition
from switchmem.pipeline.baselines import add_seconds, aligned_scores
from switchmem.pipeline.latency import latency_of, router_seconds, step_seconds
from switchmem.pipeline.report import log_figures
from switchmem.pipeline.targets import unparsable
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


def score_matrix(harvest: Harvest, baselines: Mapping[str, Harvest] | None = None) -> ScoreMatrix:
    """S[step, condition] of a greedy harvest, and of one more for each memory baseline."""
    columns = {condition: harvest.scores(condition)[:, 0] for condition in harvest.conditions}
    return ScoreMatrix(harvest.step_ids, harvest.trajectories, columns, aligned_scores(harvest, baselines or {}))


def step_facts(harvest: Harvest) -> StepFacts:
    """What the analyses read of the steps of a harvest."""
    density = [math.nan if value is None else value for value in harvest.context("density")]
    return StepFacts(harvest.context("index"), harvest.context("is_spatial"), density)


def step_columns(harvest: Harvest) -> dict[str, list[Any]]:
    """Columns of ``scores.parquet`` beside the scores, [N] each.

    They are: the demonstration and its cosine; the context features; the actor's ``seconds`` per step, all conditions
    together; and the raw answer under each condition. `latency_of` gives the seconds of each condition.
    """
    features = ("index", "category", "action_type", "is_spatial", "density")
    return {
        "memory_id": list(harvest.memory_ids),
        "cosine": harvest.cosines.tolist(),
        **{name: harvest.context(name) for name in features},
        "seconds": harvest.seconds,
        **{f"answer_{c}": [answers[0] for answers in harvest.answers(c)] for c in harvest.conditions},
    }


def baseline_columns(baselines: Mapping[str, Harvest]) -> dict[str, list[Any]]:
    """The raw answer and its parse reason under each memory baseline, [N] each."""
    columns: dict[str, list[Any]] = {}
    for name, harvest in baselines.items():
        columns[f"answer_{name}"] = [answers[0] for answers in harvest.answers(name)]
        columns[f"reason_{name}"] = [reasons[0] or "" for reasons in harvest.reasons(name)]
    return columns


def routed_columns(used: Used, frozen: FrozenPolicies, main: Routing) -> dict[str, list[Any]]:
    """The soft preference ``t`` of each step's own shift, which no policy can know beforehand, and the ``choice``.

    Args:
        used: the harvest of the test part.
        frozen: the policies.
        main: the run's own router on the steps.
    """
    image = choices(main.r, main.threshold)
    return {
        "t": frozen.estimator.decision(used.shift()).tolist(),
        "choice": [(Condition.IMAGE if chosen else Condition.TEXT).value for chosen in image],
    }


@dataclass(frozen=True)
class Told:
    """What is told with the numbers.

    Args:
        provenance: where they come from.
        notes: sentences that must be read with them.
        replicates: of the bootstrap.
        baselines: harvests of the memory baselines by name.
        of_baselines: what is told of each.
    """

    provenance: Mapping[str, Any]
    notes: Sequence[str]
    replicates: int
    baselines: Mapping[str, Harvest] = field(default_factory=dict)
    of_baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def test_results(used: Used, frozen: FrozenPolicies, run: RunFolder, told: Told) -> dict[str, Any]:
    """Score every policy on a greedy harvest, and write ``results.json`` and ``scores.parquet`` into the run.

    Args:
        used: the harvest of the test part, under all conditions.
        frozen: the policies; they were frozen before any test step was read.
        run: gets the files.
        told: what is told with the numbers.
    """
    harvest, batch = used.harvest, used.router_batch()
    matrix = score_matrix(harvest, told.baselines)
    routings = [
        Routing(p.card.target, p.card.seed, p.threshold, harvest.step_ids, p.route(batch)[1]) for p in frozen.policies
    ]
    auroc = frozen.training["probe_auroc"].items()
    results = build_results(
        matrix,
        routings,
        benchmark=_benchmark(harvest),
        n_pref=frozen.training["n_pref"],
        parse_failures=_failures(harvest),
        probe_auroc={int(layer): float("nan") if value is None else value for layer, value in auroc},
        provenance=told.provenance,
        notes=told.notes,
        facts=step_facts(harvest),
        baselines=told.of_baselines,
        replicates=told.replicates,
    )
    router = router_seconds(frozen.policies[0], batch)
    results["latency"], timed = latency_of(step_seconds(harvest), routings, router, results["policies"])
    timed |= add_seconds(results, told.baselines)
    columns = {**step_columns(harvest), **baseline_columns(told.baselines), **routed_columns(used, frozen, routings[0])}
    matrix.save(run.scores, routings, columns | timed)
    write_results(results, run.results)
    return results


def endpoint_results(harvest: Harvest, run: RunFolder, told: Told) -> dict[str, Any]:
    """Score what needs no hidden states, and write the same files as `test_results`."""
    matrix = score_matrix(harvest, told.baselines)
    results = routerless_results(
        matrix,
        benchmark=_benchmark(harvest),
        parse_failures=_failures(harvest),
        provenance=told.provenance,
        notes=told.notes,
        baselines=told.of_baselines,
        replicates=told.replicates,
    )
    results["latency"], timed = latency_of(step_seconds(harvest), [], 0.0, results["policies"])
    timed |= add_seconds(results, told.baselines)
    matrix.save(run.scores, extra={**step_columns(harvest), **baseline_columns(told.baselines), **timed})
    write_results(results, run.results)
    return results


def _benchmark(harvest: Harvest) -> str:
    return harvest.step_ids[0].split("/")[0]


def _failures(harvest: Harvest) -> dict[str, int]:
    return {condition: sum(reasons.values()) for condition, reasons in harvest.parse_failures().items()}


def tell(results: Mapping[str, Any], harvest: Harvest, loggers: Sequence[Logger]) -> None:
    """Print a test's counts and table, and log its scores."""
    say(f"test: {len(harvest)} steps of {len(set(harvest.trajectories))} trajectories; {unparsable(harvest)}")
    log_results(results, loggers)
    show(results)


def show(results: Mapping[str, Any]) -> None:
    """Print the policy table: styled on a terminal, plain lines elsewhere."""
    if sys.stdout.isatty():
        Console().print(policy_table(results))
    else:
        sys.stdout.write(policy_text(results))
    sys.stdout.write(baseline_text(results))
    sys.stdout.flush()


def log_results(results: Mapping[str, Any], loggers: Sequence[Logger]) -> None:
    """Give scores to every logger, and table and figures to those that take them (Weights & Biases does)."""
    rows = table_rows(results)
    metrics = {f"test/{row['policy']}/{name}": row[name] for row in rows for name in ("score", "image_rate")}
    metrics |= {"test/oracle_gap": results["oracle_gap"], "test/diff": results["comparison"]["diff"]}
    for logger in loggers:
        logger.log_metrics(metrics)
        log_table = getattr(logger, "log_table", None)
        if log_table is not None:
            log_table("test/policies", columns=list(COLUMNS), data=[[_cell(row[c]) for c in COLUMNS] for row in rows])
        logger.save()
    log_figures(results, loggers)


def _cell(value: Any) -> Any:
    """Intervals as text: a table's column has one type."""
    return f"[{value[0]}, {value[1]}]" if isinstance(value, list) else value
