"""The router stages: one training per target and seed, each with its threshold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from switchmem.console import is_first_rank, quiet, say
from switchmem.learner import RouterModule
from switchmem.pipeline.targets import Targets
from switchmem.pipeline.workshop import Workshop, best_checkpoint, validated
from switchmem.policy import Policy, PolicyCard, PolicyError, choices, choose_threshold, match_rate_threshold
from switchmem.preference import PreferenceEstimator
from switchmem.router import PairwiseRouter, Target
from switchmem.runs import RunError
from switchmem.settings import ThresholdRule
from switchmem.stages import Stage, digest_of, write_json

ESTIMATOR = ("preference/preference.safetensors", "preference/preference.json")
"""Files of the estimator in a run's policy folder."""

LOGGED = ("val_regret", "image_rate")
"""What of a policy the loggers of its run get."""


@dataclass(frozen=True)
class Recipe:
    """One router to train.

    Args:
        target: what it learns.
        seed: of its initial weights and dropout.
        stage: where it is kept.
        card: what the resulting policy is made for, apart from what the training finds out.
    """

    target: Target
    seed: int
    stage: Stage
    card: PolicyCard

    @property
    def name(self) -> str:
        """``dcoe-0``: names its folder in the run's policy."""
        return f"{self.target}-{self.seed}"

    def is_kept(self) -> bool:
        """Whether it was trained before and can be read; a damaged one is trained again, and said to be."""
        if not self.stage.complete:
            return False
        try:
            Policy.load(self.stage.folder)
        except PolicyError as error:
            say(f"router {self.name}: trained again, since what was kept is damaged: {error}")
            return False
        return True


class RouterTraining:
    """Trains routers on one harvest and its targets.

    Args:
        data: the data module; it already holds the features of D_pref.
        batch: everything a router may read of the steps, `Used.router_batch`.
        targets: of the steps.
        workshop: makes trainers and modules.
        rule: how the cut is chosen on the steps.
    """

    def __init__(
        self,
        data: LightningDataModule,
        batch: dict[str, Tensor],
        targets: Targets,
        workshop: Workshop,
        rule: ThresholdRule = "utility",
    ) -> None:
        self._data, self._batch, self._targets, self._workshop = data, batch, targets, workshop
        self._rule: ThresholdRule = rule

    def main(self, recipe: Recipe, trainer: Trainer, module: RouterModule, ckpt_path: str | None) -> None:
        """Train the run's own router with its own trainer, unless it is there."""
        with _alone(recipe.stage, trainer):
            if recipe.is_kept():
                say(f"router {recipe.name}: kept from {recipe.stage.folder}")
            else:
                recipe.stage.begin()
                self._fit(recipe, trainer, module, ckpt_path)
                self._finish(recipe, trainer, module)
        facts = training_facts(recipe)
        for logger in trainer.loggers:  # of the policy as it is deployed, on one scale for all targets and cuts
            logger.log_metrics({f"policy/{name}": facts[name] for name in LOGGED if facts.get(name) is not None})

    def companion(self, recipe: Recipe) -> None:
        """Train another router with a fresh trainer of the same settings, unless it is there."""
        first, folder = is_first_rank(), recipe.stage.folder
        if recipe.is_kept():
            return
        module = self._workshop.router(recipe.target)
        checkpoints = folder / "checkpoints"
        with quiet():
            best = best_checkpoint(checkpoints, module, validated(self._data))
            trainer = self._workshop.trainer([best], logs=folder)
        with _alone(recipe.stage, trainer), quiet():
            if recipe.is_kept():  # by another run, meanwhile
                return
            if first:
                recipe.stage.begin()
            self._fit(recipe, trainer, module, None)
            self._finish(recipe, trainer, module)
            if first:
                shutil.rmtree(checkpoints, ignore_errors=True)

    def _fit(self, recipe: Recipe, trainer: Trainer, module: RouterModule, ckpt_path: str | None) -> None:
        seed_everything(recipe.seed, workers=True, verbose=False)
        trainer.fit(module, datamodule=self._data, ckpt_path=ckpt_path, weights_only=True)

    def _finish(self, recipe: Recipe, trainer: Trainer, module: RouterModule) -> None:
        """Take the best epoch's weights, choose the threshold on the training steps, and keep both."""
        best = _best_weights(trainer, module)
        if best is not None:
            module.load_state_dict(best)
        if module.router is None:
            raise RuntimeError("the trainer returned without building the router; report this with the config.")
        if trainer.current_epoch < 1 and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            raise RunError(
                f"`trainer.max_epochs` must leave at least one epoch to train, got {trainer.max_epochs}. An untrained "
                "router is no policy."
            )
        if is_first_rank():
            policy = self._policy(recipe, module.router)
            policy.save(recipe.stage.folder)
            facts = {
                "epochs": trainer.current_epoch,
                "threshold": str(policy.threshold),
                "image_rate": policy.card.image_rate,
                "loss": _best_loss(trainer),
                "val_regret": self._held_out_regret(policy),
            }
            write_json(recipe.stage.folder / "training.json", facts)
            recipe.stage.finish(**facts)
            loss = "" if facts["loss"] is None else f", best loss {facts['loss']:.4f}"
            say(
                f"router {recipe.name}: {trainer.current_epoch} epochs{loss}, threshold {policy.threshold:.4f}, "
                f"Image on {100 * policy.card.image_rate:.0f} % of the training steps"
            )
        trainer.strategy.barrier("router kept")

    def _policy(self, recipe: Recipe, router: PairwiseRouter) -> Policy:
        draft = Policy(router.cpu().eval(), 0.0, recipe.card)
        _, r = draft.route(self._batch)
        threshold = training_cut(r, self._targets, self._rule)
        values = {**vars(recipe.card), "image_rate": float(choices(r, threshold).mean())}
        return Policy(draft.router, threshold, PolicyCard(**values))

    def _held_out_regret(self, policy: Policy) -> float | None:
        """What the frozen policy loses on the validation steps against the better modality; None without them.

        A mean over non-tied steps, in [0, 1].
        """
        lost: list[Tensor] = []
        for batch in self._data.val_dataloader():
            image = torch.from_numpy(choices(policy.route(batch)[1], policy.threshold))
            delta = batch["delta"]
            lost.append(torch.where(image == (delta > 0), 0.0, delta.abs()))
        return float(torch.cat(lost).mean()) if lost else None


