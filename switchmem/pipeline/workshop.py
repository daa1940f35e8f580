"""What the pipeline is lent: the data, and whatever only the command line knows how to build.

The pipeline stands below `data_modules` and `callbacks`; it says here what it needs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from switchmem.benchmarks import DataReport
from switchmem.harvest import Harvest
from switchmem.learner import RouterModule
from switchmem.memory.baseline import Surroundings
from switchmem.memory.embedder import Embedder
from switchmem.memory.embeddings import EmbeddingJob
from switchmem.router import Target
from switchmem.stages import Stage, Stages


class StudyData(Protocol):
    """The data module of a study; `data_modules.StepsDataModule` is one."""

    def place(self, stages: Stages, embedder: Embedder, bank_fraction: float = 1.0) -> None:
        """Set where stages lie, what embeds, and which share of a bank's trajectories may be retrieved."""

    def prepare_steps(self) -> None:
        """Write the step shards of all parts."""

    def embedded_with(self, part: str) -> tuple[str, ...]:
        """The parts whose embeddings a prepared part needs."""

    def embeddings_stage(self, part: str) -> Stage:
        """The stage that holds the vectors of a part."""

    def embedding_job(self, part: str) -> EmbeddingJob:
        """What that stage is to hold."""

    def part_counts(self) -> dict[str, int]:
        """Steps of each prepared part."""

    def prepare_memory(self, part: str) -> None:
        """Retrieve for a part; embeds the steps first, in this process, where that is not done."""

    def memory_stage(self, part: str) -> Stage:
        """The stage that holds a part's retrieved pairs."""

    def bank_stores(self, part: str) -> list[Path]:
        """Folders of the step stores from which a prepared part retrieves."""

    def select(self, part: str, folder: str | Path, limit: int | None = None) -> None:
        """Choose what the next prediction harvests."""

    def surroundings(self, part: str) -> Surroundings:
        """What the baselines may see around the queries of a part."""

    def data_report(self) -> DataReport:
        """What was left out."""

    def use_features(self, features: Any) -> None:
        """Set what the next fit trains on."""


class FeatureMaker(Protocol):
    """Makes the router's dataset; `data_modules.RouterFeatures.from_harvest` is one."""

    def __call__(
        self, harvest: Harvest, inputs: Mapping[str, Tensor], target: Tensor, delta: Tensor, keep: Tensor
    ) -> Any:
        """Features of the kept steps; `inputs` is what routers read of all of them."""


class TrainerMaker(Protocol):
    """Makes a fresh trainer with the settings of the config."""

    def __call__(self, callbacks: Sequence[Callback], logs: Path | None) -> Trainer:
        """A trainer; one that trains logs into a folder and has the config's own callbacks too."""


@dataclass(frozen=True)
class Workshop:
    """Builders of what a study needs.

    Args:
        trainer: makes a fresh trainer.
        router: makes an untrained router module for a target, with the config's settings.
        harvester: makes the callback that writes a harvest.
        features: makes the router's dataset.
        router_settings: everything in the config that decides a router's weights, as plain JSON values.
    """

    trainer: TrainerMaker
    router: Callable[[Target], RouterModule]
    harvester: Callable[[], Callback]
    features: FeatureMaker
    router_settings: Mapping[str, Any]


def as_study_data(datamodule: LightningDataModule) -> StudyData:
    """The data module, if it can serve a study.

    Raises:
        TypeError: if it lacks a method of `StudyData`.
    """
    needed = [name for name in vars(StudyData) if not name.startswith("_")]
    lacking = [name for name in needed if not hasattr(type(datamodule), name)]  # of the type: properties look at files
    if lacking:
        raise TypeError(
            f"`data` must be a data module of steps, got {type(datamodule).__name__} without {', '.join(lacking)}. "
            "Derive it from data_modules.StepsDataModule."
        )
    data: Any = datamodule
    found: StudyData = data
    return found


def validated(datamodule: LightningDataModule) -> bool:
    """Whether a data module holds out a validation side of the routers' training."""
    return bool(getattr(datamodule, "val_fraction", True))


def best_checkpoint(folder: Path, module: RouterModule, on_validation: bool) -> ModelCheckpoint:
    """The callback that keeps the best and the last epoch of a router.

    Args:
        folder: where checkpoints go.
        module: says which metric counts.
        on_validation: whether there is a validation side; without one the training loss decides.
    """
    monitor = module.monitor if on_validation else "train/loss"
    name = "epoch={epoch:03d}-loss={" + monitor + ":.4f}"
    return ModelCheckpoint(
        dirpath=folder, filename=name, monitor=monitor, mode=module.mode, save_last=True, auto_insert_metric_name=False
    )
