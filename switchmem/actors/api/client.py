"""Requests to one chat endpoint: so many at once, again where it may help, never for ever.

`httpx2` is what `huggingface_hub` itself stands on, so it is no new package. One POST is all that is needed; a client
library would hide how often it tried, would read a body of any size, and would give up on a truncated answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from switchmem.actors.api.answers import Usage
from switchmem.actors.api.endpoint import Endpoint, Secret
from switchmem.actors.api.outcomes import (
    STOPPING,
    Failure,
    FailureKind,
    Trouble,
    given_up,
    read_completion,
    read_refusal,
    said_by,
)

MAX_BODY = 8 << 20
"""Bytes of an answer beyond which nothing more is read; 128 tokens need a few hundred."""
LONGEST_WAIT = 60.0
"""Seconds between two attempts, unless the server asks for more."""
_CONNECT_SECONDS = 20.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A request.

    Args:
        key: hash of the question.
        question: names it in messages.
        body: the request's JSON.
    """

    key: str
    question: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer: the checked completion, without the key, the requests and the seconds that it took."""

    completion: dict[str, Any]
    attempts: int
    seconds: float


@dataclass
class _Batch:
    """State that the tasks of one batch share."""

    http: httpx2.AsyncClient
    slots: asyncio.Semaphore
    failures: dict[str, Failure] = field(default_factory=dict)
    stop: bool = False
    broken: OSError | None = None


class _Bearer(httpx2.Auth):
    """Puts the key into a request when it leaves, so that it stands in no other object."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._secret:
            request.headers["Authorization"] = f"Bearer {self._secret.reveal()}"
        yield request


class ChatClient:
    """Sends batches of requests.

    Args:
        endpoint: where to, and how patiently.
        usage: counts them.
    """

    def __init__(self, endpoint: Endpoint, usage: Usage) -> None:
        self.endpoint, self.usage = endpoint, usage

    def send(self, jobs: Sequence[Job], done: Callable[[Job, Reply], None]) -> dict[str, Failure]:
        """Send requests and wait for all of them. Not inside a running event loop.

        Args:
            jobs: with different keys.
            done: is called with each answer as soon as it is there.

        Returns:
            The failures by key; whatever is not among them was given to `done`.

        Raises:
            EndpointError: if the environment holds no key.
            OSError: if `done` could not write; what had been sent is waited for first.
        """
        return asyncio.run(self._send(jobs, done))

    async def _send(self, jobs: Sequence[Job], done: Callable[[Job, Reply], None]) -> dict[str, Failure]:
        limit = self.endpoint.concurrency
        secret = self.endpoint.key()
        async with httpx2.AsyncClient(
            auth=_Bearer(secret),
            # an answer is small; a compressed one could unfold to any size
            headers={"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(self.endpoint.timeout, connect=min(_CONNECT_SECONDS, self.endpoint.timeout)),
            limits=httpx2.Limits(max_connections=limit, max_keepalive_connections=limit),
            follow_redirects=False,  # the key goes to the configured address alone
        ) as http:
            batch = _Batch(http, asyncio.Semaphore(limit))
            async with asyncio.TaskGroup() as group:
                for job in jobs:
                    group.create_task(self._one(batch, job, secret, done))
        if batch.broken is not None:
            raise batch.broken
        return batch.failures

    async def _one(self, batch: _Batch, job: Job, secret: Secret, done: Callable[[Job, Reply], None]) -> None:
        async with batch.slots:
            if batch.stop:
                batch.failures[job.key] = Failure(FailureKind.NOT_SENT, "not sent after the failure of another request")
                return
            outcome = await self._persist(batch.http, job, secret)
            if isinstance(outcome, Failure):
                batch.failures[job.key] = outcome
                batch.stop |= outcome.kind in STOPPING
                return
            try:
                done(job, outcome)
            except OSError as error:  # told when what is on its way has come back
                batch.broken, batch.stop = error, True

    async def _persist(self, http: httpx2.AsyncClient, job: Job, secret: Secret) -> Reply | Failure:
        """Attempt until there is an answer, or no hope. The slot stays taken while it waits: that eases the server."""
        content = json.dumps(job.body, allow_nan=False).encode()
        start = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            self.usage.request(retry=attempt > 1)
            left = self.endpoint.total_seconds - (time.monotonic() - start)
            outcome = await self._attempt(http, content, secret, min(self.endpoint.timeout, left))
            seconds = time.monotonic() - start
            if not isinstance(outcome, Trouble):
                self.usage.answer(outcome, seconds, self.endpoint)
                return Reply(outcome, attempt, seconds)
            wait = self._wait(attempt, outcome.wait)
            if not outcome.again or attempt == self.endpoint.attempts or seconds + wait >= self.endpoint.total_seconds:
                self.usage.failure(seconds)
                return given_up(outcome, attempt, seconds)
            # one hiccup is nothing to read about, two in a row are why everything waits
            level = logging.INFO if attempt == 1 else logging.WARNING
            _log.log(level, "%s: %s. Attempt %d follows in %.1f s.", job.question, outcome.message, attempt + 1, wait)
            await asyncio.sleep(wait)

    def _wait(self, attempt: int, asked: float) -> float:
        """Seconds before the next attempt; chance keeps requests that failed together from coming back together."""
        backoff = min(LONGEST_WAIT, self.endpoint.backoff * 2.0 ** min(attempt - 1, 99)) * random.uniform(0.5, 1.0)
        return asked + backoff / 10 if asked > backoff else backoff

    async def _attempt(
        self, http: httpx2.AsyncClient, content: bytes, secret: Secret, seconds: float
    ) -> dict[str, Any] | Trouble:
        try:
            # for the whole exchange: the client's own limits start anew with every byte of a trickle
            async with asyncio.timeout(seconds), http.stream("POST", self.endpoint.url, content=content) as response:
                data = await _read(response)
        except (TimeoutError, httpx2.ReadTimeout, httpx2.WriteTimeout):
            return Trouble(FailureKind.EXHAUSTED, f"no whole answer within {seconds:.1f} s (`timeout`)", again=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return Trouble(FailureKind.UNREACHABLE, said_by(error, secret), again=True)
        except httpx2.RequestError as error:
            return Trouble(FailureKind.EXHAUSTED, said_by(error, secret), again=True)
        if data is None:
            return Trouble(FailureKind.RESPONSE, f"a body of more than {MAX_BODY} bytes, which was not read on")
        if response.is_success:
            return read_completion(data, secret)
        return read_refusal(response, data, secret)


async def _read(response: httpx2.Response) -> bytes | None:
    """The body, or None where it is too large."""
    chunks, size = [], 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MAX_BODY:
            return None
        chunks.append(chunk)
    return b"".join(chunks)
