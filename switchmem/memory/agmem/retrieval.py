"""AGMem's two stages of retrieval as arithmetic: cover the subtasks with trajectories, then rank their steps."""

from __future__ import annotations

import torch
from torch import Tensor


def cover(similarity: Tensor, size: int, close: float) -> list[int]:
    """A pool of trajectories that covers the subtasks (appendix B.2: greedy, so that no subtask dominates).

    The next trajectory is the one relevant to most subtasks that are not covered yet; of equal ones that with the
    largest similarity to them, then the first. When all that can be covered are, the count begins anew with the rest.

    Args:
        similarity: ``[p, T]`` cosine of each subtask with the nearest label of each trajectory, -inf where a trajectory
            may not be used.
        size: the most trajectories, at least 1.
        close: cosine from which a trajectory is relevant to a subtask.

    Returns:
        Places of the trajectories, the first chosen first; trajectories that are relevant to nothing are never chosen,
        unless none is relevant, when the nearest ones are.
    """
    relevant = similarity >= close
    left = torch.isfinite(similarity).any(dim=0)
    if not bool((relevant & left).any()):
        order = similarity.amax(dim=0).sort(descending=True, stable=True).indices.tolist()
        return [place for place in order if bool(left[place])][:size]
    left &= relevant.any(dim=0)
    chosen: list[int] = []
    open_ = torch.ones(len(similarity), dtype=torch.bool)
    while len(chosen) < size and bool(left.any()):
        gains = (relevant & open_[:, None]).sum(dim=0).where(left, torch.tensor(-1))
        if int(gains.max()) == 0:
            open_[:] = True
            continue
        best = gains == gains.max()
        near = similarity.where(relevant & open_[:, None], torch.tensor(0.0)).sum(dim=0)
        place = int(near.where(best, torch.tensor(-torch.inf)).argmax())
        chosen.append(place)
        left[place] = False
        open_ &= ~relevant[:, place]
    return chosen


def combined(texts: Tensor, pictures: Tensor, text_weight: float = 0.5) -> Tensor:
    """One vector of a label and a view (appendix B.2: 0.5 each).

    Args:
        texts: ``[n, E]``, rows of length 1.
        pictures: ``[n, E]``, likewise.
        text_weight: weight of the text in [0, 1].

    Returns:
        ``[n, E]``, rows of length 1.
    """
    return torch.nn.functional.normalize(text_weight * texts + (1.0 - text_weight) * pictures, dim=-1)


def nearest(query: Tensor, keys: Tensor, count: int) -> list[tuple[int, float]]:
    """The keys nearest to a query by cosine, the best first; of equal ones the first.

    Args:
        query: ``[E]`` of length 1.
        keys: ``[n, E]``, rows of length 1.
        count: how many, at least 1.
    """
    cosines = keys @ query
    order = cosines.sort(descending=True, stable=True).indices[:count].tolist()
    return [(place, float(cosines[place])) for place in order]
