"""The memory baselines of a test: each is one more pass of the actor over the same steps, kept in its own stage."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from lightning.pytorch import LightningDataModule

from switchmem.actors.protocol import Actor
from switchmem.actors.spec import ActorSpec
from switchmem.console import is_first_rank, quiet, say
from switchmem.harvest import Harvest, read_usage, usage_words
from switchmem.memory.baseline import Baseline, Writer
from switchmem.memory.views import Condition
from switchmem.memory.writing import KeptWriter, TemplateWriter, counted, mean, offline_costs
from switchmem.pipeline.workshop import StudyData, Workshop
from switchmem.runs import RunError
from switchmem.settings import BaselineSettings
from switchmem.stages import Stage, Stages

TEST = "test"


@dataclass(frozen=True)
class BaselineRuns:
    """Runs the baselines of a study.

    Args:
        settings: which ones, and who writes.
        datamodule: the data; the test part's steps and memories are prepared.
        data: the same, as the study asks it.
        actor: the frozen actor; it is loaded only where a pass is incomplete.
        stages: where stages lie.
        workshop: builds trainers and callbacks.
        max_new_tokens: the most tokens of an answer.
        limit: the most steps; None takes all.
    """

    settings: BaselineSettings
    datamodule: LightningDataModule
    data: StudyData
    actor: ActorSpec
    stages: Stages
    workshop: Workshop
    max_new_tokens: int
    limit: int | None

    def harvests(self, fingerprint: str, memory_key: str) -> dict[str, Harvest]:
        """One finished harvest per baseline, by name.

        Args:
            fingerprint: of the actor.
            memory_key: of the stage that holds the retrieved pairs.
        """
        return {b.name: self._harvest(b, fingerprint, memory_key) for b in self.settings.chosen()}

    def stage(self, baseline: Baseline, fingerprint: str, memory_key: str) -> Stage:
        """The stage that holds what the actor answered under a baseline."""
        inputs = {
            "memory": memory_key,
            "actor": fingerprint,
            "baseline": baseline.identity(),
            "writer": writer_fingerprint(self.settings, fingerprint),
            "max_new_tokens": self.max_new_tokens,
            "limit": self.limit,
        }
        return self.stages.stage("baseline", inputs)

    def _harvest(self, baseline: Baseline, fingerprint: str, memory_key: str) -> Harvest:
        stage, first = self.stage(baseline, fingerprint, memory_key), is_first_rank()
        with stage.lock() if first else contextlib.nullcontext():
            if stage.complete:
                say(f"{baseline.name}: kept from {stage.folder}")
            else:
                say(f"{baseline.name}: {writer_name(self.settings)} writes")
                if first:
                    stage.begin()
                self._observe(baseline, stage, fingerprint)
                if first:
                    stage.finish()
        if usage := read_usage(stage.folder):
            say(f"{baseline.name}: {usage_words(usage)}")
        return Harvest.open(stage.folder)

    def _observe(self, baseline: Baseline, stage: Stage, fingerprint: str) -> None:
        # imported here: it brings transformers, which a run with complete harvests never needs
        from switchmem.actors.baseline_module import BaselineModule

        surroundings = self.data.surroundings(TEST)

        def writer(actor: Actor, device: str) -> Writer:
            return make_writer(self.settings, self.stages, actor, device, fingerprint)

        module = BaselineModule(self.actor, baseline, surroundings, writer, self.max_new_tokens)
        self.data.select(TEST, stage.folder, self.limit)
        trainer = self.workshop.trainer([self.workshop.harvester()], logs=None)
        with quiet():
            trainer.predict(module, datamodule=self.datamodule, return_predictions=False)


def writer_fingerprint(settings: BaselineSettings, actor: str) -> str:
    """Of who writes; the actor's own where it does.

    Args:
        settings: say who.
        actor: the actor's fingerprint.
    """
    if settings.writer == "template":
        return TemplateWriter.fingerprint
    return actor if settings.model is None else settings.model.fingerprint()


def writer_name(settings: BaselineSettings) -> str:
    """Who writes, for people."""
    return settings.writer if settings.model is None else f"model {settings.model.name}"


def make_writer(settings: BaselineSettings, stages: Stages, actor: Actor, device: str, fingerprint: str) -> Writer:
    """Who writes. A model's answers are kept by content, in one folder for all commands.

    Args:
        settings: say who.
        stages: where answers are kept.
        actor: the loaded actor.
        device: on which another model is loaded.
        fingerprint: of the actor.
    """
    if settings.writer == "template":
        return TemplateWriter()
    from switchmem.actors.writer import ModelWriter  # here: it brings transformers, which finished runs never need

    named, own = settings.model, writer_fingerprint(settings, fingerprint)
    model = actor if named is None else replace(named, device=device).load()
    folder = stages.stage("writing", {"writer": own}).begin()
    return KeptWriter(ModelWriter(model, own, settings.writer_batch), folder)


def told_of_baseline(harvest: Harvest, baseline: Baseline, writer: str) -> dict[str, Any]:
    """What `results.json` tells of a baseline beside its score.

    Args:
        harvest: `N` steps under it.
        baseline: its settings are told too.
        writer: who wrote.

    Returns:
        "parse_rate" in [0, 1] and "parse_failures" by reason; "actor", the tokens and seconds of its answers, and
        "writer", the calls, tokens and seconds of what was written for the steps, both as means per step; "seconds",
        their sum; "offline", the same in all for what was written once for the bank; "fallbacks" and "notes", how often
        which; "usage", what endpoints were asked for it, the actor's and the writer's together, None without one.
        Tokens are None where they are not told.
    """
    (name,) = harvest.conditions
    writing = harvest.context("writing")
    failures = harvest.parse_failures()[name]
    actor = {
        "tokens_in": mean(harvest.prompt_tokens(name)),
        "tokens_out": mean([drawn for (drawn,) in harvest.new_tokens(name) or []]),
        "seconds": mean(harvest.seconds),
    }
    numbers = ("calls", "tokens_in", "tokens_out", "seconds")
    written = {number: mean([row[number] for row in writing]) for number in numbers}
    return {
        "shows_image": baseline.shows_image,
        "identity": baseline.identity(),
        "written_by": writer,
        "parse_rate": 1.0 - sum(failures.values()) / len(harvest),
        "parse_failures": failures,
        "actor": actor,
        "writer": written,
        "seconds": (actor["seconds"] or 0.0) + (written["seconds"] or 0.0),
        "offline": offline_costs(writing),
        "fallbacks": counted(harvest.context("fallbacks")),
        "notes": counted(harvest.context("notes")),
        "usage": read_usage(harvest.folder) or None,
    }


def add_seconds(results: Mapping[str, Any], baselines: Mapping[str, Harvest]) -> dict[str, list[float]]:
    """Put the baselines among the policies whose seconds are known, where those of Image are.

    Args:
        results: of the test, with "latency"; it is changed.
        baselines: harvests by name.

    Returns:
        ``seconds_<name>`` of each baseline, [N], for ``scores.parquet``.
    """
    columns = {
        name: [own + row["seconds"] for own, row in zip(h.seconds, h.context("writing"), strict=True)]
        for name, h in baselines.items()
    }
    latency = results["latency"]
    if columns and Condition.IMAGE.value in latency["policies"]:
        image = latency["policies"][Condition.IMAGE.value]["mean"]
        for name, seconds in columns.items():
            summary = {"mean": np.mean(seconds), "median": np.median(seconds), "p95": np.quantile(seconds, 0.95)}
            ratio = {"ratio": float(summary["mean"]) / image if image > 0 else None}
            latency["policies"][name] = {part: float(value) for part, value in summary.items()} | ratio
        latency["rule"] += " A memory baseline: what is written for the step, then its whole prompt and answer."
    return {f"seconds_{name}": seconds for name, seconds in columns.items()}


def aligned_scores(harvest: Harvest, baselines: Mapping[str, Harvest]) -> dict[str, Any]:
    """Scores [N] under each baseline, in the order of the test's own harvest.

    Raises:
        RunError: if a baseline was harvested on other steps.
    """
    for name, other in baselines.items():
        if other.step_ids != harvest.step_ids:
            differing = sorted(set(other.step_ids) ^ set(harvest.step_ids))
            raise RunError(
                f"baseline {name!r} must be harvested on the {len(harvest)} steps of the test, got {len(other)}, with "
                f"{len(differing)} that only one of them has, such as {differing[:1]}. A record was damaged in "
                f"between: remove {other.folder} and run `test` again."
            )
    return {name: other.scores(name)[:, 0] for name, other in baselines.items()}
