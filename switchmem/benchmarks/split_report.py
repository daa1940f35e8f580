"""What a split reports of itself: counts, shortfalls, and the proof that its parts share nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any

from switchmem.benchmarks.base import DataError

FIRST_IDS = 5  # ids that a report names where it only counts the others

Parts = Mapping[str, Collection[str]]
"""Step ids by part."""


def trajectory_of(step_id: str) -> str:
    """``benchmark/episode`` of ``benchmark/episode/index``; an episode's name may hold slashes itself.

    >>> trajectory_of("aitw/7.0-9.Type a/b/3")
    'aitw/7.0-9.Type a/b'
    """
    return step_id.rpartition("/")[0]


def count(ids: Collection[str]) -> dict[str, int]:
    """Number of steps and of their trajectories."""
    return {"steps": len(ids), "trajectories": len(set(map(trajectory_of, ids)))}


def count_by_category(ids: Iterable[str], categories: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """The same for each category; `categories` is that of each trajectory."""
    groups: dict[str, list[str]] = defaultdict(list)
    for step_id in ids:
        groups[categories[trajectory_of(step_id)]].append(step_id)
    return {category: count(groups[category]) for category in sorted(groups)}


def some(names: list[str]) -> dict[str, Any]:
    """How many there are, and the first few."""
    return {"count": len(names), "first": names[:FIRST_IDS]}


def shortfalls(found: Mapping[str, Mapping[str, int]], asked: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Sentences on the parts that are not as large as asked, or hold more trajectories.

    Args:
        found: steps and trajectories of each part.
        asked: the same, as they were wanted.
    """
    said = []
    for name, its in found.items():
        if its == asked[name]:
            continue
        steps, trajectories = asked[name]["steps"], asked[name]["trajectories"]
        more = its["trajectories"] > trajectories
        why = f"the first {trajectories} held too few steps" if more else "the data holds no more"
        counts = f"{its['steps']} of {steps} steps and {its['trajectories']} of {trajectories} trajectories"
        said.append(f"{name} has {counts}: {why}.")
    return said


def in_two_parts(parts: Parts, group: Callable[[str], str]) -> list[str]:
    """Groups of trajectories that have steps in more than one part, sorted.

    Args:
        parts: step ids by part.
        group: of a trajectory.
    """
    places = Counter(name for ids in parts.values() for name in {group(trajectory_of(step_id)) for step_id in ids})
    return sorted(name for name, number in places.items() if number > 1)


def prove(parts: Parts, recording: Callable[[str], str]) -> dict[str, Any]:
    """Check by the ids alone that no step comes twice and no trajectory or recording is in two parts.

    Args:
        parts: step ids by part.
        recording: what a trajectory must stay together with.

    Returns:
        What was counted, with the SHA-256 of each part's sorted ids, so that two splits can be compared.

    Raises:
        DataError: if the parts share anything.
    """
    steps = Counter(step_id for ids in parts.values() for step_id in ids)
    shared = {
        "trajectories_in_two_parts": in_two_parts(parts, str),
        "recordings_in_two_parts": in_two_parts(parts, recording),
        "steps_twice": sorted(step_id for step_id, number in steps.items() if number > 1),
    }
    for what, names in shared.items():
        if names:
            raise DataError(
                f"a split must have no {what.replace('_', ' ')}, got {len(names)}, {names[0]!r} first. This is a "
                "defect of the code that draws: report it with the data's split files and the seed."
            )
    digests = {
        part: {"steps": digest(ids), "trajectories": digest(set(map(trajectory_of, ids)))}
        for part, ids in parts.items()
    }
    return {**{what: len(names) for what, names in shared.items()}, "sha256": digests}


def digest(names: Iterable[str]) -> str:
    """SHA-256 of sorted names, one a line."""
    return sha256("\n".join(sorted(names)).encode("utf-8", "surrogatepass")).hexdigest()
