"""The seconds that a test run tells, from a harvest to its files."""

import json

import fake_actor
import numpy as np
import pandas
import pytest

from switchmem.evaluation import read_results
from switchmem.harvest import Harvest
from switchmem.memory.views import Condition
from switchmem.pipeline.latency import UNMEASURED, latency_of, step_seconds

FIXED = {c.value: 0.25 + fake_actor.SECONDS[c] + 0.125 for c in Condition}
"""Prefix, prompt and answer of the fake actor."""


def test_a_test_tells_the_seconds_of_every_policy(trained):
    run = trained / "runs" / "pocket"
    results, rows = read_results(run / "results.json"), pandas.read_parquet(run / "scores.parquet")
    latency, router = results["latency"], results["latency"]["router_seconds"]
    assert latency["measure"] == "throughput" and 0 < router < 1
    assert set(latency["policies"]) == set(results["policies"]) - {"oracle"}
    means = {name: row["mean"] for name, row in latency["policies"].items()}
    for name, seconds in FIXED.items():
        assert means[name] == pytest.approx(seconds) and np.allclose(rows[f"seconds_{name}"], seconds)
    rates = {name: row["image_rate"] for name, row in results["policies"].items()}
    for name, probe in {"switchmem": 0.125 + router, "binary": 0.125 + router, "random": 0.0}.items():
        mixed = FIXED["text"] + rates[name] * (FIXED["image"] - FIXED["text"])
        assert means[name] == pytest.approx(mixed + probe)
        assert latency["policies"][name]["ratio"] == pytest.approx(means[name] / FIXED["image"])
    chosen = np.where(rows["choice"] == "image", FIXED["image"], FIXED["text"])
    assert np.allclose(rows["seconds_choice"], chosen + 0.125 + router)


def test_a_harvest_that_tells_none_is_told(desk):
    stage = next(
        stage.parent
        for stage in (desk.folder / "runs" / "stages").glob("harvest-*/stage.json")
        if "both" in json.loads(stage.read_text())["inputs"]["conditions"]
    )
    assert step_seconds(Harvest.open(stage)) is not None

    class Untold:
        def context(self, name):
            return Harvest.open(stage).context("no such fact")

    assert step_seconds(Untold()) is None
    told, columns = latency_of(None, [], 0.0, {})
    assert told == {"measure": "unknown", "rule": UNMEASURED, "policies": {}} and columns == {}
