"""Answers of a chat endpoint: what they say, what they cost, and the folder that keeps them."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from switchmem.actors.api.endpoint import Endpoint

_log = logging.getLogger(__name__)


def check_completion(value: Any) -> dict[str, Any]:
    """A chat completion whose first choice has a message.

    Raises:
        ValueError: if it is something else; the message says what.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__} instead of an object")
    choices = value.get("choices")
    if not isinstance(choices, list):
        raise ValueError(f"no list of choices; {error_text(value)}")
    if not choices:
        raise ValueError("an empty list of choices")
    if not isinstance(choices[0], dict) or not isinstance(choices[0].get("message"), dict):
        raise ValueError("a choice without a message")
    return value


def error_text(value: Any) -> str:
    """What an error's body says, whichever of the common shapes it has."""
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(name):
            return error_text(value[name])
    return value if isinstance(value, str) else json.dumps(value)


def read_answer(completion: Mapping[str, Any]) -> tuple[str, str | None]:
    """The raw answer of a checked completion, and why it may be none.

    Returns:
        The text as it was given: the content, else the refusal, else "". Then "refusal", "content_filter", "length",
        "tool_calls" (a server that parsed the answer itself), "empty", or None for an ordinary answer. Nothing is
        put in the place of a missing answer: the grammar reads the text and counts it as unparsable.
    """
    choice = completion["choices"][0]
    message, finish = choice["message"], choice.get("finish_reason")
    text = _joined(message.get("content"))
    refusal = _joined(message.get("refusal"))
    if refusal:
        return text or refusal, "refusal"
    if finish in ("content_filter", "length"):
        return text, finish
    if not text.strip():
        return text, "tool_calls" if message.get("tool_calls") else "empty"
    return text, None


def _joined(content: Any) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def read_tokens(completion: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Tokens of (the prompt, the answer, the prompt's cached part); None where the server does not tell."""
    usage = completion.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), _count(cached)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


@dataclass
class Usage:
    """What was asked and what it cost. Safe to add to from several threads.

    Args:
        answers: that the endpoint gave.
        kept: answers that were read from the folder instead.
        requests: HTTP requests that were begun, retries among them.
        retries: requests beyond the first for the same answer.
        failures: answers that were given up.
        prompt_tokens, completion_tokens, cached_tokens: of `answers`, as the server counts them; `cached_tokens` are
            among `prompt_tokens`.
        untold: answers whose server did not tell its tokens.
        seconds: time of all requests together, waits for retries included; requests that ran side by side add up.
        cost: by the endpoint's prices; None where there are none.
        reasons: of `answers` and `kept`, how many were refused, cut or empty, by `read_answer`'s words.
        models: how many answers came from which model, as the server calls it.
    """

    answers: int = 0
    kept: int = 0
    requests: int = 0
    retries: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    untold: int = 0
    seconds: float = 0.0
    cost: float | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def request(self, retry: bool) -> None:
        """Count a request that is sent now."""
        with self._lock:
            self.requests += 1
            self.retries += retry

    def failure(self, seconds: float) -> None:
        """Count an answer that was given up after that time."""
        with self._lock:
            self.failures += 1
            self.seconds += seconds

    def answer(self, completion: Mapping[str, Any], seconds: float, endpoint: Endpoint) -> None:
        """Count an answer that was paid."""
        tokens = read_tokens(completion)
        with self._lock:
            self.answers += 1
            self.seconds += seconds
            self._look(completion)
            if tokens is None:
                self.untold += 1
                return
            self.prompt_tokens += tokens[0]
            self.completion_tokens += tokens[1]
            self.cached_tokens += tokens[2]
            price = endpoint.cost(*tokens)
            if price is not None:
                self.cost = (self.cost or 0.0) + price

    def keep(self, completion: Mapping[str, Any]) -> None:
        """Count an answer that was paid before."""
        with self._lock:
            self.kept += 1
            self._look(completion)

    def _look(self, completion: Mapping[str, Any]) -> None:
        reason = read_answer(completion)[1]
        if reason is not None:
            self.reasons[reason] += 1
        if isinstance(completion.get("model"), str):
            self.models[completion["model"]] += 1

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        with self._lock:
            values = {name: value for name, value in vars(self).items() if name != "_lock"}
            return {**values, "reasons": dict(self.reasons), "models": dict(self.models)}

    def __str__(self) -> str:
        values = self.to_dict()
        words = [
            f"{values['answers']} answers in {values['requests']} requests ({values['retries']} retries)",
            f"{values['kept']} kept from before",
            f"{values['failures']} failed",
            f"{values['prompt_tokens']} prompt tokens ({values['cached_tokens']} cached)",
            f"{values['completion_tokens']} answer tokens",
        ]
        words += [f"{values['untold']} without a count"] if values["untold"] else []
        words += [f"cost {values['cost']:.4f}"] if values["cost"] is not None else []
        words += [f"{count} {reason}" for reason, count in sorted(values["reasons"].items())]
        return ", ".join(words)


class AnswerCache:
    """A folder of answers by the hash of their question; several processes may share it.

    An answer is one small JSON file, written under a temporary name and renamed, so that a killed run leaves whole
    answers alone. Nothing of a prompt is in it but the hash.

    Args:
        folder: is created with the first answer; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def path(self, key: str) -> Path | None:
        """Where the answer of a key lies; in one of 256 folders, since a study has a hundred thousand of them."""
        return None if self.folder is None else self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """The completion, or None where there is none. A damaged file is told, and asked for again."""
        path = self.path(key)
        if path is None or not path.is_file():
            return None
        entry = _read(path)
        return entry["completion"] if entry is not None else None

    def put(self, key: str, question: str, completion: Mapping[str, Any], attempts: int, seconds: float) -> None:
        """Keep a completion.

        Args:
            key: hash of the question.
            question: for which step, condition and seed it was asked first, for the reader.
            completion: without any key.
            attempts: requests that it took.
            seconds: that it took.

        Raises:
            OSError: if it cannot be written.
        """
        path = self.path(key)
        if path is None:
            return
        entry = {
            "question": question,
            "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "attempts": attempts,
            "seconds": round(seconds, 3),
            "completion": completion,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        partial.write_text(json.dumps(entry), encoding="utf-8")
        partial.replace(path)

    def usage(self, endpoint: Endpoint) -> Usage:
        """Everything that was paid for the answers in the folder, over all runs and processes.

        Args:
            endpoint: its prices are taken.

        Returns:
            Requests that gave no answer in the end are not among it.
        """
        total = Usage()
        for entry in self._entries():
            for attempt in range(entry["attempts"]):
                total.request(retry=attempt > 0)
            total.answer(entry["completion"], entry["seconds"], endpoint)
        return total

    def _entries(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob("??/*.json")) if self.folder is not None else ():
            if not path.name.startswith("."):
                entry = _read(path)
                if entry is not None:
                    yield entry


def _read(path: Path) -> dict[str, Any] | None:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        check_completion(entry["completion"])
        entry["attempts"], entry["seconds"] = int(entry["attempts"]), float(entry["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        _log.warning("%s must be a kept answer, got %r. It is asked for again.", path, error)
        return None
    return dict(entry)
