"""A model that writes for the memory baselines: the actor itself, or another one that a configuration names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from switchmem.actors.protocol import Actor, Observation, StepPrompts
from switchmem.actors.sampling import Sampling
from switchmem.memory.baseline import WriterCall, Written
from switchmem.memory.views import Condition
from switchmem.prompts import Prompt, writer_prompt


@dataclass(frozen=True)
class Answer:
    """One greedy answer.

    Args:
        text: as it was given.
        tokens_in: of the prompt, visual ones included; None where they are not told.
        tokens_out: that were drawn, the end token included; None likewise.
        seconds: wall time of the batch, divided by its size.
    """

    text: str
    tokens_in: int | None
    tokens_out: int | None
    seconds: float


def answer_greedily(actor: Actor, prompts: Iterable[tuple[str, Prompt]], max_new_tokens: int) -> list[Answer]:
    """The most likely answer to each prompt; they run together.

    Args:
        actor: the loaded actor.
        prompts: each with a name for error messages.
        max_new_tokens: the most tokens of one answer.
    """
    # an actor asks for the state prompt, and has no other name for a prompt that stands alone
    batch = [StepPrompts(name, {Condition.NONE: prompt}) for name, prompt in prompts]
    layers = (actor.num_layers - 1,) if actor.num_layers else ()
    observed = actor.observe(batch, (Condition.NONE,), layers, Sampling(0.0, (0,), max_new_tokens))
    return [_answer(seen) for seen in observed]


def _answer(seen: Observation) -> Answer:
    tokens_in = seen.prompt_tokens.get(Condition.NONE)
    # a server that does not count is told by the prompt's tokens alone: an answer may have none
    tokens_out = None if tokens_in is None else next(iter(seen.new_tokens.get(Condition.NONE, ())), None)
    return Answer(seen.answers[Condition.NONE][0], tokens_in, tokens_out, seen.seconds)


class ModelWriter:
    """Lets a model write, greedily.

    Args:
        actor: the loaded model.
        fingerprint: of it, `ActorSpec.fingerprint`.
        batch_size: calls that run together, at least 1.
    """

    def __init__(self, actor: Actor, fingerprint: str, batch_size: int = 8) -> None:
        self.actor, self._fingerprint, self.batch_size = actor, fingerprint, max(1, batch_size)

    @property
    def fingerprint(self) -> str:
        """Changes with everything that can change an answer."""
        return self._fingerprint

    @property
    def usage(self) -> Any:
        """What the model's endpoint was asked in this process, `Usage`; None where it runs here."""
        return getattr(self.actor, "usage", None)

    def write(self, calls: Sequence[WriterCall]) -> list[Written]:
        """One answer per call, in order; calls with the same cap of tokens run together.

        Raises:
            PromptError: if a question is too long for the model.
            RequestsFailedError: if the model's endpoint gave no answer.
        """
        written: dict[int, Written] = {}
        for cap in sorted({call.max_tokens for call in calls}):
            places = [n for n, call in enumerate(calls) if call.max_tokens == cap]
            for start in range(0, len(places), self.batch_size):
                some = places[start : start + self.batch_size]
                prompts = [(f"question {n}", writer_prompt(calls[n], self.actor.specials)) for n in some]
                for n, answer in zip(some, answer_greedily(self.actor, prompts, cap), strict=True):
                    written[n] = Written(answer.text, 1, answer.tokens_in, answer.tokens_out, answer.seconds)
        return [written[n] for n in range(len(calls))]
