"""What a test run found, as one JSON document, and the table that is printed from it.

Scores and differences are in percent and percentage points, rates in [0, 1]. The document is strict JSON: what is not
defined (an interval from one trajectory, say) is null, and an infinite threshold is the text "inf" or "-inf".
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from switchmem.evaluation.analyses import StepFacts, routing_analyses
from switchmem.evaluation.matrix import PolicyRow, Routing, ScoreMatrix, mean_row, reference_rows, routed_row
from switchmem.evaluation.statistics import (
    REPLICATES,
    cluster_bootstrap,
    cluster_sign_flip,
    gap_recovered,
    win_rates,
)
from switchmem.memory.views import Condition
from switchmem.policy import oracle_scores
from switchmem.stages import write_json

POLICY_OF_TARGET = {"dcoe": "switchmem", "utility": "utility", "binary": "binary", "basic": "basic"}
"""Name of the policy that a router of each target makes."""

ORDER = ("none", "text", "image", "both", "random", "basic", "binary", "utility", "switchmem", "oracle")
FEW_TRAJECTORIES = 30
COLUMNS = ("policy", "score", "image_rate", "diff", "ci95", "p")


class ResultsError(ValueError):
    """Results cannot be built or read; the message says why, and the way out."""


def build_results(
    matrix: ScoreMatrix,
    routings: Sequence[Routing],
    *,
    benchmark: str,
    n_pref: int,
    parse_failures: int | Mapping[str, int],
    probe_auroc: Mapping[int, float],
    provenance: Mapping[str, Any],
    notes: Sequence[str] = (),
    facts: StepFacts | None = None,
    random_rate: float | None = None,
    baselines: Mapping[str, Mapping[str, Any]] | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Any]:
    """Score every policy on one matrix and compare the learned ones with the best fixed condition.

    A learned policy's score on a step is the mean over its routers' seeds, and its trajectories are resampled as such.
    The best fixed condition is picked on the same steps, which can only make it harder to beat.

    Args:
        matrix: scores of the test steps.
        routings: one per (target, seed).
        benchmark: its name.
        n_pref: non-tied training steps.
        parse_failures: answers on the test split that could not be parsed, in all or by condition.
        probe_auroc: block -> AUROC of the layer study, NaN where undefined.
        provenance: where the numbers come from.
        notes: sentences that must be read with the numbers ("synthetic ...").
        facts: of the steps; with them the first router of each policy is analysed, see `routing_analyses`.
        random_rate: probability of Image under random; None takes SwitchMem's own Image rate.
        baselines: what is told of each memory baseline of the matrix, such as its costs; each has "shows_image".
        replicates: of the bootstrap and of the sign-flip test.
        seed: of both.

    Returns:
        The document; `write_results` writes it.

    Raises:
        ResultsError: if there is no routing, or a (target, seed) is given twice.
        MatrixError: if a routing does not cover the steps of the matrix exactly once.
    """
    by_seed = _rows_by_policy(matrix, routings)
    learned = {name: mean_row([row for _, row in rows]) for name, rows in by_seed.items()}
    main = "switchmem" if "switchmem" in learned else next(iter(learned))
    rate = learned[main].image_rate if random_rate is None else random_rate
    rows = reference_rows(matrix, rate) | learned
    deployed = {name: pairs[0][0] for name, pairs in by_seed.items()}
    analyses = {} if facts is None else routing_analyses(matrix, deployed, main, facts, replicates, seed)
    document = _measured(
        matrix, rows, main, list(learned), benchmark, parse_failures, provenance, notes, (replicates, seed), baselines
    )
    learning = {
        "n_pref": n_pref,
        "gap_recovered": document["comparison"]["gap_recovered"],
        "probe_auroc": {str(layer): value for layer, value in sorted(probe_auroc.items())},
        **analyses,
        "threshold": by_seed[main][0][0].threshold,
        "seeds": [routing.seed for routing, _ in by_seed[main]],
        "per_seed": [_seed_row(matrix, name, *pair) for name, pairs in by_seed.items() for pair in pairs],
    }
    return dict(_plain(document | learning))


def routerless_results(
    matrix: ScoreMatrix,
    *,
    benchmark: str,
    parse_failures: int | Mapping[str, int],
    provenance: Mapping[str, Any],
    notes: Sequence[str] = (),
    baselines: Mapping[str, Mapping[str, Any]] | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Any]:
    """Results of an actor that shows no hidden states: what is fixed, random at 1/2 and the oracle, without a router.

    The comparison is of the oracle with the best fixed condition: what a perfect choice between Text and Image would
    add. Arguments, result and errors as of `build_results`.
    """
    rows = reference_rows(matrix, 0.5)
    document = _measured(
        matrix, rows, "oracle", ["oracle"], benchmark, parse_failures, provenance, notes, (replicates, seed), baselines
    )
    nothing: dict[str, Any] = {
        "n_pref": None,
        "gap_recovered": None,
        "probe_auroc": {},
        "threshold": None,
        "seeds": [],
        "per_seed": [],
    }
    return dict(_plain(document | nothing))


def _measured(
    matrix: ScoreMatrix,
    rows: Mapping[str, PolicyRow],
    main: str,
    compared: Sequence[str],
    benchmark: str,
    parse_failures: int | Mapping[str, int],
    provenance: Mapping[str, Any],
    notes: Sequence[str],
    resampling: tuple[int, int],
    baselines: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """The part of a document that the matrix and its policies decide."""
    replicates, seed = resampling
    told = baselines or {}
    shown = {n: PolicyRow(s, float(told.get(n, {}).get("shows_image", False))) for n, s in matrix.baselines.items()}
    rows = {**rows, **shown}
    names = [name for name in _order(shown) if name in rows]
    comparisons = {name: _compare(matrix, rows[name], replicates, seed) for name in compared}
    trajectories = len(set(matrix.trajectories))
    return {
        "benchmark": benchmark,
        "n_steps": len(matrix),
        "n_trajectories": trajectories,
        "parse_failures": parse_failures,
        "policies": {n: {"score": rows[n].percent, "image_rate": rows[n].image_rate} for n in names},
        "oracle_gap": rows["oracle"].percent - rows[matrix.best_fixed.value].percent,
        "comparison": {"policy": main, **comparisons[main]},
        "comparisons": comparisons,
        "baselines": {
            n: {**told.get(n, {}), "comparison": _compare(matrix, row, replicates, seed)} for n, row in shown.items()
        },
        "win_rates": asdict(win_rates(matrix.column(Condition.TEXT), matrix.column(Condition.IMAGE))),
        "bootstrap": {"replicates": replicates, "seed": seed, "unit": "trajectory"},
        "notes": [*notes, *_warnings(len(matrix), trajectories)],
        "provenance": provenance,
    }


def _order(baselines: Iterable[str]) -> list[str]:
    """Names of the policies as tables have them: the baselines behind the fixed conditions."""
    place = ORDER.index("both") + 1
    return [*ORDER[:place], *baselines, *ORDER[place:]]


def _rows_by_policy(matrix: ScoreMatrix, routings: Sequence[Routing]) -> dict[str, list[tuple[Routing, PolicyRow]]]:
    """Policy -> its routings in the order of their seeds, each with its row."""
    keys = [(routing.target, routing.seed) for routing in routings]
    if not keys or len(set(keys)) != len(keys):
        raise ResultsError(
            f"`routings` must hold at least one router and each (target, seed) once, got {keys}. "
            "Give the predictions of every trained router on the test steps."
        )
    rows: dict[str, list[tuple[Routing, PolicyRow]]] = {}
    for routing in sorted(routings, key=lambda r: (list(POLICY_OF_TARGET).index(r.target), r.seed)):
        rows.setdefault(POLICY_OF_TARGET[routing.target], []).append((routing, routed_row(matrix, routing)))
    return rows


def _compare(matrix: ScoreMatrix, row: PolicyRow, replicates: int, seed: int) -> dict[str, Any]:
    """Paired difference to the best fixed condition in points, its trajectory bootstrap and its sign-flip test."""
    diff = 100.0 * (row.scores - matrix.column(matrix.best_fixed))
    interval = cluster_bootstrap(diff, matrix.trajectories, replicates, seed)
    p = cluster_sign_flip(diff, matrix.trajectories, replicates, seed)
    return {
        "baseline": matrix.best_fixed.value,
        "diff": interval.mean,
        "ci95": [interval.lo, interval.hi],
        "p": p,
        "gap_recovered": _recovered(matrix, row),
    }


def _recovered(matrix: ScoreMatrix, row: PolicyRow) -> float:
    oracle = oracle_scores(matrix.column(Condition.TEXT), matrix.column(Condition.IMAGE))
    return gap_recovered(float(row.scores.mean()), matrix.mean(matrix.best_fixed), float(oracle.mean()))


def _seed_row(matrix: ScoreMatrix, policy: str, routing: Routing, row: PolicyRow) -> dict[str, Any]:
    return {
        "policy": policy,
        "target": routing.target,
        "seed": routing.seed,
        "threshold": routing.threshold,
        "score": row.percent,
        "image_rate": row.image_rate,
        "diff": row.percent - 100.0 * matrix.mean(matrix.best_fixed),
        "gap_recovered": _recovered(matrix, row),
    }


def _warnings(steps: int, trajectories: int) -> list[str]:
    if trajectories >= FEW_TRAJECTORIES:
        return []
    return [f"{steps} steps of {trajectories} trajectories are too few for the differences to mean anything."]


def _plain(value: Any) -> Any:
    """Values that strict JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def write_results(results: Mapping[str, Any], path: str | Path) -> None:
    """Write the document; no reader ever sees half of it."""
    write_json(Path(path), _plain(results))


