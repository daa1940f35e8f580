"""Which instances the bank, the threshold and the evaluation see, and a proof that none is in two of them.

An instance is a task and the seed of its content. Where a page's content does not depend on its seed, two seeds give
the same instance, so that an instance also counts by its look: the instruction and the pixels of its first screen. What
looks like an instance of the evaluation is left out of the bank and of the threshold's screens, and what looks like one
of the bank out of the threshold's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class InstanceError(ValueError):
    """Two parts of the protocol share an instance; the message names it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance that was begun.

    Args:
        task: name of the task.
        seed: of its content.
        look: of `switchmem.rollout.trace.look_of`.
    """

    task: str
    seed: int
    look: str

    def to_list(self) -> list[Any]:
        """Task, seed and look."""
        return [self.task, self.seed, self.look]


def unlike(instances: Iterable[Instance], *others: Iterable[Instance]) -> list[Instance]:
    """Those that look like none of the others.

    >>> a, b = Instance("t", 1, "x"), Instance("t", 2, "y")
    >>> unlike([a, b], [Instance("t", 3, "x")])
    [Instance(task='t', seed=2, look='y')]
    """
    taken = {(one.task, one.look) for part in others for one in part}
    return [one for one in instances if (one.task, one.look) not in taken]


Parts = Mapping[str, Iterable[Instance]]
"""Instances by the name of the part of the protocol that sees them."""


def shared(parts: Parts) -> list[list[Any]]:
    """What is in two parts: task, "seed" or "look", and the two parts' names.

    >>> shared({"bank": [Instance("t", 1, "x")], "evaluation": [Instance("t", 2, "x")]})
    [['t', 'look', 'bank', 'evaluation']]
    """
    held = {name: list(instances) for name, instances in parts.items()}
    names, found = list(held), []
    for n, one in enumerate(names):
        for other in names[n + 1 :]:
            for kind in ("seed", "look"):
                first, second = ({(i.task, getattr(i, kind)) for i in held[part]} for part in (one, other))
                found += [[task, kind, one, other] for task, _ in sorted(first & second)]
    return found


def require_apart(parts: Parts) -> None:
    """Refuse parts that share an instance.

    Raises:
        InstanceError: if one is shared.
    """
    if found := shared(parts):
        task, kind, one, other = found[0]
        raise InstanceError(
            f"no instance may be in two of {', '.join(parts)}, got {len(found)} that are, {task!r} with the same "
            f"{kind} in {one} and {other} among them. Choose other suite seeds."
        )


def proof(parts: Parts) -> dict[str, Any]:
    """Every instance of every part, and what is shared, as plain JSON values: an empty list is the proof."""
    held = {name: list(dict.fromkeys(instances)) for name, instances in parts.items()}
    return {
        "shared": shared(held),
        "counts": {name: len(instances) for name, instances in held.items()},
        "parts": {name: [instance.to_list() for instance in instances] for name, instances in held.items()},
    }
