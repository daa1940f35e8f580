"""The frozen actor under a baseline of memory: the writer's rounds, then one greedy answer per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from switchmem.actors.module import FrozenActorModule
from switchmem.actors.protocol import Actor, Observation
from switchmem.actors.spec import ActorSpec
from switchmem.actors.writer import Answer, answer_greedily
from switchmem.memory.baseline import Baseline, Reader, Scene, Spent, Surroundings, View, Writer, run_rounds
from switchmem.memory.budget import Budget
from switchmem.memory.writing import costs
from switchmem.prompts import view_prompt
from switchmem.steps import Step

if TYPE_CHECKING:
    from switchmem.memory.retrieval import StepWithMemory


@dataclass(frozen=True)
class Named:
    """A condition that is no form of the memory but a baseline; it is called as the baseline is."""

    value: str


@dataclass
class BaselineObservation(Observation):
    """An observation under a baseline.

    Args:
        facts: "writing", of `costs`; "fallbacks" and "notes", of the view.
    """

    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Shown:
    """One step under a baseline: what the actor was shown, what it answered, and what was written for it."""

    view: View
    answer: Answer
    spent: Spent


def make_scene(spec: ActorSpec, actor: Actor, step: Step, demo: Step | None, surroundings: Surroundings) -> Scene:
    """What a baseline may see of a step, in the actor's own words."""
    budget = None if spec.state_tokens is None else Budget(spec.state_tokens, actor.count)
    grammar, size = spec.load_grammar(), (step.screenshot.width, step.screenshot.height)

    def is_action(text: str) -> bool:
        return grammar.parse(text, size).action is not None

    return Scene(step, demo, grammar, surroundings, spec.load_template().memory, budget, is_action)


def show_and_ask(
    spec: ActorSpec, actor: Actor, baseline: Baseline, writer: Writer, scenes: Sequence[Scene], max_new_tokens: int
) -> list[Shown]:
    """Let a baseline write and show what it does, and the actor answer, for several steps side by side.

    Args:
        spec: the actor's.
        actor: the same, loaded.
        baseline: makes the views.
        writer: answers its calls.
        scenes: of the steps.
        max_new_tokens: the most tokens of an answer.

    Raises:
        PromptError: if a prompt is too long for the actor or the writer.
        BudgetError: if what may not be left out of a textual screen does not fit.
    """
    rounds = run_rounds([baseline.show(scene) for scene in scenes], writer)
    template, grammar = spec.load_template(), spec.load_grammar()
    prompts = [
        (scene.step.step_id, view_prompt(scene.step, view, template, grammar, actor.specials))
        for scene, (view, _) in zip(scenes, rounds, strict=True)
    ]
    answers = answer_greedily(actor, prompts, max_new_tokens)
    return [Shown(view, answer, spent) for (view, spent), answer in zip(rounds, answers, strict=True)]


class BaselineModule(FrozenActorModule):
    """Observes steps under one baseline, greedily; reads no states.

    Args:
        actor: which actor; it is loaded once, when the Trainer starts.
        baseline: makes the views.
        surroundings: of the steps that will come.
        writer: makes the writer, given the loaded actor and the device of this process.
        max_new_tokens: the most tokens of one answer.
    """

    embeds = False
    """No router reads what is harvested here, so that nothing is embedded."""

    def __init__(
        self,
        actor: ActorSpec,
        baseline: Baseline,
        surroundings: Surroundings,
        writer: Callable[[Actor, str], Writer],
        max_new_tokens: int = 128,
    ) -> None:
        super().__init__(actor, (), (), 0.0, (0,), max_new_tokens)
        self.conditions: tuple[Any, ...] = (Named(baseline.name),)
        self.baseline, self.surroundings = baseline, surroundings
        self._make_writer = writer
        self._writer: Writer | None = None

    @property
    def writer(self) -> Writer:
        """The writer; it is made on first use."""
        if self._writer is None:
            self._writer = self._make_writer(self.actor, self._load_device())
        return self._writer

    def predict_step(
        self, batch: list[StepWithMemory], batch_idx: int = 0, dataloader_idx: int = 0
    ) -> list[Observation]:
        """Observe a batch; see `FrozenActorModule.predict_step`."""
        scenes = [self._scene(item) for item in batch]
        most = self.sampling.max_new_tokens
        shown = show_and_ask(self.spec, self.actor, self.baseline, self.writer, scenes, most)
        return [self._observation(item.step.step_id, each) for item, each in zip(batch, shown, strict=True)]

    def reader(self, item: StepWithMemory) -> Reader:
        """Reads the answers to a step."""
        return self.baseline.reader(self._scene(item)) or self.grammar

    def _scene(self, item: StepWithMemory) -> Scene:
        return make_scene(self.spec, self.actor, item.step, item.memory, self.surroundings)

    def _observation(self, step_id: str, shown: Shown) -> BaselineObservation:
        condition: Any = self.conditions[0]
        answer, none = shown.answer, torch.zeros(0, 0)
        return BaselineObservation(
            step_id=step_id,
            state=none,
            shifted={},
            answers={condition: [answer.text]},
            new_tokens={} if answer.tokens_out is None else {condition: [answer.tokens_out]},
            seconds=answer.seconds,
            prompt_tokens={} if answer.tokens_in is None else {condition: answer.tokens_in},
            facts={
                "writing": costs(shown.spent, self.writer.fingerprint),
                "fallbacks": list(shown.view.fallbacks),
                "notes": list(shown.view.notes),
            },
        )
