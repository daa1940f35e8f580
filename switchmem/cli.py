"""The command line: ``python train.py COMMAND --config pocket.yaml``; ``--help`` lists the commands.

LightningCLI with public hooks only. It parses, places everything that is written into one run folder, and hands over to
`switchmem.pipeline.Study`, which holds the logic. The traps of the libraries below are met here:

- a bare config name is looked up in ``configs/``, and a flag wins over a file wherever it stands (`arguments`);
- a checkpoint whose hyperparameters differ from what was asked for stops the run, with both printed;
- what a run cannot do without (checkpoints, progress) comes with every trainer, not from a list in a config that the
  next config would replace;
- the resolved config is written once per run, and an earlier run's is set aside, never overwritten.
"""

from __future__ import annotations

import importlib
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from switchmem.actors.sampling import Sampling
from switchmem.actors.spec import ActorSpec
from switchmem.arguments import resolve_arguments
from switchmem.commands import StudyTrainer
from switchmem.console import is_first_rank, muted, quiet, say
from switchmem.expected import EXPECTED, explained
from switchmem.flags import ShortParser
from switchmem.learner import RouterModule
from switchmem.pipeline import Study, Workshop, best_checkpoint, validated
from switchmem.pipeline.consistency import check_audit, check_hyperparameters, check_test, checkpoint_to_resume
from switchmem.pipeline.report import MEGABYTES, try_report, write_report
from switchmem.pipeline.rollout_folder import is_rollout
from switchmem.pipeline.share import push_policy
from switchmem.ranks import end_with_launcher, forget_launcher, mark_launcher
from switchmem.resolved import router_settings
from switchmem.router import Target
from switchmem.runs import RunFolder, release_folders
from switchmem.settings import BaselineSettings, MemorySettings, RunSettings, StudySettings
from switchmem.stages import FULL, UNWRITABLE, Stages, unwritable

SECTIONS: dict[str, type] = {
    "actor": ActorSpec,
    "memory": MemorySettings,
    "sampling": Sampling,
    "study": StudySettings,
    "baselines": BaselineSettings,
    "run": RunSettings,
}
# `switchmem` stands below `callbacks`, so these are found by name when a run starts, as class paths of a config are.
HARVESTER = "callbacks.HiddenStateHarvester"
PLAIN_PROGRESS = "callbacks.PlainProgress"
FEATURES = "data_modules.RouterFeatures"

LOOKING = frozenset({"report", "push"})
"""Commands that read a finished run: they build neither data, model nor devices, and leave its files alone."""

FAST_STEPS = 32
"""Steps of each part that a `fast_dev_run` harvests."""


