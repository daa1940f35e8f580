"""Progress of a fit as plain lines, for files and logs."""

from __future__ import annotations

import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar


class PlainProgress(ProgressBar):
    """A line now and then instead of a bar; a bar in a file is thousands of control characters.

    Args:
        seconds: least time between two lines of a fit; its last epoch always gets one.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self.seconds = seconds
        self._last = 0.0
        self._told = 0
        self._enabled = True

    def disable(self) -> None:
        """Say nothing; Lightning calls this on all ranks but the first."""
        self._enabled = False

    def enable(self) -> None:
        """Speak again."""
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._last, self._told = time.monotonic(), 0

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say which epoch has ended, and its metrics, if it is time."""
        if time.monotonic() - self._last >= self.seconds:
            self._tell(trainer, trainer.current_epoch + 1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The last epoch: only now is it known, since early stopping decides after the other callbacks."""
        self._tell(trainer, trainer.current_epoch)

    def _tell(self, trainer: Trainer, epoch: int) -> None:
        if epoch == self._told:
            return
        self._last, self._told = time.monotonic(), epoch
        values = ", ".join(f"{name} {float(value):.4g}" for name, value in sorted(trainer.callback_metrics.items()))
        limit = f" of {trainer.max_epochs}" if trainer.max_epochs and trainer.max_epochs > 0 else ""
        self.print(f"epoch {epoch}{limit}: {values}")

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Write a line, as `LightningModule.print` does."""
        if self._enabled:
            sys.stdout.write(" ".join(str(arg) for arg in args) + "\n")
            sys.stdout.flush()
