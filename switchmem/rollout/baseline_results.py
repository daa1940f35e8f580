"""What the results of a rollout tell of a memory baseline: its costs, and everything that it did without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from switchmem.memory.writing import counted, mean, offline_costs
from switchmem.rollout.trace import Facts

NUMBERS = ("calls", "tokens_in", "tokens_out", "seconds")


def told_of_played(episodes: Sequence[Facts], about: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a baseline in "baselines" of the results, with the names that those of a test have.

    Args:
        episodes: under the baseline.
        about: entries that are told as they are: "shows_image", "identity" and "written_by".

    Returns:
        These; "steps", how many; "parse_rate" in [0, 1] and "parse_failures" by reason; "actor" and "writer", calls,
        tokens and seconds as means per step, the writer's with those of a check before the action; "seconds", their
        sum; "offline", the same in all for what was written once for the bank; "fallbacks" and "notes", how often
        which. What is not told, or has no step, is None.
    """
    rows = [row for episode in episodes for row in episode.baseline]
    writing = [row["writing"] for row in rows]
    once = {piece: words for row in rows for piece, words in row["once"].items()}
    failures = counted([[row["reason"]] if row["reason"] is not None else [] for row in rows])
    actor = {
        "calls": mean([row["answers"] for row in rows]),
        "tokens_in": mean([row["tokens"][0] for row in rows]),
        "tokens_out": mean([row["tokens"][1] for row in rows]),
        "seconds": mean([row["seconds"] for row in rows]),
    }
    written = {number: mean([row[number] for row in writing]) for number in NUMBERS}
    return {
        **about,
        "steps": len(rows),
        "parse_rate": 1.0 - sum(failures.values()) / len(rows) if rows else None,
        "parse_failures": failures,
        "actor": actor,
        "writer": written,
        "seconds": (actor["seconds"] or 0.0) + (written["seconds"] or 0.0) if rows else None,
        "offline": offline_costs(writing),
        "fallbacks": counted([once.values(), *(row["fallbacks"] for row in rows)]),
        "notes": counted([row["notes"] for row in rows]),
    }
