"""One score matrix, policies as column choices, and how sure their differences are: pure functions of arrays."""

from switchmem.evaluation.analyses import StepFacts, routing_analyses
from switchmem.evaluation.baselines import BASELINE_COLUMNS, CAPTION, baseline_rows, baseline_text, written_by
from switchmem.evaluation.behaviour import Behaviour, routing_behaviour
from switchmem.evaluation.context import ContextShift, context_groups, context_shifts, density_quartiles
from switchmem.evaluation.frontier import Frontier, budget_frontier
from switchmem.evaluation.matrix import MatrixError, PolicyRow, Routing, ScoreMatrix
from switchmem.evaluation.results import (
    ResultsError,
    build_results,
    policy_table,
    policy_text,
    read_results,
    routerless_results,
    table_rows,
    write_results,
)
from switchmem.evaluation.statistics import (
    Interval,
    StatisticsError,
    WinRates,
    cluster_bootstrap,
    cluster_sign_flip,
    gap_recovered,
    holm,
    mcnemar_exact,
    win_rates,
)

__all__ = [
    "BASELINE_COLUMNS",
    "CAPTION",
    "Behaviour",
    "ContextShift",
    "Frontier",
    "Interval",
    "MatrixError",
    "PolicyRow",
    "ResultsError",
    "Routing",
    "ScoreMatrix",
    "StatisticsError",
    "StepFacts",
    "WinRates",
    "baseline_rows",
    "baseline_text",
    "budget_frontier",
    "build_results",
    "cluster_bootstrap",
    "cluster_sign_flip",
    "context_groups",
    "context_shifts",
    "density_quartiles",
    "gap_recovered",
    "holm",
    "mcnemar_exact",
    "policy_table",
    "policy_text",
    "read_results",
    "routerless_results",
    "routing_analyses",
    "routing_behaviour",
    "table_rows",
    "win_rates",
    "write_results",
    "written_by",
]
