"""What is kept of one step: states, embeddings, answers, actions, scores and context."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from switchmem.benchmarks.base import Benchmark
from switchmem.memory.bank import image_candidates, text_candidates
from switchmem.memory.embedder import Embedder
from switchmem.memory.retrieval import StepWithMemory
from switchmem.memory.views import Condition
from switchmem.steps import Action, Step

STATE = "state"
"""Name of the state prompt's hidden states in `Record.states`; the conditions' names are the other keys."""


class HarvestError(ValueError):
    """A harvest is inconsistent or damaged; the message names the folder, the rule and the way out."""


class Observed(Protocol):
    """What an actor returns for one step; `switchmem.actors.vlm.Observation` is one."""

    @property
    def step_id(self) -> str:
        """The step."""

    @property
    def state(self) -> Tensor:
        """``[L, D]``: final-token states of the prompt without memory."""

    @property
    def shifted(self) -> Mapping[Condition, Tensor]:
        """``[L, D]`` for each memory condition."""

    @property
    def answers(self) -> Mapping[Condition, Sequence[str]]:
        """``K`` raw answers for each condition."""

    @property
    def seconds(self) -> float:
        """Time spent on the step."""


class Reading(Protocol):
    """A parsed answer: an action, or the reason why there is none."""

    @property
    def action(self) -> Action | None:
        """The action."""

    @property
    def reason(self) -> str | None:
        """One word for what was wrong."""


class Reader(Protocol):
    """Reads answers; an actor's grammar is one."""

    def parse(self, text: str, size: tuple[int, int]) -> Reading:
        """Read an answer given to a screenshot of ``(width, height)`` pixels."""


@dataclass(frozen=True)
class Record:
    """One harvested step.

    Args:
        step_id, trajectory: of the step.
        memory_id: step id of the retrieved demonstration.
        cosine: of step and demonstration in [-1, 1].
        states: ``[L, D]`` float32 by name: "state" and each memory condition.
        embeddings: ``[E]`` float32 by name: "text" and "image" (the memory in either form), "instruction" and
            "screenshot".
        answers: ``K`` raw answers by condition.
        actions: ``K`` actions as plain JSON by condition; None where the answer could not be parsed.
        reasons: ``K`` parse reasons by condition; None where it could.
        scores: ``K`` official scores in [0, 1] by condition; 0.0 where it could not.
        context: "index", "action_type", "is_spatial", "density" (elements per screen area, None if undefined) and
            "category"; what else the actor tells of the step, `Observed` with "facts", such as costs.
        seconds: time the actor took.
        new_tokens: tokens of the ``K`` answers by condition; empty where the actor does not tell.
        prompt_tokens: tokens of each prompt by condition, "none" for the state prompt; empty likewise.
    """

    step_id: str
    trajectory: str
    memory_id: str
    cosine: float
    states: dict[str, Tensor]
    embeddings: dict[str, Tensor]
    answers: dict[str, list[str]]
    actions: dict[str, list[dict[str, Any] | None]]
    reasons: dict[str, list[str | None]]
    scores: dict[str, list[float]]
    context: dict[str, Any]
    seconds: float
    new_tokens: dict[str, list[int]] = field(default_factory=dict)
    prompt_tokens: dict[str, int] = field(default_factory=dict)

    def tensors(self) -> dict[str, Tensor]:
        """Everything numeric under flat names: ``states.*``, ``embeddings.*``, ``scores.*`` (float64 ``[K]``)."""
        return {
            **{f"states.{name}": value for name, value in self.states.items()},
            **{f"embeddings.{name}": value for name, value in self.embeddings.items()},
            **{f"scores.{name}": torch.tensor(value, dtype=torch.float64) for name, value in self.scores.items()},
        }

    def row(self) -> dict[str, Any]:
        """Everything else as plain JSON values."""
        return {
            "step_id": self.step_id,
            "trajectory": self.trajectory,
            "memory_id": self.memory_id,
            "cosine": self.cosine,
            "answers": self.answers,
            "actions": self.actions,
            "reasons": self.reasons,
            "context": self.context,
            "seconds": self.seconds,
            "new_tokens": self.new_tokens,
            "prompt_tokens": self.prompt_tokens,
        }


