"""What every actor offers, and what it is asked and shows. Light to import: no model code is behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from switchmem.actors.sampling import Sampling
from switchmem.memory.views import Condition
from switchmem.prompts import Prompt


class ActorError(RuntimeError):
    """An actor cannot do what is asked; the message says what was found and the way out."""


@dataclass(frozen=True)
class StepPrompts:
    """The prompts of one step.

    Args:
        step_id: keys the noise of its samples.
        prompts: by condition; ``NONE``, the state prompt, is always there.
    """

    step_id: str
    prompts: Mapping[Condition, Prompt]


@dataclass  # not frozen: Lightning rebuilds predictions field by field when it moves them to the CPU
class Observation:
    """What an actor showed at one step.

    Args:
        step_id: of the step.
        state: ``[L, D]`` float32, s_i: states of the probed blocks at the last token of the state prompt.
        shifted: by memory condition the same for that prompt, h_i^z, ``[L, D]``.
        answers: by sampled condition K raw texts, in the order of the seeds.
        new_tokens: by sampled condition the K numbers of tokens that were drawn, end tokens included.
        seconds: wall time per step of the batch in which the step was observed.
        prompt_tokens: by condition the tokens of its prompt, visual ones included; empty where they are not known.
        facts: what else is told of the step, as plain JSON values: "spent", its part of the batch's time, where that
            was measured; see `switchmem.actors.spending.Spent`.
    """

    step_id: str
    state: Tensor
    shifted: dict[Condition, Tensor]
    answers: dict[Condition, list[str]]
    new_tokens: dict[Condition, list[int]]
    seconds: float
    prompt_tokens: dict[Condition, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Actor(Protocol):
    """A frozen actor: `VLMActor` in this process, `ChatActor` behind a chat endpoint."""

    @property
    def specials(self) -> tuple[str, ...]:
        """The words that are escaped in every text of the outside world."""

    @property
    def num_layers(self) -> int:
        """Number of decoder blocks; 0 where no states are shown."""

    def count(self, text: str) -> int:
        """Tokens of a text, for `ActorSpec.state_tokens`."""

    def facts(self) -> dict[str, Any]:
        """What was really loaded, or is asked, as plain JSON values; kept with a harvest."""

    def parameters_hash(self) -> str:
        """Changes with any parameter; compared before and after a run."""

    def observe(
        self, batch: Sequence[StepPrompts], conditions: Sequence[Condition], layers: Sequence[int], sampling: Sampling
    ) -> list[Observation]:
        """Read the states of every prompt at the given blocks, and sample answers under the given conditions."""
