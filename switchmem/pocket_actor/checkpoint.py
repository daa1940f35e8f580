"""A training's state in one file, replaced whole, so that a kill costs the updates since the last one."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

LOG = logging.getLogger(__name__)


class Optimizer(Protocol):
    """What keeps a state beside the model's: an optimizer, or several behind one face."""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state over."""


def checkpoint_file(out: Path) -> Path:
    """Where a training in ``out`` keeps its state."""
    return out / "checkpoint.pt"


def save_checkpoint(model: nn.Module, optimizer: Optimizer, step: int, out: Path) -> None:
    """Keep the state behind ``step`` updates."""
    part = checkpoint_file(out).with_suffix(".part")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
    os.replace(part, checkpoint_file(out))


def resume(model: nn.Module, optimizer: Optimizer, out: Path) -> int:
    """Load the state that is kept, if any.

    Returns:
        The number of updates that are done.
    """
    if not checkpoint_file(out).exists():
        return 0
    state = torch.load(checkpoint_file(out), weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    LOG.info("resumed at update %d", state["step"])
    return int(state["step"])
