"""The frozen actor as a LightningModule, so that a Trainer spreads its work over devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lightning as L
import torch

from switchmem.actors.protocol import Actor, ActorError, Observation, StepPrompts
from switchmem.actors.sampling import Sampling
from switchmem.actors.spec import ActorSpec
from switchmem.actors.vlm import VLMActor, probe_layers
from switchmem.memory.views import Condition
from switchmem.prompts import Prompt

if TYPE_CHECKING:
    from switchmem.memory.retrieval import StepWithMemory


class FrozenActorModule(L.LightningModule):
    """Observes steps with their memories; learns nothing.

    Args:
        actor: which actor; it is loaded once, when the Trainer starts.
        conditions: in which answers are sampled. States are read for these and for the state prompt.
        layers: blocks whose states are read; None for those of the layer study, `probe_layers`.
        temperature: of the samples, >= 0.
        seeds: one sample each.
        max_new_tokens: the most tokens of one answer.

    Raises:
        SamplingError: if a setting of the sampling breaks a rule.
        ValueError: if a condition is unknown.
    """

    def __init__(
        self,
        actor: ActorSpec,
        conditions: Sequence[str] = ("text", "image"),
        layers: Sequence[int] | None = None,
        temperature: float = 0.7,
        seeds: Sequence[int] = (42, 43, 44, 45, 46, 47, 48),
        max_new_tokens: int = 128,
    ) -> None:
        super().__init__()
        self.spec = actor
        self.conditions = tuple(Condition(condition) for condition in conditions)
        self.sampling = Sampling(temperature, tuple(seeds), max_new_tokens)
        self.layers: tuple[int, ...] | None = tuple(layers) if layers is not None else None
        self.grammar, self.template = actor.load_grammar(), actor.load_template()
        self.start_hash: str | None = None
        self._actor: Actor | None = None

    @property
    def actor(self) -> Actor:
        """The loaded actor; it is loaded on first use."""
        if self._actor is None:
            self.configure_model()
        assert self._actor is not None
        return self._actor

    def usages(self) -> list[Any]:
        """What each endpoint behind it was asked in this process, `Usage`; none where all runs here."""
        usage = getattr(self.actor, "usage", None)
        return [] if usage is None else [usage]

    def configure_model(self) -> None:
        """Load the actor, and register its weights so that the Trainer moves them to its device."""
        if self._actor is None:
            self._actor = replace(self.spec, device=self._load_device()).load()
            if isinstance(self._actor, VLMActor):
                self.model = self._actor.model
            if self.layers is None:
                depth = self._actor.num_layers  # 0 behind an endpoint, which shows no states
                self.layers = probe_layers(depth) if depth else ()

    def _load_device(self) -> str:
        """The Trainer's device, lest every rank's weights pass through the first GPU; without a Trainer the spec's."""
        try:
            return str(self.trainer.strategy.root_device)
        except RuntimeError:
            return self.spec.device

    def on_predict_start(self) -> None:
        """Note the hash of the parameters."""
        self.start_hash = self.actor.parameters_hash()

    def on_predict_end(self) -> None:
        """Check that no parameter has changed.

        Raises:
            ActorError: if one has.
        """
        end_hash = self.actor.parameters_hash()
        if end_hash != self.start_hash:
            raise ActorError(
                f"The actor's parameters must not change, got hash {self.start_hash} at the start and {end_hash} at "
                "the end. Discard this run's records and look for a callback that writes into the model."
            )

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Steps stay on the CPU as they are: pictures are prepared there, and frozen records cannot be rebuilt."""
        return batch

    def predict_step(
        self, batch: list[StepWithMemory], batch_idx: int = 0, dataloader_idx: int = 0
    ) -> list[Observation]:
        """Observe a batch.

        Args:
            batch: steps with their memories. One without a memory is observed under ``NONE`` alone: its observation
                has no ``shifted`` states, and the caller counts it.
            batch_idx: not used; results depend on the steps alone.
            dataloader_idx: not used.

        Returns:
            One observation per step, in order.
        """
        actor = self.actor
        questions = [StepPrompts(item.step.step_id, self._prompts(item)) for item in batch]
        return actor.observe(questions, self.conditions, self.layers or (), self.sampling)

    def _prompts(self, item: StepWithMemory) -> dict[Condition, Prompt]:
        conditions = self.conditions if item.memory is not None else ()
        return self.spec.prompts(item.step, item.memory, conditions, self.actor)
