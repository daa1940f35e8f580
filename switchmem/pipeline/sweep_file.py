"""W&B sweep files: read one and expand it into the combinations of settings that it asks for.

Of the format (https://docs.wandb.ai/guides/sweeps/define-sweep-configuration) this reads what a grid and a random
search need. Bayesian search and early termination are decided on W&B's servers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from switchmem.runs import RunError

RUNS = 20
"""Combinations of a random search where neither the file's `run_cap` nor the command says how many."""

Combination = dict[str, Any]
"""Value by name of the setting."""


class SweepError(RunError):
    """A sweep cannot be run as asked; the message says why, and the way out."""


@dataclass(frozen=True)
class SweepFile:
    """A sweep.

    Args:
        path: of the file.
        method: "grid" or "random".
        parameters: W&B's description of each setting, by name.
        flags: of `fit`, which all combinations share.
        run_cap: the most combinations, None for no limit.
    """

    path: Path
    method: str
    parameters: Mapping[str, Mapping[str, Any]]
    flags: tuple[str, ...]
    run_cap: int | None

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @classmethod
    def read(cls, path: Path) -> SweepFile:
        """Read a file.

        Raises:
            SweepError: if it is no sweep over `train.py fit`, or needs W&B's servers.
        """
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise SweepError(f"`--sweep` must be a YAML file, got {path}: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("parameters"), dict) or not values["parameters"]:
            raise SweepError(f"{path} must be a sweep with `parameters`, got none. See configs/sweeps/ for examples.")
        method = values.get("method")
        if method not in ("grid", "random"):
            raise SweepError(
                f"`method` of {path} must be grid or random to run here, got {method!r}. Bayesian search is decided on "
                f"W&B's servers: `wandb sweep {path}`, with an account."
            )
        return cls(path, method, values["parameters"], _flags(path, values), values.get("run_cap"))

    def combinations(self, runs: int | None = None, seed: int = 0) -> list[Combination]:
        """The settings of each run, in order and without repeats.

        Args:
            runs: the most of them; None takes the file's `run_cap`, else all of a grid and `RUNS` of a random search.
            seed: of a random search.

        Raises:
            SweepError: if a parameter is described in a way that is not supported here.
        """
        most = self.run_cap if runs is None else runs
        if self.method == "grid":
            choices = [[(name, value) for value in _values(name, p)] for name, p in self.parameters.items()]
            found = [dict(pairs) for pairs in itertools.product(*choices)]
            return found[:most]
        rng = random.Random(seed)
        drawn: dict[str, Combination] = {}
        wanted = RUNS if most is None else most
        for _ in range(100 * wanted):  # repeats are drawn again, unless there is nothing new to draw
            combination = {name: _draw(name, p, rng) for name, p in self.parameters.items()}
            drawn.setdefault(repr(combination), combination)
            if len(drawn) == wanted:
                break
        return list(drawn.values())


def arguments(combination: Mapping[str, Any]) -> list[str]:
    """A combination as W&B's `${args}` gives it to a program.

    >>> arguments({"model.init_args.lr": 0.01, "study.layer": [-2, -1]})
    ['--model.init_args.lr=0.01', '--study.layer=[-2, -1]']
    """
    return [f"--{name}={value}" for name, value in combination.items()]


def _flags(path: Path, values: Mapping[str, Any]) -> tuple[str, ...]:
    """What stands between the command's name and ``${args}``, without the logger of W&B."""
    words = [str(word) for word in values.get("command", [])]
    start = words.index("${program}") + 1 if "${program}" in words else 0
    rest = words[start:]
    if Path(str(values.get("program"))).name != "train.py" or rest[:1] != ["fit"] or rest[-1] != "${args}":
        raise SweepError(
            f"{path} must run `train.py fit` with `${{args}}` last, got program {values.get('program')!r} and command "
            f"{words}. Copy the command of a file in configs/sweeps/."
        )
    flags = rest[1:-1]
    for place in range(len(flags) - 1):
        if flags[place] == "--trainer" and flags[place + 1] == "wandb.yaml":
            return (*flags[:place], *flags[place + 2 :])
    return tuple(flags)


def _values(name: str, parameter: Mapping[str, Any]) -> list[Any]:
    if "value" in parameter:
        return [parameter["value"]]
    values = parameter.get("values")
    if not isinstance(values, list) or not values:
        raise SweepError(f"parameter {name!r} of a grid must have `values`, got {dict(parameter)}. List them.")
    return values


def _draw(name: str, parameter: Mapping[str, Any], rng: random.Random) -> Any:
    """One value, by the rules of W&B for a parameter without an explicit distribution, and by four explicit ones."""
    if "value" in parameter or "values" in parameter:
        return rng.choice(_values(name, parameter))
    low, high = parameter.get("min"), parameter.get("max")
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high:
        whole = isinstance(low, int) and isinstance(high, int)
        distribution = parameter.get("distribution", "int_uniform" if whole else "uniform")
        if distribution == "int_uniform" and whole:
            return rng.randint(int(low), int(high))
        if distribution == "uniform":
            return rng.uniform(low, high)
        if distribution == "log_uniform_values" and low > 0:
            return math.exp(rng.uniform(math.log(low), math.log(high)))
    raise SweepError(
        f"parameter {name!r} must have `value`, `values`, or `min` and `max` with the distribution uniform, "
        f"int_uniform or log_uniform_values, got {dict(parameter)}. Others run on W&B only."
    )
