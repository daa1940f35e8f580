"""An actor behind a chat endpoint: it answers like any other, and shows no hidden states."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from switchmem.actors.api.answers import AnswerCache, Usage, read_answer, read_tokens
from switchmem.actors.api.client import ChatClient, Job, Reply
from switchmem.actors.api.endpoint import Endpoint
from switchmem.actors.api.messages import Pictures, messages
from switchmem.actors.api.outcomes import STOPPING, Failure, FailureKind
from switchmem.actors.protocol import ActorError, Observation, StepPrompts
from switchmem.actors.sampling import Sampling
from switchmem.memory.views import Condition
from switchmem.prompts import escape_template_tokens

CHAT_SPECIALS = (
    "<|", "|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<bos>", "<eos>", "<s>", "</s>",
    "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<image>", "<unk>", "<pad>",
)  # fmt: skip
"""What chat templates of common models are made of. Which of them the server's tokenizer takes for its own cannot be
seen from here, so all are broken in the text of a prompt; "<|" breaks every token of Qwen's and Llama's kind."""
_FORMAT = 1
_TOLD = 3
_log = logging.getLogger(__name__)


class RequestsFailedError(ActorError):
    """Some answers of a batch could not be had; those that were had are kept.

    Attributes:
        failures: by question, with kind, message and attempts.
    """

    def __init__(self, message: str, failures: dict[str, Failure]) -> None:
        super().__init__(message)
        self.failures = failures

    @property
    def hopeless(self) -> bool:
        """Whether no other request would fare better: nobody answers there, or the key is refused."""
        return any(failure.kind in STOPPING for failure in self.failures.values())


class ContextLengthError(RequestsFailedError):
    """All that failed were prompts longer than the model can read."""


_WAY_OUT = {
    FailureKind.CONTEXT_LENGTH: "Give the server a longer context, or lower `max_pixels` or the budget of the memory's "
    "text.",
    FailureKind.ACCESS: "Check the key in the variable that `api_key_env` names, the account, `base_url` and `model`.",
    FailureKind.REQUEST: "Change what the server names; fields of the request are set or left out by `extra_body` and "
    "`max_tokens_field`.",
    FailureKind.UNREACHABLE: "Start the server, or correct `base_url`.",
    FailureKind.EXHAUSTED: "Run again later; lower `concurrency`, or raise `attempts`, `timeout` or `total_seconds`.",
    FailureKind.RESPONSE: "Look whether an OpenAI-compatible chat endpoint stands at `base_url`.",
    FailureKind.NOT_SENT: "",
}


class ChatActor:
    """Answers of a model behind an OpenAI-compatible chat endpoint.

    Each sample is a request of its own with its seed; whether the server honours it is the server's affair. Kept
    answers make a rerun exact and free, whatever the server does.

    Args:
        model: its name at the endpoint.
        endpoint: where it is, and how it is asked.
        max_pixels: the most pixels of a picture; larger ones are scaled down. None sends them as they are.
        specials: what `build_prompt` has to escape.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        max_pixels: int | None = None,
        specials: Sequence[str] = CHAT_SPECIALS,
    ) -> None:
        if not model.strip():
            raise ActorError(f"`model` must be the model's name at the endpoint, got {model!r}.")
        if max_pixels is not None and max_pixels < 1:
            raise ActorError(f"`max_pixels` must be at least 1 or None, got {max_pixels}.")
        self.model_name, self.endpoint, self.max_pixels = model, endpoint, max_pixels
        self.specials = tuple(specials)
        self.usage = Usage()
        self.cache = AnswerCache(Path(endpoint.cache).expanduser() if endpoint.cache is not None else None)
        self._client = ChatClient(endpoint, self.usage)

    num_layers = 0
    """An endpoint shows no blocks."""
    hidden_size = 0
    """Nor their width."""

    def count(self, text: str) -> int:
        """About as many tokens as a text has, for a budget of the memory's text.

        The server's tokenizer cannot be asked. A token of what screens say is mostly three to four bytes, so three
        to a token are rather too many tokens than too few.
        """
        return math.ceil(len(escape_template_tokens(text, self.specials).encode("utf-8", "replace")) / 3)

    def facts(self) -> dict[str, Any]:
        """What is asked, as plain JSON values; nothing is known of the weights behind it."""
        return {"class": type(self).__name__, "model": self.model_name, **self.endpoint.identity}

    def parameters_hash(self) -> str:
        """Of what is known of the model, its name and the endpoint: weights cannot be seen from here.

        The names that the server itself gives are counted in `usage.models`.
        """
        return _digest({"model": self.model_name, **self.endpoint.identity})

    def observe(
        self, batch: Sequence[StepPrompts], conditions: Sequence[Condition], layers: Sequence[int], sampling: Sampling
    ) -> list[Observation]:
        """Sample answers.

        Args:
            batch: steps with their prompts; a step may lack some conditions.
            conditions: for which answers are sampled.
            layers: must be empty.
            sampling: temperature, seeds and length of the answers.

        Returns:
            One observation per step, in order, with states of shape ``[0, 0]``. The numbers of tokens are the server's;
            where it does not tell, those of answers are 0 and those of prompts are left out.

        Raises:
            ActorError: if layers are asked for.
            RequestsFailedError: if an answer could not be had. Answers that were had are kept in the folder `cache`.
            ContextLengthError: if it was for the length of prompts alone.
            EndpointError: if the environment holds no key.
        """
        if layers:
            raise ActorError(
                f"`layers` must be empty for an actor behind an endpoint, got {tuple(layers)}: it shows no hidden "
                "states. Score its conditions without a router, or load the weights as a local actor."
            )
        if not batch:
            return []
        started = time.perf_counter()
        asked = list(self._questions(batch, conditions, sampling))
        completions = self._answer(asked)
        told = [(read_answer(c)[0], read_tokens(c) or (0, 0, 0)) for c in (completions[q.key] for q in asked)]
        answers: list[dict[Condition, list[str]]] = [{} for _ in batch]
        tokens: list[dict[Condition, list[int]]] = [{} for _ in batch]
        prompts: list[dict[Condition, int]] = [{} for _ in batch]
        for question, (text, (prompt, drawn, _)) in zip(asked, told, strict=True):
            answers[question.row].setdefault(question.condition, []).append(text)
            tokens[question.row].setdefault(question.condition, []).append(drawn)
            if prompt:
                prompts[question.row][question.condition] = prompt
        seconds = (time.perf_counter() - started) / len(batch)
        return [_observation(step, answers[b], tokens[b], prompts[b], seconds) for b, step in enumerate(batch)]

    def _questions(
        self, batch: Sequence[StepPrompts], conditions: Sequence[Condition], sampling: Sampling
    ) -> Iterator[_Question]:
        """One per step, condition and seed, in that order; only hashes of pictures are in them."""
        pictures = Pictures(self.max_pixels)
        for row, step in enumerate(batch):
            for condition in (c for c in conditions if c in step.prompts):
                for seed in sampling.seeds:
                    yield _Question(self, row, step, condition, seed, sampling, pictures)

    def _answer(self, asked: Sequence[_Question]) -> dict[str, dict[str, Any]]:
        """Completions by key: kept ones from the folder, the others from the endpoint, equal questions once."""
        unique = {question.key: question for question in asked}
        found: dict[str, dict[str, Any]] = {}
        for key in unique:
            completion = self.cache.get(key)
            if completion is not None:
                self.usage.keep(completion)
                found[key] = completion
        missing = [question for key, question in unique.items() if key not in found]
        if not missing:
            return found

        def done(job: Job, reply: Reply) -> None:
            found[job.key] = reply.completion
            self.cache.put(job.key, job.question, reply.completion, reply.attempts, reply.seconds)

        # Pictures are encoded here and not between the requests, where a second of work would look like a slow server.
        jobs = [question.job() for question in missing]
        failures = _outside_loop(lambda: self._client.send(jobs, done))
        self._look_at_models()
        if failures:
            self._fail({unique[key].words: failure for key, failure in failures.items()}, len(jobs))
        return found

    def _fail(self, failures: dict[str, Failure], sent: int) -> None:
        kinds = Counter(failure.kind for failure in failures.values())
        real = {words: failure for words, failure in failures.items() if failure.kind is not FailureKind.NOT_SENT}
        told = "; ".join(f"{words}: {failure.message}" for words, failure in list(real.items())[:_TOLD])
        ways = " ".join(dict.fromkeys(_WAY_OUT[failure.kind] for failure in real.values()))
        kept = sent - len(failures)
        where = f"kept in {self.cache.folder}" if self.cache.folder is not None else "lost, as there is no `cache`"
        message = (
            f"{self.model_name} at {self.endpoint.base_url} must answer every request, got no answer to "
            f"{len(failures)} of {sent} ({', '.join(f'{n} {kind.value}' for kind, n in kinds.items())}): {told}. "
            f"The other {kept} are {where}. {ways}"
        )
        too_long = set(kinds) == {FailureKind.CONTEXT_LENGTH}
        raise (ContextLengthError if too_long else RequestsFailedError)(message.strip(), failures)

    def _look_at_models(self) -> None:
        models = self.usage.to_dict()["models"]
        if len(models) > 1:
            _log.warning(
                "%s gave answers of several models for %r: %s. Fix a version in `model`, or the results mix them.",
                self.endpoint.base_url,
                self.model_name,
                ", ".join(f"{count} of {name}" for name, count in models.items()),
            )


