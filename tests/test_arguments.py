"""Bare config names, group files, and flags that win over files wherever they stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchmem.arguments import ArgumentsError, find_config, resolve_arguments


@pytest.fixture
def configs(tmp_path):
    folder = tmp_path / "configs"
    for name in ("a.yaml", "b.yaml", "trainer/cpu.yaml", "actor/qwen.yaml"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return folder


@pytest.mark.parametrize("form", [["--config", "a.yaml"], ["--config=a.yaml"], ["-c", "a.yaml"], ["-c=a.yaml"]])
def test_a_bare_name_is_found_from_anywhere(configs, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    assert resolve_arguments(["fit", *form], configs) == ["fit", form[0].partition("=")[0], str(configs / "a.yaml")]


def test_a_file_of_that_name_in_the_working_directory_comes_first(configs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("{}")
    assert find_config("a.yaml", configs, "--config") == "a.yaml"


def test_group_files_are_found_in_the_groups_folder(configs):
    found = resolve_arguments(["fit", "--trainer", "cpu.yaml", "--actor=qwen.yaml"], configs)
    assert found == ["fit", "--trainer", str(configs / "trainer/cpu.yaml"), "--actor", str(configs / "actor/qwen.yaml")]


def test_configs_come_first_then_groups_then_flags_each_in_order(configs):
    arguments = [
        "fit",
        "--x=1",
        "--trainer",
        "cpu.yaml",
        "--config",
        "b.yaml",
        "--trainer.callbacks+=E",
        "-c",
        "a.yaml",
        "--y",
        "2",
    ]
    assert resolve_arguments(arguments, configs) == [
        "fit",
        *("--config", str(configs / "b.yaml"), "-c", str(configs / "a.yaml")),
        *("--trainer", str(configs / "trainer/cpu.yaml")),
        *("--x=1", "--trainer.callbacks+=E", "--y", "2"),
    ]  # fmt: skip


def test_a_config_before_the_command_stays_there(configs):
    assert resolve_arguments(["--config", "a.yaml", "fit", "--x=1"], configs) == [
        "--config",
        str(configs / "a.yaml"),
        "fit",
        "--x=1",
    ]


def test_a_group_given_as_a_value_is_no_file(configs):
    assert resolve_arguments(["fit", "--actor", "{model: pocket}", "-h"], configs) == [
        "fit",
        "--actor",
        "{model: pocket}",
        "-h",
    ]


def test_a_config_that_is_nowhere_is_an_error_that_lists_what_there_is(configs):
    with pytest.raises(ArgumentsError, match=r"`--config` must name a file, got 'c\.yaml'.*one of: a\.yaml, b\.yaml\."):
        resolve_arguments(["fit", "--config", "c.yaml"], configs)
    with pytest.raises(ArgumentsError, match=r"`--trainer` must name a file.*one of: cpu\.yaml\."):
        resolve_arguments(["fit", "--trainer=gpu.yaml"], configs)


def test_a_config_flag_without_a_file_is_an_error():
    with pytest.raises(ArgumentsError, match="`--config` must be followed by a file, got nothing"):
        resolve_arguments(["fit", "--config"])


@given(st.lists(st.sampled_from(["--a=1", "--b=2", "--c.d+=x", "--print_config", "value"])))
def test_without_files_nothing_changes(flags):
    assert resolve_arguments(["fit", *flags]) == ["fit", *flags]


def test_a_runs_folder_stands_for_its_config_and_its_place(tmp_path):
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("run: {name: other, dir: elsewhere}")
    found = resolve_arguments(["report", "--pictures=3", f"--run={run}"])
    assert found == [
        "report", "--config", str(run / "config.yaml"), f"--run.dir={run.parent}", "--run.name=mine", "--pictures=3"
    ]  # fmt: skip
    assert resolve_arguments(["report", "--run", str(run), "--run.name=x"])[-1] == "--run.name=x"
    for wrong in (tmp_path, tmp_path / "nothing", "typo"):
        with pytest.raises(ArgumentsError, match="must name the folder of a run"):
            resolve_arguments(["report", f"--run={wrong}"])
    assert resolve_arguments(["fit", '--run={"name": "x"}']) == ["fit", "--run", '{"name": "x"}']
