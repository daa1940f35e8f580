"""The README's page on bringing your own recordings does what it says: lines, snippet, names and commands."""

import csv
import json
import re

import pytest
from desk import Desk
from fake_actor import recorded_actions
from PIL import Image

from switchmem.benchmarks import DataReport
from switchmem.benchmarks.jsonl import read_jsonl
from switchmem.benchmarks.recorded_actions import NAMES

ROWS = [("tap", 50, 40, ""), ("click", 99, 199, ""), ("type", "", "", "hello, world"), ("back", "", "", "")]
EPISODES = 6


@pytest.fixture(scope="module")
def page(project):
    text = (project / "README.md").read_text(encoding="utf-8")
    return text.split("\n## Bring your own\n", 1)[1].split("\n## ", 1)[0]


def block(page, language):
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def written(page, tmp_path, monkeypatch):
    """What the snippet makes of the logs that the page describes."""
    for number in range(EPISODES):
        run = tmp_path / "my_logs" / f"run {number}"
        run.mkdir(parents=True)
        (run / "task.txt").write_text(f"do thing {number} 查", encoding="utf-8")
        with open(run / "actions.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(ROWS)
        for step in range(len(ROWS)):
            Image.new("RGB", (100, 200), (number, step, 0)).save(run / f"{step}.png")
    monkeypatch.chdir(tmp_path)
    exec(compile(block(page, "python"), "README.md", "exec"), {"__name__": "snippet"})
    return tmp_path / "my_data"


def test_the_three_lines_are_read(page, tmp_path):
    lines = block(page, "jsonl")
    (tmp_path / "steps.jsonl").write_text(lines)
    for line in lines.splitlines():
        Image.new("RGB", (1080, 2400)).save(tmp_path / json.loads(line)["screenshot"])
    (tmp_path / "wifi-1_2.xml").write_bytes(ui_dump())
    report = DataReport()
    steps = list(read_jsonl(tmp_path, report))
    assert not report.faults and [step.step_id for step in steps] == [f"recorded/wifi-1/{i}" for i in range(3)]
    assert [step.action.type.value for step in steps] == ["tap", "tap", "complete"]
    assert steps[1].action.point == (960 / 1080, 520 / 2400) and steps[1].elements[0].text == "Use Wi-Fi"
    assert steps[2].elements[0].text == "Done"


def ui_dump():
    return b'<hierarchy><node text="Done" class="a.Button" package="a" bounds="[0,0][1080,200]"/></hierarchy>'


def test_the_table_names_every_action(page):
    rows = re.findall(r"^\| (`.*?)\|.*?\|(.*?)\|$", page, re.MULTILINE)
    named = [name for row in rows for cell in row for name in re.findall(r"`(\w+)`", cell)]
    formats = {"appagent", "android_control", "aitw_tfrecord"}
    assert sorted(set(named) - formats) == sorted(NAMES)


def test_the_snippet_is_short_and_loses_nothing(page, written):
    assert len(block(page, "python").strip().splitlines()) <= 16
    report = DataReport()
    steps = list(read_jsonl(written, report))
    assert (report.read, report.kept, report.faults) == (EPISODES * len(ROWS),) * 2 + ([],)
    assert [step.action.type.value for step in steps[:4]] == ["tap", "tap", "type", "back"]
    assert steps[1].action.point == (0.99, 0.995) and steps[2].action.text == "hello, world"
    assert steps[-1].step_id == "recorded/run 5/3" and steps[-1].instruction == "do thing 5 查"


def test_what_it_wrote_is_prepared_trained_on_and_tested(page, written, tmp_path, monkeypatch, capsys):
    commands = re.findall(r"python train\.py (\w+) +(--config trajectories.yaml .* my_data)$", page, re.MULTILINE)
    assert [name for name, _ in commands] == ["prepare", "fit", "test"]
    broken = json.loads((written / "steps.jsonl").read_text().splitlines()[0])
    with open(written / "steps.jsonl", "a") as file:
        file.write(json.dumps({**broken, "step": 99, "units": "fractions"}) + "\n")
    desk = Desk(tmp_path, monkeypatch, recorded_actions(read_jsonl(written, DataReport())))
    quick = ["--study.targets=[dcoe]", "--study.seeds=[0]", "--study.bootstrap=100", "--trainer.max_epochs=1"]
    for name, flags in commands:
        assert desk(name, small=[*flags.split(), *quick]) == 0, name
        assert len(desk.loads) == (name != "prepare") + (name == "test")
        report = json.loads((tmp_path / "runs" / "trajectories" / "data_report.json").read_text())
        assert [fault["id"] for fault in report["faults"]] == ["recorded/run 0/99"]
        assert '"units": "pixels"' in report["faults"][0]["reason"]
    results = json.loads((tmp_path / "runs" / "trajectories" / "results.json").read_text())
    assert results["benchmark"] == "recorded" and results["n_steps"] == 2 * len(ROWS)
    assert f"{EPISODES * len(ROWS)} of {EPISODES * len(ROWS) + 1} records kept, 1 fault" in capsys.readouterr().out


@pytest.mark.parametrize("broken", [3, 4])
def test_prepare_says_how_much_more_was_left_out(written, tmp_path, monkeypatch, capsys, broken):
    with open(written / "steps.jsonl", "a", encoding="utf-8") as file:
        file.write("not a line\n" * broken)
    flags = ["--config=trajectories.yaml", "--data.init_args.format=jsonl", f"--data.init_args.root={written}"]
    assert Desk(tmp_path, monkeypatch, answers={})("prepare", small=flags) == 0
    out = capsys.readouterr().out
    assert f"{broken} faults" in out and out.count("left out: ") == 3 and ("\n  and 1 more\n" in out) is (broken == 4)
