"""Seconds per step, against sums written out step by step."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchmem.evaluation.latency import LatencyError, StepSeconds, latency_summary, policy_seconds

CONDITIONS = ("none", "text", "image", "both")
times = st.floats(0.0, 100.0)
spent = st.fixed_dictionaries({
    "prefix": times,
    "prompt": st.fixed_dictionaries(dict.fromkeys(CONDITIONS, times)),
    "answer": st.fixed_dictionaries(dict.fromkeys(CONDITIONS, times)),
})  # fmt: skip


@given(st.lists(st.tuples(spent, st.booleans(), st.booleans()), min_size=1, max_size=12), times, st.floats(0.0, 1.0))
def test_they_are_the_sums_of_what_would_run(steps, router, rate):
    rows = [row for row, _, _ in steps]
    first, second = (np.array([step[k] for step in steps]) for k in (1, 2))
    found = policy_seconds(
        StepSeconds.read(rows), {"switchmem": [first, second], "basic": [first]}, router, random_rate=rate
    )
    for n, row in enumerate(rows):
        whole = {c: row["prefix"] + row["prompt"][c] + row["answer"][c] for c in CONDITIONS}
        for condition in CONDITIONS:
            assert found[condition][n] == pytest.approx(whole[condition])
        assert found["random"][n] == pytest.approx((1 - rate) * whole["text"] + rate * whole["image"])
        taken = [whole["image" if path[n] else "text"] + router for path in (first, second)]
        assert found["switchmem"][n] == pytest.approx(sum(taken) / 2 + row["prompt"]["none"])
        assert found["basic"][n] == pytest.approx(taken[0])
    assert "oracle" not in found


@given(st.lists(times, min_size=1, max_size=30))
def test_a_summary_tells_mean_median_and_tail(values):
    row = latency_summary({"text": np.array(values), "image": np.full(len(values), 2.0)}, 0.25)["policies"]["text"]
    assert row["mean"] == pytest.approx(math.fsum(values) / len(values))
    assert row["median"] == pytest.approx(statistics.median(values))
    assert sum(v <= row["p95"] + 1e-9 for v in values) >= 0.95 * (len(values) - 1)
    assert row["ratio"] == pytest.approx(row["mean"] / 2.0)


def test_it_says_that_it_is_throughput():
    told = latency_summary({"image": np.zeros(3)}, 0.25)
    assert told["measure"] == "throughput" and "not the time that a user waits" in told["rule"]
    assert told["policies"]["image"]["ratio"] is None and told["router_seconds"] == 0.25


GOOD = {"prefix": 1.0, "prompt": {"text": 1.0}, "answer": {"text": 1.0}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "must tell prefix"),
        ([GOOD, {**GOOD, "prompt": {}}], "same conditions, got KeyError"),
        ([GOOD, None], "same conditions"),
        ([GOOD, {**GOOD, "prefix": -1.0}], "seconds >= 0, got -1.0 as prefix"),
        ([{**GOOD, "answer": {"text": math.nan}}], "as answer text"),
    ],
)
def test_what_is_no_time_is_refused(rows, message):
    with pytest.raises(LatencyError, match=message):
        StepSeconds.read(rows)
