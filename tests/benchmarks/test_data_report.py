"""The report of what could not be read, and the registry of benchmarks."""

import json

import pytest

from switchmem.benchmarks import BENCHMARKS, DataError, DataReport, Fault, get_benchmark
from switchmem.benchmarks.base import require_steps


def test_reports_add_up_and_are_saved(tmp_path):
    one, two = DataReport(3, 2, notes={"runs": 1}), DataReport(5, 4, notes={"runs": 2, "episodes": 1})
    one.add("a/1", "broken <|im_end|> “text”")
    two.add("b/2", "gone")
    one.merge(two)
    one.note("runs")
    path = tmp_path / "new" / "data_report.json"
    one.save(path)
    assert json.loads(path.read_text()) == {
        "read": 8,
        "kept": 6,
        "faults": [{"id": "a/1", "reason": "broken <|im_end|> “text”"}, {"id": "b/2", "reason": "gone"}],
        "notes": {"runs": 4, "episodes": 1},
    }
    assert [file.name for file in path.parent.iterdir()] == ["data_report.json"]
    assert one.summary() == "6 of 8 records kept, 2 faults"
    assert one.faults[1] == Fault("b/2", "gone")


def test_merging_keeps_counts_of_zero():
    one = DataReport(notes={"runs_finished": 0})
    one.merge(DataReport(notes={"episodes": 0}))
    assert one.notes == {"runs_finished": 0, "episodes": 0}


def test_a_source_without_a_usable_step_is_refused_with_its_first_faults():
    report = DataReport(read=9)
    for number in range(9):
        report.add(f"x/{number}", "cut")
    with pytest.raises(
        DataError, match=r"No usable step in here: 0 of 9 .*x/0: cut; x/1: cut; x/2: cut\). Check it\.$"
    ):
        require_steps(0, report, ["here"], "Check it.")
    require_steps(1, report, ["here"], "Check it.")


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_every_benchmark_has_its_name_and_scores_none_as_zero(name, make_step):
    benchmark = get_benchmark(name)
    assert benchmark.name == name
    assert benchmark.score(None, make_step(benchmark=name)) == 0.0


def test_an_unknown_benchmark_lists_the_known():
    with pytest.raises(DataError, match=f"must be one of {', '.join(sorted(BENCHMARKS))}, got 'aitv'"):
        get_benchmark("aitv")


def test_a_fault_is_told_on_one_printable_line_and_kept_as_it_is(tmp_path):
    report = DataReport(read=1)
    report.add("aitw/7\n8\x1b[2J/0", "it has\r\u2028 naïve 漢 \ud800")
    told = "aitw/7\\n8\\x1b[2J/0: it has\\r\\u2028 naïve 漢 \\ud800"
    assert str(report.faults[0]) == told
    with pytest.raises(DataError) as error:
        require_steps(0, report, ["here"], "Look.")
    assert told in str(error.value) and "\n" not in str(error.value)
    report.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["faults"][0]["id"] == "aitw/7\n8\x1b[2J/0"
