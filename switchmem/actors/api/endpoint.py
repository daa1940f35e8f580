"""Which chat endpoint answers, and how it is asked: plain configuration, and the key that is never part of it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlsplit

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_OWN_FIELDS = frozenset({"model", "messages", "stream", "n"})
_PLACEHOLDER = 8
"""Keys shorter than this are placeholders ("EMPTY") that local servers want to see, not secrets."""


class EndpointError(ValueError):
    """An endpoint's configuration breaks a rule; the message names the way out, and never shows a key."""


class Secret:
    """A key that shows itself to nobody who does not ask for it by name.

    Args:
        value: the key; "" for none.
    """

    __slots__ = ("_forms", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._forms = tuple(dict.fromkeys((value, quote(value, safe="")))) if len(value) >= _PLACEHOLDER else ()

    def __repr__(self) -> str:
        return "Secret(***)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A `Secret` must not be pickled: it would be written down. Read it again where it is needed.")

    def reveal(self) -> str:
        """The key itself, for the header of a request."""
        return self._value

    def hide(self, value: Any) -> Any:
        """Plain JSON values without the key: wherever it stands in a text, ``***`` stands now.

        >>> Secret("sk-0123456789").hide({"error": ["key sk-0123456789 is wrong"]})
        {'error': ['key *** is wrong']}
        """
        if isinstance(value, str):
            for form in self._forms:
                value = value.replace(form, "***")
            return value
        if isinstance(value, Mapping):
            return {self.hide(name): self.hide(item) for name, item in value.items()}
        return [self.hide(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible chat endpoint: OpenAI and its like, vLLM, SGLang, ``transformers serve``.

    Args:
        base_url: in front of ``/chat/completions``; without user, password and query.
        api_key_env: the NAME of the environment variable that holds the key; None where the server wants none.
        name: what stands behind the URL ("vllm-0.11 bf16"). Where set, it counts in fingerprints and kept answers
            instead of the URL, so that a server may move.
        concurrency: the most requests on their way at once, at least 1.
        timeout: seconds for one attempt, > 0.
        total_seconds: seconds for one request with all its attempts and waits, > 0.
        attempts: the most attempts of one request, at least 1.
        backoff: seconds before the first retry, >= 0; each later wait is twice as long, up to a minute, and shortened
            by chance to no less than half. A longer wait that the server asks for (``Retry-After``) is kept.
        max_tokens_field: how the server calls the most tokens of an answer; newer OpenAI models want
            ``max_completion_tokens``.
        extra_body: further fields of each request, as ``chat_template_kwargs: {enable_thinking: false}``, which turns
            thinking off in vLLM, SGLang and ``transformers serve``. A null leaves a field out, as ``seed: null`` for
            servers that refuse it.
        cache: folder of the answers; they are read from it instead of being paid twice. None keeps none.
        prompt_price, completion_price, cached_price: per million tokens, in any currency; None for no cost. Cached
            prompt tokens cost as other prompt tokens where theirs is None.

    Raises:
        EndpointError: if a rule above is broken.
    """

    base_url: str = "https://api.openai.com/v1"
    api_key_env: str | None = "OPENAI_API_KEY"
    name: str = ""
    concurrency: int = 8
    timeout: float = 120.0
    total_seconds: float = 900.0
    attempts: int = 6
    backoff: float = 1.0
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    extra_body: dict[str, Any] = field(default_factory=dict)
    cache: str | None = "runs/answers"
    prompt_price: float | None = None
    completion_price: float | None = None
    cached_price: float | None = None

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        if self.api_key_env is not None and not _VARIABLE.match(self.api_key_env):
            # the value is not shown: it is most likely the key itself
            raise EndpointError(
                "`api_key_env` must be the NAME of an environment variable in capitals, as OPENAI_API_KEY, got "
                f"{len(self.api_key_env)} characters that are none. Never write a key into a config: export it, and "
                "give the variable's name."
            )
        for name in ("concurrency", "attempts"):
            if getattr(self, name) < 1:
                raise EndpointError(f"`{name}` must be at least 1, got {getattr(self, name)!r}.")
        for name in ("timeout", "total_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise EndpointError(f"`{name}` must be a number of seconds > 0, got {getattr(self, name)!r}.")
        for name in ("backoff", "prompt_price", "completion_price", "cached_price"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise EndpointError(f"`{name}` must be a number >= 0, got {value!r}.")
        if (self.prompt_price is None) != (self.completion_price is None):
            raise EndpointError(
                "`prompt_price` and `completion_price` must be given together, got "
                f"{self.prompt_price!r} and {self.completion_price!r}. Use 0 for what costs nothing."
            )
        self._check_extra()

    def _check_extra(self) -> None:
        own = sorted({*self.extra_body} & _OWN_FIELDS)
        if own:
            raise EndpointError(
                f"`extra_body` must leave {', '.join(sorted(_OWN_FIELDS))} alone, got {', '.join(own)}. "
                "One answer is asked for per seed; the model's name is the actor's `model`."
            )
        try:
            json.dumps(self.extra_body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise EndpointError(f"`extra_body` must hold plain JSON values, got {error}.") from error

    @property
    def url(self) -> str:
        """Where requests go."""
        return self.base_url.rstrip("/") + "/chat/completions"

    @property
    def identity(self) -> dict[str, Any]:
        """Everything here that can change an answer, as plain JSON values; no key, and nothing about how to wait."""
        return {
            "kind": "chat",
            "endpoint": self.name or self.base_url.rstrip("/"),
            "max_tokens_field": self.max_tokens_field,
            "extra_body": self.extra_body,
        }

    def key(self) -> Secret:
        """The key, read from the environment now.

        Raises:
            EndpointError: if the variable is not set, or holds what no header can carry.
        """
        if self.api_key_env is None:
            return Secret("")
        value = os.environ.get(self.api_key_env, "").strip()
        if not value:
            raise EndpointError(
                f"`api_key_env` must name an environment variable that holds a key, got {self.api_key_env}, which is "
                "empty or not set. Export it, or set `api_key_env: null` for a server that wants none."
            )
        if not all("!" <= character <= "~" for character in value):
            raise EndpointError(
                f"The key in {self.api_key_env} must be printable ASCII without blanks, got other characters among "
                f"its {len(value)}. Export it again, without quotes and line breaks."
            )
        return Secret(value)

    def cost(self, prompt: int, completion: int, cached: int) -> float | None:
        """Price of an answer, or None where no prices are given.

        Args:
            prompt: tokens of the prompt, the cached ones among them.
            completion: tokens of the answer.
            cached: tokens of the prompt that the server had already.

        >>> Endpoint(prompt_price=2.0, completion_price=10.0, cached_price=0.5).cost(1_000_000, 100_000, 400_000)
        2.4
        """
        if self.prompt_price is None or self.completion_price is None:
            return None
        cached_price = self.prompt_price if self.cached_price is None else self.cached_price
        cached = min(cached, prompt)
        total = (prompt - cached) * self.prompt_price + cached * cached_price + completion * self.completion_price
        return total / 1e6


def _check_url(url: str) -> None:
    if any(mark in url for mark in "@?#"):
        # not shown: a key in a URL ends up in every log
        raise EndpointError(
            "`base_url` must have no user, password, query or fragment, got one with. "
            "Keys come from the environment alone: see `api_key_env`."
        )
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        raise EndpointError("`base_url` must be a URL, got something that cannot be read as one.") from None
    if not good:
        raise EndpointError(f"`base_url` must be http(s)://HOST[:PORT][/PATH], got {url!r}.")
