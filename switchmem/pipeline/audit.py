"""The audit: routers judged on trajectories that they did not see, and what a harvest tells beside them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from numpy.typing import NDArray
from torch import Tensor

from switchmem.benchmarks import DataError
from switchmem.console import quiet, say
from switchmem.evaluation.verdict import AuditInput, audit_text, build_audit
from switchmem.harvest import Harvest
from switchmem.memory.views import Condition
from switchmem.pipeline.routers import Recipe, RouterTraining
from switchmem.pipeline.targets import Targets, describe, stable_steps
from switchmem.pipeline.used import IMAGE, TEXT, Used, rows_of
from switchmem.pipeline.workshop import Workshop
from switchmem.policy import Policy
from switchmem.preference import FOLDS, PreferenceError, fit_targets, group_folds, layer_decisions, utilities
from switchmem.runs import RunFolder
from switchmem.stages import write_json, write_whole

RecipeOfFold = Callable[[int, int], Recipe]
"""(fold, non-tied steps to train on) -> the router to train there."""


class HeldOut:
    """Trains a router per fold of trajectories, and lets it choose on the fold.

    Everything is fitted without the fold's trajectories: standardiser, PCA, logistic regression, router and cut.

    Args:
        used: the harvest.
        datamodule: serves the routers' batches.
        workshop: makes features, trainers and routers.
        recipe: names the router of a fold; finished ones are kept.
    """

    def __init__(self, used: Used, datamodule: LightningDataModule, workshop: Workshop, recipe: RecipeOfFold) -> None:
        self.used, self.workshop, self.recipe = used, workshop, recipe
        self.datamodule: Any = datamodule

    def choices(self) -> NDArray[np.bool_]:
        """Where Image is chosen, [N].

        Raises:
            PreferenceError: if there is a single trajectory, or the rest of a fold has no preference to learn.
            DataError: if it has too few steps to train on.
        """
        used, settings = self.used, self.used.settings
        if not used.blocks:
            raise PreferenceError("this actor shows no hidden states to learn from. Load its weights here.")
        pair = utilities(used.scores(TEXT), used.scores(IMAGE))
        folds = group_folds(used.harvest.trajectories, FOLDS)
        if folds.max() == 0:
            raise PreferenceError("routers must be judged on other trajectories, got a single one. Record more.")
        batch, shift = used.router_batch(), used.shift()
        columns = {name: torch.from_numpy(getattr(pair, name)) for name in ("text", "image")}
        chosen = np.zeros(len(folds), dtype=np.bool_)
        for fold in range(folds.max() + 1):
            rest = torch.from_numpy(folds != fold)
            gaps = np.where(folds != fold, pair.delta, 0.0)  # what is not seen counts as tied: it teaches nothing
            with quiet("switchmem.preference.estimator", below=logging.ERROR):
                _, target = fit_targets(shift, gaps, used.harvest.trajectories, settings.components, settings.cross_fit)
            columns |= {"target": torch.from_numpy(target), "delta": torch.from_numpy(gaps)}
            targets = Targets(**columns, counts={}, probe_auroc={})
            recipe = self.recipe(fold, targets.n_pref)
            self._train(recipe, batch, targets, rest)
            conditions, _ = Policy.load(recipe.stage.folder).route(rows_of(batch, ~rest))
            chosen[~rest.numpy()] = [condition is Condition.IMAGE for condition in conditions]
        return chosen

    def _train(self, recipe: Recipe, batch: dict[str, Tensor], targets: Targets, rest: Tensor) -> None:
        features = self.workshop.features(self.used.harvest, batch, targets.target, targets.delta, targets.keep)
        self.datamodule.use_features(features)
        columns = {name: getattr(targets, name)[rest] for name in ("target", "delta", "text", "image")}
        training = RouterTraining(
            self.datamodule,
            rows_of(batch, rest),
            replace(targets, **columns),
            self.workshop,
            self.used.settings.threshold,
        )
        training.companion(recipe)


def audit_input(used: Used, held_out: HeldOut) -> AuditInput:
    """Everything that an audit reads of a harvest; trains the routers.

    Args:
        used: the preference harvest.
        held_out: judges routers on unseen trajectories.
    """
    harvest = used.harvest
    say(describe(utilities(used.scores(TEXT), used.scores(IMAGE)).counts, harvest))
    stable = stable_steps(used)
    rows = torch.from_numpy(stable != 0)
    groups = [t for t, k in zip(harvest.trajectories, rows.tolist(), strict=True) if k]
    shifts = {layer: (harvest.states(IMAGE, layer) - harvest.states(TEXT, layer))[rows] for layer in harvest.layers}
    with quiet("switchmem.preference.estimator", "switchmem.preference.probe", below=logging.ERROR):
        decisions = layer_decisions(shifts, stable[rows.numpy()], groups, n_components=used.settings.components)
    choice, why_not = None, ""
    try:
        choice = held_out.choices()
    except (PreferenceError, DataError) as error:
        why_not = str(error)
    costs, unknown = known_costs(harvest)
    return AuditInput(
        text=used.scores(TEXT).numpy(),
        image=used.scores(IMAGE).numpy(),
        trajectories=harvest.trajectories,
        stable=stable,
        decisions=decisions,
        choice=choice,
        why_not=why_not,
        costs=costs,
        unknown=unknown,
    )


def known_costs(harvest: Harvest) -> tuple[dict[str, list[float]], list[str]]:
    """What steps cost by name, [N] each, and in words what the harvest does not tell."""
    costs: dict[str, list[float]] = {}
    unknown = ["the latency of one decision (a harvest works in batches; measure the deployed agent step by step)"]
    for name in (Condition.NONE.value, TEXT, IMAGE):
        prompt = harvest.prompt_tokens(name)
        words = "without memory" if name == Condition.NONE.value else f"with {name.title()}"
        if prompt is None:
            unknown.append(f"prompt tokens {words}")
        else:
            costs[f"prompt tokens {words}"] = [float(n) for n in prompt]
    for name in (TEXT, IMAGE):
        answers = harvest.new_tokens(name)
        if answers is None:
            unknown.append(f"tokens of an answer with {name.title()}")
        else:
            costs[f"tokens of an answer with {name.title()}"] = [math.fsum(row) / len(row) for row in answers]
    if any(harvest.seconds):
        costs["actor seconds per step of the harvest"] = harvest.seconds
    else:
        unknown.append("the actor's seconds")
    return costs, unknown


def write_audit(data: AuditInput, used: Used, run: RunFolder, facts: dict[str, Any]) -> dict[str, Any]:
    """Judge, and write ``audit.json`` and ``audit.txt`` into a run.

    Args:
        data: of `audit_input`.
        used: the harvest that it is of.
        run: gets the files.
        facts: more entries of the document: what the numbers must be read with.

    Returns:
        The document.
    """
    document = {**build_audit(data, used.settings.worth, used.settings.bootstrap), **facts}
    text = audit_text(document, f"audit of {used.harvest.step_ids[0].split('/')[0]}")
    text += "".join(f"note: {note}\n" for note in facts.get("notes", ()))
    write_json(run.path / "audit.json", document)
    write_whole(run.path / "audit.txt", text.encode("utf-8", "replace"))
    say(text.rstrip("\n"))
    return document
