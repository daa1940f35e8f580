"""The command `report` on a run: what the page holds is what the run's files hold."""

import base64
import io
import json
import shutil

import fake_actor
import numpy as np
import pyarrow.parquet as pq
import pytest
from lightning.pytorch.loggers import CSVLogger, WandbLogger
from page_reader import Page
from PIL import Image

from switchmem.actors.grammars.pocket import PocketGrammar
from switchmem.benchmarks.pocket import PocketSpec, generate_steps
from switchmem.cli import main
from switchmem.harvest import Harvest
from switchmem.pipeline.report import log_figures, write_report
from switchmem.runs import RunFolder
from switchmem.stages import Stages


def report(run, *flags):
    """The page that the command writes."""
    assert main(["report", f"--run={run}", *flags]) == 0
    return Page((run / "report" / "index.html").read_text(encoding="utf-8"))


def sections(page):
    return [element["attributes"]["id"] for element in page.all("section")]


def words(page):
    return page.one("main")["text"]


def rows_of(run):
    return pq.read_table(run / "scores.parquet").to_pylist()


def greedy(run):
    results = json.loads((run / "results.json").read_text())
    return run.parent / "stages" / results["provenance"]["harvest"]


@pytest.fixture(scope="module")
def page(trained, tmp_path_factory):
    copy = tmp_path_factory.mktemp("report") / "copy"
    shutil.copytree(trained, copy)
    return report(copy / "runs" / "pocket")


@pytest.fixture(scope="module")
def recorded():
    spec = PocketSpec(**fake_actor.WORLD)
    return {step.step_id: step for part in ("test", "test_bank") for step in generate_steps(spec, part)}


def test_every_row_is_a_step_of_the_page(trained, page):
    run = trained / "runs" / "pocket"
    results, rows = json.loads((run / "results.json").read_text()), rows_of(run)
    assert page.errors == []
    data = page.data
    assert [step["step_id"] for step in data["steps"]] == [row["step_id"] for row in rows]
    assert [r["threshold"] for r in data["routers"]] == [r["threshold"] for r in results["per_seed"]]
    lower, upper = results["context"]["density_quartiles"]
    for step, row in zip(data["steps"], rows, strict=True):
        assert step["scores"] == {c: row[c] for c in ("none", "text", "image", "both")}
        assert step["answers"] == {c: row[f"answer_{c}"] for c in step["scores"]}
        assert step["r"] == [row["r_dcoe_0"], row["r_dcoe_1"], row["r_binary_0"], row["r_binary_1"]]
        for name in ("t", "choice", "cosine", "memory_id", "index", "category", "action_type", "trajectory"):
            assert step[name] == row[name], name
        wanted = {"spatial" if row["is_spatial"] else "function", "later" if row["index"] else "initial"}
        wanted |= {"sparse"} if row["density"] <= lower else set()
        wanted |= {"dense"} if row["density"] >= upper else set()
        assert set(step["groups"]) == wanted
    for name, group in results["context"]["groups"].items():
        assert sum(name in step["groups"] for step in data["steps"]) == group["steps"]


def test_actions_are_those_of_the_harvest(trained, page):
    harvest = Harvest.open(greedy(trained / "runs" / "pocket"))
    steps = {step["step_id"]: step for step in page.data["steps"]}
    for condition in harvest.conditions:
        actions, reasons = harvest.actions(condition), harvest.reasons(condition)
        for n, step_id in enumerate(harvest.step_ids):
            shown = steps[step_id]["actions"][condition]
            assert json.dumps(shown) == json.dumps(actions[n][0])
            assert steps[step_id]["reasons"][condition] == reasons[n][0]
            assert (shown is None) == (reasons[n][0] is not None)
    assert any(step["actions"]["none"] is None for step in steps.values())


def test_screens_and_memories_are_the_recorded_ones(page, recorded):
    data = page.data
    held = [base64.b64decode(e["text"]) for e in page.all("script", type="text/plain")]

    def screen(n):
        return Image.open(io.BytesIO(held[n])).convert("RGB")

    for step in data["steps"]:
        wanted, demo = recorded[step["step_id"]], data["demos"][step["memory_id"]]
        assert step["instruction"] == wanted.instruction
        assert json.dumps(step["gold"]) == json.dumps(wanted.action.to_dict())
        shown, exact = (np.asarray(i, float) for i in (screen(step["picture"]), wanted.screenshot.image()))
        assert shown.shape == exact.shape and np.abs(shown - exact).mean() < 4
        memory = recorded[step["memory_id"]]
        assert demo["instruction"] == memory.instruction
        assert json.dumps(demo["action"]) == json.dumps(memory.action.to_dict())
        for element in memory.elements:  # told as the actor's own grammar tells it
            assert PocketGrammar().element(element) in demo["text"]
    assert not page.all("ul", **{"aria-label": "What is shown"})  # nothing is missing, and nothing says so


