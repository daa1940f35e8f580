"""``train.py rollout``: it trains nothing and reads no recorded data, so it has a parser of its own."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser, Namespace

from switchmem.actors.spec import ActorSpec
from switchmem.arguments import resolve_arguments
from switchmem.console import say
from switchmem.flags import PlainParser
from switchmem.pipeline.report import MEGABYTES, try_report
from switchmem.pipeline.rollout import Rollout
from switchmem.pipeline.rollout_baselines import PlayedBaselines
from switchmem.pipeline.rollout_report import write_rollout_report
from switchmem.rollout.results import rollout_text
from switchmem.rollout.world import World, emulator, live_agents, miniwob
from switchmem.runs import RunError, RunFolder
from switchmem.settings import BaselineSettings, MemorySettings, RolloutSettings, RunSettings
from switchmem.stages import Stages

SECTIONS: dict[str, type] = {
    "actor": ActorSpec,
    "memory": MemorySettings,
    "rollout": RolloutSettings,
    "baselines": BaselineSettings,
    "run": RunSettings,
}


def rollout_parser() -> ArgumentParser:
    """The parser of `rollout`."""
    parser = PlainParser(
        prog="train.py rollout",
        allow_abbrev=False,
        description="Play MobileMiniWoB++ online: an actor with each form of memory, with a policy that chooses, and "
        "with memory baselines.",
    )
    parser.add_argument("-c", "--config", action="config", help="a file, or the name of one in configs/")
    for name, section in SECTIONS.items():
        parser.add_class_arguments(section, name)
    parser.add_argument(
        "--watch", type=bool, nargs="?", const=True, default=False,
        help="write episodes as they go: a page that loads itself again, and a GIF of each finished one",
    )  # fmt: skip
    return parser


def run_rollout(words: Sequence[str]) -> int:
    """Play, print the table, and write the report.

    Args:
        words: the arguments behind "rollout".

    Returns:
        0, or 130 after an interrupt.

    Raises:
        RunError: if the run's folder holds another kind of run.
    """
    parser = rollout_parser()
    config, chosen = _parsed(parser, words)
    run, stages = _folders(chosen.run)
    if run.file("config", "fit", "yaml").is_file():
        raise RunError(f"`run.name` must be a run of its own for a rollout, got {run.path}, which `fit` wrote.")
    load, most = functools.cache(chosen.actor.load), chosen.rollout.max_new_tokens  # one actor for all
    rollout = Rollout(
        _world(chosen.rollout),
        chosen.actor,
        chosen.memory.embedder(),
        chosen.rollout,
        stages,
        run,
        live_agents(chosen.actor, most, load),
        chosen.watch,
        PlayedBaselines(chosen.baselines, chosen.actor, most, stages, load),
        None if chosen.actor.endpoint is None else lambda: load().usage.to_dict(),
    )
    if chosen.run.threads is not None:
        torch.set_num_threads(chosen.run.threads)
    run.hold()
    run.start("rollout", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    say(f"run folder: {run.path}")
    actor = {**config["actor"], "fingerprint": chosen.actor.fingerprint()}
    facts = {"actor": actor, "embedder": rollout.embedder.name, "policy": chosen.rollout.policy}
    try:
        results = rollout.play(run.write_provenance("rollout", facts))
    except KeyboardInterrupt:
        sys.stderr.write("stopped. Finished episodes are kept; the same command goes on from there.\n")
        return 128 + signal.SIGINT
    say(rollout_text(results))
    if chosen.run.report:
        try_report(run, lambda: write_rollout_report(run, stages))
    say(f"run folder: {run.path}")
    return 0


def report_rollout(words: Sequence[str]) -> int:
    """``train.py report`` of a rollout.

    Args:
        words: the arguments behind "report".

    Returns:
        0.
    """
    parser = rollout_parser()
    parser.add_argument("--pictures", type=int | None, default=None, help="the most steps that carry their screens")
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="size of the page that screens may fill")
    placed: list[str] = []
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        folder = Path(value if equals else words[n + 1] if n + 1 < len(words) else "")
        if name == "--run" and folder.is_dir():
            config = folder / "config.rollout.yaml"
            rest = [*words[:n], *words[n + (1 if equals else 2) :]]
            placed = [f"--config={config}", f"--run.dir={folder.absolute().parent}", f"--run.name={folder.name}", *rest]
    _, chosen = _parsed(parser, placed or words)
    run, stages = _folders(chosen.run)
    write_rollout_report(run, stages, chosen.pictures, chosen.megabytes)
    return 0


def _parsed(parser: ArgumentParser, words: Sequence[str]) -> tuple[dict[str, Any], Namespace]:
    """The resolved config as plain values, and the sections built."""
    config = parser.parse_args(resolve_arguments(["rollout", *words])[1:])
    plain = dict(yaml.safe_load(parser.dump(config, skip_unset=False)))
    plain.pop("config", None)
    return plain, parser.instantiate(config)


def _world(settings: RolloutSettings) -> World:
    if settings.environment == "emulator":
        return emulator(settings.console_port, settings.adb_path, settings.max_steps)
    return miniwob(settings.html_root, settings.max_steps, settings.padded)


def _folders(settings: RunSettings) -> tuple[RunFolder, Stages]:
    run = RunFolder(Path(settings.dir) / settings.name)
    return run, Stages(Path(settings.stages_dir or Path(settings.dir) / "stages").absolute())
