"""The stages of a study, in order, each reused where it is complete.

steps -> memory (bank, retrieval) -> harvest -> targets -> routers with thresholds -> policy      (fit)
steps -> memory -> greedy harvest of the test part -> score matrix, policies' rows -> results     (test)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from switchmem.actors.sampling import Sampling
from switchmem.actors.spec import ActorSpec
from switchmem.benchmarks import DataReport
from switchmem.console import is_first_rank, quiet, say
from switchmem.harvest import Harvest, read_actors, read_damaged, read_usage, usage_words
from switchmem.learner import RouterModule
from switchmem.memory.embedder import Embedder
from switchmem.memory.views import Condition
from switchmem.pipeline.audit import HeldOut, audit_input, write_audit
from switchmem.pipeline.baselines import BaselineRuns, told_of_baseline, writer_name
from switchmem.pipeline.embedding import embed_on_all_devices
from switchmem.pipeline.evaluate import FrozenPolicies, Told, endpoint_results, tell, test_results
from switchmem.pipeline.routers import Recipe, RouterTraining, freeze
from switchmem.pipeline.show import show_step
from switchmem.pipeline.targets import Targets, make_targets
from switchmem.pipeline.used import Used
from switchmem.pipeline.workshop import Workshop, as_study_data
from switchmem.policy import PolicyCard
from switchmem.preference import FOLDS, PreferenceEstimator
from switchmem.prompts import fingerprint as template_fingerprint
from switchmem.router import Target
from switchmem.runs import RunError, RunFolder
from switchmem.settings import BaselineSettings, StudySettings
from switchmem.stages import Stage, Stages, digest_of

PREFERENCE, TEST = "preference", "test"
SAID = 3
"""Faults that are said where they are counted; all are in the data report."""
SAMPLED = (Condition.TEXT, Condition.IMAGE)
SCORED = (Condition.NONE, Condition.TEXT, Condition.IMAGE, Condition.BOTH)


class Study:
    """One study.

    Args:
        datamodule: the data; it must offer what `StudyData` asks.
        actor: the frozen actor; it is loaded only where a harvest is incomplete.
        embedder: finds demonstrations and feeds the router.
        sampling: of the preference harvest; the test harvest is greedy.
        settings: what is learned.
        run: where the run's own files go.
        stages: where stages lie.
        workshop: builds trainers, routers and callbacks.
        baselines: the memory baselines of the test; None for none.
    """

    def __init__(
        self,
        datamodule: LightningDataModule,
        actor: ActorSpec,
        embedder: Embedder,
        sampling: Sampling,
        settings: StudySettings,
        run: RunFolder,
        stages: Stages,
        workshop: Workshop,
        baselines: BaselineSettings | None = None,
    ) -> None:
        self.baselines = BaselineSettings() if baselines is None else baselines
        self.datamodule, self.data = datamodule, as_study_data(datamodule)
        self.actor, self.embedder, self.sampling = actor, embedder, sampling
        self.settings, self.run, self.workshop, self.stages = settings, run, workshop, stages
        self._loaded: dict[str, Any] = {}
        self.data.place(stages, embedder, settings.bank_fraction)
        self._memory_keys: dict[str, str] = {}

    # --- steps ---

    @rank_zero_only
    def prepare_steps(self) -> None:
        """Write the step shards of all parts, unless they are there, and say what was left out."""
        self.data.prepare_steps()
        report = self.data.data_report()
        report.save(self.run.data_report)
        say(f"data: {report.summary()}; by id in {self.run.data_report}")
        self._say_parts(report)

    def _say_parts(self, report: DataReport) -> None:
        """The first things that were left out, how many steps each part has, and what must be read with the data."""
        for fault in report.faults[:SAID]:
            say(f"  left out: {fault}")
        if len(report.faults) > SAID:
            say(f"  and {len(report.faults) - SAID} more")
        counts = self.data.part_counts()
        say("parts: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) + " steps")
        if not counts[TEST]:
            say("note: the test part is empty: a policy can be trained, and nothing can be tested.")
        for note in getattr(self.datamodule, "notes", ()):
            say(f"note: {note}")

    @rank_zero_only
    def show(self, step_id: str | None, memory_id: str | None = None) -> None:
        """Print a step's prompts and write its pictures into the run's folder; see `show_step`."""
        self.prepare_steps()
        data: Any = self.datamodule
        show_step(data, self.actor, self.embedder, self.run.path / "show", step_id, memory_id)

    # --- harvests ---

    def harvest(self, part: str) -> Harvest:
        """Prepare a part's steps and memories, and run the actor over what is not harvested yet.

        Args:
            part: "preference", sampled under Text and Image, or "test", greedy under all four conditions.
        """
        self._prepare_memory(part)
        self._report_data(part)
        conditions = SAMPLED if part == PREFERENCE else SCORED
        stage = self.harvest_stage(part)
        first = is_first_rank()
        with stage.lock() if first else contextlib.nullcontext():
            if stage.complete:
                say(f"{part} harvest: kept from {stage.folder}")
            else:
                if first:
                    stage.begin()
                self._observe(part, stage, conditions)
                if first:
                    stage.finish()
                if read_damaged(stage.folder):
                    self._report_data(part)
        self._tell_actor(part, stage.folder)
        return Harvest.open(stage.folder)

    def _tell_actor(self, part: str, folder: Path) -> None:
        """Add who answered, and with which bank, to the run's provenance, and say what an endpoint has cost."""
        if not is_first_rank():
            return
        usage = read_usage(folder)
        *earlier, actor = read_actors(folder) or [{}]  # none in a harvest of an earlier version
        # from the run's folder, so that a tree of runs can be moved as a whole
        bank = [os.path.relpath(store, self.run.path) for store in self.data.bank_stores(part)]
        self._loaded[part] = {"actor": actor, "earlier_actors": earlier, "usage": usage, "bank": bank}
        self.run.add_provenance({"harvests": self._loaded})
        if usage:
            say(f"{part} harvest: {usage_words(usage)}")

    def _prepare_memory(self, part: str) -> None:
        """Embed what the part needs on all devices, then retrieve, each unless it is done."""
        self.data.prepare_steps()
        if not self.data.memory_stage(part).complete:
            for needed in self.data.embedded_with(part):
                self._embed(needed)
        self.data.prepare_memory(part)  # on whichever rank comes first; the others wait for its lock

    def _embed(self, part: str) -> None:
        first, stage = is_first_rank(), self.data.embeddings_stage(part)
        with stage.lock() if first else contextlib.nullcontext():
            if stage.complete:
                return
            if first:
                stage.begin()
            with quiet():
                trainer = self.workshop.trainer([], logs=None)
                workers = getattr(self.datamodule, "num_workers", 0)
                embed_on_all_devices(self.data.embedding_job(part), trainer, workers)

    def harvest_stage(self, part: str) -> Stage:
        """The stage that holds a part's harvest."""
        sampling = asdict(self._sampling(part))
        inputs = {
            "memory": self._memory_key(part),
            "actor": self.actor_fingerprint,
            "conditions": [c.value for c in (SAMPLED if part == PREFERENCE else SCORED)],
            "layers": self.settings.probe_layers,
            "sampling": {**sampling, "seeds": list(sampling["seeds"])},
            "limit": self.settings.limit,
        }
        return self.stages.stage("harvest", inputs)

    @cached_property
    def actor_fingerprint(self) -> str:
        """Of the actor; its weights are hashed once."""
        return self.actor.fingerprint()

    def _memory_key(self, part: str) -> str:
        # once per part: the data's fingerprint may look at every file
        if part not in self._memory_keys:
            self._memory_keys[part] = self.data.memory_stage(part).key
        return self._memory_keys[part]

    def _sampling(self, part: str) -> Sampling:
        return self.sampling if part == PREFERENCE else Sampling(0.0, (0,), self.sampling.max_new_tokens)

    def _observe(self, part: str, stage: Stage, conditions: Sequence[Condition]) -> None:
        # imported here: it brings transformers, which a run with a complete harvest never needs
        from switchmem.actors.module import FrozenActorModule

        sampling = self._sampling(part)
        module = FrozenActorModule(
            self.actor,
            [c.value for c in conditions],
            self.settings.probe_layers,
            sampling.temperature,
            sampling.seeds,
            sampling.max_new_tokens,
        )
        self.data.select(part, stage.folder, self.settings.limit)
        trainer = self.workshop.trainer([self.workshop.harvester()], logs=None)
        with quiet():
            trainer.predict(module, datamodule=self.datamodule, return_predictions=False)

    @rank_zero_only
    def _report_data(self, part: str) -> None:
        """Write and say what was left out: by the readers, by retrieval, and of the harvests while they ran."""
        report = self.data.data_report()
        for stage in (self.harvest_stage(PREFERENCE), self.harvest_stage(TEST)):
            for step_id, reason in read_damaged(stage.folder).items():
                report.add(step_id, reason)
        report.save(self.run.data_report)
        alone = report.notes.get(f"{part}_without_memory", 0)
        say(f"data: {report.summary()}; {alone} {part} steps without a memory; by id in {self.run.data_report}")
        self._say_parts(report)

    # --- fit ---

    def prepare(self) -> None:
        """Everything in front of the routers: harvest, targets, features.

        Raises:
            RunError: if the actor is an endpoint, which shows no hidden states.
        """
        if self.actor.endpoint is not None:
            raise RunError(
                f"`actor.endpoint` must be null for `fit`, got {self.actor.endpoint.base_url}: a router is trained "
                "from hidden states, which an endpoint does not show. `test` scores the fixed conditions and oracle; "
                "to train, load the model's weights here."
            )
        used = Used(self.harvest(PREFERENCE), self.settings)
        self.targets: Targets = make_targets(used, self.targets_stage)
        batch, t = used.router_batch(), self.targets
        self.data.use_features(self.workshop.features(used.harvest, batch, t.target, t.delta, t.keep))
        self.training = RouterTraining(self.datamodule, batch, t, self.workshop, self.settings.threshold)
        self._layer = used.layer

    @property
    def targets_stage(self) -> Stage:
        """The stage that holds the soft targets."""
        inputs = {
            "harvest": self.harvest_stage(PREFERENCE).key,
            "components": self.settings.components,
            "cross_fit": self.settings.cross_fit,
            "agree": self.settings.agree,
            "layer": self.settings.layer,
            "samples": self.settings.samples,
        }
        return self.stages.stage("targets", inputs)

    def router_stage(self, target: Target, seed: int, ckpt_path: str | None = None) -> Stage:
        """The stage that holds the router of a target and a seed; one that goes on from a checkpoint is another."""
        inputs = {
            "targets": self.targets_stage.key,
            "target": target,
            "seed": seed,
            "settings": dict(self.workshop.router_settings),
            "threshold": self.settings.threshold,
            **({} if ckpt_path is None else {"checkpoint": digest_of(Path(ckpt_path))}),
        }
        return self.stages.stage("router", inputs)

    def recipe(self, target: Target, seed: int, ckpt_path: str | None = None) -> Recipe:
        """The router of a target and a seed, trained from a checkpoint where one is given; after `prepare`."""
        card = PolicyCard(**self.identity(self._layer), target=target, seed=seed, n_pref=self.targets.n_pref)
        return Recipe(target, seed, self.router_stage(target, seed, ckpt_path), card)

    def identity(self, layer: int | tuple[int, ...]) -> dict[str, Any]:
        """What a policy is bound to: actor, block, prompt template, embedder; and the names of the first and third."""
        template = self.actor.load_template()
        return {
            "actor": self.actor_fingerprint,
            "layer": layer,
            "template": template_fingerprint(template),
            "embedder": self.embedder.name,
            "actor_name": self.actor.name,
            "template_name": template.name,
        }

    def train(self, trainer: Trainer, module: RouterModule, ckpt_path: str | None = None) -> None:
        """Train the run's own router: the module's target with the first seed."""
        self._main: Target = module.target
        self._own = self.recipe(self._main, self.settings.seeds[0], ckpt_path)
        self.training.main(self._own, trainer, module, ckpt_path)

    def finish(self) -> None:
        """Train the companions and freeze the run's policy."""
        targets = dict.fromkeys([self._main, *self.settings.targets])
        companions = [self.recipe(target, seed) for target in targets for seed in self.settings.seeds][1:]
        recipes = [self._own, *companions]
        for recipe in recipes[1:]:
            self.training.companion(recipe)
        if is_first_rank():
            freeze(recipes, self.targets, PreferenceEstimator.load(self.targets_stage.folder), self.run.policy)
            say(f"policy: {len(recipes)} routers frozen in {self.run.policy}")

    # --- audit ---

    def audit(self, target: Target, provenance: Mapping[str, Any]) -> None:
        """Tell whether it depends on the step which modality helps more, and what a router could gain from it.

        Args:
            target: what the routers learn that are judged.
            provenance: where the numbers come from.
        """
        used, seed = Used(self.harvest(PREFERENCE), self.settings), self.settings.seeds[0]

        def recipe(fold: int, n_pref: int) -> Recipe:
            inputs = {**self.router_stage(target, seed).inputs, "fold": [fold, FOLDS]}
            card = PolicyCard(**self.identity(used.layer), target=target, seed=seed, n_pref=n_pref)
            return Recipe(target, seed, self.stages.stage("router", inputs), card)

        data = audit_input(used, HeldOut(used, self.datamodule, self.workshop, recipe))
        if is_first_rank():
            notes = list(getattr(self.datamodule, "notes", ()))
            provenance = {**provenance, "harvest": self.harvest_stage(PREFERENCE).key}
            write_audit(data, used, self.run, {"target": target, "notes": notes, "provenance": provenance})

    # --- test ---

    def evaluate(self, loggers: Sequence[Logger], provenance: Mapping[str, Any]) -> None:
        """Score the frozen policies on the test part.

        Args:
            loggers: get scores and table.
            provenance: where the numbers come from.

        Raises:
            RunError: if `fit` has not frozen a policy in this run.
            PolicyError: if a policy was made for another actor, block, template or embedder.
        """
        provenance = {**provenance, "harvest": self.harvest_stage(TEST).key}
        if self.actor.endpoint is not None:
            self._evaluate_endpoint(loggers, provenance)
            return
        frozen = FrozenPolicies.load(self.run.policy)
        for policy in frozen.policies:  # before the actor runs, which may take days
            policy.check(**self.identity(policy.card.layer))
        harvest = self.harvest(TEST)
        used = Used(harvest, self.settings)
        for policy in frozen.policies:
            policy.check(**self.identity(used.layer))
        told = self._told(provenance)
        if is_first_rank():
            tell(test_results(used, frozen, self.run, told), harvest, loggers)

    def _evaluate_endpoint(self, loggers: Sequence[Logger], provenance: Mapping[str, Any]) -> None:
        """Score what needs no router."""
        harvest = self.harvest(TEST)
        told = self._told(provenance)
        if is_first_rank():
            tell(endpoint_results(harvest, self.run, told), harvest, loggers)

    def _told(self, provenance: Mapping[str, Any]) -> Told:
        """What is told with the numbers of the test, the memory baselines among it; they are run where they must."""
        runs = BaselineRuns(
            self.baselines,
            self.datamodule,
            self.data,
            self.actor,
            self.stages,
            self.workshop,
            self.sampling.max_new_tokens,
            self.settings.limit,
        )
        harvests = runs.harvests(self.actor_fingerprint, self._memory_key(TEST))
        of_baselines = {
            baseline.name: told_of_baseline(harvests[baseline.name], baseline, writer_name(self.baselines))
            for baseline in self.baselines.chosen()
        }
        notes = list(getattr(self.datamodule, "notes", ()))
        provenance = {**provenance, "harvests": self._loaded}
        return Told(provenance, notes, self.settings.bootstrap, harvests, of_baselines)
