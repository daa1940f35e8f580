"""`train.py rollout` and `report` of a rollout, on the phone of two buttons: what is printed, written and refused."""

import json

import pytest
import yaml

from switchmem.cli import main
from switchmem.pipeline import rollout_command

FLAGS = ["--config=miniwob.yaml", "--rollout.policies=[none,text,image]", "--rollout.bootstrap=100",
         "--rollout.workers=2"]  # fmt: skip


@pytest.fixture
def desk(two_buttons, make_agent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rollout_command, "miniwob", lambda *_: two_buttons)
    monkeypatch.setattr(rollout_command, "live_agents", lambda *_: make_agent)
    return tmp_path


def test_it_prints_the_table_and_writes_everything(desk, capsys):
    assert main(["rollout", *FLAGS, "--watch"]) == 0
    printed, run = capsys.readouterr().out, desk / "runs" / "miniwob"
    assert "text (best fixed)" in printed and "1 of 6 tasks have no page and count as failed: missing." in printed
    assert {path.name for path in run.iterdir()} >= {
        "config.rollout.yaml", "provenance.rollout.json", "results.json", "rollout.txt", "report", "watch"
    }  # fmt: skip
    results = json.loads((run / "results.json").read_text())
    assert results["provenance"]["actor"]["model"] == "miniwob"
    config = yaml.safe_load((run / "config.rollout.yaml").read_text())
    assert config["rollout"]["bank_seed"] == 1001 and config["rollout"]["policies"] == ["none", "text", "image"]
    assert len(list((run / "watch").glob("*.gif"))) == 3 * 5 + 5  # the evaluation's and the bank's


@pytest.mark.parametrize("flags", [["--run", "runs/miniwob"], ["--run=runs/miniwob"], FLAGS])
def test_a_report_is_written_again_by_folder_or_config(desk, flags, capsys):
    assert main(["rollout", *FLAGS]) == 0
    page = desk / "runs" / "miniwob" / "report" / "index.html"
    whole = page.read_text()
    page.unlink()
    assert main(["report", *flags]) == 0
    assert page.read_text() == whole and "always-alike" in whole
    assert main(["report", *flags, "--megabytes", "0"]) == 1
    assert "`megabytes` must be at least 1, got 0" in capsys.readouterr().err


def test_a_report_says_what_is_not_at_hand(desk, capsys):
    assert main(["rollout", *FLAGS]) == 0
    for tar in (desk / "runs" / "stages").glob("rollout-evaluation-*/both-help.tar"):
        tar.unlink()
    for index in (desk / "runs" / "stages").glob("rollout-bank-*/bank/index.json"):
        index.unlink()
    capsys.readouterr()
    assert main(["report", "--run", "runs/miniwob"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("must be a whole trace") == 3 and "Demonstrations are not in this page" in printed


def test_another_kind_of_run_is_left_alone(desk, capsys):
    (desk / "runs" / "miniwob").mkdir(parents=True)
    (desk / "runs" / "miniwob" / "config.yaml").write_text("run: {name: miniwob}\n")
    assert main(["rollout", *FLAGS]) == 1
    assert "`run.name` must be a run of its own for a rollout" in capsys.readouterr().err
    assert {path.name for path in (desk / "runs" / "miniwob").iterdir()} == {"config.yaml"}


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (
            "--rollout.policies=[none,switchmem]",
            "`rollout.policy` names it: train one (fit --config miniwob_offline.yaml)",
        ),
        ("--rollout.policies=[none,switchmem] --rollout.policy=null", "`rollout.policy` must name the policy that"),
        (
            "--rollout.tasks=[no-such]",
            "must be tasks of the benchmark, got ['no-such']. Choose of both-help, text-helps, ",
        ),
        (
            "--rollout.tasks=[both-hlep]",
            "must be tasks of the benchmark, got ['both-hlep']. Choose of both-help, nothing-helps.",
        ),
        ("--rollout.environment=emulator", "AndroidWorld must be installed"),
    ],
)
def test_mistakes_are_explained(desk, capsys, flag, message):
    assert main(["rollout", *FLAGS, *flag.split()]) == 1
    assert message in capsys.readouterr().err
    assert not (desk / "runs" / "miniwob" / "results.json").exists()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--rollout.taks=[help]", "`--rollout.taks` must be a flag of `train.py rollout`. Near it: `--rollout.tasks`."),
        ("--rollout.workers=many", "`train.py rollout --help` lists all flags"),
        ("--rollout.bank=humans", "`--rollout.bank` must be Literal['actor', 'demonstrators'], got humans"),
    ],
)
def test_a_flag_that_cannot_be_read_gets_one_short_message(desk, capsys, flag, message):
    with pytest.raises(SystemExit, match="2"):
        main(["rollout", *FLAGS, flag])
    told = capsys.readouterr().err
    assert message in told and "usage:" not in told


def test_the_report_can_be_left_out(desk, capsys):
    assert main(["rollout", *FLAGS, "--run.report=false"]) == 0
    assert "report:" not in capsys.readouterr().out and not (desk / "runs" / "miniwob" / "report").exists()


def test_a_report_that_cannot_be_written_fails_no_rollout(desk, capsys):
    (desk / "runs" / "miniwob").mkdir(parents=True)
    (desk / "runs" / "miniwob" / "report").write_text("in the way")
    assert main(["rollout", *FLAGS]) == 0
    assert "note: the report could not be written: " in capsys.readouterr().out
    assert (desk / "runs" / "miniwob" / "results.json").is_file()


def test_an_interrupt_keeps_what_is_finished(desk, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("switchmem.pipeline.rollout.Rollout.play", interrupted)
    assert main(["rollout", *FLAGS]) == 130
    assert "Finished episodes are kept" in capsys.readouterr().err
