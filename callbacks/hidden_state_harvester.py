"""Writes what the frozen actor shows during `Trainer.predict` into harvest shards."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from switchmem.benchmarks import Benchmark, get_benchmark
from switchmem.benchmarks.store import shard
from switchmem.harvest import (
    HarvestError,
    HarvestPlan,
    HarvestWriter,
    Vectors,
    bind_settings,
    end_writing,
    make_record,
    merge,
    note_actor,
    note_usage,
)
from switchmem.harvest.record import Observed, Reader
from switchmem.memory.retrieval import StepWithMemory
from switchmem.ranks import Ranks
from switchmem.stages import WriteError


class HashedActor(Protocol):
    """An actor whose parameters can be compared."""

    def facts(self) -> Mapping[str, Any]:
        """What was loaded, as plain JSON values."""

    def parameters_hash(self) -> str:
        """The same text for the same parameters."""


class FrozenModule(Protocol):
    """What is asked of the module that predicts; `switchmem.actors.module.FrozenActorModule` is one."""

    actor: HashedActor
    grammar: Reader
    layers: Sequence[int]
    conditions: Sequence[Any]
    sampling: Any
    start_hash: str | None


class HiddenStateHarvester(Callback):
    """Parses, scores and keeps every observation; at the end, checks that each step is there exactly once.

    What to harvest, and where to, is the data module's `harvest_plan`. Each rank writes shards of its own; a run that
    was killed goes on where it stopped. When one rank ends, the others write what they have and end too. The same
    callback serves the sampled and the greedy pass.

    Args:
        records_per_shard: records after which a shard is written, at least 1.
        flush_seconds: seconds after which a shard is written with fewer, so that a kill costs no more than that.
        progress_seconds: seconds between two lines about the progress, where no progress bar is shown.

    Raises:
        HarvestError: if the data module has no plan, the folder belongs to other settings or cannot be written, the
            actor's parameters changed, or steps are missing or there twice at the end.
        RanksError: if the ranks cannot reach each other.
    """

    def __init__(
        self, records_per_shard: int = 64, flush_seconds: float = 60.0, progress_seconds: float = 30.0
    ) -> None:
        if records_per_shard < 1:
            raise HarvestError(f"`records_per_shard` must be at least 1, got {records_per_shard}.")
        self.records_per_shard, self.flush_seconds = records_per_shard, flush_seconds
        self.progress_seconds = progress_seconds
        self._writer: HarvestWriter | None = None
        self._ranks: Ranks | None = None
        self._benchmarks: dict[str, Benchmark] = {}
        self._usages: Callable[[], Sequence[Any]] = list

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Meet the other ranks, before the actor is loaded: that may take long, or fail on one of them."""
        self._ranks = Ranks.join(trainer, f"harvest of {plan_of(trainer).part}", self._keep)

    def on_predict_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tie the folder to the actor and its settings, and open this rank's writer."""
        self._plan, module = plan_of(trainer), _as_frozen(pl_module)
        self._hash = module.start_hash or module.actor.parameters_hash()
        settings = {
            "layers": list(module.layers),
            "conditions": [getattr(condition, "value", condition) for condition in module.conditions],
            "sampling": dataclasses.asdict(module.sampling),
            "embedder": self._plan.embedder.name,
            "parameters_hash": self._hash,
        }
        bind_settings(self._plan.folder, settings)
        if trainer.is_global_zero:
            note_actor(self._plan.folder, module.actor.facts())
        self._usages = getattr(pl_module, "usages", list)
        self._vectors = Vectors(self._plan.embedder)
        self._writer = HarvestWriter(self._plan.folder, trainer.global_rank, self.records_per_shard, self.flush_seconds)
        self._progress = Progress(self._plan, trainer, self.progress_seconds)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Sequence[Observed],
        batch: Sequence[StepWithMemory],
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the observations of a batch."""
        assert self._writer is not None
        if len(outputs) != len(batch):
            raise HarvestError(
                f"`predict_step` must return one observation per step, got {len(outputs)} for {len(batch)} steps."
            )
        embeds = getattr(pl_module, "embeds", True)  # a baseline's harvest is for no router
        vectors: Sequence[Mapping[str, Tensor]] = self._vectors(batch) if embeds else [{}] * len(batch)
        for item, observed, embeddings in zip(batch, outputs, vectors, strict=True):
            benchmark = self._benchmark(item.step.benchmark)
            record = make_record(item, observed, reader_of(pl_module, item), benchmark, embeddings)
            self._writer.append(record)
            self._progress.unparsable += sum(r is not None for reasons in record.reasons.values() for r in reasons)
        self._progress.advance(len(batch))
        if trainer.received_sigterm:  # Lightning's predict loop takes note of the signal and goes on
            raise SIGTERMException

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the actor, wait for all ranks, and write the manifest."""
        assert self._writer is not None and self._ranks is not None
        self._writer.flush()
        now = _as_frozen(pl_module).actor.parameters_hash()
        if now != self._hash:
            raise HarvestError(
                f"the actor's parameters must not change during a harvest, got hash {self._hash} before and {now} "
                f"after. Delete {self._plan.folder} and look for what trains the actor."
            )
        self._note_usage()
        # Not the strategy's barrier: its timeout would end the ranks that had the quicker steps.
        self._ranks.wait("harvest written")
        manifest = merge(self._plan.folder, self._plan.expected_ids, self._plan.skipped, trainer.is_global_zero)
        self._ranks.wait("harvest merged")
        self._ranks.leave()
        end_writing(self._plan.folder)
        self._writer = None
        if trainer.is_global_zero:
            self._progress.summary(manifest)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Keep what has been observed so far, and tell the other ranks why this one stops."""
        try:
            if not isinstance(exception, WriteError):  # that cannot be written either
                self._keep()
                self._note_usage()
        finally:
            if self._writer is not None:
                end_writing(self._writer.folder)
            if self._ranks is not None:
                told, status = stopped(exception)
                self._ranks.fail(told, status)

    def _note_usage(self) -> None:
        """What this process used of endpoints, once; only those count it."""
        for usage in self._usages():
            note_usage(self._plan.folder, usage.to_dict())
        self._usages = list

    def _keep(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def _benchmark(self, name: str) -> Benchmark:
        if name not in self._benchmarks:
            self._benchmarks[name] = get_benchmark(name)
        return self._benchmarks[name]


class Progress:
    """Lines about a rank's progress, where no bar is shown.

    Args:
        plan: what is harvested.
        trainer: knows the rank, and whether there is a bar.
        seconds: between two lines.
    """

    def __init__(self, plan: HarvestPlan, trainer: Trainer, seconds: float) -> None:
        self.unparsable = 0
        self._rank, self._world, self._seconds = trainer.global_rank, trainer.world_size, seconds
        self._plan, self._done = plan, 0
        self._total = len(shard(plan.todo, self._rank, self._world, 0, 1))
        self._shown = trainer.progress_bar_callback is None or not sys.stdout.isatty()
        self._start = self._last = time.monotonic()
        kept = len(plan.expected_ids) - len(plan.todo)
        self._line(f"{self._total} steps to do, {kept} of all {len(plan.expected_ids)} kept from before")

    def advance(self, steps: int) -> None:
        """Count finished steps."""
        self._done += steps
        now = time.monotonic()
        if now - self._last >= self._seconds:
            self._last = now
            rate = self._done / (now - self._start)
            left = (self._total - self._done) / rate / 60
            self._line(
                f"{self._done} of {self._total} steps, {rate:.2f} steps/s, {self.unparsable} unparsable answers, "
                f"about {left:.0f} min left"
            )

    def summary(self, manifest: dict[str, Any]) -> None:
        """One line about the finished harvest."""
        failures = {c: sum(reasons.values()) for c, reasons in manifest["parse_failures"].items()}
        unparsable = ", ".join(f"{n} {condition}" for condition, n in failures.items()) or "0"
        self._line(
            f"finished, {manifest['records']} steps in {self._plan.folder}; unparsable answers: {unparsable}; "
            f"{len(manifest['skipped'])} steps skipped"
        )

    def _line(self, text: str) -> None:
        if self._shown:
            who = f" rank {self._rank} of {self._world}:" if self._world > 1 else ""
            sys.stdout.write(f"harvest of {self._plan.part}:{who} {text}\n")
            sys.stdout.flush()


def stopped(exception: BaseException) -> tuple[str, int]:
    """What the other ranks are told of an exception, and the exit status that goes with it."""
    if isinstance(exception, SIGTERMException):
        return "was stopped by SIGTERM.", 128 + signal.SIGTERM
    return f"stops: {str(exception) or type(exception).__name__}", 1


def plan_of(trainer: Trainer) -> HarvestPlan:
    """The data module's plan.

    Raises:
        HarvestError: if the trainer has no data module with a plan.
    """
    plan = getattr(getattr(trainer, "datamodule", None), "harvest_plan", None)
    if not isinstance(plan, HarvestPlan):
        raise HarvestError(
            "the harvester must run with a data module that has a `harvest_plan`, got none. "
            "Pass `datamodule=` to `Trainer.predict` after `select` was called on it."
        )
    return plan


def reader_of(module: Any, item: StepWithMemory) -> Reader:
    """What reads the answers to a step: the module's own reader of that step where it has one, else its grammar."""
    make = getattr(module, "reader", None)
    reader: Reader = module.grammar if make is None else make(item)
    return reader


def _as_frozen(module: Any) -> FrozenModule:
    frozen: FrozenModule = module
    return frozen
