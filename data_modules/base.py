"""The data module that all benchmarks share: steps, memories, the stream to harvest, and the router's features."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from data_modules.features import RouterFeatures, SeededBatches, split_by_trajectory
from data_modules.pairs import HarvestStream, Pairs, load_pairs, make_pairs, part_bank
from data_modules.parts import BANKS, REPORT, Part, PartSteps, load_report, open_part, stores_of, write_parts
from data_modules.surroundings import PartSurroundings
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.store import StepStore
from switchmem.console import progress, say
from switchmem.harvest import HarvestPlan, note_damaged, wait_for_writers
from switchmem.memory.bank import Bank
from switchmem.memory.embedder import Embedder, HashingEmbedder
from switchmem.memory.embeddings import EmbeddingJob, Embeddings
from switchmem.memory.retrieval import Allowed
from switchmem.stages import Stage, Stages

_log = logging.getLogger(__name__)


class StepsDataModule(LightningDataModule):
    """Steps with their memories for the actor, then features for the router.

    A subclass says where steps come from (`read`, `fingerprint`); everything that is derived is kept in stages and made
    once. The two uses:

        data.place(stages, embedder); data.select("preference", folder)   # then Trainer.predict harvests that part
        data.use_features(features)                                       # then Trainer.fit trains a router

    Args:
        batch_size: steps per forward pass of the actor, at least 1.
        num_workers: processes that read steps for the actor, at least 0.
        router_batch_size: steps per training batch of the router, at least 1.
        val_fraction: share of trajectories on which the router's fit is validated, in [0, 1); 0 turns validation off.
        seed: of the validation split and of the training order.

    Raises:
        DataError: if an argument is out of range.
    """

    same_category: frozenset[str] = frozenset()
    """Parts whose queries retrieve inside their own category."""
    own_trajectory: bool = False
    """Whether queries may retrieve other steps of their own trajectory. Only for a look at the path: it leaks."""
    notes: tuple[str, ...] = ()
    """Sentences that must be read with the results."""

    def __init__(
        self,
        batch_size: int = 8,
        num_workers: int = 0,
        router_batch_size: int = 256,
        val_fraction: float = 0.1,
        seed: int = 42,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("num_workers", num_workers, 0),
            ("router_batch_size", router_batch_size, 1),
        ):
            if value < least:
                raise DataError(f"`{name}` must be at least {least}, got {value}.")
        if not 0.0 <= val_fraction < 1.0:
            raise DataError(f"`val_fraction` must be in [0, 1), got {val_fraction}. 0 turns validation off.")
        self.batch_size, self.num_workers = batch_size, num_workers
        self.router_batch_size, self.val_fraction, self.seed = router_batch_size, val_fraction, seed
        self.stages = Stages(Path("runs") / "stages")
        self.embedder: Embedder = HashingEmbedder()
        self.bank_fraction = 1.0
        self.features: RouterFeatures | None = None
        self._selected: tuple[str, Path, int | None] | None = None
        self._plan: HarvestPlan | None = None
        self._told = False

    # --- what a benchmark says ---

    @abstractmethod
    def read(self, report: DataReport) -> Mapping[str, PartSteps]:
        """Steps by part: "preference" and "test", and "bank" and "test_bank" where they are not the same as others.

        Args:
            report: to be filled while the steps are drawn.

        Returns:
            For each part its steps, drawn once and in order, or a tuple of the names of the parts that it consists of;
            None for "test" where there is nothing to test on.
        """

    @abstractmethod
    def fingerprint(self) -> Any:
        """Everything that decides which steps `read` gives, as plain JSON values."""

    def write(self, stage: Stage, report: DataReport) -> None:
        """Write the step stores of all parts into their stage; the default draws them from `read`, one after another.

        A benchmark with files enough for all cores overrides this, and leaves what `write_parts` leaves.

        Args:
            stage: where to; an interrupted run may have left something there.
            report: filled by the readers.
        """
        write_parts(self.read(report), stage, report)

    def allowed(self, part: str, query_ids: Sequence[str], bank_ids: Sequence[str]) -> Allowed | None:
        """Which demonstrations may be retrieved, beyond "of another trajectory"; the default, None, allows them all.

        Returns:
            For each query the ids that it may retrieve, which costs no more than they are; or bool ``[M]`` for all
            queries, or bool ``[B, M]``, which grows with both.
        """
        return None

    # --- stages ---

    def place(self, stages: Stages, embedder: Embedder, bank_fraction: float = 1.0) -> None:
        """Set where stages lie, what embeds, and which share of a bank's trajectories may be retrieved, in (0, 1].

        To be called before anything is prepared.
        """
        self.stages, self.embedder, self.bank_fraction = stages, embedder, bank_fraction

    @property
    def steps_stage(self) -> Stage:
        """The stage that holds the parts' step stores."""
        return self.stages.stage("steps", {"data": self.fingerprint()})

    def embeddings_stage(self, part: str) -> Stage:
        """The stage that holds the vectors of a part's queries and bank; for "test", of what "preference" has not."""
        inputs = {"steps": self.steps_stage.key, "embedder": self.embedder.name, "part": part}
        return self.stages.stage("embeddings", inputs)

    def memory_stage(self, part: str) -> Stage:
        """The stage that holds the retrieved pairs of "preference" or "test".

        Raises:
            DataError: if the part has no queries.
        """
        if part not in BANKS:
            raise DataError(f"`part` must be one of {', '.join(BANKS)}, got {part!r}.")
        inputs = {
            "steps": self.steps_stage.key,
            "part": part,
            "embedder": self.embedder.name,
            "same_category": part in self.same_category,
            "own_trajectory": self.own_trajectory,
            **({} if self.bank_fraction == 1.0 else {"bank_fraction": self.bank_fraction}),
        }
        return self.stages.stage("memory", inputs)

    def prepare_steps(self) -> None:
        """Write the step stores, unless they are there.

        Raises:
            DataError: if the data is missing or a part is empty; it names the list of what was left out.
        """
        stage = self.steps_stage
        with stage.lock():
            if stage.complete:
                self._say_once(f"steps: kept from {stage.folder}")
                return
            self._told = True  # what is written now is no news later
            report = DataReport()
            try:
                self.write(stage, report)
            except DataError as error:
                if not report.faults:
                    raise
                report.save(stage.folder / REPORT)
                raise DataError(f"{error} What was left out is listed in {stage.folder / REPORT}.") from error

    def _say_once(self, text: str) -> None:
        if not self._told:
            say(text)
        self._told = True

    def part_counts(self) -> dict[str, int]:
        """Steps of each prepared part that has a store of its own, 0 where there are none for the test."""
        counts = {name: int(count) for name, count in self.steps_stage.read()["facts"]["steps"].items()}
        return {"test": 0, **counts}

    def embedded_with(self, part: str) -> tuple[str, ...]:
        """The parts whose embeddings a prepared part needs, in order: no test step is read before the test.

        Raises:
            DataError: if the part has no steps.
        """
        self.part(part)
        shared = part == "test" and self._stores("test") & self._stores("preference")
        return ("preference", "test") if shared else (part,)

    def embedding_job(self, part: str) -> EmbeddingJob:
        """What `embeddings_stage` holds when it is complete: every step, each once."""
        names = self._stores(part) - (self._stores("preference") if part == "test" else set())
        steps = Part(part, [StepStore(self.steps_stage.folder / name) for name in sorted(names)])
        return EmbeddingJob(self.embeddings_stage(part), steps, steps.step_ids, self.embedder)

    def _stores(self, part: str) -> set[str]:
        """Names of the stores of a part's queries and bank."""
        return {name for side in (part, BANKS[part]) for name in stores_of(self.steps_stage, side)}

    def prepare_embeddings(self, part: str) -> None:
        """Embed what a part needs in this process, unless that is done; a study has all devices do it instead."""
        self.prepare_steps()
        for needed in self.embedded_with(part):
            stage = self.embeddings_stage(needed)
            if stage.complete:
                continue
            with stage.lock(), progress("embedding") as advance:
                if not stage.complete:
                    self.embedding_job(needed).run(advance)

    def embeddings(self, part: str) -> Embeddings:
        """The vectors of a part's queries and bank, once `prepare_embeddings` is done.

        Raises:
            EmbeddingError: if they are not finished, or damaged.
        """
        kept = [Embeddings.open(self.embeddings_stage(needed).folder) for needed in self.embedded_with(part)]
        return kept[0] if len(kept) == 1 else kept[0].joined(kept[1])

    def prepare_memory(self, part: str) -> None:
        """Embed the steps of a part and its bank, and retrieve for the queries of a part, unless that is done.

        Raises:
            DataError: as `prepare_steps`, and if no query has a retrievable memory.
            EmbeddingError: if kept embeddings are damaged.
        """
        self.prepare_steps()
        stage = self.memory_stage(part)
        if stage.complete:
            return
        queries, bank = self.part(part), self.part(BANKS[part])  # refused here where there are none
        self.prepare_embeddings(part)  # not inside the lock below: a study takes the two in the other order
        with stage.lock():
            if not stage.complete:
                make_pairs(
                    queries,
                    bank,
                    self.embeddings(part),
                    stage,
                    part in self.same_category,
                    lambda queries, bank: self.allowed(part, queries, bank),
                    self.own_trajectory,
                    self.bank_fraction,
                )

    def part(self, name: str) -> Part:
        """Steps of a prepared part by id."""
        return open_part(self.steps_stage, name)

    def bank_stores(self, part: str) -> list[Path]:
        """Folders of the step stores from which the queries of a prepared part retrieve."""
        return [self.steps_stage.folder / name for name in stores_of(self.steps_stage, BANKS[part])]

    def bank(self, name: str) -> Bank:
        """A part as a bank, once its side's embeddings are there; keys are read from their files when they are used.

        Raises:
            DataError: if the part has no steps.
            EmbeddingError: if the embeddings are not finished, or damaged.
        """
        return part_bank(self.part(name), self.embeddings("test" if name.startswith("test") else "preference"))

    def pairs(self, part: str) -> Pairs:
        """Which demonstration each query of a prepared part gets."""
        return load_pairs(self.memory_stage(part))

    def surroundings(self, part: str) -> PartSurroundings:
        """What the baselines may see around the queries of a prepared part: no more than retrieval may give them.

        Raises:
            DataError: if the part has no steps.
            EmbeddingError: if the embeddings are not finished, or damaged.
        """
        steps = self.part(BANKS[part])
        return PartSurroundings(
            self.part(part),
            part_bank(steps, self.embeddings(part), self.bank_fraction),
            steps,
            self.embedder,
            part in self.same_category,
            lambda queries, bank: self.allowed(part, queries, bank),
            self.own_trajectory,
        )

    def data_report(self) -> DataReport:
        """What was left out, by id, in everything that is prepared so far."""
        report = load_report(self.steps_stage.folder / REPORT)
        for part in BANKS:
            paired = load_report(self.memory_stage(part).folder / REPORT)
            report.merge(DataReport(faults=paired.faults, notes=paired.notes))
        return report

    # --- the actor's pass ---

    def select(self, part: str, folder: str | Path, limit: int | None = None) -> None:
        """Choose what the next `Trainer.predict` harvests, and where to; finished steps of the folder are left out.

        Args:
            part: "preference" or "test".
            folder: the harvest folder.
            limit: the most steps to harvest, spread evenly over the part; None takes all.
        """
        self.memory_stage(part)  # refuses unknown parts
        if limit is not None and limit < 1:
            raise DataError(f"`limit` must be at least 1, got {limit}. None takes all steps.")
        self._selected, self._plan = (part, Path(folder), limit), None

    def prepare_data(self) -> None:
        """Prepare the selected part; Lightning calls this on one process per machine."""
        if self._selected is not None:
            self.prepare_memory(self._selected[0])
            wait_for_writers(self._selected[1])

    def setup(self, stage: str) -> None:
        """Look up what is harvested already; Lightning's barriers around it let no rank write before all looked."""
        if self.trainer is not None:
            self.embedder.place(self.trainer.strategy.root_device)  # the rank's own
        if stage == "predict" and self._selected is not None:
            part, folder, limit = self._selected
            pairs = self.pairs(part)
            wanted = tuple(pairs.hits)
            if limit is not None and limit < len(wanted):
                wanted = tuple(wanted[n * len(wanted) // limit] for n in range(limit))
            self._plan = HarvestPlan.open(part, folder, wanted, pairs.skipped, self.embedder)

    @property
    def harvest_plan(self) -> HarvestPlan:
        """What the current pass harvests.

        Raises:
            DataError: if nothing was selected.
        """
        if self._plan is None:
            raise DataError(
                "a part must be selected before it is harvested, got none. Call `select` and then `predict`."
            )
        return self._plan

    def predict_dataloader(self) -> DataLoader[Any]:
        """Lists of `StepWithMemory`: every step that is still to be harvested, once over all ranks and workers."""
        plan = self.harvest_plan
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)
        stream = HarvestStream(
            self.part(plan.part),
            self.part(BANKS[plan.part]),
            self.pairs(plan.part).hits,
            plan.todo,
            rank,
            world,
            on_damaged=partial(note_damaged, plan.folder),
        )
        return DataLoader(stream, batch_size=self.batch_size, num_workers=self.num_workers, collate_fn=list)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Steps stay where they are: the actor makes its own tensors of them."""
        return batch if isinstance(batch, list) else super().transfer_batch_to_device(batch, device, dataloader_idx)

    # --- the router's fit ---

    def use_features(self, features: RouterFeatures) -> None:
        """Set what the next `Trainer.fit` trains on: D_pref with its targets.

        Where all of it is of one trajectory, the validation side is drawn from that trajectory's steps; a warning says
        so.

        Raises:
            DataError: if a validation side is wanted and there is only one step.
        """
        self.features, self._selected = features, None
        groups = features.trajectories
        if self.val_fraction and len(set(groups)) == 1:
            groups = features.step_ids
            _log.warning(
                "All %d steps of D_pref are of one trajectory (%s): the router's fit is validated on steps of it.",
                len(features),
                features.trajectories[0],
            )
        self._sides = split_by_trajectory(groups, self.val_fraction, self.seed)

    @property
    def feature_dims(self) -> dict[str, int]:
        """Widths D and E by feature name; empty before `use_features`."""
        return {} if self.features is None else self.features.dims

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of D_pref, in an order that depends on seed and epoch alone."""
        features, rows = self._side(0)
        return DataLoader(features, batch_size=None, sampler=SeededBatches(rows, self.router_batch_size, self.seed))

    def val_dataloader(self) -> DataLoader[Any] | list[DataLoader[Any]]:
        """Batches of the held-out trajectories; an empty list where `val_fraction` is 0."""
        features, rows = self._side(1)
        batches = [rows[n : n + self.router_batch_size] for n in range(0, len(rows), self.router_batch_size)]
        return DataLoader(features, batch_size=None, sampler=batches) if batches else []

    def _side(self, side: int) -> tuple[RouterFeatures, list[int]]:
        """The features, and the places of one side's steps in them; loaders ask for whole batches of places."""
        if self.features is None:
            raise DataError("features must be set before a router is trained, got none. Call `use_features` first.")
        return self.features, self._sides[side]
