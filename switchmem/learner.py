"""Training the router: one Lightning module for SwitchMem and its three learned alternatives.

They differ in an argument, not in code: what is regressed or classified, and what stands in place of the state.

Letters: `B` batch, `D` actor hidden size, `E` embedding size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric

from switchmem.router import Batch, Feature, PairwiseRouter, Target, router_inputs


class LearnerError(ValueError):
    """The learner's arguments or batches break a rule; the message says which, and the way out."""


def preference_losses(r: Tensor, batch: Batch, target: Target) -> Tensor:
    """Loss of each step.

    Args:
        r: [B], router scores.
        batch: `target` [B], the soft targets t, and `delta` [B], the utility gaps in [-1, 1], none of them 0.
        target: "dcoe" squares r - t, "utility" squares r - delta, "binary" and "basic" take the cross-entropy
            of r as the logit of delta > 0.

    Returns:
        [B], >= 0.

    Raises:
        LearnerError: if a step is tied: it is not in D_pref.
    """
    delta = batch["delta"].to(r.dtype)
    if bool((delta == 0).any()):
        raise LearnerError(
            f"`delta` must not be 0, got {int((delta == 0).sum())} tied steps in a batch of {len(delta)}. "
            "The router is trained on non-tied steps only; leave the others out in the data module."
        )
    if target == "dcoe":
        return F.mse_loss(r, batch["target"].to(r.dtype), reduction="none")
    if target == "utility":
        return F.mse_loss(r, delta, reduction="none")
    return F.binary_cross_entropy_with_logits(r, (delta > 0).to(r.dtype), reduction="none")


class RouterModule(LightningModule):
    """Fit a `PairwiseRouter` on the preference set.

    Batches are dictionaries with `state` [B, D], `text`, `image`, `instruction`, `screenshot` [B, E], `target` [B],
    `delta` [B] and `step_id`, a list of B texts. For prediction the first five and `step_id` are enough.

    Args:
        target: what the router learns: "dcoe" (SwitchMem), "utility", "binary" or "basic".
        lr: AdamW's learning rate, > 0.
        weight_decay: AdamW's weight decay, >= 0.
        width: width in which state and candidate meet.
        hidden: width of the scorer's hidden layer.
        dropout: probability in [0, 1).
        state_dim: D; read from the data module's `feature_dims["state"]` if not given.
        embed_dim: E; read from the data module's `feature_dims["text"]` if not given.
        features: what the scorer reads of the state s and the candidate e, some of "s", "e", "s*e" and "|s-e|"; None
            takes all four.

    Raises:
        LearnerError: if `target` is unknown, or a rate is out of range.
    """

    monitor = "val/loss"
    mode = "min"

    def __init__(
        self,
        target: Target = "dcoe",
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        width: int = 256,
        hidden: int = 256,
        dropout: float = 0.1,
        state_dim: int | None = None,
        embed_dim: int | None = None,
        features: Sequence[Feature] | None = None,
    ) -> None:
        super().__init__()
        if target not in get_args(Target):
            raise LearnerError(f"`target` must be one of {', '.join(get_args(Target))}, got {target!r}.")
        if not (lr > 0 and weight_decay >= 0):
            raise LearnerError(f"`lr` must be > 0 and `weight_decay` >= 0, got {lr} and {weight_decay}.")
        self.save_hyperparameters(logger=False)
        self.target = target
        self.router: PairwiseRouter | None = None
        self.train_loss, self.val_loss = MeanMetric(), MeanMetric()
        self.train_sign, self.val_sign = MeanMetric(), MeanMetric()
        self.train_regret, self.val_regret = MeanMetric(), MeanMetric()
        if embed_dim is not None and (state_dim is not None or target == "basic"):
            self._build(state_dim or 0, embed_dim)

    # --- the router ---

    def _build(self, state_dim: int, embed_dim: int) -> None:
        values = self.hparams
        # hyperparameters stay as the user gave them; what was read from the data is known from the weights' shapes
        wide = 2 * embed_dim if self.target == "basic" else state_dim
        self.router = PairwiseRouter(
            wide, embed_dim, values["width"], values["hidden"], values["dropout"], values["features"]
        )

    def setup(self, stage: str) -> None:
        """Build the router once the data's widths are known.

        Raises:
            LearnerError: if a width is neither given nor offered by the data module.
        """
        if self.router is None:
            state_dim = 0 if self.target == "basic" else self._dim("state_dim", "state")
            self._build(state_dim, self._dim("embed_dim", "text"))

    def _dim(self, argument: str, key: str) -> int:
        offered = getattr(getattr(self.trainer, "datamodule", None), "feature_dims", {})
        value = self.hparams[argument]
        value = offered.get(key) if value is None else value
        if value is None:
            raise LearnerError(
                f"`{argument}` must be given where the data module does not say it, got None. Pass "
                f"model.init_args.{argument}, or a data module whose `feature_dims` has {key!r}."
            )
        return int(value)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build the router from the weights' shapes, where no data module was there to ask."""
        if self.router is None:
            weights = checkpoint["state_dict"]
            self._build(weights["router.state_map.weight"].shape[1], weights["router.candidate_map.weight"].shape[1])

    def forward(self, batch: Batch) -> Tensor:
        """Router scores r [B] of a batch.

        Raises:
            LearnerError: if the router has no widths yet.
        """
        if self.router is None:
            raise LearnerError(
                "the router must have widths before it is called, got none. Give state_dim and embed_dim."
            )
        r: Tensor = self.router(*router_inputs(batch, self.target))
        return r

    # --- steps ---

    def _shared_step(
        self, batch: Batch, stage: str, loss_metric: MeanMetric, sign_metric: MeanMetric, regret_metric: MeanMetric
    ) -> Tensor:
        r = self(batch)
        losses = preference_losses(r, batch, self.target)
        # metric objects sum over steps on every rank, so that uneven last batches weigh what they hold
        loss_metric.update(losses.detach())
        right = (r > 0) == (batch["delta"] > 0)
        sign_metric.update(right.to(losses.dtype).detach())
        # what a cut at 0 loses against the better modality: one scale for all targets, which the losses have not
        regret_metric.update(torch.where(right, 0.0, batch["delta"].abs()).detach())
        options: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": len(r)}
        self.log(f"{stage}/loss", loss_metric, prog_bar=True, **options)
        self.log(f"{stage}/sign_accuracy", sign_metric, **options)
        self.log(f"{stage}/regret", regret_metric, **options)
        return losses.mean()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of a batch of D_pref."""
        return self._shared_step(batch, "train", self.train_loss, self.train_sign, self.train_regret)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Loss and share of right signs on held-out trajectories of D_pref."""
        self._shared_step(batch, "val", self.val_loss, self.val_sign, self.val_regret)

    def predict_step(self, batch: Batch, batch_idx: int = 0) -> dict[str, Any]:
        """Router scores by step.

        Returns:
            `step_id`, a list of B texts, and `r` [B].
        """
        return {"step_id": list(batch["step_id"]), "r": self(batch)}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW over the router."""
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])
