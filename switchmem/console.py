"""What a run says: lines of the first rank alone, and less of what libraries say.

Warnings are muted one by one and each with its reason; everything else comes through.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch.utilities.rank_zero import rank_zero_only

MUTED = (
    # Lightning 2.6 calls a PyTorch function that newer releases rename; nothing to do with the run.
    r".*isinstance\(treespec, LeafSpec\).*",
    # Router epochs are a handful of batches; the metrics are logged per epoch.
    r".*number of training batches.*smaller than the logging interval.*",
    # Features lie in memory; worker processes would only copy them.
    r".*does not have many workers.*",
    # Both hooks do the same: steps stay where they are.
    r".*You have overridden `transfer_batch_to_device` in both.*",
    # A resumed run goes on in its own checkpoint folder.
    r".*Checkpoint directory .* exists and is not empty.*",
)
ADVERTISEMENT = "💡 Tip:"


def is_first_rank() -> bool:
    """Whether this process writes what all ranks share."""
    rank: int = getattr(rank_zero_only, "rank", 0)
    return rank == 0


@rank_zero_only
def say(text: str) -> None:
    """Print a line, on the first rank alone."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _is_no_advertisement(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(ADVERTISEMENT)


@contextmanager
def muted() -> Iterator[None]:
    """Keep the warnings of `MUTED` and the advertisements of other packages out of a run."""
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    logger.addFilter(_is_no_advertisement)
    try:
        with warnings.catch_warnings():
            for pattern in MUTED:
                warnings.filterwarnings("ignore", message=pattern)
            yield
    finally:
        logger.removeFilter(_is_no_advertisement)


@contextmanager
def quiet(*names: str, below: int = logging.WARNING) -> Iterator[None]:
    """Keep what loggers say below a level out of a series of small steps.

    Args:
        names: of the loggers; none takes those of Lightning, which announces devices and why a training stopped.
        below: lowest level that still comes through.
    """
    loggers = [logging.getLogger(name) for name in names or ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(below)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
