"""The commands beside `fit` and `test`, with their flags: LightningCLI reads both from the methods of a Trainer."""

from __future__ import annotations

from lightning.pytorch import LightningDataModule, LightningModule, Trainer

from switchmem.pipeline.report import MEGABYTES
from switchmem.runs import RunError


class StudyTrainer(Trainer):
    """Lightning's Trainer; methods named as commands give these their places on the command line."""

    def prepare(self, model: LightningModule, datamodule: LightningDataModule | None = None) -> None:
        """Write the benchmark's step shards; loads no model."""
        raise RunError("`prepare` must be run by `python train.py prepare`, got a bare Trainer. Use the command.")

    def show(
        self,
        model: LightningModule,
        datamodule: LightningDataModule | None = None,
        step: str | None = None,
        memory_step: str | None = None,
    ) -> None:
        """Print a step's prompts as the actor gets them and write its pictures; loads no weights.

        Args:
            model: not used.
            datamodule: where the step is.
            step: id of a step of any part; without it, the first ids of each part are listed.
            memory_step: id of the demonstration to show instead of the retrieved one.
        """
        raise RunError("`show` must be run by `python train.py show`, got a bare Trainer. Use the command.")

    def harvest(self, model: LightningModule, datamodule: LightningDataModule | None = None) -> None:
        """Harvest the frozen actor's states and sampled actions; trains nothing."""
        raise RunError("`harvest` must be run by `python train.py harvest`, got a bare Trainer. Use the command.")

    def audit(self, model: LightningModule, datamodule: LightningDataModule | None = None) -> None:
        """Tell from the preference harvest whether a router could gain anything; harvests what is not there yet."""
        raise RunError("`audit` must be run by `python train.py audit`, got a bare Trainer. Use the command.")

    def report(
        self,
        model: LightningModule,
        datamodule: LightningDataModule | None = None,
        pictures: int | None = None,
        megabytes: int = MEGABYTES,
    ) -> None:
        """Write a tested run's results as one HTML page; needs the run's folder and stages, no model and no data.

        Args:
            model: not used.
            datamodule: not used.
            pictures: the most steps that carry their screens in the page; null takes as many as fit.
            megabytes: size that the page's screens may bring it to, at least 1.
        """
        raise RunError("`report` must be run by `python train.py report`, got a bare Trainer. Use the command.")

    def push(
        self,
        model: LightningModule,
        datamodule: LightningDataModule | None = None,
        repo_id: str | None = None,
        folder: str | None = None,
        policy: str | None = None,
        private: bool | None = None,
        revision: str | None = None,
    ) -> None:
        """Upload a tested run's policy with a model card of its results; needs the run's folder, no model and no data.

        Args:
            model: not used.
            datamodule: not used.
            repo_id: owner/name on the hub; the repository is created where it is missing.
            folder: write what would be uploaded into this folder instead.
            policy: one of the folders in the run's `policy`, such as dcoe-1; null takes the run's own.
            private: whether a new repository is private; null takes the owner's default.
            revision: branch; null takes the main one.
        """
        raise RunError("`push` must be run by `python train.py push`, got a bare Trainer. Use the command.")
