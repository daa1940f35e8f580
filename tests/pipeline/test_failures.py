"""Failure modes: validated labels, denominators, and who is asked about."""

import json

import pytest

from switchmem.evaluation.failures import (
    FailuresError,
    Judged,
    Labels,
    failure_markdown,
    failure_row,
    failure_text,
    read_labels,
)
from switchmem.memory.agmem.failure_modes import FailureMode, read_mode
from switchmem.memory.baseline import Written
from switchmem.memory.writing import Fault, Unusable
from switchmem.pipeline.failure_units import Unit
from switchmem.pipeline.failures import judge, picked

GROUNDING, COGNITIVE = FailureMode.GROUNDING, FailureMode.COGNITIVE


def said(labels, evidence="The tap misses the button."):
    return json.dumps({"labels": labels, "evidence": evidence})


def test_labels_are_read_once_each_and_in_order():
    answer = said(["grounding  error", "Cognitive Failure", "Grounding Error"])
    text = f"<think>{{}}</think>Here it is:\n```json\n{answer}\n```"
    assert read_labels(text, False) == Labels((COGNITIVE, GROUNDING), "The tap misses the button.")
    assert read_labels(said([], ""), False).modes == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.EMPTY),
        ("I'm sorry, I can't help with that.", Fault.REFUSAL),
        ("Grounding Error", Fault.MALFORMED),
        ("{not json", Fault.MALFORMED),
        ('["Grounding Error"]', Fault.MALFORMED),
        (said("Grounding Error"), Fault.MALFORMED),
        (said(["Bad Luck"]), Fault.MALFORMED),
        (said([1]), Fault.MALFORMED),
        (said(["Grounding Error"], ""), Fault.MALFORMED),
        (said(["Grounding Error"], None), Fault.MALFORMED),
        (said(["Memory Over-following"]), Fault.MALFORMED),  # no memory was shown
    ],
)
def test_what_is_no_label_is_a_fault(text, fault):
    with pytest.raises(Unusable) as caught:
        read_labels(text, has_memory=False)
    assert caught.value.fault is fault


def test_memory_may_be_blamed_where_it_was_shown():
    assert read_labels(said(["Memory Over-following"]), True).modes == (FailureMode.MEMORY,)


def test_a_mode_is_read_and_two_are_not():
    assert [read_mode(mode.value) for mode in FailureMode] == list(FailureMode)
    for text in ("", "none", "grounding or cognitive"):
        with pytest.raises(Unusable):
            read_mode(text)


def test_rates_are_of_all_units_and_a_unit_counts_for_each_of_its_modes():
    judged = [
        Judged("a", 1.0),
        Judged("b", 0.9995),  # within the threshold
        Judged("c", 0.99, Labels((COGNITIVE, GROUNDING), "x")),
        Judged("d", 0.0, Labels((GROUNDING,), "x")),
        Judged("e", 0.0, Labels((), "")),
        Judged("f", 0.0, None, "refusal"),
        Judged("g", 0.0),
        Judged("h", 1.0),
    ]
    row = failure_row(judged)
    assert (row["units"], row["successes"], row["failed"]) == (8, 3, 5)
    assert row["modes"]["Grounding Error"] == {"count": 2, "percent": 25.0}
    assert row["modes"]["Cognitive Failure"] == {"count": 1, "percent": 12.5}
    assert row["modes"]["Hidden Operation Blindness"]["count"] == 0
    assert row["none"] == 1 and row["unlabelled"] == {"not asked": 1, "refusal": 1}
    assert row["score"] == pytest.approx(100 * (1 + 0.9995 + 0.99 + 1) / 8)
    table = failure_markdown(row)
    assert "| Root cause | Count | Ratio |\n|---|---:|---:|\n| Cognitive Failure | 1 | 12.5% |" in table
    text = failure_text({"none": row}, "a run")
    assert "paper: AGMem" in text and "25.0" in text.splitlines()[2]


@pytest.mark.parametrize(
    ("judged", "rule"),
    [
        ([], "at least one unit"),
        ([Judged("a", 0.0), Judged("a", 0.0)], "each once, got 2, 1 of them twice \\['a'\\]"),
        ([Judged("a", 1.0, Labels((COGNITIVE,), "x"))], "must label failed units alone, got 'a'"),
    ],
)
def test_a_table_of_nonsense_is_refused(judged, rule):
    with pytest.raises(FailuresError, match=rule):
        failure_row(judged)


class Judge:
    fingerprint = "judge"

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), []

    def write(self, calls):
        self.calls += calls
        return [Written(self.answers.pop(0)) for _ in calls]


def unit(name, score, method="image", memory=True, missing=""):
    return Unit(name, method, score, memory, lambda: (f"unit {name}",), missing)


def test_only_failed_units_are_asked_about_and_faults_are_kept():
    units = [
        unit("a", 1.0),
        unit("b", 0.0),
        unit("c", 0.5),
        unit("d", 0.0, missing="lost"),
        unit("e", 0.2, "none", False),
    ]
    writer = Judge(said(["Memory Over-following"]), "", said(["Memory Over-following"]))
    found = judge(units, writer)
    assert [call.parts for call in writer.calls] == [("unit b",), ("unit c",), ("unit e",)]
    assert [one.labels and one.labels.modes for one in found["image"]] == [None, (FailureMode.MEMORY,), None, None]
    assert [one.fault for one in found["image"]] == ["", "", "empty", "not at hand"]
    assert found["none"][0].fault == "malformed"


def test_units_are_picked_by_method_and_spread():
    units = [unit(str(n), 0.0, m) for m in ("none", "image") for n in range(10)]
    assert [(u.method, u.unit) for u in picked(units, ["image"], 3)] == [("image", "0"), ("image", "3"), ("image", "6")]
    assert len(picked(units, None, None)) == 20
    with pytest.raises(FailuresError, match="`--methods` must be among none, image, got text"):
        picked(units, ["text"], None)