def class_by_path(path: str) -> Any:
    """The class behind a dotted path.

    >>> class_by_path("pathlib.PurePath").__name__
    'PurePath'
    """
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class SwitchMemCLI(LightningCLI):
    """Commands of a study.

    Args:
        args: command-line arguments; None takes those of the process.
    """

    study: Study
    run_folder: RunFolder

    def __init__(self, args: ArgsType = None) -> None:
        super().__init__(
            RouterModule,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            trainer_class=StudyTrainer,
            parser_class=ShortParser,
            save_config_callback=None,  # the run folder keeps the config, see `RunFolder.start`
            seed_everything_default=42,
            auto_configure_optimizers=False,
            # an abbreviated flag is mostly a misspelt one
            parser_kwargs={"allow_abbrev": False, **{name: {"allow_abbrev": False} for name in self.subcommands()}},
            args=args,
        )

    # --- parsing ---

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The commands, and the arguments of their methods that are no flags."""
        return {
            "fit": {"model", "train_dataloaders", "val_dataloaders", "datamodule", "weights_only"},
            "prepare": {"model", "datamodule"},
            "show": {"model", "datamodule"},
            "harvest": {"model", "datamodule"},
            "test": {"model", "dataloaders", "datamodule", "ckpt_path", "verbose", "weights_only"},
            "audit": {"model", "datamodule"},
            "report": {"model", "datamodule"},
            "push": {"model", "datamodule"},
        }

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the sections of the configs that are neither data, model nor trainer."""
        for name, section in SECTIONS.items():
            parser.add_class_arguments(section, name)

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse, after config names are completed; keep what was asked for beside what a checkpoint may make of it."""
        if args is None or isinstance(args, list):
            self.config = parser.parse_args(resolve_arguments(sys.argv[1:] if args is None else args))
        else:
            self.config = parser.parse_object(args)
        section = self.section
        folder = Path(section.run.dir) / section.run.name
        self.stages = Stages(Path(section.run.stages_dir or Path(section.run.dir) / "stages").absolute())
        # a `fast_dev_run` leaves the run alone, but for the stages, which are true for any run
        self.run_folder = RunFolder(self.stages.root / "fast_dev_run" if section.trainer.fast_dev_run else folder)
        if section.get("ckpt_path"):
            section.ckpt_path = checkpoint_to_resume(self.run_folder, section.ckpt_path)
        self.requested = self.config.clone()

    @property
    def section(self) -> Namespace:
        """The part of the config that belongs to the command."""
        return self.config[self.config.subcommand]

    # --- before anything is built ---

    def before_instantiate_classes(self) -> None:
        """Stop where a checkpoint overrules the command; place what the trainer writes."""
        asked = self.requested[self.requested.subcommand].model.as_dict()
        check_hyperparameters(asked, self.section.model.as_dict(), self.section.get("ckpt_path"))
        self.resolved = self._resolved()
        trainer = self.section.trainer
        if trainer.fast_dev_run and self.section.study.limit is None:
            self.section.study.limit = FAST_STEPS
        if trainer.default_root_dir is None:
            trainer.default_root_dir = str(self.run_folder.path)
        loggers = trainer.logger if isinstance(trainer.logger, list) else [trainer.logger]
        for logger in loggers:
            if isinstance(logger, Namespace) and logger.class_path.endswith(".WandbLogger"):
                self._place_wandb(logger.init_args)

    def _resolved(self) -> dict[str, Any]:
        """The config as it was asked for, in plain values."""
        command = str(self.config.subcommand)
        asked = self.requested.clone()
        asked[command].pop("ckpt_path", None)  # where a run goes on from is no setting of it
        asked[command].pop("config", None)
        return dict(yaml.safe_load(self.parser.dump(asked, skip_unset=False))[command])

    @rank_zero_only
    def _open_run(self) -> None:
        command = str(self.config.subcommand)
        self.run_folder.hold()
        if self.section.trainer.fast_dev_run and command == "fit":
            shutil.rmtree(self.run_folder.path, ignore_errors=True)
        aside = self.run_folder.start(command, yaml.safe_dump(self.resolved, sort_keys=False, allow_unicode=True))
        say(
            f"run folder: {self.run_folder.path}"
            + (f" (an earlier run with another config is now in {aside})" if aside else "")
        )
        if self.section.get("ckpt_path"):
            moved = self.run_folder.moved(self.section.ckpt_path, aside)
            self.section.ckpt_path = self.config_init[command].ckpt_path = moved

    def _place_wandb(self, arguments: Namespace) -> None:
        """Fill in what was left open: files go to the run folder, and the run is called as here."""
        if arguments.save_dir == ".":
            arguments.save_dir = str(self.run_folder.path)
        if arguments.name is None:
            arguments.name = f"{self.section.run.name}-{self.config.subcommand}"
        if arguments.group is None:
            arguments.group = self.section.run.name

    # --- building ---

    def instantiate_classes(self) -> None:
        """Build data, model and trainer; none for a run that is only looked at, whose data and devices may be gone."""
        if self.config.subcommand not in LOOKING:
            super().instantiate_classes()
            return
        self.config_init, self.model, self.datamodule = self.config, None, None
        with quiet():
            self.trainer = StudyTrainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The run's own trainer. What no run can do without comes with it, whatever lists a config has."""
        trainer = self.section.trainer
        self.trainer_defaults = {
            "callbacks": [
                best_checkpoint(self.run_folder.checkpoints, self.model, validated(self.datamodule)),
                self._progress(),
            ]
        }
        if trainer.logger is None or trainer.logger is True:
            kwargs["logger"] = CSVLogger(str(self.run_folder.path / "logs"), name=str(self.config.subcommand))
        return super().instantiate_trainer(**kwargs)

    def _progress(self) -> Callback:
        callback: Callback = RichProgressBar() if sys.stdout.isatty() else class_by_path(PLAIN_PROGRESS)()
        return callback

    def new_trainer(self, callbacks: Sequence[Callback], logs: Path | None) -> Trainer:
        """A fresh trainer with the config's settings.

        Args:
            callbacks: it gets these, and its own copies of the config's if it trains.
            logs: a folder for its metrics; None for a trainer that runs the actor and trains nothing.
        """
        config = self.config.clone()
        settings = config[config.subcommand].trainer
        settings.logger = False
        if logs is None:  # the actor runs in the precision of its own section
            for name, value in {"callbacks": None, "precision": None, "fast_dev_run": False}.items():
                settings[name] = value
        fresh = self.parser.instantiate(config)[config.subcommand].trainer.as_dict()
        fresh["callbacks"] = [*(fresh["callbacks"] or []), *callbacks]
        if logs is not None:
            logger = CSVLogger(str(logs), name="", version="logs")
            fresh.update(logger=logger, enable_progress_bar=False, enable_model_summary=False)
        elif fresh["enable_progress_bar"] is not False:
            fresh["callbacks"].append(self._progress())
        with quiet():
            return StudyTrainer(**fresh)

    def new_router(self, target: Target) -> RouterModule:
        """An untrained module with the config's settings and another target."""
        arguments = {**self.section.model.init_args.as_dict(), "target": target}
        return type(self.model)(**arguments)

    def after_instantiate_classes(self) -> None:
        """Open the run folder, put the study together and write where it comes from.

        Only now: a command that cannot even be built leaves an earlier run where it is.
        """
        if self.config.subcommand in LOOKING:
            return
        self._open_run()
        section = self.config_init[self.config.subcommand]
        if section.run.threads is not None:
            torch.set_num_threads(section.run.threads)
        workshop = Workshop(
            trainer=self.new_trainer,
            router=self.new_router,
            harvester=class_by_path(HARVESTER),
            features=class_by_path(FEATURES).from_harvest,
            router_settings=router_settings(
                self.section.model.as_dict(), self.section.trainer.as_dict(), self.section.data.as_dict()
            ),
        )
        self.study = Study(
            self.datamodule,
            section.actor,
            section.memory.embedder(),
            section.sampling,
            section.study,
            self.run_folder,
            self.stages,
            workshop,
            section.baselines,
        )
        self.provenance: dict[str, Any] = {}
        self._write_provenance()

    @rank_zero_only
    def _write_provenance(self) -> None:
        actor, data = self.resolved["actor"], self.section.data  # plain values: a section also holds its file's path
        self.provenance = self.run_folder.write_provenance(
            str(self.config.subcommand),
            {
                "actor": {**actor, "fingerprint": self.study.actor_fingerprint},
                "batch_size": data.init_args.get("batch_size"),
                "embedder": self.study.embedder.name,
                "seed": self.section.seed_everything,
            },
        )

    # --- commands ---

    def before_fit(self) -> None:
        """Harvest and targets, each kept where it is complete."""
        self._log_config()
        self.study.prepare()

    def fit(self, model: RouterModule, datamodule: LightningDataModule, ckpt_path: str | None = None) -> None:
        """Train the run's own router."""
        self.study.train(self.trainer, model, ckpt_path)

    def after_fit(self) -> None:
        """Train the routers to compare with, and freeze all of them with their thresholds."""
        self.study.finish()

    def prepare(self, model: RouterModule, datamodule: LightningDataModule) -> None:
        """Write the step shards of all parts."""
        self.study.prepare_steps()

    def show(
        self,
        model: RouterModule,
        datamodule: LightningDataModule,
        step: str | None = None,
        memory_step: str | None = None,
    ) -> None:
        """Print a step's prompts and write its pictures, or list steps."""
        self.study.show(step, memory_step)

    def harvest(self, model: RouterModule, datamodule: LightningDataModule) -> None:
        """Harvest the preference part alone."""
        self.study.harvest("preference")

    def audit(self, model: RouterModule, datamodule: LightningDataModule) -> None:
        """Judge the preference harvest."""
        check_audit(self.run_folder, self.resolved)
        self.study.audit(model.target, self.provenance)

    def test(self, model: RouterModule, datamodule: LightningDataModule) -> None:
        """Score every policy on the test part."""
        if self.study.actor.endpoint is None:  # an endpoint has no router, and nothing to fit
            check_test(self.run_folder, self.resolved)
        self._log_config()
        self.study.evaluate(self.trainer.loggers, self.provenance)
        say(f"results: {self.run_folder.results}")
        if self.section.run.report and is_first_rank():
            try_report(self.run_folder, lambda: write_report(self.run_folder, self.stages))

    def report(self, model: None, pictures: int | None = None, megabytes: int = MEGABYTES) -> None:
        """Write the run's page."""
        write_report(self.run_folder, self.stages, pictures, megabytes)

    def push(
        self,
        model: None,
        repo_id: str | None = None,
        folder: str | None = None,
        policy: str | None = None,
        private: bool | None = None,
        revision: str | None = None,
    ) -> None:
        """Share the run's policy."""
        push_policy(self.run_folder, repo_id, folder, policy, private, revision)

    @rank_zero_only
    def _log_config(self) -> None:
        for logger in self.trainer.loggers:
            logger.log_hyperparams(self.resolved)