class _Question:
    """One answer that is wanted: where it goes, and the request that gets it."""

    def __init__(
        self,
        actor: ChatActor,
        row: int,
        step: StepPrompts,
        condition: Condition,
        seed: int,
        sampling: Sampling,
        pictures: Pictures,
    ) -> None:
        self.row, self.condition = row, condition
        self.words = f"step {step.step_id!r} (condition {condition.value}, seed {seed})"
        self._actor, self._prompt, self._pictures = actor, step.prompts[condition], pictures
        self._fields = {
            "model": actor.model_name,
            "temperature": sampling.temperature,
            actor.endpoint.max_tokens_field: sampling.max_new_tokens,
            "seed": seed,
            **actor.endpoint.extra_body,
        }
        # The seed counts even where `extra_body` leaves it out: the K samples are K requests.
        asked = {"format": _FORMAT, "seed": seed, "body": self._body(pictures.digest), **actor.endpoint.identity}
        self.key = _digest(asked)

    def job(self) -> Job:
        """The request, pictures and all."""
        return Job(self.key, self.words, self._body(self._pictures.url))

    def _body(self, show: Callable[[Image.Image], str]) -> dict[str, Any]:
        """The request's JSON. No `n`: one is its default, and some servers refuse the field."""
        fields = {name: value for name, value in self._fields.items() if value is not None}
        return {**fields, "messages": messages(self._prompt, show)}


def _observation(
    step: StepPrompts,
    answers: dict[Condition, list[str]],
    tokens: dict[Condition, list[int]],
    prompts: dict[Condition, int],
    seconds: float,
) -> Observation:
    # L = 0 blocks of width D = 0: a reader that wants states fails on the shape instead of computing with zeros
    shifted: dict[Condition, torch.Tensor] = {c: torch.zeros(0, 0) for c in step.prompts if c is not Condition.NONE}
    return Observation(step.step_id, torch.zeros(0, 0), shifted, answers, tokens, seconds, prompts)


def _digest(values: Any) -> str:
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _outside_loop(work: Callable[[], dict[str, Failure]]) -> dict[str, Failure]:
    """Run it here, or in a thread where an event loop already runs here, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