@contextmanager
def _alone(stage: Stage, trainer: Trainer) -> Iterator[None]:
    """Let one run at a time train a router, where each run is one process; the runs of a sweep share stages."""
    if trainer.world_size > 1:
        yield
        return
    with stage.lock():
        yield


def training_facts(recipe: Recipe) -> dict[str, Any]:
    """What the training of a router found out: epochs, threshold, loss and the like."""
    facts: dict[str, Any] = json.loads((recipe.stage.folder / "training.json").read_text(encoding="utf-8"))
    return facts


def training_cut(r: Tensor, targets: Targets, rule: ThresholdRule) -> float:
    """The cut of router scores r [N] on the training steps, by a rule of `study.threshold`.

    Args:
        r: router scores of all steps.
        targets: of the same steps.
        rule: "utility", "zero" or "match_rate".
    """
    if rule == "zero":
        return 0.0
    if rule == "match_rate":
        return match_rate_threshold(r, float((targets.delta > 0).sum() / targets.n_pref))
    return choose_threshold(r, targets.text, targets.image)


def _checkpoint_of(trainer: Trainer) -> ModelCheckpoint | None:
    """The callback that kept the best epoch; None in a `fast_dev_run`, or if a resumed run had nothing left to do."""
    kept = [c for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint) and c.monitor]
    return next((c for c in reversed(kept) if Path(c.best_model_path).is_file()), None)


def _best_weights(trainer: Trainer, module: RouterModule) -> dict[str, Any] | None:
    checkpoint = _checkpoint_of(trainer)
    if checkpoint is None:
        return None
    values: dict[str, Any] = torch.load(checkpoint.best_model_path, map_location=module.device, weights_only=True)
    state: dict[str, Any] = values["state_dict"]
    return state


def _best_loss(trainer: Trainer) -> float | None:
    checkpoint = _checkpoint_of(trainer)
    return None if checkpoint is None or checkpoint.best_model_score is None else float(checkpoint.best_model_score)


def freeze(recipes: list[Recipe], targets: Targets, estimator: PreferenceEstimator, folder: Path) -> None:
    """Copy the trained policies into a run: the first one into `folder` itself, and each into a subfolder of it.

    The estimator comes along, so that a test can tell the soft preference of its steps too.

    Everything is put together beside `folder` and renamed at the end.

    Args:
        recipes: of complete stages; the first is the run's own.
        targets: what they were trained on.
        estimator: what gave the soft targets.
        folder: the run's policy folder.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    Policy.load(recipes[0].stage.folder).save(temporary)
    for recipe in recipes:
        Policy.load(recipe.stage.folder).save(temporary / recipe.name)
    estimator.save(temporary / "preference")
    training = {"n_pref": targets.n_pref, "counts": targets.counts, "probe_auroc": targets.probe_auroc}
    rows = [
        {
            "target": recipe.target,
            "seed": recipe.seed,
            "folder": recipe.name,
            "val_regret": training_facts(recipe).get("val_regret"),
        }
        for recipe in recipes
    ]
    digests = {name: digest_of(temporary / name) for name in ESTIMATOR}
    write_json(temporary / "policies.json", {"policies": rows, "training": training, "digests": digests})
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
