"""What came back from a chat endpoint: an answer, trouble that may pass, or a failure; never with the key in it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any

import httpx2

from switchmem.actors.api.answers import check_completion, error_text
from switchmem.actors.api.endpoint import Secret

_MESSAGE = 500
_TRANSIENT = frozenset({408, 409, 425, 429})
_FILTERED = frozenset({"content_filter", "content_policy_violation"})
_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|maximum model length|max_model_len|max(?:imum)? sequence length"
    r"|(?:prompt|input|inputs)\b.{0,80}\b(?:too long|too many tokens|longer than|exceeds?)|too many (?:input )?tokens"
    r"|tokens\b.{0,40}must be <=",
    re.IGNORECASE | re.DOTALL,
)


class FailureKind(str, Enum):
    """Why there is no answer."""

    CONTEXT_LENGTH = "context_length"
    """The prompt is longer than the model can read."""
    ACCESS = "access"
    """The key, the account or the address is wrong: no other request would fare better."""
    REQUEST = "request"
    """The server refuses this request."""
    UNREACHABLE = "unreachable"
    """Nobody answers at that address."""
    EXHAUSTED = "exhausted"
    """Errors that pass, timeouts or broken connections, until attempts or time ran out."""
    RESPONSE = "response"
    """What came back is no chat completion."""
    NOT_SENT = "not_sent"
    """Another request had shown that none would succeed."""


STOPPING = frozenset({FailureKind.ACCESS, FailureKind.UNREACHABLE})
"""After such a failure no further request of the batch is sent."""


@dataclass(frozen=True)
class Failure:
    """A request without an answer.

    Args:
        kind: why.
        message: what the server or the connection said, without the key.
        attempts: requests that were sent.
    """

    kind: FailureKind
    message: str
    attempts: int = 0


@dataclass(frozen=True)
class Trouble:
    """One attempt that gave no answer; `wait` is what the server asks for, in seconds."""

    kind: FailureKind
    message: str
    again: bool = False
    wait: float = 0.0


def said_by(error: Exception, secret: Secret) -> str:
    """What an exception says, without the key."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _cut(text, secret)


def _cut(text: str, secret: Secret) -> str:
    """A message without the key, on one line and of bounded length; the key goes first, lest half of it stay."""
    line = " ".join(secret.hide(text).split())
    return line if len(line) <= _MESSAGE else f"{line[:_MESSAGE]}..."


def read_completion(data: bytes, secret: Secret) -> dict[str, Any] | Trouble:
    """The body of a 2xx answer, without the key."""
    try:
        return check_completion(secret.hide(json.loads(data)))
    except (ValueError, RecursionError) as error:
        # A broken body mostly comes from a broken connection or a server that is going down.
        what = f"no JSON ({len(data)} bytes)" if isinstance(error, json.JSONDecodeError) else str(error)
        return Trouble(FailureKind.RESPONSE, _cut(f"the body is no chat completion: {what}", secret), again=True)


def read_refusal(response: httpx2.Response, data: bytes, secret: Secret) -> dict[str, Any] | Trouble:
    """What an answer other than 2xx means.

    Returns:
        The trouble; or, where the provider's filter has refused the prompt for what is in it, a completion without
        content, since that is the provider's answer to this step and stays so.
    """
    status = response.status_code
    if 300 <= status < 400:
        where = response.headers.get("Location", "")
        return Trouble(FailureKind.ACCESS, _cut(f"HTTP {status}: redirected to {where!r}, set `base_url`", secret))
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    said, code = error_text(value) if value else "", _code(value)
    message = _cut(f"HTTP {status}: {said or response.reason_phrase or 'no message'}", secret)
    if status == 400 and code in _FILTERED:
        return {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}], "error": message}
    if code == "insufficient_quota":  # sent as 429, but no waiting helps
        return Trouble(FailureKind.ACCESS, message)
    if status in _TRANSIENT or status >= 500:
        return Trouble(FailureKind.EXHAUSTED, message, again=True, wait=_asked_wait(response))
    if status in (401, 402, 403, 404):
        return Trouble(FailureKind.ACCESS, message)
    too_long = status in (400, 413, 422) and (code == "context_length_exceeded" or bool(_TOO_LONG.search(said)))
    return Trouble(FailureKind.CONTEXT_LENGTH if too_long else FailureKind.REQUEST, message)


def _code(value: Any) -> str:
    """The machine-readable word of an error, as OpenAI gives it."""
    error = value.get("error") if isinstance(value, dict) else None
    return str(error.get("code") or error.get("type") or "") if isinstance(error, dict) else ""


def _asked_wait(response: httpx2.Response) -> float:
    """Seconds that the server asks to wait; 0 where it does not, or not readably."""
    try:
        if "retry-after-ms" in response.headers:
            return _seconds(float(response.headers["retry-after-ms"]) / 1000)
        value = response.headers.get("Retry-After", "0")
        if re.fullmatch(r"\s*[\d.]+\s*", value):
            return _seconds(float(value))
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return 0.0
    date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return _seconds((date - datetime.now(UTC)).total_seconds())


def _seconds(value: float) -> float:
    return value if 0.0 < value < math.inf else 0.0


def given_up(trouble: Trouble, attempts: int, seconds: float) -> Failure:
    """The last trouble as a failure."""
    message = trouble.message
    if trouble.again:
        message += f"; given up after {attempts} attempts in {seconds:.1f} s"
        if trouble.wait:
            message += f", the server asks to wait another {trouble.wait:.0f} s"
    return Failure(trouble.kind, message, attempts)
