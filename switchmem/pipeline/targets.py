"""The targets stage: from a finished harvest to soft preference targets and the layer probe."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor

from switchmem.console import quiet, say
from switchmem.harvest import Harvest
from switchmem.pipeline.used import IMAGE, TEXT, Used
from switchmem.preference import PreferenceError, fit_targets, layer_auroc, stable_preference, utilities
from switchmem.stages import Stage, write_json, write_whole

FILES = ("targets.safetensors", "targets.json", "preference.safetensors", "preference.json")
"""What the stage holds."""

FEW = 65
"""With fewer non-tied steps than this, the estimator's PCA cannot even keep its 64 components."""


@dataclass(frozen=True, eq=False)
class Targets:
    """What the routers learn from, in the harvest's order.

    Args:
        target: [N] soft targets t, NaN on tied steps.
        delta: [N] utility gaps in [-1, 1], 0 on tied steps.
        text, image: [N] utilities in [0, 1].
        counts: "steps", "tied", "text", "image", "stable", and the "components" of the estimator.
        probe_auroc: AUROC in [0, 1] of the layer probe by block; None where it is undefined.
    """

    target: Tensor
    delta: Tensor
    text: Tensor
    image: Tensor
    counts: dict[str, int]
    probe_auroc: dict[int, float | None]

    @property
    def keep(self) -> Tensor:
        """[N], True on the steps of D_pref."""
        return self.delta != 0

    @property
    def n_pref(self) -> int:
        """Number of steps in D_pref."""
        return int(self.keep.sum())

    def save(self, folder: Path) -> None:
        """Write ``targets.safetensors`` and ``targets.json``."""
        columns = {name: getattr(self, name).double().contiguous() for name in ("target", "delta", "text", "image")}
        write_whole(folder / "targets.safetensors", save(columns))
        write_json(folder / "targets.json", {"counts": self.counts, "probe_auroc": self.probe_auroc})

    @classmethod
    def load(cls, folder: Path) -> Targets:
        """Inverse of `save`."""
        facts = json.loads((folder / "targets.json").read_text(encoding="utf-8"))
        probe = {int(layer): value for layer, value in facts["probe_auroc"].items()}
        return cls(**load_file(folder / "targets.safetensors"), counts=facts["counts"], probe_auroc=probe)


def make_targets(used: Used, stage: Stage) -> Targets:
    """Fit the targets, unless the stage holds them already. The counts are printed either way.

    Raises:
        PreferenceError: if no step is non-tied, or all prefer the same modality. The harvest stays as it is.
        StageError: if kept targets were altered.
    """
    pair = utilities(used.scores(TEXT), used.scores(IMAGE))
    say(describe(pair.counts, used.harvest))
    with stage.lock():
        if not stage.complete:
            folder = stage.begin()
            try:
                _fit(used, folder).save(folder)
            except PreferenceError as error:
                raise PreferenceError(f"{error} {_raw_answers(used.harvest)}") from error
            stage.finish(*FILES, **pair.counts)
    stage.check()
    return Targets.load(stage.folder)


def _raw_answers(harvest: Harvest) -> str:
    return f"They are kept in {harvest.folder}: `answers` and `reasons` of each step in its .json files."


def _fit(used: Used, folder: Path) -> Targets:
    pair, settings = utilities(used.scores(TEXT), used.scores(IMAGE)), used.settings
    estimator, target = fit_targets(
        used.shift(), pair.delta, used.harvest.trajectories, settings.components, settings.cross_fit
    )
    estimator.save(folder)
    stable, auroc = _probe(used)
    told = ", ".join(f"{k}: {_number(v)}" for k, v in auroc.items())
    say(f"layer probe, AUROC by block: {told} (of {stable} steps on which the samples agree)")
    return Targets(
        target=torch.from_numpy(target),
        delta=torch.from_numpy(pair.delta),
        text=torch.from_numpy(pair.text),
        image=torch.from_numpy(pair.image),
        counts={**estimator.counts, "stable": stable},
        probe_auroc=auroc,
    )


def stable_steps(used: Used) -> NDArray[np.int8]:
    """+1 [N] where the samples agree on Image, -1 where they agree on Text, else 0."""
    scores = used.scores(TEXT), used.scores(IMAGE)
    samples, agree = scores[0].shape[1], used.settings.agree
    return stable_preference(*scores, agree=math.ceil(samples * 5 / 7) if agree is None else agree)


def _probe(used: Used) -> tuple[int, dict[int, float | None]]:
    """Steps of the stable subset, and the AUROC of each probed block on it."""
    harvest, preferred = used.harvest, stable_steps(used)
    kept = preferred != 0
    groups = [t for t, k in zip(harvest.trajectories, kept, strict=True) if k]
    rows = torch.from_numpy(kept)
    shifts = {layer: (harvest.states(IMAGE, layer) - harvest.states(TEXT, layer))[rows] for layer in harvest.layers}
    with quiet("switchmem.preference.estimator", below=logging.ERROR):  # each fold would tell how many axes it keeps
        found = layer_auroc(shifts, preferred[kept], groups, n_components=used.settings.components)
    return int(kept.sum()), {layer: None if math.isnan(v) else v for layer, v in found.items()}


def describe(counts: Mapping[str, int], harvest: Harvest) -> str:
    """The counts that every run prints, whatever becomes of it.

    Args:
        counts: of `switchmem.preference.Utilities`.
        harvest: the harvest that they come from.
    """
    n_pref = counts["text"] + counts["image"]
    lines = [
        f"preference: {counts['steps']} steps of {len(set(harvest.trajectories))} trajectories: {counts['tied']} tied, "
        f"{counts['text']} prefer Text, {counts['image']} prefer Image; {unparsable(harvest)}"
    ]
    if 0 < n_pref < FEW:
        lines.append(
            f"note: with {n_pref} non-tied steps, a router shows that the path runs and nothing else. "
            + _raw_answers(harvest).replace("They", "The raw answers")
        )
    return "\n".join(lines)


def unparsable(harvest: Harvest) -> str:
    """Unparsable answers by condition, in words."""
    failures = harvest.parse_failures()
    answers = sum(len(row) for row in harvest.answers(next(iter(harvest.conditions))))
    counts = {condition: sum(failures.get(condition, {}).values()) for condition in harvest.conditions}
    return "unparsable answers: " + ", ".join(f"{n} {c}" for c, n in counts.items()) + f" of {answers} each"


def _number(value: Any) -> str:
    return "undefined" if value is None else f"{value:.3f}"