class Vectors:
    """The router's embeddings of steps with their memories.

    One demonstration serves many steps, so the embeddings of the last `keep` demonstrations are remembered.

    Args:
        embedder: the embedder of retrieval.
        keep: demonstrations remembered, at least 1.
    """

    def __init__(self, embedder: Embedder, keep: int = 2048) -> None:
        self._embedder, self._keep = embedder, keep
        self._memories: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(self, batch: Sequence[StepWithMemory]) -> list[dict[str, Tensor]]:
        """``[E]`` under "text", "image", "instruction" and "screenshot" for each of ``B`` steps."""
        memories = self._embed([item.memory for item in batch if item.memory is not None])
        instructions = self._embedder.texts([item.step.instruction for item in batch])
        screenshots = self._embedder.multimodal([("", item.step.screenshot.image()) for item in batch])
        rows = []
        for item, instruction, screenshot in zip(batch, instructions, screenshots, strict=True):
            row = {"instruction": instruction, "screenshot": screenshot}
            if item.memory is not None:
                row["text"], row["image"] = memories[item.memory.step_id]
            rows.append(row)
        return rows

    def _embed(self, demos: Sequence[Step]) -> dict[str, tuple[Tensor, Tensor]]:
        wanted = {demo.step_id: demo for demo in demos}
        new = [demo for step_id, demo in wanted.items() if step_id not in self._memories]
        if new:
            vectors = zip(text_candidates(new, self._embedder), image_candidates(new, self._embedder), strict=True)
            self._memories.update({demo.step_id: pair for demo, pair in zip(new, vectors, strict=True)})
        found = {step_id: self._memories[step_id] for step_id in wanted}
        while len(self._memories) > self._keep:
            del self._memories[next(iter(self._memories))]
        return found


def make_record(
    item: StepWithMemory, observed: Observed, reader: Reader, benchmark: Benchmark, embeddings: Mapping[str, Tensor]
) -> Record:
    """Parse and score an observation, and put everything that is kept together.

    Args:
        item: the step and its demonstration.
        observed: what the actor gave for it.
        reader: the actor's grammar.
        benchmark: gives the official score.
        embeddings: of this step, from `Vectors`.

    Raises:
        HarvestError: if the observation is of another step, or the step has no demonstration.
    """
    step = item.step
    if observed.step_id != step.step_id or item.memory is None:
        raise HarvestError(
            f"an observation must belong to its step and the step must have a memory, got an observation of "
            f"{observed.step_id!r} for {step.step_id!r} with memory {item.memory and item.memory.step_id!r}. "
            "`predict_step` must return one observation per step, in order; steps without a memory are skipped before."
        )
    size = (step.screenshot.width, step.screenshot.height)
    read = {c.value: [reader.parse(text, size) for text in texts] for c, texts in observed.answers.items()}
    shifted = {c.value: _kept(value) for c, value in observed.shifted.items() if c is not Condition.NONE}
    return Record(
        step_id=step.step_id,
        trajectory=step.trajectory,
        memory_id=item.memory.step_id,
        cosine=item.cosine,
        states={STATE: _kept(observed.state), **shifted},
        embeddings={name: _kept(value) for name, value in embeddings.items()},
        answers={c.value: list(texts) for c, texts in observed.answers.items()},
        actions={c: [r.action.to_dict() if r.action else None for r in readings] for c, readings in read.items()},
        reasons={c: [_word(r.reason) for r in readings] for c, readings in read.items()},
        scores={c: [float(benchmark.score(r.action, step)) for r in readings] for c, readings in read.items()},
        context={**context(step), **getattr(observed, "facts", {})},
        seconds=float(observed.seconds),
        new_tokens={c.value: list(counts) for c, counts in getattr(observed, "new_tokens", {}).items()},
        prompt_tokens={c.value: count for c, count in getattr(observed, "prompt_tokens", {}).items()},
    )


def context(step: Step) -> dict[str, Any]:
    """What the analyses group steps by."""
    density = step.density
    return {
        "index": step.index,
        "action_type": step.action.type.value,
        "is_spatial": step.action.type.is_spatial,
        "density": density if math.isfinite(density) else None,
        "category": step.category,
    }


def _kept(value: Tensor) -> Tensor:
    # A copy of its own: a view would keep the batch alive, and inference tensors cannot be stacked in place later.
    return value.detach().to("cpu", torch.float32, copy=True).contiguous()


def _word(reason: Any) -> str | None:
    return None if reason is None else str(getattr(reason, "value", reason))
