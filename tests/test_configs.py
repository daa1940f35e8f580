"""Every shipped config is parsed and run; every command that the documents show is one that the parser takes."""

import re
import shlex

import pytest
import yaml
from desk import Desk
from fake_actor import FLAGS

from switchmem.arguments import CONFIGS, GROUPS
from switchmem.cli import main

# The configs that need recorded folders are run in benchmarks/test_recorded_configs.py and data_modules/; the one that
# needs a browser in rollout/test_rollout_in_chromium.py and test_web_actor.py.
RUN_HERE = {"pocket.yaml"}
RUN_THERE = {"trajectories.yaml", "aitw.yaml", "learngui.yaml", "miniwob.yaml", "miniwob_offline.yaml"}
DOCUMENTS = [*CONFIGS.rglob("*.yaml"), CONFIGS.parent / "README.md", CONFIGS.parent / "CONTRIBUTING.md"]
COMMAND = re.compile(r"python (?:\S*/)?train\.py (.*)")


def commands():
    for document in DOCUMENTS:
        if document.is_file():
            joined = document.read_text(encoding="utf-8").replace("\\\n", " ")
            for found in COMMAND.finditer(joined):
                text = " ".join(re.split(r"`|\s#", found[1])[0].split())
                if "{" not in text and "..." not in text:
                    yield pytest.param(text, id=f"{document.name}: {text}")


def test_each_config_is_run_by_a_test():
    assert {p.name for p in CONFIGS.glob("*.yaml")} == RUN_HERE | RUN_THERE
    folders = {p.name for p in CONFIGS.iterdir() if p.is_dir()}
    assert folders <= {*GROUPS, "sweeps"}


@pytest.mark.parametrize("name", sorted(RUN_HERE))
def test_a_config_runs(name, tmp_path, monkeypatch):
    desk = Desk(tmp_path, monkeypatch)
    flags = [f"--config={name}", *FLAGS, "--trainer.fast_dev_run=true", "--study.bootstrap=100"]
    assert desk("fit", small=flags) == 0 and desk("test", small=flags) == 0


@pytest.mark.parametrize(
    "path", sorted(p for group in GROUPS for p in (CONFIGS / group).glob("*.yaml")), ids=lambda p: p.name
)
def test_a_group_file_changes_what_it_names(path, capsys):
    with pytest.raises(SystemExit) as error:
        main(["fit", "--config=pocket.yaml", f"--{path.parent.name}={path.name}", "--print_config"])
    assert error.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)[path.parent.name]
    assert_holds(printed, yaml.safe_load(path.read_text()))


def assert_holds(printed, written):
    """What a file says stands in the resolved config, whatever else does; a class may be left to its default."""
    if "class_path" in printed and "class_path" not in written:
        printed = printed["init_args"]
    for key, value in written.items():
        if isinstance(value, dict):
            assert_holds(printed[key], value)
        else:
            assert printed[key] == value


@pytest.mark.parametrize("command", commands())
def test_a_shown_command_is_taken(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if command.startswith("failures "):  # it has no config of its own to print, and asks for a finished run
        assert main(shlex.split(command)) == 1 and "`--run` must have results" in capsys.readouterr().err
        return
    with pytest.raises(SystemExit) as error:
        main([*shlex.split(command), "--print_config"])
    assert error.value.code == 0, capsys.readouterr().err
