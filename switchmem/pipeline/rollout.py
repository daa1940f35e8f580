"""A rollout, stage by stage; finished episodes are kept, so that a killed one goes on where it stopped.

    first screens (evaluation's and calibration's seeds) -> bank's episodes -> bank -> threshold -> every policy's
    episodes -> every memory baseline's -> results

Each stage's folder is named by all that it depends on: a policy that was trained again is played again, and the fixed
forms of memory are not.
"""

from __future__ import annotations

import difflib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from switchmem.actors.spec import ActorSpec
from switchmem.agent import LiveBank, load_policy
from switchmem.benchmarks.store import StepStore, write_steps
from switchmem.console import progress, say
from switchmem.envs.crew import Crew
from switchmem.memory.baseline import Baseline
from switchmem.memory.embedder import Embedder
from switchmem.pipeline.rollout_baselines import PlayedBaselines
from switchmem.policy import Policy, PolicyError
from switchmem.rollout.bank import DEMONSTRATOR, bank_steps, play_demonstrator
from switchmem.rollout.instances import proof, require_apart, unlike
from switchmem.rollout.play import SEEN, Job
from switchmem.rollout.protocol import (
    Calibrated,
    MakeAgent,
    Part,
    Play,
    baseline_player,
    calibrate,
    instances,
    looker,
    play_parts,
    player,
    policy_digest,
)
from switchmem.rollout.results import SWITCHMEM, Played, RolloutError, build_rollout_results, rollout_text
from switchmem.rollout.trace import Facts, Trace, broke, read_trace
from switchmem.rollout.watch import Watch
from switchmem.rollout.world import World
from switchmem.runs import RunFolder
from switchmem.settings import RolloutSettings, SettingsError
from switchmem.stages import Stage, Stages, write_json, write_whole

MOST_WORKERS = 8


