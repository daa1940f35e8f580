"""The memory bank: which demonstrations can be retrieved, their keys, and their embeddings as memories."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from switchmem.memory.embedder import Embedder
from switchmem.memory.views import one_line, query_text, state_text
from switchmem.steps import Action, RecordError, Step


class BankError(ValueError):
    """A bank is inconsistent; the message names the rule, what was found and the way out."""


class StepSource(Protocol):
    """Steps by id; `switchmem.benchmarks.store.StepStore` is one."""

    def __getitem__(self, step_id: str) -> Step:
        """The step, or `RecordError` where its record is damaged."""


@dataclass(frozen=True)
class Bank:
    """Demonstrations that can be retrieved.

    Args:
        ids: ``M`` distinct step ids.
        trajectories: the trajectory of each.
        categories: the category of each, "" where there is none.
        keys: ``[M, E]`` float32, rows of length 1.

    Raises:
        BankError: if lengths differ or an id occurs twice.
    """

    ids: tuple[str, ...]
    trajectories: tuple[str, ...]
    categories: tuple[str, ...]
    keys: Tensor

    def __post_init__(self) -> None:
        lengths = (len(self.ids), len(self.trajectories), len(self.categories), len(self.keys))
        if self.keys.ndim != 2 or len(set(lengths)) != 1:
            raise BankError(
                f"`ids`, `trajectories`, `categories` and `keys` must have one entry per demonstration, got {lengths} "
                f"and keys of shape {tuple(self.keys.shape)}."
            )
        if len(set(self.ids)) != len(self.ids):
            twice = sorted({i for i in self.ids if self.ids.count(i) > 1})
            raise BankError(f"`ids` must be distinct, got {len(twice)} twice, the first {twice[0]!r}. Drop the copies.")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def build(
        cls,
        source: StepSource,
        ids: Iterable[str],
        embedder: Embedder,
        batch_size: int = 64,
        on_damaged: Callable[[str, str], None] | None = None,
    ) -> Bank:
        """Embed demonstrations by their query text (instruction and textual state).

        Args:
            source: where the steps are.
            ids: ids of the demonstrations.
            embedder: the embedder that the queries will use too.
            batch_size: steps per call of the embedder, at least 1.
            on_damaged: called with (step id, reason) for a damaged record, which is then left out.

        Raises:
            RecordError: on a damaged record, without `on_damaged`.
        """
        rows = list(embed_queries(source, ids, embedder, batch_size, on_damaged))
        keys = torch.stack([row.vector for row in rows]) if rows else torch.zeros(0, embedder.dim)
        return cls(
            tuple(row.step_id for row in rows),
            tuple(row.trajectory for row in rows),
            tuple(row.category for row in rows),
            keys,
        )

    def save(self, path: Path) -> None:
        """Write one safetensors file, under a temporary name first."""
        columns = {"ids": self.ids, "trajectories": self.trajectories, "categories": self.categories}
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        metadata = {name: json.dumps(values) for name, values in columns.items()}
        save_file({"keys": self.keys.contiguous()}, partial, metadata=metadata)
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Bank:
        """Inverse of `save`.

        Raises:
            BankError: if the file is not a saved bank.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata: Mapping[str, str] = file.metadata() or {}
                columns = [tuple(json.loads(metadata[name])) for name in ("ids", "trajectories", "categories")]
                return cls(columns[0], columns[1], columns[2], file.get_tensor("keys"))
        except Exception as error:  # safetensors raises a type of its own
            raise BankError(f"{path} must be a saved bank, got: {error}. Delete it; it is built again.") from error


@dataclass(frozen=True)
class EmbeddedQuery:
    """A step's key: ``vector`` is ``[E]``."""

    step_id: str
    trajectory: str
    category: str
    vector: Tensor


def embed_queries(
    source: StepSource,
    ids: Iterable[str],
    embedder: Embedder,
    batch_size: int = 64,
    on_damaged: Callable[[str, str], None] | None = None,
) -> Iterator[EmbeddedQuery]:
    """Embed steps by their query text, in order; see `Bank.build` for the arguments."""
    batch: list[Step] = []
    for step in _intact(source, ids, on_damaged):
        batch.append(step)
        if len(batch) == batch_size:
            yield from _embed_batch(batch, embedder)
            batch = []
    if batch:
        yield from _embed_batch(batch, embedder)


def _intact(source: StepSource, ids: Iterable[str], on_damaged: Callable[[str, str], None] | None) -> Iterator[Step]:
    for step_id in ids:
        try:
            step = source[step_id]
        except RecordError as error:
            if on_damaged is None:
                raise
            on_damaged(step_id, str(error))
        else:
            yield step


def _embed_batch(steps: Sequence[Step], embedder: Embedder) -> Iterator[EmbeddedQuery]:
    vectors = embedder.texts([query_text(step) for step in steps])
    for step, vector in zip(steps, vectors, strict=True):
        yield EmbeddedQuery(step.step_id, step.trajectory, step.category, vector)


def action_text(action: Action) -> str:
    """An action in words that belong to no actor, for embedding; places are (x, y) fractions of the screen.

    Example:
        >>> from switchmem.steps import ActionType
        >>> action_text(Action(ActionType.TAP, (0.5, 0.25), description="Open the menu"))
        'tap (0.50, 0.25): Open the menu'
    """
    words = [action.type.value]
    words += [f"({point[0]:.2f}, {point[1]:.2f})" for point in (action.point, action.end) if point is not None]
    if action.text:
        words.append(f'"{action.text}"')
    return " ".join(words) + (f": {action.description}" if action.description else "")


def text_candidates(demos: Sequence[Step], embedder: Embedder) -> Tensor:
    """Embeddings e^T of demonstrations as Text memories: instruction, textual state and action.

    Returns:
        ``[B, E]``, rows of length 1.
    """
    return embedder.texts([f"{one_line(d.instruction)}\n{state_text(d)}\n{action_text(d.action)}" for d in demos])


def image_candidates(demos: Sequence[Step], embedder: Embedder) -> Tensor:
    """Embeddings e^I of demonstrations as Image memories: instruction, screenshot and action.

    Returns:
        ``[B, E]``, rows of length 1.
    """
    return embedder.multimodal(
        [(f"{one_line(d.instruction)}\n{action_text(d.action)}", d.screenshot.image()) for d in demos]
    )
