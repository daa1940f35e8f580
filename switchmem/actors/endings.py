"""When an answer is at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """The tokens that end an answer.

    Args:
        tokens: ids, one or more.
        after: ids that must have come in a row before a token can end the answer: actors that write a plan and then
            code end both with the same token. Empty for nothing.
        lead: the last ids of every prompt, with which the row may begin.

    >>> Ending((1,), after=(7, 8), lead=(7,)).is_reached([8, 3, 1]), Ending((1,), after=(7, 8)).is_reached([8, 3, 1])
    (True, False)
    """

    tokens: tuple[int, ...]
    after: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()

    def is_reached(self, answer: Sequence[int]) -> bool:
        """Whether an answer whose last token is one of `tokens` is at its end."""
        drawn, width = [*self.lead, *answer], len(self.after)
        return any(tuple(drawn[n : n + width]) == self.after for n in range(len(drawn) - width + 1))
