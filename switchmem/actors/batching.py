"""Which steps run together: as many as a budget of tokens holds, of like length, and fewer where memory runs out.

What a batch takes is counted in tokens whose keys and values lie in memory at once, padding included: the shared prefix
of a step once, each continuation once, and every answer with all tokens that it may draw.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from switchmem.actors.protocol import ActorError

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
SHORT = 64
"""Tokens below which a forward takes as long as it takes to start it: padding to this width costs nothing."""
FORWARD, PATCHES = 2048, 4096
"""Tokens and patches of one forward over prompts and pictures: more are no faster each, and take more memory."""


@dataclass(frozen=True)
class StepSize:
    """How long the parts of a step are.

    Args:
        step_id: for messages.
        prefix: tokens that all its prompts share.
        tails: tokens of each prompt behind the prefix, by a name of the prompt.
        drawn: most tokens of all its answers together.
    """

    step_id: str
    prefix: int
    tails: Mapping[str, int]
    drawn: int

    @property
    def tokens(self) -> int:
        """Of the step alone."""
        return self.prefix + sum(self.tails.values()) + self.drawn


def padded_tokens(steps: Sequence[StepSize]) -> int:
    """Tokens of a batch of steps: each part as wide as the widest one of its kind."""
    width: dict[str, int] = {}
    for step in steps:
        for name, tail in step.tails.items():
            width[name] = max(width.get(name, 0), tail)
    prompts = sum(width[name] for step in steps for name in step.tails)
    return len(steps) * max(step.prefix for step in steps) + prompts + sum(step.drawn for step in steps)


def split(steps: Sequence[StepSize], limit: int | None) -> list[list[int]]:
    """Groups of steps that hold at most so many tokens each, from the longest steps to the shortest.

    Args:
        steps: in any order.
        limit: on `padded_tokens`; None puts all steps into one group. A step that is longer has a group of its own.

    Returns:
        Every index once.
    """
    if limit is None:
        return [list(range(len(steps)))] if steps else []
    groups: list[list[int]] = []
    # Ties in the order of the batch, so that groups do not depend on the sort.
    for n in sorted(range(len(steps)), key=lambda n: (-steps[n].tokens, n)):
        if groups and padded_tokens([steps[m] for m in (*groups[-1], n)]) <= limit:
            groups[-1].append(n)
        else:
            groups.append([n])
    return groups


def consecutive(lengths: Sequence[int], most: int) -> list[slice]:
    """Runs of pieces, in order, of at most so many tokens together, or of one longer piece and empty ones.

    >>> consecutive([3, 4, 9, 1, 1], 8)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    runs: list[slice] = []
    start = total = 0
    for n, length in enumerate(lengths):
        if total and length and total + length > most:  # a run without tokens would leave its cache empty
            runs.append(slice(start, n))
            start, total = n, 0
        total += length
    return [*runs, slice(start, len(lengths))] if lengths else []


def alike(lengths: Sequence[int], waste: float, most: int) -> list[list[int]]:
    """Groups of pieces that may be padded to one width.

    Args:
        lengths: tokens of each piece.
        waste: most padding of a group, as a share of its real tokens; 0 for pieces of equal length alone. Pieces below
            `SHORT` tokens are all alike, unless it is 0.
        most: tokens of a group, padding included; a longer piece has a group of its own.

    Returns:
        Every index once, in order within a group.

    >>> alike([100, 98, 60, 100], 0.05, 999), alike([3, 9], 0.05, 999), alike([3, 9, 3], 0.0, 999)
    ([[0, 1, 3], [2]], [[0, 1]], [[1], [0, 2]])
    """
    groups: list[list[int]] = []
    width = total = 0
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        padded = width * (len(groups[-1]) + 1) if groups else most + 1
        near = padded <= (1.0 + waste) * (total + lengths[n]) or (waste > 0 and width < SHORT)
        if near and padded <= most:
            groups[-1].append(n)
            total += lengths[n]
        else:
            groups.append([n])
            width = total = lengths[n]
    return [sorted(group) for group in groups]


class Batcher:
    """Runs steps in groups, and learns from memory that ran out.

    Args:
        limit: most tokens of a group, see `padded_tokens`; None for all steps that are given at a time.

    Attributes:
        limit: falls to half of what did not fit.
        failures: how often memory ran out, by the number of steps in the group.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.failures: Counter[int] = Counter()

    def run(self, steps: Sequence[StepSize], work: Callable[[list[int]], Sequence[_Result]]) -> list[_Result]:
        """Work on every step once.

        Args:
            steps: how long they are.
            work: given the indices of a group, returns a result for each of them. What it did before it ran out of
                memory is done again, so it must have no effects.

        Returns:
            The results in the order of the steps.

        Raises:
            ActorError: if a single step does not fit into memory.
        """
        results: dict[int, _Result] = {}
        queue = deque(split(steps, self.limit))
        while queue:
            group = queue.popleft()
            error = None
            try:
                results.update(zip(group, work(group), strict=True))
            except (MemoryError, RuntimeError) as found:
                if not is_out_of_memory(found):
                    raise
                error = str(found).split("\n")[0]
            if error is not None:  # outside the handler: the exception holds what filled the memory
                self._shrink([steps[n] for n in group], error)
                left = sorted(n for members in (group, *queue) for n in members)
                queue = deque([left[n] for n in part] for part in split([steps[n] for n in left], self.limit))
        return [results[n] for n in range(len(steps))]

    def _shrink(self, group: Sequence[StepSize], error: str) -> None:
        """Take half as much from now on.

        Raises:
            ActorError: if the group is a single step.
        """
        self.failures[len(group)] += 1
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(group) == 1:
            (step,) = group
            raise ActorError(
                f"A step must fit into memory, got {step.step_id!r} with {step.prefix + sum(step.tails.values())} "
                f"prompt tokens and {step.drawn} for its answers, which does not even alone: {error} Lower "
                "`max_pixels`, `state_tokens`, `max_new_tokens` or the number of seeds, or take a larger device."
            )
        self.limit = padded_tokens(group) // 2
        _log.warning(
            "Memory ran out with %d steps together, %d tokens: they are tried again in halves, and later batches hold "
            "at most %d tokens. Set the actor's `max_batch_tokens` to that to begin with it.",
            len(group),
            padded_tokens(group),
            self.limit,
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on an accelerator or on the CPU."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)