def run_apart(words: list[str]) -> int | None:
    """Run a command that has a parser of its own; these are imported when asked for, as some bring an actor along.

    Args:
        words: the arguments of the process.

    Returns:
        The exit status; None if it is no such command.
    """
    command, rest = words[:1], words[1:]
    if command == ["sweep"]:  # builds nothing itself: each combination does
        from switchmem.pipeline.sweep import run_sweep

        return run_sweep(rest, main)
    if command == ["rollout"] or (command == ["report"] and is_rollout(rest)):  # reads no recorded data, trains nothing
        from switchmem.pipeline.rollout_command import report_rollout, run_rollout

        return run_rollout(rest) if command == ["rollout"] else report_rollout(rest)
    if command == ["failures"]:  # reads a finished run and asks a judge
        from switchmem.pipeline.failures import run_failures

        return run_failures(rest)
    return None


def main(args: ArgsType = None) -> int:
    """Run a command.

    Args:
        args: command-line arguments; None takes those of the process.

    Returns:
        The exit status: 0, or 1 after an error that its message explains, or 143 after SIGTERM.
    """
    words = list(sys.argv[1:]) if args is None else args
    mark_launcher()
    end_with_launcher()
    try:
        if isinstance(words, list) and (status := run_apart(words)) is not None:
            return status
        with muted():
            SwitchMemCLI(args)
    except SIGTERMException:  # a SystemExit of status 0: a run that was killed would count as finished
        sys.stderr.write("stopped by SIGTERM. What was harvested is kept; the same command goes on from there.\n")
        return 128 + signal.SIGTERM
    except (*EXPECTED, MisconfigurationException, ValueError) as error:
        told = error if isinstance(error, MisconfigurationException) else explained(error)
        if told is None:
            raise
        sys.stderr.write(f"error: {told}\n")
        return 1
    except OSError as error:
        # a failed `write` does not know its file, an `open` does
        if error.errno not in (UNWRITABLE if isinstance(error.filename, str) else FULL):
            raise
        place = Path(error.filename) if isinstance(error.filename, str) else None
        sys.stderr.write(f"error: {unwritable(place, error)}\n")
        return 1
    finally:
        release_folders()
        forget_launcher()
    return 0
