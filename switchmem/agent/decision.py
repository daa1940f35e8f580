"""What an agent decided at a step, and why."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from switchmem.actors.grammars.base import ParseReason
from switchmem.memory.views import Condition
from switchmem.steps import Action


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of a step went, in seconds.

    Args:
        retrieval: embedding the query, the search, and reading the demonstration.
        preprocessing: building and tokenising the prompts, preparing the pictures.
        state: running the state prompt, which includes the prefix that the memory's prompt shares.
        routing: the router and its threshold.
        memory: running what is left of the chosen prompt.
        decoding: writing the answer.
    """

    retrieval: float = 0.0
    preprocessing: float = 0.0
    state: float = 0.0
    routing: float = 0.0
    memory: float = 0.0
    decoding: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return math.fsum(getattr(self, field.name) for field in fields(self))

    @property
    def actor(self) -> float:
        """What the paper counts as latency: all but retrieval and preprocessing."""
        return self.total - self.retrieval - self.preprocessing


class Stopwatch:
    """Measures consecutive parts of a step."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str, device: torch.device | None = None) -> None:
        """Count the time since the last lap for a part of `Timings`.

        Args:
            part: name of the field.
            device: is waited for, where it works on its own; else its work would count for the next part.
        """
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._last
        self._last = now

    def timings(self) -> Timings:
        """What was measured."""
        return Timings(**self._seconds)


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many tokens the model ran.

    Args:
        shared: of the state prompt, those that the chosen prompt shares.
        state: of the state prompt, those behind them.
        memory: of the chosen prompt, those behind the shared ones.
        answer: drawn, the end token included.
    """

    shared: int
    state: int
    memory: int
    answer: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do at a step, and why.

    Args:
        action: the action, places as fractions of the screen in [0, 1]; None where the answer is none.
        reason: why it is none; None where there is an action. There is exactly one of both.
        answer: the actor's raw text.
        condition: in which form the memory was shown; ``NONE`` where there was none.
        r: the router's score; NaN without a memory, or where the caller fixed its form.
        threshold: tau; Image was chosen if r >= tau. NaN for an agent without a policy.
        memory: id of the demonstration's step; None without a memory.
        cosine: of the query and the demonstration in [-1, 1]; NaN without a memory.
        timings: seconds.
        tokens: counts.
    """

    action: Action | None
    reason: ParseReason | None
    answer: str
    condition: Condition
    r: float
    threshold: float
    memory: str | None
    cosine: float
    timings: Timings
    tokens: Tokens

    @property
    def form(self) -> str:
        """In which form the memory was shown, in one word."""
        return self.condition.value

    @property
    def why(self) -> str:
        """One word for why there is no action, or ""."""
        return "" if self.reason is None else self.reason.value

    def explain(self) -> str:
        """The choice in one line."""
        if self.memory is None:
            return "no memory: the actor saw the current screen alone"
        if math.isnan(self.r):
            return f"{self.condition.value} memory of {self.memory} (cosine {self.cosine:.3f}), as the caller fixed it"
        sign = ">=" if self.condition is Condition.IMAGE else "<"
        return (
            f"{self.condition.value} memory of {self.memory} (cosine {self.cosine:.3f}): "
            f"r = {self.r:.4f} {sign} tau = {self.threshold:.4f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what is not finite is written as text, as JSON has no word for it."""
        values = {
            **asdict(self),
            "action": None if self.action is None else self.action.to_dict(),
            "reason": None if self.reason is None else self.reason.value,
            "condition": self.condition.value,
        }
        return plain(values)


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """The same values; a number that is not finite is written as text, as JSON has no word for it."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
