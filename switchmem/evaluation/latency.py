"""Seconds per step of every policy, put together from what a greedy harvest measured of each step.

What a step costs is the sum of what a deployed policy would run:

    a fixed condition     prefix + rest of its prompt + its answer
    a router that reads   prefix + rest of the state prompt + router + rest of the chosen prompt + its answer
    `basic`               prefix + router + rest of the chosen prompt + its answer; it reads no state

Random is the mean of Text and Image at its rate. The oracle has no time: nothing that can be run makes its choices.
Retrieval and preprocessing are in none of them. A harvest runs steps in batches, and divides a batch's time among them:
these are seconds of throughput, good for comparing policies with each other, and not the time that a user waits.

Letters: `N` steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from switchmem.memory.views import Condition

Floats = NDArray[np.float64]
NONE, TEXT, IMAGE = Condition.NONE.value, Condition.TEXT.value, Condition.IMAGE.value
STATELESS = frozenset({"basic"})
"""Policies whose router reads no state of the actor."""

RULE = (
    "A step's part of the batched test harvest: throughput, not the time that a user waits. Fixed: prefix, prompt, "
    "answer. Routed: prefix, state prompt, router, chosen prompt, answer (basic reads no state). Retrieval and "
    "preprocessing are left out. benchmarks/latency.py measures one step after another."
)


class LatencyError(ValueError):
    """What steps spent cannot be read; the message says why, and the way out."""


@dataclass(frozen=True, eq=False)
class StepSeconds:
    """What the parts of each step took.

    Args:
        prefix: [N], what the step's prompts share.
        prompt: condition -> [N], the rest of its prompt; "none" is the state prompt.
        answer: condition -> [N], its answer.
    """

    prefix: Floats
    prompt: Mapping[str, Floats]
    answer: Mapping[str, Floats]

    @classmethod
    def read(cls, spent: Sequence[Mapping[str, Any]]) -> StepSeconds:
        """From one record per step, "prefix", "prompt" and "answer" by condition.

        Raises:
            LatencyError: if there is no step, steps were not run under the same conditions, or a time is negative or
                not finite.
        """
        try:
            prompts, answers = (tuple(spent[0][part]) for part in ("prompt", "answer"))
            columns = {
                "prefix": [row["prefix"] for row in spent],
                **{f"prompt {c}": [row["prompt"][c] for row in spent] for c in prompts},
                **{f"answer {c}": [row["answer"][c] for row in spent] for c in answers},
            }
        except (IndexError, KeyError, TypeError) as error:
            raise LatencyError(
                f"`spent` must tell prefix, prompt and answer of each step under the same conditions, got {error!r}. "
                "Harvest again to measure."
            ) from error
        arrays = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        for name, array in arrays.items():
            if not (np.isfinite(array) & (array >= 0)).all():
                raise LatencyError(f"`spent` must hold seconds >= 0, got {array.min()} as {name}. Harvest again.")
        return cls(
            arrays["prefix"],
            {c: arrays[f"prompt {c}"] for c in prompts},
            {c: arrays[f"answer {c}"] for c in answers},
        )

    @property
    def conditions(self) -> tuple[str, ...]:
        """Those that were answered."""
        return tuple(c for c in self.answer if c in self.prompt)

    def fixed(self, condition: str) -> Floats:
        """Seconds [N] of a fixed condition."""
        return self.prefix + self.prompt[condition] + self.answer[condition]

    def routed(self, image: NDArray[np.bool_], router: float, reads_state: bool = True) -> Floats:
        """Seconds [N] of a routed policy.

        Args:
            image: [N], where it chooses Image.
            router: seconds of the router for one step.
            reads_state: whether the state prompt must be run for it.
        """
        probe = self.prompt[NONE] if reads_state else 0.0
        return np.asarray(np.where(image, self.fixed(IMAGE), self.fixed(TEXT)) + probe + router, dtype=np.float64)


def policy_seconds(
    seconds: StepSeconds,
    choices: Mapping[str, Sequence[NDArray[np.bool_]]],
    router: float,
    random_rate: float | None = None,
) -> dict[str, Floats]:
    """Seconds [N] of each policy.

    Args:
        seconds: of the steps.
        choices: policy -> where each of its routers chooses Image; the policy's seconds are means over them.
        router: seconds of a router for one step.
        random_rate: share of Image under random in [0, 1]; None leaves random out.

    >>> one = {"prefix": 1.0, "prompt": {"none": 0.5, "text": 1.0, "image": 3.0}, "answer": {"text": 1.0, "image": 1.0}}
    >>> found = policy_seconds(StepSeconds.read([one]), {"switchmem": [np.array([True])]}, router=0.25, random_rate=0.5)
    >>> {name: float(column[0]) for name, column in found.items()}
    {'text': 3.0, 'image': 5.0, 'random': 4.0, 'switchmem': 5.75}
    """
    found = {condition: seconds.fixed(condition) for condition in seconds.conditions}
    if random_rate is not None:
        found["random"] = (1.0 - random_rate) * found[TEXT] + random_rate * found[IMAGE]
    for name, paths in choices.items():
        found[name] = np.mean([seconds.routed(path, router, name not in STATELESS) for path in paths], axis=0)
    return found


def latency_summary(seconds: Mapping[str, Floats], router: float) -> dict[str, Any]:
    """The part of a results document that tells seconds per step.

    Args:
        seconds: policy -> [N]; Image is among them.
        router: seconds of a router for one step.

    Returns:
        "measure", "rule", "router_seconds", and "policies": for each the mean, median and 95th percentile over the
        steps, and the ratio of its mean to Image's, None where Image took no time.
    """
    image = float(seconds[IMAGE].mean())
    return {
        "measure": "throughput",
        "rule": RULE,
        "router_seconds": router,
        "policies": {
            name: {
                "mean": float(column.mean()),
                "median": float(np.median(column)),
                "p95": float(np.quantile(column, 0.95)),
                "ratio": float(column.mean()) / image if image > 0 else None,
            }
            for name, column in seconds.items()
        },
    }
