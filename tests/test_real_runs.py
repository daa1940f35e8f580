"""Real phone runs through the command line: AppAgent folders and one AITW episode.

With so few steps, and an actor made for another world, the results mean nothing. What must hold is that the path runs,
that everything is counted, and that nothing harvested is lost where no router can be trained.
"""

import json
import re
import sys

import pytest
from desk import Desk
from fake_actor import recorded_actions

from switchmem.actors.spec import ActorSpec
from switchmem.benchmarks import DataReport
from switchmem.benchmarks.aitw import read_tfrecords
from switchmem.benchmarks.appagent import read_runs
from switchmem.cli import main

pytestmark = pytest.mark.real_data

QUICK = ["--study.targets=[dcoe]", "--study.seeds=[0]", "--study.bootstrap=100", "--trainer.max_epochs=2"]
DATA = re.compile(r"data: (\d+) of (\d+) records kept, (\d+) faults?; (\d+) preference steps without a memory;")
COUNTS = re.compile(
    r"preference: (\d+) steps of (\d+) trajectories: (\d+) tied, (\d+) prefer Text, (\d+) prefer Image; "
    r"unparsable answers: (\d+) text, (\d+) image of (\d+) each"
)


@pytest.fixture
def appagent(real_data):
    return ["--config=trajectories.yaml", f"--data.init_args.root={real_data / 'appagent_runs'}", *QUICK]


@pytest.fixture
def episode(real_data):
    return [
        "--config=trajectories.yaml",
        "--data.init_args.format=aitw_tfrecord",
        f"--data.init_args.root={real_data / 'aitw' / 'tfrecord'}",
        *QUICK,
    ]


OWN = "--data.init_args.own_trajectory=true"


def numbers(pattern, text):
    found = pattern.search(text)
    assert found, f"no line like {pattern.pattern!r} in:\n{text}"
    return [int(group) for group in found.groups()]


def harvest_of(folder):
    (path,) = (folder / "runs" / "stages").glob("harvest-*")
    return path


