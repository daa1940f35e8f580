"""What a run says: lines of the first rank alone, and less of what libraries say.

Warnings are muted one by one and each with its reason; everything else comes through.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lightning.pytorch.utilities.rank_zero import rank_zero_only
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

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

Advance = Callable[[float, float], None]
"""(work done, work in all) -> None, in any unit; called as often as one likes."""


def is_first_rank() -> bool:
    """Whether this process writes what all ranks share."""
    rank: int = getattr(rank_zero_only, "rank", 0)
    # Until there is a Trainer, Lightning takes the first process of every further machine for the first of all.
    return rank == 0 and os.environ.get("NODE_RANK", "0") == "0"


@rank_zero_only
def say(text: str) -> None:
    """Print a line, on the first rank alone."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def progress(title: str, seconds: float = 10.0) -> Iterator[Advance]:
    """A bar with an estimate of the time left; where nobody watches, a line now and then instead.

    Args:
        title: what is being done.
        seconds: least time between two lines.
    """
    if not is_first_rank():
        yield lambda done, total: None
        return
    if not sys.stdout.isatty():
        yield _lines(title, seconds)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str, seconds: float) -> Advance:
    start = told = time.monotonic()
    begun: float | None = None  # what an earlier, interrupted run had done costs no time now

    def advance(done: float, total: float) -> None:
        nonlocal told, begun
        begun = done if begun is None else begun
        now = time.monotonic()
        if now - told < seconds or not total:
            return
        told, rate = now, (done - begun) / (now - start)
        left = f", about {(total - done) / rate:.0f} s left" if rate > 0 else ""
        say(f"{title}: {100 * done / total:.0f} % after {now - start:.0f} s{left}")

    return advance


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
