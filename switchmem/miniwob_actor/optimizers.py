"""Muon for the matrices between the token embeddings and the head, AdamW for everything else, behind one face.

With AdamW alone no look-up had formed after 800 updates of this size; with Muon it takes some 250.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_SMALLEST = 8
"""Rows and columns that a matrix must have to be one for Muon: the others are gates, and stacks of vectors."""


class Optimizers:
    """Both, with one schedule.

    Args:
        language_model: whose inner matrices are Muon's.
        model: the whole; what Muon does not have is AdamW's.
        matrix_lr: highest learning rate of Muon.
        lr: highest learning rate of AdamW.
    """

    def __init__(self, model: nn.Module, language_model: nn.Module, matrix_lr: float, lr: float) -> None:
        named = [(n, p) for n, p in language_model.named_parameters() if p.dim() == 2 and "embed" not in n]
        matrices = [p for _, p in named if min(p.shape) > _SMALLEST]
        taken = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in taken]
        muon = torch.optim.Muon(matrices, lr=matrix_lr, weight_decay=0.0, adjust_lr_fn="original")
        adam = torch.optim.AdamW(others, lr=lr, weight_decay=0.0, betas=(0.9, 0.98))
        self._both: tuple[torch.optim.Optimizer, ...] = (muon, adam)
        self._highest = (matrix_lr, lr)

    def set_share(self, share: float) -> None:
        """Learning rates as a share of the highest, in [0, 1]."""
        for optimizer, highest in zip(self._both, self._highest, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = share * highest

    def step(self) -> None:
        """One update, after which there are no gradients."""
        for optimizer in self._both:
            optimizer.step()
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Both states, by place."""
        return {str(n): optimizer.state_dict() for n, optimizer in enumerate(self._both)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take both states over."""
        for n, optimizer in enumerate(self._both):
            optimizer.load_state_dict(state_dict[str(n)])