@pytest.mark.parametrize("name, flags", [("appagent", []), ("episode", [OWN])])
def test_the_shipped_actor_goes_all_the_way_or_stops_with_its_harvest_kept(
    name, flags, request, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    command = ["fit", *request.getfixturevalue(name), *flags]
    status = main(command)
    said = capsys.readouterr()
    kept, read, faults, alone = numbers(DATA, said.out)
    steps, trajectories, tied, text, image, bad_text, bad_image, answers = numbers(COUNTS, said.out)
    run = tmp_path / "runs" / "trajectories"
    report = json.loads((run / "data_report.json").read_text())
    assert (report["kept"], report["read"], len(report["faults"])) == (kept, read, faults)
    assert alone == report["notes"]["preference_without_memory"] == 0
    assert steps == tied + text + image and trajectories >= 1
    assert answers == 7 * steps and max(bad_text, bad_image) <= answers
    manifest = json.loads((harvest_of(tmp_path) / "manifest.json").read_text())
    assert manifest["records"] == steps
    assert {c: sum(r.values()) for c, r in manifest["parse_failures"].items()} == {"text": bad_text, "image": bad_image}
    if text and image:
        assert status == 0 and (run / "policy" / "policies.json").is_file()
        assert "shows that the path runs and nothing else" in said.out
    else:
        assert status == 1 and not (run / "policy").exists()
        assert f"got {steps} steps: {tied} tied, {text} prefer Text, {image} prefer Image" in said.err
        assert f"They are kept in {harvest_of(tmp_path)}: `answers` and `reasons`" in said.err

    monkeypatch.setattr(ActorSpec, "load", lambda *_: pytest.fail("the harvest is complete: no actor is needed"))
    assert main(command) == status
    again = capsys.readouterr().out
    assert "preference harvest: kept from" in again
    assert numbers(DATA, again) == numbers(DATA, said.out) and numbers(COUNTS, again) == numbers(COUNTS, said.out)


def test_every_line_of_every_log_is_counted(appagent, real_data, tmp_path, monkeypatch, capsys):
    """Counted here by lines and folders, without the reader."""
    runs = [folder for folder in (real_data / "appagent_runs").iterdir() if folder.is_dir()]
    logs = [log for run in runs for log in run.glob("log_*.txt")]
    lines = sum(bool(line.strip()) for log in logs for line in log.read_bytes().split(b"\n"))
    silent = {f"appagent/{run.name}" for run in runs if not list(run.glob("log_*.txt"))}
    desk = Desk(tmp_path, monkeypatch, answers={})
    assert desk("fit", small=appagent) == 1
    said = capsys.readouterr()
    kept, read, faults, _ = numbers(DATA, said.out)
    assert read == lines and kept <= read and faults >= len(silent)
    report = json.loads((tmp_path / "runs" / "trajectories" / "data_report.json").read_text())
    assert silent <= {fault["id"] for fault in report["faults"]}
    steps, _, tied, *_, bad_text, bad_image, answers = numbers(COUNTS, said.out)
    assert tied == steps and bad_text == bad_image == answers == 7 * steps  # the fake knows no answer
    assert "error: a preference must have steps that prefer Text and steps that prefer Image" in said.err
    assert "and nothing else" not in said.out


def test_an_actor_with_a_preference_gets_a_policy_and_a_table(appagent, real_data, tmp_path, monkeypatch, capsys):
    answers = recorded_actions(read_runs(real_data / "appagent_runs", DataReport()))
    desk = Desk(tmp_path, monkeypatch, answers)
    assert desk("fit", small=appagent) == 0 and desk("test", small=appagent) == 0
    results = json.loads((tmp_path / "runs" / "trajectories" / "results.json").read_text())
    assert results["benchmark"] == "appagent" and results["n_trajectories"] == 1 and results["n_pref"] > 1
    out = capsys.readouterr().out
    assert "shows that the path runs and nothing else" in out and "too few" in results["notes"][-1]
    harvested = [p for p in (tmp_path / "runs" / "stages").glob("harvest-*/manifest.json")]
    ids = [step_id for path in harvested for step_id in json.loads(path.read_text())["step_ids"]]
    assert sorted(ids) == sorted(answers)  # each step once: a preference query or a test query


def test_without_a_validation_side_every_epoch_is_trained(appagent, real_data, tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path, monkeypatch, recorded_actions(read_runs(real_data / "appagent_runs", DataReport())))
    assert desk("fit", "--data.init_args.val_fraction=0", small=appagent) == 0
    assert "router dcoe-0: 2 epochs" in capsys.readouterr().out


def test_a_prompt_over_the_limit_is_told_without_a_traceback(appagent, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["harvest", *appagent, "--actor.max_prompt_tokens=20"]) == 1
    error = capsys.readouterr().err
    assert "error: A prompt must have at most 20 tokens (`max_prompt_tokens`), got " in error


def test_one_episode_needs_a_word_more(episode, tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path, monkeypatch, answers={})
    assert desk("fit", small=episode) == 1 and not desk.loads
    error = capsys.readouterr().err
    assert "at least 3 trajectories" in error and "got 1 (4 of 4 records kept, 0 faults)" in error
    assert "`own_trajectory` (--data.init_args.own_trajectory true)" in error


def test_one_episode_may_remember_itself(episode, real_data, tmp_path, monkeypatch, capsys):
    answers = recorded_actions(read_tfrecords([real_data / "aitw" / "tfrecord"], DataReport()))
    desk = Desk(tmp_path, monkeypatch, answers)
    assert desk("fit", OWN, small=episode) == 0
    said = capsys.readouterr()
    assert numbers(COUNTS, said.out)[:2] == [4, 1] and numbers(DATA, said.out) == [4, 4, 0, 0]
    assert "note: Memories come from the query's own trajectory too, which leaks: the results mean nothing." in said.out
    (rows,) = [json.loads(p.read_text())["rows"] for p in harvest_of(tmp_path).glob("rank-*.json")]
    assert len(rows) == 4 and all(row["memory_id"] in answers and row["memory_id"] != row["step_id"] for row in rows)
    assert (tmp_path / "runs" / "trajectories" / "policy" / "policies.json").is_file()
    assert desk("test", OWN, small=episode) == 1
    assert "part 'test' must have steps, got none" in capsys.readouterr().err
