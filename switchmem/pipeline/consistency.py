"""A command must be asked for what its run was made with: a checkpoint, or the `fit` of a test or an audit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from switchmem.console import is_first_rank
from switchmem.resolved import changes, differing, ignored_by_test, other_harvest
from switchmem.runs import RunError, RunFolder


def checkpoint_to_resume(run: RunFolder, name: str) -> str:
    """Path of the checkpoint that a run goes on from; it must be a file, so that it can be compared first.

    Args:
        run: the run's folder.
        name: a path, or "last" for the run's own last one.

    Raises:
        RunError: if it is no file, or no checkpoint of a `fit`.
    """
    path = run.checkpoints / "last.ckpt" if name == "last" else Path(name)
    if not is_first_rank():  # the first rank may have set the earlier run aside before this one was launched
        path = run.find(path)
    if not path.is_file():
        known = ", ".join(sorted(str(p) for p in run.checkpoints.glob("*.ckpt"))) or "none"
        raise RunError(f"`--ckpt_path` must be a file or 'last', got {name!r} ({path}). This run has: {known}.")
    try:
        if "hyper_parameters" not in torch.load(path, map_location="meta", weights_only=True):
            raise ValueError("it has no hyperparameters")
    except Exception as error:  # whatever unpickling garbage comes upon
        raise RunError(
            f"`--ckpt_path` must be a checkpoint that a `fit` of this project wrote, got {path}: "
            f"{str(error).partition(chr(10))[0] or type(error).__name__}. Leave it out to train afresh."
        ) from error
    return str(path)


def check_hyperparameters(asked: Mapping[str, Any], taken: Mapping[str, Any], checkpoint: str | None) -> None:
    """Refuse a checkpoint that overrules the command.

    Args:
        asked: the module's arguments as asked for.
        taken: the same after the checkpoint's were taken over.
        checkpoint: its path, for the message.

    Raises:
        RunError: if they differ; it names both values of each.
    """
    found = differing(asked, taken)
    if found:
        values = "; ".join(
            f"model.{name} is {there!r} there and {here!r} here" for name, (here, there) in found.items()
        )
        raise RunError(
            f"`--ckpt_path` must hold the hyperparameters that were asked for, got {checkpoint} where "
            f"{values}. Ask for the checkpoint's values, or leave out `--ckpt_path` to train afresh."
        )


def check_test(run: RunFolder, resolved: Mapping[str, Any]) -> None:
    """Refuse a test of something else than the run's `fit` froze.

    Args:
        run: the run's folder.
        resolved: the config of the test, in plain values.

    Raises:
        RunError: if there is no fit, or settings differ that a test would ignore.
    """
    path = run.file("config", "fit", "yaml")
    if not path.is_file():
        raise RunError(
            f"`test` must find a run of `fit` in {run.path}, got none. Run `fit` "
            "first, or name a run: `test --run FOLDER` takes over the config and the flags of its `fit`."
        )
    found = ignored_by_test(yaml.safe_load(path.read_text(encoding="utf-8")), dict(resolved))
    if found:
        raise RunError(
            f"`test` must be asked for what `fit` was, since the policy is frozen, got: {changes(found)}. Leave "
            f"these settings as in {path}: `test --run {run.path}` does. Or run `fit` with the new ones."
        )


def check_audit(run: RunFolder, resolved: Mapping[str, Any]) -> None:
    """Refuse an audit of other data than the run's `fit` harvested: it would stand beside the run's results.

    Args:
        run: the run's folder.
        resolved: the config of the audit, in plain values.

    Raises:
        RunError: if the harvests would differ.
    """
    path = run.file("config", "fit", "yaml")
    if not path.is_file():
        return
    found = other_harvest(yaml.safe_load(path.read_text(encoding="utf-8")), dict(resolved))
    if found:
        raise RunError(
            f"`audit` must be of what `fit` harvested in {run.path}, got: {changes(found)}. "
            f"`audit --run {run.path}` takes over the config and the flags of the `fit`; for an "
            "audit of its own, add `--run.name NAME`."
        )
