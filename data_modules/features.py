"""What the router is trained on: a finished harvest and its targets as one dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from switchmem.benchmarks.base import DataError
from switchmem.harvest import Harvest

EMBEDDINGS = ("text", "image", "instruction", "screenshot")


class RouterFeatures(Dataset[dict[str, Any]]):
    """Features and targets of ``N`` steps, held in memory.

    It is indexed by the places of a whole batch: one gather for each tensor, instead of one per step and a stack.

    Args:
        step_ids: of the steps.
        trajectories: of the steps; the unit of the validation split.
        tensors: by name, first dimension ``N``: ``state`` [N, D]; ``text``, ``image``, ``instruction`` and
            ``screenshot`` [N, E]; ``target`` [N], the soft targets t; ``delta`` [N], the utility gaps in [-1, 1].

    Raises:
        DataError: if lengths differ, or there is no step.
    """

    def __init__(self, step_ids: Sequence[str], trajectories: Sequence[str], tensors: dict[str, Tensor]) -> None:
        lengths = {"trajectories": len(trajectories), **{name: len(value) for name, value in tensors.items()}}
        wrong = {name: n for name, n in lengths.items() if n != len(step_ids)}
        if wrong or not step_ids:
            raise DataError(
                f"features must have one entry for each of at least one step, got {len(step_ids)} steps"
                f"{f' but {wrong}' if wrong else ''}. Check that harvest and targets belong together."
            )
        self.step_ids, self.trajectories, self.tensors = tuple(step_ids), tuple(trajectories), tensors

    @classmethod
    def from_harvest(
        cls, harvest: Harvest, inputs: Mapping[str, Tensor], target: Tensor, delta: Tensor, keep: Tensor | None = None
    ) -> RouterFeatures:
        """Features of a finished harvest.

        Args:
            harvest: ``N`` steps.
            inputs: what a router reads of them, by name: ``state`` [N, D] and `EMBEDDINGS` [N, E].
            target: ``[N]`` soft targets in the harvest's order; only those of kept steps are read.
            delta: ``[N]`` utility gaps in [-1, 1].
            keep: bool ``[N]``, the steps to take (D_pref for training); None takes all.

        Raises:
            DataError: if a length differs, or a tensor is missing.
        """
        keep = torch.ones(len(harvest), dtype=torch.bool) if keep is None else keep
        missing = {"state", *EMBEDDINGS} - set(inputs)
        if missing:
            raise DataError(f"`inputs` must hold state and embeddings, got none for {sorted(missing)}.")
        for name, values in {"target": target, "delta": delta, "keep": keep, **inputs}.items():
            if len(values) != len(harvest):
                raise DataError(
                    f"`{name}` must have one entry per harvested step, got {len(values)} for {len(harvest)}."
                )
        tensors = {name: inputs[name] for name in ("state", *EMBEDDINGS)}
        tensors |= {"target": target.float(), "delta": delta.float()}
        rows = keep.nonzero()[:, 0]
        kept = rows.tolist()
        return cls(
            [harvest.step_ids[i] for i in kept],
            [harvest.trajectories[i] for i in kept],
            {name: value.index_select(0, rows) for name, value in tensors.items()},
        )

    def __len__(self) -> int:
        return len(self.step_ids)

    def __getitem__(self, index: Sequence[int]) -> dict[str, Any]:
        """A batch of ``B`` steps by their places: ``step_id``, a list, and ``B`` rows of each tensor."""
        rows = torch.as_tensor(index)
        tensors = {name: value.index_select(0, rows) for name, value in self.tensors.items()}
        return {"step_id": [self.step_ids[n] for n in index], **tensors}

    @property
    def dims(self) -> dict[str, int]:
        """Width of each feature, D or E, by name."""
        return {name: value.shape[1] for name, value in self.tensors.items() if value.ndim == 2}


def split_by_trajectory(trajectories: Sequence[str], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Divide steps so that no trajectory is on both sides.

    The share of trajectories on the second side is `fraction`, rounded, but at least one on each side. Which ones is a
    function of their names and the seed alone: more data elsewhere does not reshuffle the names' order.

    Args:
        trajectories: of each of ``N`` steps.
        fraction: in [0, 1); 0 leaves the second side empty.
        seed: chooses the trajectories.

    Returns:
        Indices of the first and of the second side, ascending.

    Raises:
        DataError: if the fraction is out of range, or it is not 0 and there is only one trajectory.

    Example:
        >>> split_by_trajectory(["a", "a", "b", "b", "c"], 0.3, seed=0)
        ([0, 1, 2, 3], [4])
    """
    if not 0.0 <= fraction < 1.0:
        raise DataError(f"the split's `fraction` must be in [0, 1), got {fraction}. 0 leaves the second side empty.")
    names = sorted(set(trajectories), key=lambda name: _lot(name, seed))
    if fraction == 0.0:
        return list(range(len(trajectories))), []
    if len(names) < 2:
        raise DataError(
            f"a split by trajectory must have at least 2 trajectories, got {len(names)} with {len(trajectories)} "
            "steps. Add trajectories, or set the fraction to 0."
        )
    second = set(names[: min(len(names) - 1, max(1, round(fraction * len(names))))])
    sides: tuple[list[int], list[int]] = ([], [])
    for index, name in enumerate(trajectories):
        sides[name in second].append(index)
    return sides


def _lot(name: str, seed: int) -> str:
    return hashlib.blake2b(f"{seed}/{name}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class SeededBatches(Sampler[list[int]]):
    """Batches in a new order for each epoch, which depends on seed and epoch alone: a resumed fit goes on with it.

    Args:
        rows: places of the steps.
        batch_size: steps of a batch; the last one may be smaller.
        seed: of the order.
    """

    def __init__(self, rows: Sequence[int], batch_size: int, seed: int) -> None:
        self.rows, self.batch_size, self.seed, self.epoch = torch.as_tensor(rows), batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """The trainer calls this before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = self.rows[torch.randperm(len(self.rows), generator=generator)]
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size].tolist()
