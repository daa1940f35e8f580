"""`sweep`: every shipped file runs from the fake actor's harvest, goes on after a stop, and ends in one table."""

import csv
import json

import fake_actor
import pytest
import yaml

from switchmem.arguments import CONFIGS
from switchmem.cli import main
from switchmem.pipeline.sweep import harvested_anew
from switchmem.pipeline.sweep_file import SweepFile, arguments

FLAGS = ["--config=pocket.yaml", *fake_actor.FLAGS, "--actor.model=fake", "--study.bootstrap=100"]
QUICK = [*FLAGS, "--study.seeds=[0]", "--trainer.max_epochs=1", "--workers=1"]
NAMES = sorted(path.stem for path in (CONFIGS / "sweeps").glob("*.yaml"))


def sweep(name, *flags, base=QUICK):
    return main(["sweep", f"--sweep={name}", *base, *flags])


def table(folder, name):
    return json.loads((folder / "runs" / "sweeps" / f"pocket-{name}" / "sweep.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_sweep_runs_from_the_kept_harvest(desk, name, capsys):
    assert sweep(name, "--runs=1") == 0, capsys.readouterr()
    rows = table(desk.folder, name)["rows"]
    assert len(rows) == 1 and 0 <= rows[0]["score"] <= 100 and rows[0]["val_regret"] >= 0
    anew = harvested_anew(rows[0]["parameters"])
    assert anew is (name in ("bank", "memory_order")) and bool(desk.loads) is (name == "bank")
    assert f"sweep {name}" in capsys.readouterr().out


def test_a_settings_value_arrives_in_its_run(desk):
    assert sweep("width", "--runs=2") == 0
    for row in table(desk.folder, "width")["rows"]:
        config = yaml.safe_load((desk.folder / row["folder"] / "config.yaml").read_text())
        assert config["model"]["init_args"]["width"] == row["parameters"]["model.init_args.width"]
        results = json.loads((desk.folder / row["folder"] / "results.json").read_text())
        assert results["comparisons"]["switchmem"]["diff"] == row["diff"] and row["policy"] == "switchmem"
    with open(desk.folder / "runs/sweeps/pocket-width/sweep.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["key"] for row in read] == [row["key"] for row in table(desk.folder, "width")["rows"]]
    assert {row["model.init_args.width"] for row in read} == {"32", "64"}
    assert float(read[0]["score"]) >= float(read[1]["score"])


def test_finished_combinations_are_skipped_and_other_settings_are_others(desk, capsys):
    assert sweep("threshold") == 0
    logs = {path: path.stat().st_mtime_ns for path in desk.folder.glob("runs/sweeps/*/*.log")}
    kept = next(iter(desk.folder.glob("runs/sweeps/pocket-threshold/*.log"))).with_suffix(".json")
    kept.unlink()
    capsys.readouterr()
    assert sweep("threshold") == 0
    assert "3 combinations, 2 finished before" in capsys.readouterr().out
    again = {path for path, time in logs.items() if path.stat().st_mtime_ns != time}
    assert again == {kept.with_suffix(".log")} and len(table(desk.folder, "threshold")["rows"]) == 3
    assert sweep("threshold", "--model.init_args.lr=0.01", "--runs=1") == 0
    assert "1 combinations, 0 finished before" in capsys.readouterr().out


@pytest.mark.slow
def test_processes_find_what_one_does(desk):
    """Each worker is a fresh process, without the fake actor: only kept harvests can serve it."""
    assert sweep("samples", "--runs=3") == 0
    one = table(desk.folder, "samples")["rows"]
    (desk.folder / "runs" / "sweeps").rename(desk.folder / "before")
    for stage in (desk.folder / "runs" / "stages").glob("router-*"):
        stage.rename(desk.folder / stage.name)
    assert sweep("samples", "--runs=3", "--workers=2") == 0
    two = table(desk.folder, "samples")["rows"]
    measured = ("key", "score", "image_rate", "diff", "lo", "hi", "p", "val_regret")
    assert len(two) == 3 and [[r[k] for k in measured] for r in two] == [[r[k] for k in measured] for r in one]


def test_one_failure_leaves_the_others_and_ends_with_status_1(desk, tmp_path, capsys):
    values = yaml.safe_load((CONFIGS / "sweeps" / "samples.yaml").read_text())
    values["parameters"] = {"study.samples": {"values": [7, 8]}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    assert sweep(tmp_path / "mine.yaml") == 1
    good, bad = table(desk.folder, "mine")["rows"]
    assert "score" in good and "`study.samples` must be at most the 7 harvested, got 8" in bad["error"]
    assert "failed" in (desk.folder / "runs/sweeps/pocket-mine/sweep.txt").read_text()
    assert sweep(tmp_path / "mine.yaml") == 1
    assert "2 combinations, 1 finished before" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--sweep=nothing"], "`--sweep` must name a file, got 'nothing.yaml'"),
        (["--sweep=width", "--workers=0"], "`--workers` must be at least 1, got 0"),
        (["--sweep=width", "--trainer.devices=2"], "`trainer.devices` must be 1 in a sweep, got 2"),
        (["--sweep=width", "--model.init_args.wide=1"], "every combination must be one that `fit` takes"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is(desk, flags, message, capsys):
    assert main(["sweep", *FLAGS, *flags]) == 1
    assert message in capsys.readouterr().err
    assert not (desk.folder / "runs" / "sweeps").exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_combination_is_taken_as_wandb_would_give_it(name, tmp_path, monkeypatch, capsys):
    """The file's own command, with all of its flags."""
    monkeypatch.chdir(tmp_path)
    path = CONFIGS / "sweeps" / f"{name}.yaml"
    words = yaml.safe_load(path.read_text())["command"][3:-1]
    for combination in SweepFile.read(path).combinations()[-2:]:
        with pytest.raises(SystemExit) as end:
            main([*words, *arguments(combination), "--print_config"])
        assert end.value.code == 0, capsys.readouterr().err
