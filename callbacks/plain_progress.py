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
        self._enabled = True

    def disable(self) -> None:
        """Say nothing; Lightning calls this on all ranks but the first."""
        self._enabled = False

    def enable(self) -> None:
        """Speak again."""
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._last = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say which epoch has ended, and its metrics."""
        now = time.monotonic()
        last = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        if now - self._last >= self.seconds or last:
            self._last = now
            values = ", ".join(f"{name} {float(value):.4g}" for name, value in sorted(trainer.callback_metrics.items()))
            limit = f" of {trainer.max_epochs}" if trainer.max_epochs and trainer.max_epochs > 0 else ""
            self.print(f"epoch {trainer.current_epoch + 1}{limit}: {values}")

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Write a line, as `LightningModule.print` does."""
        if self._enabled:
            sys.stdout.write(" ".join(str(arg) for arg in args) + "\n")
            sys.stdout.flush()
