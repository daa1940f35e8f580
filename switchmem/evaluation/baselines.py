"""What the memory baselines of a results document cost, as rows of a table."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

BASELINE_COLUMNS = (
    "baseline",
    "score %",
    "parsed %",
    "calls",
    "tokens in",
    "tokens out",
    "seconds (writer's)",
    "written once",
    "fallbacks",
    "notes",
)
"""Calls, tokens and seconds are means per step, the actor's own call and tokens included."""

CAPTION = (
    "Calls, tokens and seconds are means per step, the actor's own included; seconds are of batches, divided by their "
    "size, without retrieval and preprocessing. Written once: answers made for the bank, and their seconds in all."
)


def baseline_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """One row per memory baseline, with cells as in `BASELINE_COLUMNS`; none where none was run.

    Args:
        results: of a test, where a policy has a "score", or of a rollout, where it has its "success", both in percent.
    """
    return [_row(name, results["policies"][name], row) for name, row in results.get("baselines", {}).items()]


def _row(name: str, policy: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    actor, writer, offline = row["actor"], row["writer"], row["offline"]
    score, seconds = policy["score"] if "score" in policy else policy["success"], row["seconds"]
    if seconds is None:  # of a rollout no episode of which came to a step
        return [name, f"{score:.2f}", *["–"] * 6, "0", "0"]
    calls = actor.get("calls", 1) + writer["calls"]  # of recorded steps the actor is asked once
    once = f"{offline['answers']} in {offline['seconds']:.1f} s" if offline["answers"] else "–"
    return [
        name,
        f"{score:.2f}",
        f"{100 * row['parse_rate']:.1f}",
        f"{calls:.2f}",
        _sum(actor["tokens_in"], writer["tokens_in"]),
        _sum(actor["tokens_out"], writer["tokens_out"]),
        f"{seconds:.3f} ({writer['seconds']:.3f})",
        once,
        _counts(row["fallbacks"]),
        _counts(row["notes"]),
    ]


def written_by(results: Mapping[str, Any]) -> str:
    """Who wrote for the baselines, as a sentence."""
    writers = ", ".join(dict.fromkeys(str(row["written_by"]) for row in results["baselines"].values()))
    return f"Written by: {writers}."


def _sum(first: float | None, second: float | None) -> str:
    return "not told" if first is None or second is None else f"{first + second:.0f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "0"


def baseline_text(results: Mapping[str, Any], width: int = 140) -> str:
    """The rows as plain text; "" where no baseline was run."""
    rows = baseline_rows(results)
    if not rows:
        return ""
    told = f"{written_by(results)} {CAPTION}"
    table = Table(title="Memory baselines", caption=told, caption_justify="left")
    for n, column in enumerate(BASELINE_COLUMNS):
        table.add_column(column, justify="right" if 0 < n < 7 else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, force_terminal=False).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
