"""Reading a harvest back, and the check that it is whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from switchmem.harvest.damaged import read_damaged
from switchmem.harvest.record import HarvestError
from switchmem.harvest.shards import Shard, read_settings, read_shards, write_json

MANIFEST = "manifest.json"


def merge(
    folder: Path, expected_ids: Iterable[str], skipped: Mapping[str, str] | None = None, write: bool = True
) -> dict[str, Any]:
    """Check that every expected step was harvested exactly once, and write the manifest.

    Steps whose record was found damaged meanwhile (`note_damaged`) are not missing: they count as skipped.

    Args:
        folder: the harvest folder, with the shards of all ranks.
        expected_ids: the steps that were to be harvested.
        skipped: reasons by id of the steps that were left out before, for the reader.
        write: whether to write; the other ranks check alone, so that all of them stop on an error.

    Returns:
        The manifest: counts, step ids, shards, parse failures by condition and reason, skipped steps.

    Raises:
        HarvestError: on a step twice, missing or not expected, or a damaged shard. What was harvested stays.
    """
    shards = read_shards(folder)
    for shard in shards:
        shard.check(digest=write)
    counts = Counter(row["step_id"] for shard in shards for row in shard.rows)
    damaged = {step_id: reason for step_id, reason in read_damaged(folder).items() if step_id not in counts}
    expected = set(expected_ids) - set(damaged)
    problems = {
        "twice": sorted(i for i, n in counts.items() if n > 1),
        "missing": sorted(expected - set(counts)),
        "not expected": sorted(set(counts) - expected),
    }
    if any(problems.values()):
        found = ", ".join(f"{len(ids)} {what} (first {ids[0]!r})" for what, ids in problems.items() if ids)
        raise HarvestError(
            f"{folder} must hold each of {len(expected)} steps once, got {sum(counts.values())} records: {found}. "
            f"{_way_out(shards, problems)}"
        )
    manifest = {
        "records": len(counts),
        "settings": read_settings(folder),
        "parse_failures": _parse_failures(shards),
        "skipped": dict(sorted({**(skipped or {}), **damaged}.items())),
        "shards": [{"name": s.name, "records": len(s.rows), "bytes": s.bytes, "digest": s.digest} for s in shards],
        "step_ids": sorted(counts),
    }
    if write:
        write_json(folder / MANIFEST, manifest)
        for leftover in folder.glob(".*.tmp"):  # of runs that were killed while they wrote
            leftover.unlink()
    return manifest


def _way_out(shards: Sequence[Shard], problems: Mapping[str, Sequence[str]]) -> str:
    """What to do about steps that are missing, twice or foreign, without losing more than must be."""
    seen: set[str] = set()
    extra = []
    foreign = set(problems["not expected"])
    for shard in shards:
        ids = {row["step_id"] for row in shard.rows}
        if ids & (seen | foreign):
            extra.append(shard.name)
        seen |= ids
    if not extra:
        return "Run the same command again: finished steps are kept."
    return (
        f"Delete {', '.join(extra)} there (.json and .safetensors) and run the same command again: all other steps are "
        "kept."
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise HarvestError(f"{folder} must be a finished harvest, got: {error}. Run the harvest again.") from error


def _check_manifest(folder: Path, shards: Sequence[Shard], found: set[str]) -> None:
    """A finished harvest must still be what its manifest says: a lost or altered shard would change every result."""
    manifest = _read_manifest(folder)
    again = f"Delete {folder / MANIFEST} and {folder / 'stage.json'} and run again: only what is missing is redone."
    lost = sorted(set(manifest["step_ids"]) - found)
    if lost or len(found) != len(manifest["step_ids"]):
        raise HarvestError(
            f"{folder} must hold the {len(manifest['step_ids'])} steps of its manifest, got {len(found)}"
            + (f", without {lost[0]!r}" if lost else "")
            + f". {again}"
        )
    for shard in shards:
        shard.check(digest=True)


def _parse_failures(shards: Iterable[Shard]) -> dict[str, dict[str, int]]:
    """Number of unparsable answers by condition and reason; every condition is listed."""
    failures: dict[str, Counter[str]] = {}
    for row in (row for shard in shards for row in shard.rows):
        for condition, reasons in row["reasons"].items():
            failures.setdefault(condition, Counter()).update(reason for reason in reasons if reason is not None)
    return {condition: dict(sorted(counter.items())) for condition, counter in failures.items()}


class Harvest:
    """A harvest read back. Steps are in the order of trajectory and index, whatever ranks and restarts wrote them.

    Tensors are read when asked for, one layer or name at a time.

    Attributes:
        folder: where it lies.
        complete: whether its manifest was written, that is, every expected step is there exactly once.
        missing: expected ids that are not there, sorted; empty if none were given.
        settings: what produced it.
        step_ids, trajectories, memory_ids: ``N`` each.
        layers: indices of the probed decoder blocks, ``L``.
        conditions: names of the conditions that have answers.
    """

    def __init__(self, folder: Path, shards: list[Shard], missing: tuple[str, ...], complete: bool) -> None:
        self.folder, self.missing, self.complete = folder, missing, complete
        self.settings = read_settings(folder)
        self._shards = shards
        places = [(i, j) for i, shard in enumerate(shards) for j in range(len(shard.rows))]
        places.sort(key=lambda place: _order(shards[place[0]].rows[place[1]]))
        self._rows = [shards[i].rows[j] for i, j in places]
        self._position = {place: n for n, place in enumerate(places)}
        self.step_ids = tuple(row["step_id"] for row in self._rows)
        self.trajectories = tuple(row["trajectory"] for row in self._rows)
        self.memory_ids = tuple(row["memory_id"] for row in self._rows)
        self.layers = tuple(int(layer) for layer in self.settings["layers"])
        self.conditions = tuple(self._rows[0]["answers"]) if self._rows else ()

    @classmethod
    def open(cls, folder: str | Path, expected_ids: Iterable[str] | None = None) -> Harvest:
        """Open a harvest, finished or not.

        Args:
            folder: the harvest folder.
            expected_ids: when given, `missing` says which of them are not there.

        Raises:
            HarvestError: if there is no harvest, a step is there twice, or a shard is damaged.
        """
        folder = Path(folder)
        shards = read_shards(folder)
        counts = Counter(row["step_id"] for shard in shards for row in shard.rows)
        twice = sorted(i for i, n in counts.items() if n > 1)
        if twice:
            raise HarvestError(
                f"{folder} must hold each step once, got {len(twice)} more than once, the first {twice[0]!r}. "
                "Delete the folder and harvest again."
            )
        complete = cls.is_complete(folder)
        if complete:
            _check_manifest(folder, shards, set(counts))
        missing = tuple(sorted(set(expected_ids or ()) - set(counts)))
        return cls(folder, shards, missing, complete and not missing)

    @staticmethod
    def is_complete(folder: str | Path) -> bool:
        """Whether the manifest was written; reads nothing else."""
        return (Path(folder) / MANIFEST).is_file()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def manifest(self) -> dict[str, Any]:
        """What `merge` returned.

        Raises:
            HarvestError: if the harvest is not complete.
        """
        return _read_manifest(self.folder)

    @property
    def cosines(self) -> Tensor:
        """``[N]`` float64 in [-1, 1]: of each step and its demonstration."""
        return torch.tensor([row["cosine"] for row in self._rows], dtype=torch.float64)

    @property
    def seconds(self) -> list[float]:
        """Time the actor took for each step, in its batch."""
        return [float(row["seconds"]) for row in self._rows]

    def states(self, name: str, layer: int = -1) -> Tensor:
        """Hidden states at one block.

        Args:
            name: "state", or a memory condition.
            layer: index of the decoder block as in `layers`; -1 is the last one probed.

        Returns:
            ``[N, D]`` float32.

        Raises:
            HarvestError: if the name or layer was not harvested.
        """
        if layer != -1 and layer not in self.layers:
            raise HarvestError(
                f"`layer` must be one of {self.layers} or -1, got {layer}. Harvest with that layer probed."
            )
        return self._gather(f"states.{name}", len(self.layers) - 1 if layer == -1 else self.layers.index(layer))

    def embeddings(self, name: str) -> Tensor:
        """``[N, E]`` float32 of "text", "image" (the memory in either form), "instruction" or "screenshot"."""
        return self._gather(f"embeddings.{name}")

    def scores(self, condition: str) -> Tensor:
        """``[N, K]`` float64 in [0, 1]: the score of each sample under a condition."""
        return self._gather(f"scores.{condition}")

    def answers(self, condition: str) -> list[list[str]]:
        """``K`` raw answers for each step."""
        return self._column("answers", condition)

    def actions(self, condition: str) -> list[list[dict[str, Any] | None]]:
        """``K`` actions as plain JSON for each step; None where an answer could not be parsed."""
        return self._column("actions", condition)

    def reasons(self, condition: str) -> list[list[str | None]]:
        """``K`` parse reasons for each step; None where an answer could be parsed."""
        return self._column("reasons", condition)

    def new_tokens(self, condition: str) -> list[list[int]] | None:
        """Tokens of the ``K`` answers for each step; None where they were not kept."""
        kept = [row.get("new_tokens", {}).get(condition) for row in self._rows]
        return None if any(counts is None for counts in kept) else kept

    def prompt_tokens(self, condition: str) -> list[int] | None:
        """Tokens of the prompt under a condition ("none": the state prompt) for each step; None if not kept."""
        kept = [row.get("prompt_tokens", {}).get(condition) for row in self._rows]
        return None if any(count is None for count in kept) else kept

    def context(self, name: str) -> list[Any]:
        """One value per step: "index", "action_type", "is_spatial", "density" or "category"."""
        return self._column("context", name)

    def parse_failures(self) -> dict[str, dict[str, int]]:
        """Number of unparsable answers by condition and reason."""
        return _parse_failures(self._shards)

    def _column(self, field: str, name: str) -> list[Any]:
        if self._rows and name not in self._rows[0][field]:
            raise HarvestError(f"`{field}` must be of one of {sorted(self._rows[0][field])}, got {name!r}.")
        return [row[field][name] for row in self._rows]

    def _gather(self, key: str, layer: int | None = None) -> Tensor:
        """Rows of all shards in the order of `step_ids`."""
        result: Tensor | None = None
        for i, shard in enumerate(self._shards):
            with safe_open(shard.tensors, framework="pt") as file:
                if key not in file.keys():
                    raise HarvestError(
                        f"`{key}` must be one of {sorted(file.keys())} in {shard.tensors}, got no such tensor."
                    )
                rows = file.get_tensor(key) if layer is None else file.get_slice(key)[:, layer]
            if result is None:
                result = torch.empty(len(self), *rows.shape[1:], dtype=rows.dtype)
            result[[self._position[i, j] for j in range(len(rows))]] = rows
        if result is None:
            raise HarvestError(f"{self.folder} must hold at least one record to read {key!r}, got none. Harvest first.")
        return result


def _order(row: dict[str, Any]) -> tuple[str, int]:
    return row["trajectory"], row["context"]["index"]