def test_a_test_ends_with_its_page(desk, capsys):
    assert desk("test", "--run.report=true") == 0
    told = capsys.readouterr().out.splitlines()
    index = desk.run / "report" / "index.html"
    assert told[-2] == f"results: {desk.run / 'results.json'}" and told[-1].startswith(f"report: {index}, ")
    assert len(Page(index.read_text(encoding="utf-8")).data["steps"]) == len(rows_of(desk.run))


def test_a_report_that_fails_loses_no_results(desk, monkeypatch, capsys):
    def fails(*_):
        raise ZeroDivisionError("no room for a picture.")

    monkeypatch.setattr("switchmem.pipeline.report.with_pictures", fails)
    (desk.run / "results.json").unlink()
    assert desk("test", "--run.report=true") == 0
    told = capsys.readouterr().out
    assert "note: the report could not be written: no room for a picture. The results are whole." in told
    assert f"`python train.py report --run {desk.run}` tries again" in told
    assert json.loads((desk.run / "results.json").read_text())["policies"] and not (desk.run / "report").exists()


def test_a_run_is_found_by_its_folder_and_by_its_config(desk):
    assert desk("report") == 0
    first = (desk.run / "report" / "index.html").read_bytes()
    (desk.run / "report" / "index.html").unlink()
    report(desk.run)
    assert (desk.run / "report" / "index.html").read_bytes() == first
    drawn = {path.stem: path for path in (desk.run / "report" / "figures").glob("*.svg")}
    assert {"policies", "frontier", "win_rates", "ablation", "layers", "context"} <= set(drawn)
    assert not desk.loads
    names = {path.name for path in desk.run.iterdir()}
    assert "config.report.yaml" not in names and "provenance.report.json" not in names


def test_a_report_needs_neither_the_runs_devices_nor_its_data(desk):
    """Looked at on another machine: no GPUs there, and the recordings are gone."""
    config = (desk.run / "config.yaml").read_text()
    changed = config.replace("accelerator: cpu", "accelerator: gpu").replace("devices: 1", "devices: 8")
    assert changed != config
    (desk.run / "config.yaml").write_text(changed)
    assert report(desk.run).errors == []


def test_few_pictures_are_those_of_steps_where_the_forms_differ(desk):
    rows = {row["step_id"]: row for row in rows_of(desk.run)}
    page = report(desk.run, "--pictures=5")
    shown = [step["step_id"] for step in page.data["steps"] if step["picture"] is not None]
    assert 5 <= len(shown) <= 10  # a demonstration may be a test step too
    assert sum(rows[i]["text"] != rows[i]["image"] for i in shown) >= 5
    (note,) = page.all("ul", **{"aria-label": "What is shown"})
    assert f"5 of {len(rows)} steps carry their pictures" in note["text"]
    bare = report(desk.run, "--pictures=0")
    assert not bare.all("script", type="text/plain") and len(bare.data["steps"]) == len(rows)


def test_a_page_keeps_to_its_size(desk):
    stages = Stages(desk.run.parent / "stages")
    whole = write_report(RunFolder(desk.run), stages).stat().st_size
    assert whole < 60e6
    path = write_report(RunFolder(desk.run), stages, pictures=3)
    assert path.stat().st_size < whole


def test_a_folder_without_its_stages_still_has_a_page(desk, capsys):
    shutil.rmtree(desk.run.parent / "stages")
    page = report(desk.run)
    (note,) = page.all("ul", **{"aria-label": "What is shown"})
    assert "are not in this page" in note["text"] and "are not in this page" in capsys.readouterr().out
    data = page.data
    assert len(data["steps"]) == len(rows_of(desk.run))
    assert all(step["missing"] and step["picture"] is None for step in data["steps"])
    assert data["steps"][0]["answers"]["text"] == rows_of(desk.run)[0]["answer_text"]
    assert len(page.all("svg", **{"class": "figure"})) >= 5


def test_without_the_recorded_steps_the_answers_are_still_read(desk):
    for folder in (desk.run.parent / "stages").glob("steps-*"):
        shutil.rmtree(folder)
    page = report(desk.run)
    (note,) = page.all("ul", **{"aria-label": "What is shown"})
    assert "the steps are not at hand" in note["text"]
    assert any(step["actions"]["image"] for step in page.data["steps"])


