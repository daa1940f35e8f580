"""Who answered in a harvest, and what it cost: facts of the loaded actors, and what an endpoint counted.

Neither ties the folder as `bind_settings` does: a harvest may be finished on another device, or by another kernel.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from switchmem.harvest.shards import write_json

ACTORS = "actors.json"
_USAGE = "usage-*.json"


def note_actor(folder: Path, facts: Mapping[str, Any]) -> None:
    """Keep the facts of the actor that goes on with a harvest; by the first rank alone.

    Args:
        folder: the harvest folder.
        facts: plain JSON values.

    Raises:
        WriteError: if the folder cannot be written.
    """
    known, new = read_actors(folder), json.loads(json.dumps(dict(facts)))
    if new not in known:
        write_json(folder / ACTORS, {"actors": [*known, new]})


def read_actors(folder: Path) -> list[dict[str, Any]]:
    """Facts of every actor that took part, without repetition; empty for a harvest that has none."""
    path = folder / ACTORS
    return list(json.loads(path.read_text("utf-8"))["actors"]) if path.is_file() else []


def note_usage(folder: Path, usage: Mapping[str, Any]) -> None:
    """Keep what one process used of an endpoint; each process notes its own once, at its end.

    Raises:
        WriteError: if the folder cannot be written.
    """
    write_json(folder / _USAGE.replace("*", uuid.uuid4().hex), dict(usage))


def read_usage(folder: Path) -> dict[str, Any]:
    """The sum over all processes; empty where no endpoint was asked. A killed process has noted nothing."""
    total: dict[str, Any] = {}
    for path in sorted(folder.glob(_USAGE)):
        total = _add(total, json.loads(path.read_text("utf-8")))
    return total


def usage_words(usage: Mapping[str, Any]) -> str:
    """What was used of endpoints, of `read_usage`, in a sentence for people."""
    cost = "no prices are set" if usage["cost"] is None else f"cost {usage['cost']:.4f}"
    return (
        f"{usage['answers']} answers asked for, {usage['kept']} kept from before; {usage['prompt_tokens']} prompt and "
        f"{usage['completion_tokens']} answer tokens in {usage['requests']} requests ({usage['retries']} again), "
        f"{usage['seconds']:.0f} s of them; {cost}"
    )


def _add(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name, nested ones alike; None counts as nothing, beside None it stays."""
    total = dict(one)
    for name, value in other.items():
        before = total.get(name)
        if isinstance(value, Mapping):
            total[name] = _add(before or {}, value)
        elif value is not None:
            total[name] = (before or 0) + value
        else:
            total.setdefault(name, None)
    return total
