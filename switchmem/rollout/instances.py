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


def prove_apart(parts: Mapping[str, Iterable[Instance]]) -> dict[str, Any]:
    """The instances of every part, and that no two parts share a seed of a task or a look.

    Args:
        parts: instances by the part's name.

    Returns:
        Plain JSON values: counts, every instance, and the number of pairs that were compared.

    Raises:
        InstanceError: if one is shared.
    """
    held = {name: list(instances) for name, instances in parts.items()}
    names, pairs = list(held), 0
    for n, one in enumerate(names):
        for other in names[n + 1 :]:
            pairs += 1
            for kind in ("seed", "look"):
                first, second = ({(i.task, getattr(i, kind)) for i in held[part]} for part in (one, other))
                if shared := sorted(first & second):
                    raise InstanceError(
                        f"no instance may be in two of {', '.join(names)}, got {shared[0][0]!r} with the same {kind} "
                        f"in {one} and {other}. Choose other suite seeds."
                    )
    return {
        "shared": 0,
        "compared": pairs,
        "counts": {name: len(instances) for name, instances in held.items()},
        "parts": {name: [instance.to_list() for instance in instances] for name, instances in held.items()},
    }
