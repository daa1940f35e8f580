"""One score matrix, policies as column choices, and how sure their differences are: pure functions of arrays."""

from switchmem.evaluation.matrix import MatrixError, PolicyRow, Routing, ScoreMatrix
from switchmem.evaluation.results import (
    ResultsError,
    build_results,
    policy_table,
    policy_text,
    read_results,
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
    win_rates,
)

__all__ = [
    "Interval",
    "MatrixError",
    "PolicyRow",
    "ResultsError",
    "Routing",
    "ScoreMatrix",
    "StatisticsError",
    "WinRates",
    "build_results",
    "cluster_bootstrap",
    "cluster_sign_flip",
    "gap_recovered",
    "policy_table",
    "policy_text",
    "read_results",
    "table_rows",
    "win_rates",
    "write_results",
]
