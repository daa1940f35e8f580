"""The memory bank: which demonstrations can be retrieved, their keys, and their embeddings as memories."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from switchmem.memory.embedder import Embedder
from switchmem.memory.views import one_line, query_text, state_text
from switchmem.steps import Action, Step

KEYS, STEPS = "keys.npy", "steps.parquet"
COLUMNS = ("ids", "trajectories", "categories")


class BankError(ValueError):
    """A bank is inconsistent; the message names the rule, what was found and the way out."""


class StepSource(Protocol):
    """Steps by id; `switchmem.benchmarks.store.StepStore` is one."""

    def __getitem__(self, step_id: str) -> Step:
        """The step, or `RecordError` where its record is damaged."""


class Rows(Protocol):
    """Vectors that may lie in mapped files: a tensor is one, and so is `switchmem.memory.embeddings.MappedRows`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(M, E)``."""

    def __getitem__(self, index: slice | NDArray[np.int64]) -> Tensor:
        """Some rows, ``[m, E]`` float32."""


@dataclass(frozen=True)
class Bank:
    """Demonstrations that can be retrieved.

    Args:
        ids: ``M`` distinct step ids.
        trajectories: the trajectory of each.
        categories: the category of each, "" where there is none.
        keys: ``[M, E]`` float32, rows of length 1; a tensor, or rows of mapped files that never lie in memory together.

    Raises:
        BankError: if lengths differ or an id occurs twice.
    """

    ids: tuple[str, ...]
    trajectories: tuple[str, ...]
    categories: tuple[str, ...]
    keys: Rows

    def __post_init__(self) -> None:
        shape = tuple(self.keys.shape)
        lengths = (len(self.ids), len(self.trajectories), len(self.categories), *shape[:1])
        if len(shape) != 2 or len(set(lengths)) != 1:
            raise BankError(
                f"`ids`, `trajectories`, `categories` and `keys` must have one entry per demonstration, got {lengths} "
                f"and keys of shape {shape}."
            )
        if len(set(self.ids)) != len(self.ids):
            twice = sorted(step_id for step_id, n in Counter(self.ids).items() if n > 1)
            raise BankError(f"`ids` must be distinct, got {len(twice)} twice, the first {twice[0]!r}. Drop the copies.")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def build(cls, steps: Iterable[Step], embedder: Embedder, batch_size: int = 64) -> Bank:
        """Embed demonstrations by their query text (instruction and textual state).

        The keys lie in memory; `switchmem.memory.embeddings` is for more than fit there.

        Args:
            steps: the demonstrations.
            embedder: the embedder that the queries will use too.
            batch_size: steps per call of the embedder, at least 1.
        """
        metas: list[tuple[str, str, str]] = []
        keys: list[Tensor] = []
        stream = iter(steps)
        while batch := list(itertools.islice(stream, batch_size)):
            metas += [(step.step_id, step.trajectory, step.category) for step in batch]
            keys.append(embedder.texts([query_text(step) for step in batch]))
        ids, trajectories, categories = zip(*metas, strict=True) if metas else ((), (), ())
        return cls(ids, trajectories, categories, torch.cat(keys) if keys else torch.zeros(0, embedder.dim))

    def save(self, folder: Path) -> None:
        """Write a folder: ``keys.npy``, which can be mapped, and ``steps.parquet`` with the three columns.

        Everything is written beside it first and renamed at the end; an earlier bank in `folder` is replaced.
        """
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write_rows(partial / KEYS, self.keys)
        # Bytes, since ids may hold what is no valid Unicode.
        columns = {name: [value.encode("utf-8", "surrogatepass") for value in getattr(self, name)] for name in COLUMNS}
        schema = pa.schema([(name, pa.binary()) for name in COLUMNS])
        pq.write_table(pa.table(columns, schema=schema), partial / STEPS, compression="zstd")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)

    @classmethod
    def load(cls, folder: Path) -> Bank:
        """Inverse of `save`; the keys stay on the disk and are read where they are used.

        Raises:
            BankError: if the folder is not a saved bank.
        """
        try:
            table = pq.read_table(folder / STEPS, columns=list(COLUMNS))
            columns = [
                tuple(value.decode("utf-8", "surrogatepass") for value in table[name].to_pylist()) for name in COLUMNS
            ]
            return cls(columns[0], columns[1], columns[2], map_rows(folder / KEYS))
        except (OSError, EOFError, ValueError, KeyError, pa.ArrowInvalid) as error:
            raise BankError(f"{folder} must be a saved bank, got: {error!r}. Save it again.") from error


def write_rows(path: Path, rows: Rows, block: int = 4096) -> None:
    """Write rows as one ``.npy`` file, `block` rows at a time."""
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": tuple(rows.shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows.shape[0], block):
            some = rows[start : min(start + block, rows.shape[0])]
            file.write(np.ascontiguousarray(some.detach().cpu().numpy(), dtype="<f4").data)


def map_rows(path: Path) -> Tensor:
    """``[M, E]`` float32 of a file of `write_rows`; mapped, so that rows are read when they are used.

    Raises:
        ValueError: if the file holds something else.
    """
    # Copy on write: nothing is ever written, but torch wants memory that could be.
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    if array.ndim != 2 or array.dtype != np.dtype("<f4"):
        raise ValueError(f"{path} must hold rows of float32, got {array.dtype} of shape {array.shape}")
    return torch.from_numpy(array)


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
