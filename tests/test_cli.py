"""The command line, in-process and with a fake actor: what people rely on, and the traps of the libraries below."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fake_actor
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from desk import SMALL, Desk
from lightning.pytorch.utilities.exceptions import SIGTERMException

from switchmem.agent import LiveBank
from switchmem.benchmarks.pocket import PocketSpec, generate_steps
from switchmem.cli import SwitchMemCLI, main
from switchmem.memory import HashingEmbedder
from switchmem.memory.bank import BankError
from switchmem.policy import Policy


def test_a_run_leaves_what_it_should(trained):
    run = trained / "runs" / "pocket"
    names = {p.name for p in run.iterdir()}
    wanted = "config.yaml provenance.json data_report.json checkpoints logs policy results.json scores.parquet"
    assert names >= set(wanted.split())
    results = json.loads((run / "results.json").read_text())
    assert set(results["policies"]) == {"none", "text", "image", "both", "random", "binary", "switchmem", "oracle"}
    assert results["n_steps"] > 20 and results["seeds"] == [0, 1] and results["provenance"]["packages"]["torch"]
    assert "synthetic" in results["notes"][0]
    assert results["parse_failures"]["none"] > 0
    assert Policy.load(run / "policy").card.target == "dcoe"
    assert Policy.load(run / "policy" / "binary-1").card.seed == 1
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["actor"]["dtype"] == "float32" and provenance["actor"]["attention"] == "sdpa"
    assert provenance["batch_size"] == 16 and len(provenance["actor"]["fingerprint"]) == 32


def test_each_test_step_has_a_row(trained):
    run = trained / "runs" / "pocket"
    rows = pq.read_table(run / "scores.parquet").to_pylist()
    results = json.loads((run / "results.json").read_text())
    assert len(rows) == results["n_steps"] and len({row["step_id"] for row in rows}) == len(rows)
    for row in rows:
        image = row["r_dcoe_0"] >= results["threshold"]
        assert row["choice"] == ("image" if image else "text")
        assert row["index"] >= 0 and row["memory_id"] != row["step_id"] and -1 <= row["cosine"] <= 1
        assert math.isfinite(row["t"]) and row["seconds"] >= 0 and isinstance(row["answer_both"], str)
    rate = sum(row["choice"] == "image" for row in rows) / len(rows)
    assert results["behaviour"]["switchmem"]["image"] == pytest.approx(rate)
    assert results["context"]["groups"]["initial"]["steps"] == sum(row["index"] == 0 for row in rows)


def test_the_policy_is_frozen_before_a_test_step_is_read(trained):
    stages = {p.parent: json.loads(p.read_text()) for p in (trained / "runs" / "stages").glob("harvest-*/stage.json")}
    (greedy,) = (folder for folder, stage in stages.items() if stage["inputs"]["sampling"]["temperature"] == 0.0)
    policies = [p.stat().st_mtime_ns for p in (trained / "runs" / "pocket" / "policy").rglob("policy.json")]
    assert max(policies) < min(p.stat().st_mtime_ns for p in greedy.glob("rank-*"))


def test_finished_stages_are_reused_and_the_actor_is_not_loaded(desk, capsys):
    stages = {p: p.stat().st_mtime_ns for p in (desk.folder / "runs" / "stages").rglob("*") if p.is_file()}
    before = (desk.run / "policy" / "model.safetensors").read_bytes()
    assert desk("fit") == 0 and desk("test") == 0
    assert not desk.loads
    assert {p: p.stat().st_mtime_ns for p in (desk.folder / "runs" / "stages").rglob("*") if p.is_file()} == stages
    assert (desk.run / "policy" / "model.safetensors").read_bytes() == before
    assert not (desk.run / "previous").exists()
    out = capsys.readouterr().out
    assert "harvest: kept from" in out and "router dcoe-0: kept from" in out
    assert out.count(f"run folder: {desk.run}") == 2 and out.count("steps: kept from") == 2  # once by each command
    assert f"results: {desk.run / 'results.json'}" in out


CHAIN = ("steps", "memory", "harvest", "targets", "router")


def stage_keys(study):
    stages = (
        study.data.steps_stage,
        study.data.memory_stage("preference"),
        study.harvest_stage("preference"),
        study.targets_stage,
        study.router_stage("dcoe", 0),
    )
    return dict(zip(CHAIN, (stage.key for stage in stages), strict=True))


@pytest.fixture
def parsed(desk, monkeypatch):
    """Parses and builds, but runs nothing."""
    seen = []
    monkeypatch.setattr(SwitchMemCLI, "before_fit", lambda cli: seen.append(cli))
    monkeypatch.setattr(SwitchMemCLI, "fit", lambda cli, **_: None)
    monkeypatch.setattr(SwitchMemCLI, "after_fit", lambda cli: None)

    def parse(*flags):
        assert main(["fit", *flags, "--run.name=parsed", "--actor.model=fake"]) == 0
        return seen[-1]

    return parse


@pytest.mark.parametrize(
    "flag, first",
    [
        ("--data.init_args.world=control", "steps"),
        ("--data.init_args.world_seed=1", "steps"),
        ("--memory.dim=64", "memory"),
        ("--sampling.temperature=0.9", "harvest"),
        ("--sampling.seeds=[42,43]", "harvest"),
        ("--sampling.max_new_tokens=9", "harvest"),
        ("--actor.max_pixels=9999", "harvest"),
        ("--actor.dtype=bfloat16", "harvest"),
        ("--actor.template=default", "harvest"),
        ("--actor.state_tokens=99", "harvest"),
        ("--study.probe_layers=[1,3]", "harvest"),
        ("--study.limit=5", "harvest"),
        ("--study.bank_fraction=0.5", "memory"),
        ("--study.components=8", "targets"),
        ("--study.layer=1", "targets"),
        ("--study.samples=3", "targets"),
        ("--study.threshold=zero", "router"),
        ("--model.init_args.features=[e]", "router"),
        ("--study.worth=3", None),
        ("--study.cross_fit=true", "targets"),
        ("--model.init_args.lr=0.01", "router"),
        ("--trainer.max_epochs=3", "router"),
        ("--data.init_args.val_fraction=0.3", "router"),
        ("--data.init_args.router_batch_size=3", "router"),
        ("--data.init_args.batch_size=3", None),
        ("--trainer.log_every_n_steps=3", None),
        ("--study.bootstrap=300", None),
        ("--actor.device=cpu", None),
    ],
)
def test_a_changed_setting_never_reuses_a_stale_stage(parsed, flag, first):
    before, after = (stage_keys(parsed(*SMALL, *flags).study) for flags in ([], [flag]))
    changed = [name for name in CHAIN if before[name] != after[name]]
    assert changed == (list(CHAIN[CHAIN.index(first) :]) if first else [])


def test_other_weights_are_another_actor(parsed, desk):
    before = stage_keys(parsed(*SMALL).study)
    (desk.folder / "fake" / "config.json").write_text("{}")
    after = stage_keys(parsed(*SMALL).study)
    assert before["memory"] == after["memory"] and before["harvest"] != after["harvest"]


def test_a_changed_setting_runs_again_from_there(desk):
    def stages():
        return {p.parent.name for p in (desk.folder / "runs" / "stages").glob("*/stage.json")}

    before = stages()
    assert desk("fit", "--study.targets=[dcoe]", "--study.seeds=[0]", "--sampling.seeds=[1,2,3]") == 0
    assert {name.rpartition("-")[0] for name in stages() - before} == {"harvest", "targets", "router"}
    assert len(desk.loads) == 1


def test_a_command_that_cannot_be_built_leaves_the_run_where_it_is(desk, capsys):
    before = {p: p.stat().st_mtime_ns for p in desk.run.rglob("*")}
    assert desk("fit", "--trainer.accelerator=gpu", "--model.init_args.lr=0.5") == 1
    assert capsys.readouterr().err.startswith("error: No supported gpu backend found")
    assert {p: p.stat().st_mtime_ns for p in desk.run.rglob("*")} == before


def test_another_config_sets_the_earlier_run_aside(desk, capsys):
    policy = (desk.run / "policy" / "model.safetensors").read_bytes()
    assert desk("fit", "--model.init_args.lr=0.01") == 0
    earlier = desk.run / "previous" / "1"
    assert (earlier / "policy" / "model.safetensors").read_bytes() == policy and (earlier / "results.json").exists()
    assert not (desk.run / "results.json").exists()
    assert yaml.safe_load((desk.run / "config.yaml").read_text())["model"]["init_args"]["lr"] == 0.01
    assert str(earlier) in capsys.readouterr().out


def test_the_saved_config_repeats_the_run(desk):
    config = desk.folder / "again.yaml"
    shutil.copy(desk.run / "config.yaml", config)
    assert main(["fit", f"--config={config}"]) == 0
    assert not (desk.run / "previous").exists() and not desk.loads


def test_overrides_arrive_wherever_they_stand(parsed):
    for flags in (["--model.init_args.lr=0.5", *SMALL], [*SMALL, "--model.init_args.lr=0.5"]):
        cli = parsed(*flags)
        assert cli.model.hparams["lr"] == 0.5
        other = cli.new_router("binary")
        assert (other.hparams["lr"], other.hparams["target"]) == (0.5, "binary")


@pytest.mark.parametrize("flag", ["--model.init_args.learning_rate=1", "--trainer.max_epoch=1", "--study.seed=1"])
def test_an_unknown_flag_is_refused(desk, flag, capsys):
    with pytest.raises(SystemExit) as error:
        desk("fit", flag)
    assert error.value.code == 2
    assert flag.partition("=")[0].rpartition(".")[2] in capsys.readouterr().err


def test_a_later_configs_callbacks_drop_nothing_that_is_needed(desk):
    later = desk.folder / "later.yaml"
    later.write_text("trainer: {callbacks: [{class_path: lightning.pytorch.callbacks.LearningRateMonitor}]}\n")
    flags = [f"--config={later}", "--sampling.seeds=[1,2,3]", "--run.name=later"]
    assert desk("fit", *flags) == 0
    run = desk.folder / "runs" / "later"
    assert (run / "checkpoints" / "last.ckpt").is_file() and len(list((run / "checkpoints").glob("epoch=*.ckpt"))) == 1
    assert desk.loads  # it was harvested anew, so the harvester was there too


def test_checkpoints_load_with_weights_only(trained):
    found = list((trained / "runs" / "pocket" / "checkpoints").glob("*.ckpt"))
    assert len(found) == 2
    for path in found:
        assert torch.load(path, weights_only=True)["hyper_parameters"]["target"] == "dcoe"


@pytest.mark.parametrize("name", ["last", "runs/pocket/checkpoints/last.ckpt"])
def test_a_checkpoint_that_contradicts_the_command_stops_it(desk, name, capsys):
    assert desk("fit", f"--ckpt_path={name}", "--model.init_args.lr=0.5") == 1
    assert "model.init_args.lr is 0.001 there and 0.5 here" in capsys.readouterr().err
    assert not (desk.run / "previous").exists()


def test_a_checkpoint_goes_on_where_it_stopped_though_its_run_is_set_aside(desk):
    assert desk("fit", "--ckpt_path=last", "--trainer.max_epochs=3") == 0
    assert torch.load(desk.run / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 2
    assert (desk.run / "previous" / "1" / "checkpoints" / "last.ckpt").is_file()


def test_a_checkpoint_with_nothing_left_to_train_gives_its_weights(desk):
    assert desk("fit", "--ckpt_path=last", "--study.seeds=[0]") == 0
    weights = torch.load(desk.run / "previous" / "1" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(Policy.load(desk.run / "policy").router.state_map.weight, weights["router.state_map.weight"])


def test_a_checkpoint_that_is_not_there_lists_those_that_are(desk, capsys):
    assert desk("fit", "--ckpt_path=best") == 1
    assert "`--ckpt_path` must be a file or 'last', got 'best'" in (error := capsys.readouterr().err)
    assert "last.ckpt" in error


def test_without_a_preference_it_stops_keeps_the_harvest_and_prints_the_counts(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path, monkeypatch, answers={})
    assert desk("fit") == 1
    captured = capsys.readouterr()
    assert "tied, 0 prefer Text, 0 prefer Image; unparsable answers: " in captured.out
    assert "error: a preference must have steps that prefer Text and steps that prefer Image" in captured.err
    told = re.search(r"They are kept in (\S+): `answers` and `reasons` of each step in its \.json files", captured.err)
    rows = [row for path in Path(told[1]).glob("rank-*.json") for row in json.loads(path.read_text())["rows"]]
    assert rows and all({"answers", "reasons"} <= set(row) for row in rows)
    assert (desk.run / "data_report.json").is_file()
    (harvest,) = (tmp_path / "runs" / "stages").glob("harvest-*")
    assert (harvest / "manifest.json").is_file() and json.loads((harvest / "stage.json").read_text())["complete"]
    assert not (desk.run / "policy").exists()
    assert desk("test") == 1
    assert "`test` must find a frozen policy in" in capsys.readouterr().err


def test_harvest_alone_makes_the_harvest_that_fit_uses(tmp_path, monkeypatch):
    desk = Desk(tmp_path, monkeypatch)
    assert desk("harvest") == 0 and len(desk.loads) == 1
    assert (desk.run / "config.harvest.yaml").is_file() and not (desk.run / "config.yaml").exists()
    assert desk("fit") == 0 and len(desk.loads) == 1


def test_a_policy_is_refused_for_another_actor(desk, capsys):
    assert desk("test", "--actor.max_pixels=9999") == 1
    assert "the policy must be used as it was trained, got: `actor` is" in capsys.readouterr().err
    assert not desk.loads


@pytest.mark.parametrize("flag", ["--model.init_args.lr=0.5", "--study.targets=[dcoe]", "--sampling.seeds=[1]"])
def test_a_test_with_settings_that_it_would_ignore_is_refused(desk, flag, capsys):
    before = (desk.run / "results.json").read_bytes()
    assert desk("test", flag) == 1
    name = flag[2:].partition("=")[0]
    assert (
        f"`test` must be asked for what `fit` was, since the policy is frozen, got: {name} was"
        in capsys.readouterr().err
    )
    assert (desk.run / "results.json").read_bytes() == before


def test_a_test_without_a_fit_is_refused(desk, capsys):
    assert desk("test", "--run.name=other") == 1
    told = capsys.readouterr().err
    assert "`test` must find a run of `fit` in" in told and "`test --run FOLDER` takes over" in told


def test_a_test_takes_over_the_flags_of_its_fit(desk):
    flags = ["--study.seeds=[3]", "--study.targets=[dcoe]", "--run.name=flagged", "--run.report=false"]
    assert desk("fit", *flags) == 0
    assert main(["test", "--run", str(desk.folder / "runs" / "flagged")]) == 0
    results = json.loads((desk.folder / "runs" / "flagged" / "results.json").read_text())
    assert results["seeds"] == [3]


def test_callbacks_can_be_added_on_the_command_line(parsed):
    cli = parsed(*SMALL, "--trainer.callbacks+=lightning.pytorch.callbacks.LearningRateMonitor")
    names = {type(callback).__name__ for callback in cli.trainer.callbacks}
    assert names >= {"EarlyStopping", "LearningRateMonitor", "ModelCheckpoint", "PlainProgress"}


def test_a_terminal_gets_a_bar(parsed, monkeypatch):
    cli = parsed(*SMALL)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert type(cli.new_trainer([], None).progress_bar_callback).__name__ == "RichProgressBar"


def test_a_fast_dev_run_leaves_the_run_alone(desk):
    before = {p: p.stat().st_mtime_ns for p in desk.run.rglob("*")}
    assert desk("fit", "--trainer.fast_dev_run=true", "--model.init_args.lr=0.01") == 0
    assert desk("test", "--trainer.fast_dev_run=true", "--model.init_args.lr=0.01") == 0
    assert {p: p.stat().st_mtime_ns for p in desk.run.rglob("*")} == before
    assert sorted(p.name for p in (desk.folder / "runs").iterdir()) == ["pocket", "stages"]


def test_printing_the_config_needs_neither_actor_nor_data(desk, capsys):
    with pytest.raises(SystemExit) as error:
        desk("fit", "--data.init_args.apps=7", "--print_config")
    assert error.value.code == 0 and not desk.loads
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["data"]["init_args"]["apps"] == 7 and printed["sampling"]["seeds"] == list(range(42, 49))


def test_threads_are_those_asked_for(desk):
    assert desk("fit", "--run.threads=2") == 0 and torch.get_num_threads() == 2
    assert desk("fit") == 0 and torch.get_num_threads() == 1  # as configs/pocket.yaml asks


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--run.name=a/b", "`run.name` must be a plain folder name"),
        ("--run.threads=0", "`run.threads` must be at least 1 or null, got 0"),
        ("--study.seeds=[0,0]", "`study.seeds` must hold at least one value and no repeats"),
        ("--study.limit=0", "`study.limit` must be at least 1, got 0"),
        ("--study.samples=0", "`study.samples` must be at least 1, got 0"),
        ("--study.samples=8", "`study.samples` must be at most the 7 harvested, got 8"),
        ("--study.layer=7", "`study.layer` must name blocks among those probed, [0, 1, 2, 3]"),
        ("--study.bank_fraction=0", "`study.bank_fraction` must be in (0, 1], got 0"),
        ("--study.worth=0", "`study.worth` must be > 0, got 0"),
        ("--sampling.temperature=-1", "`temperature` must be >= 0"),
        ("--actor.dtype=float8", "`dtype` must be one of float32"),
        ("--memory.dim=2", "`dim` must be at least 16, got 2"),
        ("--data.init_args.apps=0", "`apps` must be at least 1, got 0"),
        ("--config=nowhere.yaml", "`--config` must name a file, got 'nowhere.yaml'"),
    ],
)
def test_bad_settings_are_told_without_a_traceback(desk, flag, message, capsys):
    try:
        status = desk("fit", flag)
    except SystemExit as error:
        status = error.code
    assert status in (1, 2)
    assert message in capsys.readouterr().err


def test_a_killed_run_does_not_count_as_finished(desk, monkeypatch, capsys):
    def kill(cli):
        raise SIGTERMException

    monkeypatch.setattr(SwitchMemCLI, "before_fit", kill)
    assert desk("fit") == 143
    assert "stopped by SIGTERM" in capsys.readouterr().err


# --- Weights & Biases ---


WANDB = """
import sys
from pathlib import Path
import pytest, wandb
from lightning.pytorch.loggers import WandbLogger
from desk import Desk