@dataclass
class Rollout:
    """One rollout.

    Args:
        world: the environment.
        spec: the actor; tells what its episodes depend on.
        embedder: finds demonstrations; the policy's.
        settings: of the protocol.
        stages: where episodes are kept.
        run: gets the results.
        make_agent: agents with the loaded actor.
        watch: whether episodes are shown as they go.
        baselines: the memory baselines that are played too; None for none.
        spent: what the actor's endpoint was asked in this process, as plain JSON values; None without one.
    """

    world: World
    spec: ActorSpec
    embedder: Embedder
    settings: RolloutSettings
    stages: Stages
    run: RunFolder
    make_agent: MakeAgent
    watch: bool = False
    baselines: PlayedBaselines | None = None
    spent: Callable[[], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.spec.endpoint is not None and SWITCHMEM in self.settings.policies:
            raise RolloutError(
                f"`actor` must run in this process to be routed by its hidden states, got the endpoint "
                f"{self.spec.endpoint.base_url}, which shows none. Leave SwitchMem out (--rollout.policies "
                "[none,text,image,both]), or load the same model's weights."
            )
        unknown = [task for task in self.settings.tasks or () if task not in self.world.tasks]
        if unknown:
            near = difflib.get_close_matches(unknown[0], self.world.tasks) or self.world.tasks
            raise SettingsError(
                f"`rollout.tasks` must be tasks of the benchmark, got {unknown}. Choose of {', '.join(near)}."
            )
        if self.settings.bank == "demonstrators" and not self.world.scripts:
            raise SettingsError(
                "`rollout.bank` must be 'actor' on a phone, got 'demonstrators': the scripts play in Chromium alone."
            )
        self.tasks = [t for t in self.world.tasks if self.settings.tasks is None or t in self.settings.tasks]

    # --- the protocol ---

    def play(self, provenance: Mapping[str, Any]) -> dict[str, Any]:
        """Play everything that is missing, and write the results.

        Args:
            provenance: of the run.

        Returns:
            The results document.

        Raises:
            RolloutError: if the environment cannot be had, no policy is given for SwitchMem, or the bank is empty.
            PolicyError: if the policy is not for this actor and embedder.
            InstanceError: if two parts share an instance.
        """
        policy = self._own_policy()
        with self._crew:
            return self._play_all(policy, provenance)

    def _play_all(self, policy: Policy | None, provenance: Mapping[str, Any]) -> dict[str, Any]:
        try:
            evaluated, calibration = self._first_screens()
            bank, bank_facts = self._bank(evaluated)
            calibrated, used = self._threshold(policy, bank, bank_facts, calibration, evaluated)
            before = {
                "bank": [] if bank_facts is None else bank_facts["instances"],
                "calibration": instances(used),
            }
            require_apart({**before, "evaluation": instances(evaluated)})
            episodes, stages = self._evaluate(calibrated, bank, bank_facts)
        except self.world.why as error:
            raise RolloutError(str(error)) from error
        seen = [fact for facts in episodes.values() for fact in facts]
        apart = proof({**before, "evaluation": instances([*evaluated, *seen])})
        if bank_facts is not None:
            bank_facts["instances"] = len(bank_facts["instances"])
        facts = {
            "instances": apart,
            "bank": bank_facts,
            "threshold": None if calibrated is None else dict(calibrated.facts),
            "settings": {**self.world.facts, "screen_text": self.spec.screen_text, "stuck": self.settings.stuck},
            "episodes": stages,
            "endpoint": None if self.spent is None else dict(self.spent()),
            "writer_endpoint": None if self.baselines is None else self.baselines.spent(),
            "provenance": dict(provenance),
        }
        notes = self._told(bank_facts)
        if apart["shared"]:
            notes.append(f"{len(apart['shared'])} instances of the evaluation were seen before: see `instances`.")
        played = Played(self.tasks, episodes, facts, notes, self.baselines.about() if self.baselines else {})
        results = build_rollout_results(played, self.settings.bootstrap)
        write_json(self.run.results, results)
        write_whole(self.run.path / "rollout.txt", rollout_text(results).encode("utf-8", "replace"))
        return results

    def _own_policy(self) -> Policy | None:
        if SWITCHMEM not in self.settings.policies:
            return None
        if self.settings.policy is None:
            raise RolloutError(
                "`rollout.policy` must name the policy that SwitchMem chooses with, got none. Give a run's policy "
                "folder (--rollout.policy runs/NAME/policy), or leave 'switchmem' out of `rollout.policies`."
            )
        try:
            return load_policy(self.settings.policy, self.spec, self.embedder.name)
        except PolicyError as error:
            if Path(self.settings.policy).is_dir():
                raise
            raise PolicyError(
                f"{error} `rollout.policy` names it: train one (fit --config miniwob_offline.yaml), name another "
                "(--rollout.policy runs/NAME/policy), or leave 'switchmem' out of `rollout.policies`."
            ) from error

    def _first_screens(self) -> tuple[list[Facts], list[Facts]]:
        """First screens of the evaluation's and, where a threshold is chosen on them, the calibration's instances."""
        parts = [self._part("look", self.settings.evaluation_seed, SEEN)]
        if SWITCHMEM in self.settings.policies and self.settings.threshold == "match_rate":
            parts.append(self._part("look", self.settings.calibration_seed, SEEN))
        self._play("first screens", parts, lambda _: looker(self.world.why))
        return parts[0].facts(), parts[1].facts() if len(parts) > 1 else []

    def _bank(self, evaluated: Sequence[Facts]) -> tuple[LiveBank | None, dict[str, Any] | None]:
        """The demonstrations: episodes that succeeded, and look like no instance of the evaluation."""
        if self.settings.policies == ["none"] and not self._baselines:
            return None, None
        scripts = self.settings.bank == "demonstrators"
        who = DEMONSTRATOR if scripts else "none"
        made = {"scripts": self.world.scripts} if scripts else self._actor_facts()
        part = self._part("demonstrations", self.settings.bank_seed, who, made)
        scripted = partial(play_demonstrator, fatal=self.world.why)
        self._play("bank", [part], lambda crew: scripted if scripts else self._player(None, None, crew))
        facts = part.facts()
        won = [fact for fact in facts if fact.success]
        apart = unlike(instances(won), instances(evaluated))
        kept = {instance.task for instance in apart}
        jobs = [job for job in part.jobs if job.task in kept]
        if not jobs:
            alike = ", none of which differs from the evaluation's instances" if won else ""
            ended = ", ".join(f"{count} {ending}" for ending, count in Counter(fact.ending for fact in facts).items())
            raise RolloutError(
                f"the bank must hold at least one successful episode, got {len(won)} successes of {len(facts)} "
                f"episodes ({ended}){alike}. Take more tasks, or set `rollout.bank: demonstrators`; where pages or the "
                f"browser broke, delete {part.folder} to have them played again."
            )
        store, key = self._store(part, jobs)
        left_out = [fact.task for fact in won if fact.task not in kept]
        return LiveBank.build(store, self.embedder), {
            "made_by": self.settings.bank,
            "suite_seed": self.settings.bank_seed,
            "played": len(facts),
            "successes": len(won),
            "left_out_alike": left_out,
            "broken": [fact.task for fact in facts if broke(fact.ending, bool(fact.look))],
            "demonstrations": len(jobs),
            "steps": len(store.step_ids),
            "tasks": sorted(kept),
            "stage": key,
            "instances": apart,
        }

    def _store(self, part: Part, jobs: Sequence[Job]) -> tuple[StepStore, str]:
        stage = self.stages.stage("rollout-bank", {"episodes": part.folder.name, "tasks": [job.task for job in jobs]})
        with stage.lock():
            folder = stage.folder / "bank"
            if not stage.complete:
                stage.begin()
                if not folder.exists():  # written whole or not at all
                    write_steps(bank_steps(read_trace(part.path(job)) for job in jobs), folder)
                stage.finish()
            return StepStore(folder), stage.key

    def _threshold(
        self,
        policy: Policy | None,
        bank: LiveBank | None,
        bank_facts: Mapping[str, Any] | None,
        calibration: Sequence[Facts],
        evaluated: Sequence[Facts],
    ) -> tuple[Calibrated | None, list[Facts]]:
        """The policy with its threshold here, and the screens that it was chosen on."""
        if policy is None or bank_facts is None:
            return None, []
        if self.settings.threshold == "policy":
            return Calibrated(policy, {"rule": "policy", "tau": policy.threshold}), []
        apart = unlike(instances(calibration), instances(evaluated), bank_facts["instances"])
        kept = {instance.task for instance in apart}
        used = [fact for fact in calibration if fact.task in kept]
        if not used:
            raise RolloutError(
                "the threshold must be chosen on at least one first screen that no other part has, got none. Take more "
                "tasks, or set `rollout.threshold: policy`."
            )
        part = self._part("look", self.settings.calibration_seed, SEEN)
        screens = []
        for job in part.jobs:
            if job.task in kept:
                last = read_trace(part.path(job)).last
                assert last is not None  # it has a look
                screens.append((job.task, last))
        found = calibrate(policy, self.make_agent(policy, bank), screens)
        alike = [fact.task for fact in calibration if fact.look and fact.task not in kept]
        facts = {**found.facts, "suite_seed": self.settings.calibration_seed, "left_out_alike": alike}
        say(
            f"threshold: {found.policy.threshold:.4f}, with Image on {100 * facts['image_rate']:.1f} % of "
            f"{len(screens)} first screens; in training it was {100 * policy.card.image_rate:.1f} %"
        )
        return replace(found, facts=facts), used

    def _evaluate(
        self, calibrated: Calibrated | None, bank: LiveBank | None, bank_facts: Mapping[str, Any] | None
    ) -> tuple[dict[str, list[Facts]], dict[str, str]]:
        """Every policy's episodes, then every memory baseline's, and the stages that hold them."""
        actor = self._actor_facts()
        shared = {} if bank_facts is None else {"bank": bank_facts["stage"], "embedder": self.embedder.name}
        parts: dict[str, Part] = {}
        for name in self.settings.policies:
            made = actor if name == "none" else {**actor, **shared}
            if name == SWITCHMEM and calibrated is not None:
                made = {**made, "policy": policy_digest(calibrated.policy)}
            parts[name] = self._part("evaluation", self.settings.evaluation_seed, name, made)
        policy = None if calibrated is None else calibrated.policy
        self._play("evaluation", list(parts.values()), lambda crew: self._player(policy, bank, crew))
        if self.baselines is not None and bank is not None:
            for baseline in self._baselines:  # one at a time: they share the actor
                made = {**actor, **shared, **self.baselines.inputs(baseline, self._fingerprint)}
                part = self._part("evaluation", self.settings.evaluation_seed, baseline.name, made)
                work = partial(self._baseline_player, self.baselines, baseline, bank)
                self._play(baseline.name, [part], work)
                parts[baseline.name] = part
        return {name: part.facts() for name, part in parts.items()}, {n: p.folder.name for n, p in parts.items()}

    def _told(self, bank_facts: Mapping[str, Any] | None) -> list[str]:
        notes = list(self.world.notes)
        if self.settings.tasks is not None:
            notes.append(f"{len(self.tasks)} of the benchmark's {len(self.world.tasks)} tasks were asked for.")
        if bank_facts is not None:
            made = "by scripts" if self.settings.bank == "demonstrators" else "by the actor itself"
            notes.append(
                f"Bank: {bank_facts['demonstrations']} episodes, {bank_facts['steps']} steps, made {made} at suite "
                f"seed {self.settings.bank_seed}."
            )
            if broken := bank_facts["broken"]:
                notes.append(
                    f"{len(broken)} of the bank's episodes ended because their page, browser or environment broke, "
                    f"twice each, and give no demonstration: {', '.join(broken)}."
                )
            if alike := bank_facts["left_out_alike"]:
                notes.append(f"{len(alike)} more successes look like instances of the evaluation and are left out.")
        if self.settings.stuck is not None:
            notes.append(f"Episodes end as failed after {self.settings.stuck} equal screens in a row.")
        return notes

    # --- playing ---

    def _actor_facts(self) -> dict[str, Any]:
        return {
            "actor": self._fingerprint,
            "max_new_tokens": self.settings.max_new_tokens,
            "stuck": self.settings.stuck,
        }

    @cached_property
    def _fingerprint(self) -> str:
        return self.spec.fingerprint()

    @cached_property
    def _crew(self) -> Crew[Any]:
        asked = self.settings.workers or min(MOST_WORKERS, os.cpu_count() or 1)
        return Crew(self.world.make_env, min(asked, self.world.most_workers or asked), _environment_broke)

    @cached_property
    def _watcher(self) -> Watch | None:
        if not self.watch:
            return None
        watch = Watch(self.run.path / "watch")
        say(f"watch: {watch.page}")
        return watch

    def _player(self, policy: Policy | None, bank: LiveBank | None, crew: Crew[Any]) -> Play:
        return player(self.make_agent(policy, bank), crew, self.settings.stuck, self._watcher, self.world.why)

    def _baseline_player(self, baselines: PlayedBaselines, baseline: Baseline, bank: LiveBank, crew: Crew[Any]) -> Play:
        agent = baselines.agent(baseline, bank, self._fingerprint)
        return baseline_player(agent, crew, self.settings.stuck, self._watcher, self.world.why)

    @property
    def _baselines(self) -> list[Baseline]:
        return [] if self.baselines is None else self.baselines.chosen()

    def _part(self, name: str, suite: int, who: str, made: Mapping[str, Any] | None = None) -> Part:
        inputs = {"world": dict(self.world.facts), "suite": suite, "who": who, "tasks": self.tasks, **(made or {})}
        folder = self.stages.stage(f"rollout-{name}", inputs).folder
        self._inputs[folder.name] = (f"rollout-{name}", inputs)
        return Part(folder, [Job(who, task, self.world.seed(suite, task)) for task in self.tasks])

    @cached_property
    def _inputs(self) -> dict[str, tuple[str, dict[str, Any]]]:
        return {}

    def _play(self, title: str, parts: Sequence[Part], work: Callable[[Crew[Any]], Play]) -> None:
        """Play the missing episodes of one phase."""
        held: list[Stage] = [self.stages.stage(*self._inputs[part.folder.name]) for part in parts]
        with ExitStack() as stack:
            for stage in sorted(held, key=lambda stage: stage.key):  # in one order, whoever else waits for them
                stack.enter_context(stage.lock())
            missing = sum(len(part.todo()) for part in parts)
            if missing:
                for stage in held:
                    stage.begin()
                started = time.monotonic()
                with progress(f"rollout: {title}") as advance:
                    play_parts(parts, self._crew, work(self._crew), advance)
                minutes = (time.monotonic() - started) / 60
                say(f"{title}: {missing} episodes in {60 * minutes:.0f} s, {missing / max(minutes, 1e-9):.1f} a minute")
            for stage, part in zip(held, parts, strict=True):
                if missing or not stage.complete:
                    stage.finish(episodes=len(part.jobs))


def _environment_broke(trace: Trace) -> bool:
    return broke(trace.ending, bool(trace.moves) or trace.last is not None)
