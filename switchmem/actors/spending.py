"""What each prompt and each answer of a batch took, as its part of the batch's time.

Steps and conditions run together, so the time of a forward is divided by the tokens that it was run for, and that of
the answers by the tokens that were drawn. A picture counts for every prompt that shows it, though the vision tower runs
once: a step that is taken alone has to look at it too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TypedDict

import torch

from switchmem.actors.rows import ImageTable, TokenRow
from switchmem.memory.views import Condition


class Spent(TypedDict):
    """Seconds of one step.

    `prefix` is what its prompts share; `prompt` and `answer` tell, by condition, the rest of a prompt and its answers.
    """

    prefix: float
    prompt: dict[str, float]
    answer: dict[str, float]


def now(device: torch.device) -> float:
    """Seconds of a clock, when the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Spending:
    """Follows a batch of B steps through the engine.

    Args:
        rows: by step its whole prompts.
        lengths: tokens that the prompts of each step share.
        table: the batch's pictures; the engine notes in it what each one took.
        device: where the model runs.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[Condition, TokenRow]],
        lengths: Sequence[int],
        table: ImageTable,
        device: torch.device,
    ) -> None:
        self._rows, self._lengths, self._table, self._device = rows, lengths, table, device
        self._spent: list[Spent] = [{"prefix": 0.0, "prompt": {}, "answer": {}} for _ in rows]
        self._seen, self._last = _seeing(table), now(device)

    def prefixes(self) -> None:
        """The shared prefixes have just been run."""
        pieces = [prompts[Condition.NONE].cut(0, n) for prompts, n in zip(self._rows, self._lengths, strict=True)]
        for spent, seconds in zip(self._spent, self._divided(pieces), strict=True):
            spent["prefix"] = seconds

    def prompts(self, condition: Condition, steps: Sequence[int]) -> None:
        """What was left of these steps' prompts under a condition has just been run."""
        pieces = [self._rows[b][condition].cut(self._lengths[b], len(self._rows[b][condition])) for b in steps]
        for b, seconds in zip(steps, self._divided(pieces), strict=True):
            self._spent[b]["prompt"][condition.value] = seconds

    def answers(self, answers: Sequence[Mapping[Condition, Sequence[Sequence[int]]]]) -> None:
        """These answers, K by condition for each step, have just been drawn."""
        seconds, _ = self._lap()
        drawn = [{c: sum(map(len, texts)) for c, texts in step.items()} for step in answers]
        total = sum(sum(counts.values()) for counts in drawn)
        for spent, counts in zip(self._spent, drawn, strict=True):
            spent["answer"] = {c.value: seconds * count / total if total else 0.0 for c, count in counts.items()}

    def of(self, step: int) -> Spent:
        """What a step took."""
        return self._spent[step]

    def _divided(self, pieces: Sequence[TokenRow]) -> list[float]:
        seconds, seeing = self._lap()
        total = sum(map(len, pieces))
        shares = [(seconds - seeing) * len(piece) / total if total else 0.0 for piece in pieces]
        looks = [sum(self._table.seconds.get(image, 0.0) for image in piece.images) for piece in pieces]
        return [share + look for share, look in zip(shares, looks, strict=True)]

    def _lap(self) -> tuple[float, float]:
        """Seconds since the last lap, and how many of them the vision tower had."""
        last, self._last = self._last, now(self._device)
        seen, self._seen = self._seen, _seeing(self._table)
        return self._last - last, self._seen - seen


def _seeing(table: ImageTable) -> float:
    """Seconds of the vision tower so far."""
    return sum(table.seconds.values())