patch = pytest.MonkeyPatch()
log_table, tables = WandbLogger.log_table, []
patch.setattr(WandbLogger, "log_table", lambda self, key, **v: (tables.append((key, v)), log_table(self, key, **v)))
desk = Desk(Path.cwd(), patch)
for command in ("fit", "test", "fit"):
    assert desk(command, "--trainer=wandb.yaml", "--run.name=w") == 0
    wandb.finish()
((key, table),) = tables
print(key, table["columns"], [row[0] for row in table["data"]])
"""


@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_wandb_needs_no_account_and_runs_twice(desk, mode, project):
    """In a process of its own: wandb keeps a service for the whole process."""
    pytest.importorskip("wandb")
    paths = os.pathsep.join([str(project), str(project / "tests")])
    home = {"HOME": str(desk.folder), "NETRC": str(desk.folder / "none"), "WANDB_SILENT": "true", "WANDB_MODE": mode}
    done = shell("-c", WANDB, cwd=desk.folder, PYTHONPATH=paths, **home)
    assert done.returncode == 0, done.stderr
    table = "test/policies ['policy', 'score', 'image_rate', 'diff', 'ci95', 'p'] ['none', 'text', 'image', 'both', "
    assert table in done.stdout
    kept = list((desk.folder / "runs" / "w" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(kept) == (3 if mode == "offline" else 0)
    figures = list((desk.folder / "runs" / "w" / "wandb").glob("*/files/media/html/figures/*.html"))
    assert {f.name.partition("_")[0] for f in figures} >= ({"policies", "frontier"} if mode == "offline" else set())
    assert not (desk.folder / "wandb").exists()


# --- from a shell ---


def shell(script, *arguments, cwd, timeout=300, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_a_bare_config_name_works_from_another_folder(project, tmp_path):
    done = shell(
        project / "train.py", "fit", "--config", "pocket.yaml", "--actor", "pocket.yaml", "--print_config", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["run"]["name"] == "pocket"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_ranks_harvest_what_one_does_and_then_fit_together(desk, project):
    """Also shows that a bare config name survives the relaunch, and that output in a file is plain lines."""
    script = Path(fake_actor.__file__)
    flags = [f for f in SMALL if f not in fake_actor.FLAGS]
    two = ["--trainer.devices=2", "--trainer.strategy=ddp", "--run.stages_dir=two", "--run.name=two"]
    done = shell(
        script, "fit", *flags, *two, "--data.init_args.num_workers=1", cwd=desk.folder, PYTHONPATH=str(project)
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "policy: 4 routers frozen" in done.stdout
    (harvest,) = (desk.folder / "two").glob("harvest-*")
    assert len({p.name[:8] for p in harvest.glob("rank-*.json")}) == 2
    one = desk.folder / "runs" / "stages" / harvest.name
    ids = [json.loads((folder / "manifest.json").read_text())["step_ids"] for folder in (harvest, one)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data.init_args.episode", "3"], "Near it: `--data.init_args.episodes`"),
        (["--data.init_args.roots=x"], "must be an argument of data_modules.PocketDataModule. It takes: world, "),
        (["--study.limits=3"], "`--study.limits` must be a flag of `train.py prepare`. Near it: `--study.limit`"),
        (["--study={limits: 3}"], "`--study.limits` must be a flag of `train.py prepare`. Near it: `--study.limit`"),
        (["--data.init_args.episodes=x"], "`--data.init_args.episodes` must be int, got x"),
    ],
)
def test_a_misspelt_flag_ends_in_one_short_message(desk, flags, said, capsys):
    with pytest.raises(SystemExit) as error:
        desk("prepare", *flags)
    told = capsys.readouterr().err
    assert error.value.code == 2 and said in told
    assert told.startswith("error: ") and told.count("\n") == 1 and len(told) < 400


def test_a_command_that_is_none_is_told_without_a_page_of_usage(capsys):
    with pytest.raises(SystemExit) as error:
        main(["prepar"])
    told = capsys.readouterr().err
    assert error.value.code == 2 and "'prepare'" in told and "usage" not in told and told.count("\n") <= 2


def test_a_run_names_the_bank_it_was_made_with(desk):
    other = desk.folder / "runs" / "stages" / "steps-0000000000000000" / "bank"  # sorts first, and is not the run's
    other.mkdir(parents=True)
    bank = LiveBank.of_run(desk.run, HashingEmbedder())
    spec = PocketSpec(**fake_actor.WORLD)
    assert set(bank.bank.ids) == {step.step_id for step in generate_steps(spec, "bank")}
    tested = LiveBank.of_run(desk.run, HashingEmbedder(), part="test")
    assert set(tested.bank.ids) == {step.step_id for step in generate_steps(spec, "test_bank")}
    moved = desk.folder / "elsewhere"
    (desk.folder / "runs").rename(moved)
    assert LiveBank.of_run(moved / "pocket", HashingEmbedder(), candidates=False).bank.ids == bank.bank.ids
    (moved / "pocket" / "provenance.json").unlink()
    with pytest.raises(BankError, match="must name the bank of a finished `fit`"):
        LiveBank.of_run(moved / "pocket", HashingEmbedder())