def read_results(path: str | Path) -> dict[str, Any]:
    """Read what `write_results` wrote.

    Raises:
        ResultsError: if the file is missing, cut off or holds something else.
    """
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(results, dict) or "policies" not in results:
            raise ValueError("there are no policies in it")
    except (OSError, ValueError) as error:
        raise ResultsError(f"`path` must be a whole results.json, got {path}: {error}. Run `test` again.") from error
    return results


# --- the table ---


def table_rows(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per policy with the keys `COLUMNS`; the last three are None for policies that are not compared."""
    told = results.get("baselines", {})  # older documents have none
    comparisons = {**results["comparisons"], **{name: row["comparison"] for name, row in told.items()}}
    return [
        {"policy": name, **values, **{k: comparisons.get(name, {}).get(k) for k in ("diff", "ci95", "p")}}
        for name, values in results["policies"].items()
    ]


def policy_table(results: Mapping[str, Any]) -> Table:
    """The policies of a document as a table for a terminal."""
    baseline = results["comparison"]["baseline"]
    table = Table(
        title=f"{results['benchmark']}: {results['n_steps']} steps of {results['n_trajectories']} trajectories",
        caption="\n".join(_caption(results)),
        caption_justify="left",
    )
    table.add_column("policy")
    for heading in ("score %", "image %", f"points over {baseline}", "95 % CI", "p"):
        table.add_column(heading, justify="right")
    for row in table_rows(results):
        name = f"{row['policy']} (best fixed)" if row["policy"] == baseline else row["policy"]
        compared = (
            ["", "", ""] if row["diff"] is None else [f"{row['diff']:+.2f}", _interval(row["ci95"]), _p(row["p"])]
        )
        style = "bold" if row["policy"] == results["comparison"]["policy"] else None
        table.add_row(name, f"{row['score']:.2f}", f"{100 * row['image_rate']:.1f}", *compared, style=style)
    return table


def policy_text(results: Mapping[str, Any], width: int = 100) -> str:
    """The table as plain text, for files and pipes."""
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, force_terminal=False).print(policy_table(results))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _caption(results: Mapping[str, Any]) -> list[str]:
    recovered, gap = results["gap_recovered"], results["oracle_gap"]
    share = "" if recovered is None else f", {100 * recovered:.0f} % of it recovered"
    seeds = ", ".join(str(seed) for seed in results["seeds"])
    routers = f"router seeds {seeds}" if seeds else "no router: the actor shows no hidden states"
    return [f"oracle gap {gap:.2f} points{share}; {routers}", *results["notes"]]


def _interval(ends: Sequence[float | None]) -> str:
    lo, hi = ends
    return "undefined" if lo is None or hi is None else f"[{lo:+.2f}, {hi:+.2f}]"


def _p(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
