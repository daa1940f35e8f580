"""The frozen actor under a baseline of memory as a LightningModule, so that a Trainer spreads its work over devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from switchmem.actors.module import FrozenActorModule
from switchmem.actors.protocol import Actor, Observation
from switchmem.actors.showing import Shown, make_scene, show_and_ask
from switchmem.actors.spec import ActorSpec
from switchmem.memory.baseline import Baseline, Reader, Scene, Surroundings, Writer
from switchmem.memory.writing import costs

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

    def usages(self) -> list[Any]:
        """Likewise, the writer's endpoint among it; that of an actor that writes for itself stands once."""
        own, written = super().usages(), getattr(self._writer, "usage", None)
        return own if written is None or any(written is usage for usage in own) else [*own, written]

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
                "fallbacks": [*shown.view.once.values(), *shown.view.fallbacks],
                "notes": list(shown.view.notes),
            },
        )
