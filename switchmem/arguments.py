"""Command-line arguments before they are parsed: find bare config names, and let flags win over files.

    train.py fit --trainer.max_epochs 3 --config pocket.yaml --actor qwen.yaml
 -> train.py fit --config <project>/configs/pocket.yaml --actor <project>/configs/actor/qwen.yaml --trainer.max_epochs 3

The parser reads from left to right and the later value wins, so that a flag in front of a file would be lost without a
word. Files therefore move to the front, in the order given; flags keep their order behind them.

A run's folder says what it was made with, so that it can stand for a config:

    train.py report --run runs/pocket
 -> train.py report --config runs/pocket/config.yaml --run.dir runs --run.name pocket
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
"""The project's own configs."""

CONFIG_FLAGS = ("--config", "-c")
GROUPS = ("trainer", "actor", "memory", "sampling", "study", "baselines", "run")
"""Sections that take a file of their own: ``--trainer cpu.yaml`` is looked up in ``configs/trainer/``."""

SUFFIXES = (".yaml", ".yml", ".json")


class ArgumentsError(ValueError):
    """A command-line argument breaks a rule; the message says which, and the way out."""


def find_config(name: str, folder: Path, flag: str) -> str:
    """The path of a config: `name` itself where it is a file, else the file of that name in `folder`.

    Raises:
        ArgumentsError: if there is neither.
    """
    if Path(name).is_file():
        return name
    inside = folder / name
    if inside.is_file():
        return str(inside)
    known = ", ".join(sorted(p.name for s in SUFFIXES for p in folder.glob(f"*{s}"))) or "none"
    raise ArgumentsError(
        f"`{flag}` must name a file, got {name!r}: it is neither in {Path.cwd()} nor in {folder}. "
        f"Give a path, or one of: {known}."
    )


def run_arguments(value: str) -> tuple[list[str], list[str]]:
    """The config and the flags that a run's folder stands for.

    Raises:
        ArgumentsError: if it is no folder of a run.
    """
    folder = Path(value).absolute()
    if not (folder / "config.yaml").is_file():
        raise ArgumentsError(
            f"`--run` must name the folder of a run, with its config.yaml, got {value!r}. "
            "`fit` says at its end where it wrote; `--config NAME.yaml` finds a run by its config."
        )
    return ["--config", str(folder / "config.yaml")], [f"--run.dir={folder.parent}", f"--run.name={folder.name}"]


def resolve_arguments(arguments: Sequence[str], configs: Path = CONFIGS) -> list[str]:
    """Complete bare config names and put the files first.

    Args:
        arguments: as in ``sys.argv[1:]``.
        configs: the folder in which bare names are looked up; group files in its folder of the group's name.

    Returns:
        The arguments for the parser: what stands before and including the command, then ``--config`` files, then
        group files, then all other arguments in their order.

    Raises:
        ArgumentsError: if a config is not found, or a flag lacks its file.
    """
    head: list[str] = []
    files: list[str] = []
    groups: list[str] = []
    flags: list[str] = []
    rest = list(arguments)
    command_seen = False
    while rest:
        token = rest.pop(0)
        flag, equals, value = token.partition("=")
        group = flag[2:] if flag.startswith("--") and flag[2:] in GROUPS else None
        if flag in CONFIG_FLAGS or group:
            if not equals:
                if not rest:
                    raise ArgumentsError(f"`{flag}` must be followed by a file, got nothing.")
                value = rest.pop(0)
            if group == "run" and not value.endswith(SUFFIXES) and not value.lstrip().startswith("{"):
                config, placed = run_arguments(value)
                files, flags = files + config, placed + flags
                continue
            is_file = not group or value.endswith(SUFFIXES)
            found = find_config(value, configs / (group or ""), flag) if is_file else value
            target = (groups if is_file else flags) if group else (files if command_seen else head)
            target += [flag, found]
        elif not command_seen:
            head.append(token)
            command_seen = not token.startswith("-")
        else:
            flags.append(token)
    return head + files + groups + flags
