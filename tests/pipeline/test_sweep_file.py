"""Sweep files are expanded as W&B does it."""

import itertools
import math

import pytest
import yaml

from switchmem.arguments import CONFIGS
from switchmem.pipeline.sweep_file import SweepError, SweepFile, arguments

SWEEPS = sorted((CONFIGS / "sweeps").glob("*.yaml"))
COMMAND = ["${env}", "python", "${program}", "fit", "--config", "pocket.yaml", "--trainer", "wandb.yaml", "${args}"]


def sweep(folder, **changes):
    values = {"program": "train.py", "method": "grid", "command": COMMAND, "parameters": {"a": {"values": [1, 2]}}}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**values, **changes}))
    return SweepFile.read(path)


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_a_shipped_file_is_a_sweep_of_the_frozen_policys_regret(path):
    values, found = yaml.safe_load(path.read_text()), SweepFile.read(path)
    assert values["metric"] == {"name": "policy/val_regret", "goal": "minimize"}
    assert values["command"][:4] == ["${env}", "python", "${program}", "fit"] and values["command"][-1] == "${args}"
    assert found.flags[:2] == ("--config", "pocket.yaml") and "wandb.yaml" not in found.flags
    combinations = found.combinations()
    assert len(combinations) == (24 if found.method == "random" else math.prod(
        len(p["values"]) for p in values["parameters"].values()
    ))  # fmt: skip
    assert all(list(c) == list(values["parameters"]) for c in combinations)


def test_a_grid_is_every_pair_in_order(tmp_path):
    parameters = {"a": {"values": [1, 2]}, "b": {"value": "x"}, "c": {"values": [True, [3, 4]]}}
    found = sweep(tmp_path, parameters=parameters)
    expected = [{"a": a, "b": "x", "c": c} for a, c in itertools.product([1, 2], [True, [3, 4]])]
    assert found.combinations() == expected and found.combinations(3) == expected[:3]
    assert arguments(expected[1]) == ["--a=1", "--b=x", "--c=[3, 4]"]
    assert sweep(tmp_path, parameters=parameters, run_cap=1).combinations() == expected[:1]


def test_a_random_search_draws_inside_the_bounds_and_depends_on_the_seed_alone(tmp_path):
    parameters = {
        "lr": {"distribution": "log_uniform_values", "min": 1e-5, "max": 1e-2},
        "width": {"min": 2, "max": 5},
        "drop": {"min": 0.0, "max": 0.5},
        "kind": {"values": ["x", "y"]},
    }
    found = sweep(tmp_path, method="random", parameters=parameters)
    drawn = found.combinations(400, seed=3)
    assert drawn == found.combinations(400, seed=3) != found.combinations(400, seed=4)
    assert len({repr(c) for c in drawn}) == 400 and len(found.combinations()) == 20
    assert all(1e-5 <= c["lr"] <= 1e-2 and 0.0 <= c["drop"] <= 0.5 for c in drawn)
    assert {c["width"] for c in drawn} == {2, 3, 4, 5} and {c["kind"] for c in drawn} == {"x", "y"}
    # as many in each decade
    decades = [sum(10**-n <= c["lr"] < 10 ** (1 - n) for c in drawn) for n in (3, 4, 5)]
    assert min(decades) > 90 and sum(c["drop"] < 0.25 for c in drawn) == pytest.approx(200, abs=50)


def test_a_search_with_few_combinations_ends(tmp_path):
    found = sweep(tmp_path, method="random", parameters={"a": {"values": [1, 2]}})
    assert sorted(c["a"] for c in found.combinations(50)) == [1, 2]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"method": "bayes"}, "must be grid or random to run here, got 'bayes'. Bayesian search is decided on"),
        ({"program": "other.py"}, "must run `train.py fit` with"),
        ({"command": ["python", "${program}", "test", "${args}"]}, "must run `train.py fit` with"),
        ({"command": ["python", "${program}", "fit"]}, "must run `train.py fit` with"),
        ({"parameters": {}}, "must be a sweep with `parameters`"),
    ],
)
def test_what_cannot_be_run_here_is_refused(tmp_path, changes, message):
    with pytest.raises(SweepError, match=message):
        sweep(tmp_path, **changes)


@pytest.mark.parametrize(
    "parameter", [{"min": 1}, {"min": 2, "max": 1}, {"distribution": "normal", "mu": 0, "sigma": 1}, {"values": []},
                  {"distribution": "log_uniform_values", "min": 0, "max": 1}]
)  # fmt: skip
def test_a_parameter_that_is_not_supported_is_refused_by_name(tmp_path, parameter):
    with pytest.raises(SweepError, match="parameter 'a'"):
        sweep(tmp_path, method="random", parameters={"a": parameter}).combinations()
    with pytest.raises(SweepError, match="parameter 'a' of a grid must have `values`"):
        sweep(tmp_path, parameters={"a": {"min": 1, "max": 2}}).combinations()


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(SweepError, match="`--sweep` must be a YAML file"):
        SweepFile.read(tmp_path / "bad.yaml")
