"""Seconds per step of a test: what the harvest measured, and the router's own time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from switchmem.evaluation import Routing
from switchmem.evaluation.latency import IMAGE, NONE, TEXT, StepSeconds, latency_summary, policy_seconds
from switchmem.evaluation.results import POLICY_OF_TARGET
from switchmem.harvest import Harvest, HarvestError
from switchmem.pipeline.used import rows_of
from switchmem.policy import Policy, choices

TIMED = 64
"""Steps on which a router is timed, one after another."""

UNMEASURED = (
    "Seconds per step are unknown: this harvest was made before they were measured, or by an actor that tells none."
)


def step_seconds(harvest: Harvest) -> StepSeconds | None:
    """What each step's parts took; None where the harvest does not tell of Text, Image and the state prompt.

    Raises:
        LatencyError: if it tells of some steps alone, or what it tells is no time.
    """
    try:
        found = StepSeconds.read(harvest.context("spent"))
    except HarvestError:  # of an actor that does not measure
        return None
    return found if {NONE, TEXT, IMAGE} <= set(found.prompt) and {TEXT, IMAGE} <= set(found.answer) else None


def router_seconds(policy: Policy, batch: dict[str, Tensor]) -> float:
    """Median seconds of a router for one step, on the CPU.

    Args:
        policy: is timed.
        batch: everything a router may read of the steps.
    """
    rows = [rows_of(batch, part) for part in _single(len(batch["state"]))]
    policy.route(rows[0])  # the first call of a process is no step of an agent
    times = []
    for row in rows:
        started = time.perf_counter()
        policy.route(row)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _single(count: int) -> list[Tensor]:
    return [torch.tensor([n]) for n in range(min(count, TIMED))]


def latency_of(
    seconds: StepSeconds | None,
    routings: Sequence[Routing],
    router: float,
    policies: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """The "latency" of a results document, and columns of ``scores.parquet``.

    Args:
        seconds: of the steps; None tells that they are unknown.
        routings: of all routers, the run's own first; their `r` are in the order of the steps.
        router: seconds of a router for one step.
        policies: of the document; random's share of Image is read.

    Returns:
        The entry, and ``seconds_none`` and the like of each condition, with ``seconds_choice`` of the run's own router.
    """
    if seconds is None:
        return {"measure": "unknown", "rule": UNMEASURED, "policies": {}}, {}
    paths: dict[str, list[Any]] = {}
    for routing in routings:
        paths.setdefault(POLICY_OF_TARGET[routing.target], []).append(choices(routing.r, routing.threshold))
    found = policy_seconds(seconds, paths, router, policies["random"]["image_rate"])
    ordered = {name: found[name] for name in policies if name in found}
    columns = {f"seconds_{c}": seconds.fixed(c).tolist() for c in seconds.conditions}
    if routings:
        own = routings[0]
        reads_state = own.target != "basic"
        columns["seconds_choice"] = seconds.routed(
            np.asarray(choices(own.r, own.threshold)), router, reads_state
        ).tolist()
    return latency_summary(ordered, router), columns