def test_a_damaged_record_is_told_and_stops_nothing(desk):
    (shard,) = (desk.run.parent / "stages").glob("steps-*/test/steps-00000.tar")
    place = json.loads((shard.parent / "index.json").read_text())["steps"][3]
    data = bytearray(shard.read_bytes())
    data[place["image_offset"] + place["image_size"] // 2] ^= 255
    shard.write_bytes(data)
    page = report(desk.run)
    (hurt,) = [step for step in page.data["steps"] if step["missing"]]
    assert hurt["step_id"] == place["step_id"] and hurt["picture"] is None and "have changed" in hurt["missing"]
    (note,) = page.all("ul", **{"aria-label": "What is shown"})
    assert "1 record of a step" in note["text"]


def test_a_run_that_was_not_tested_is_told_so(desk, capsys):
    (desk.run / "results.json").unlink()
    assert main(["report", f"--run={desk.run}"]) == 1
    assert "Run `test` with this config first" in capsys.readouterr().err
    assert not (desk.run / "report").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}"])
def test_a_damaged_document_is_told(desk, capsys, content):
    (desk.run / "results.json").write_bytes(content)
    assert main(["report", f"--run={desk.run}"]) == 1
    assert "must be a whole results.json" in capsys.readouterr().err


def test_damaged_rows_are_told(desk, capsys):
    (desk.run / "scores.parquet").write_bytes(b"PAR1")
    assert main(["report", f"--run={desk.run}"]) == 1
    assert "scores.parquet" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--pictures=-1", "--megabytes=0"])
def test_senseless_limits_are_refused(desk, capsys, flag):
    assert main(["report", f"--run={desk.run}", flag]) == 1
    assert "must be at least" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main(["report", f"--run={tmp_path}"]) == 1
    assert "must name the folder of a run" in capsys.readouterr().err


def test_rows_of_an_actor_without_hidden_states_have_a_page(desk):
    """As `routerless_results` leaves them: no router, no choice, no t."""
    table = pq.read_table(desk.run / "scores.parquet")
    dropped = [n for n in table.column_names if n.startswith("r_") or n in ("t", "choice")]
    pq.write_table(table.drop_columns(dropped), desk.run / "scores.parquet")
    results = json.loads((desk.run / "results.json").read_text())
    results.update(per_seed=[], seeds=[], probe_auroc={}, n_pref=None, gap_recovered=None, threshold=None)
    for name in ("frontier", "behaviour", "context"):
        results.pop(name)
    (desk.run / "results.json").write_text(json.dumps(results))
    page = report(desk.run)
    assert page.errors == [] and page.data["routers"] == [] and page.data["steps"][0]["choice"] is None


def test_figures_go_to_weights_and_biases_alone(trained, monkeypatch):
    wandb = pytest.importorskip("wandb")
    results = json.loads((trained / "runs" / "pocket" / "results.json").read_text())
    logged = []
    logger = WandbLogger.__new__(WandbLogger)
    monkeypatch.setattr(WandbLogger, "experiment", type("Run", (), {"log": staticmethod(logged.append)}))
    log_figures(results, [CSVLogger("unused"), logger])
    (values,) = logged
    assert set(values) >= {"figures/policies", "figures/frontier", "figures/win_rates"}
    for value in values.values():
        assert isinstance(value, wandb.Html)
        page = Page(value.html)
        assert page.errors == [] and len(page.all("svg")) == 1
    log_figures(results, [])
    assert len(logged) == 1


def test_the_audit_of_the_run_is_in_the_page(desk):
    assert "audit" not in sections(report(desk.run))
    assert desk("audit") == 0
    page, found = report(desk.run), json.loads((desk.run / "audit.json").read_text())
    assert sections(page).index("audit") == sections(page).index("steps") - 1
    for told in (*found["verdict"]["text"], *found["notes"]):
        assert told in words(page)
    for value in (found["scores"]["text"], found["router"]["gain"]):
        assert f"{value['mean']:.2f}" in words(page)
        assert "[{:.2f}, {:.2f}]".format(*value["ci95"]) in words(page)


@pytest.mark.parametrize("damage", ["cut", "no verdict", "list", "other harvest"])
def test_an_audit_that_says_nothing_of_the_run_is_left_out(desk, damage):
    assert desk("audit") == 0
    path, config = desk.run / "audit.json", desk.run / "config.audit.yaml"
    if damage == "cut":
        path.write_text(path.read_text()[:200])
    elif damage == "other harvest":
        config.write_text(config.read_text().replace("apps: 2", "apps: 40"))
    else:
        path.write_text("[]" if damage == "list" else "{}")
    page = report(desk.run)
    assert "audit" not in sections(page)
    assert "The audit is not in this page" in words(page)
    assert damage != "other harvest" or "data.init_args.apps was 2 and is now 40" in words(page)
