"""Demonstrations for live use: their keys, the steps themselves, and their embeddings as memories, kept ready."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from switchmem.benchmarks.store import StepStore
from switchmem.memory.bank import (
    Bank,
    BankError,
    Rows,
    StepSource,
    image_candidates,
    map_rows,
    text_candidates,
    write_rows,
)
from switchmem.memory.embedder import Embedder
from switchmem.memory.retrieval import Hit, top1
from switchmem.memory.views import query_text
from switchmem.stages import write_json
from switchmem.steps import RecordError, Step

FORMAT = "switchmem.live_bank/1"
CARD, BANK = "live_bank.json", "bank"
CANDIDATES = ("text", "image")


class Candidates(NamedTuple):
    """A demonstration as the router sees it: e^T and e^I, ``[E]`` each."""

    text: Tensor
    image: Tensor


class Stores:
    """Steps of one or more stores by id; an id that lies in several is taken from the first."""

    def __init__(self, stores: Iterable[StepStore]) -> None:
        self._store_of: dict[str, StepStore] = {}
        digest = hashlib.blake2b(digest_size=16)
        for store in stores:
            digest.update(json.dumps(sorted(store.shards.values())).encode())
            for step_id in store.step_ids:
                self._store_of.setdefault(step_id, store)
        self.digest = digest.hexdigest()
        """Changes with any byte of the stores' steps."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._store_of)

    def __len__(self) -> int:
        return len(self._store_of)

    def __getitem__(self, step_id: str) -> Step:
        """The step, or `RecordError` where its record is damaged."""
        return self._store_of[step_id][step_id]


class LiveBank:
    """Demonstrations that an agent can retrieve.

    It can be shared by agents and threads: what it remembers is only ever added to.

    Args:
        steps: the demonstrations.
        bank: their keys; for a finished run, what its data module calls ``bank(part)``, with ``part(part)`` as `steps`.
        embedder: made the keys, and embeds queries and candidates.
        candidates: ``[M, E]`` in the bank's order under "text" and "image"; None embeds a demonstration as a memory
            when it is first retrieved, and remembers it.
        damaged: reasons by id of the steps that were left out.

    Raises:
        BankError: if keys or candidates are not of the embedder's width.
    """

    def __init__(
        self,
        steps: StepSource,
        bank: Bank,
        embedder: Embedder,
        candidates: Mapping[str, Rows] | None = None,
        damaged: Mapping[str, str] | None = None,
    ) -> None:
        shapes = {"keys": tuple(bank.keys.shape)} | {n: tuple(rows.shape) for n, rows in (candidates or {}).items()}
        wrong = {name: shape for name, shape in shapes.items() if shape != (len(bank), embedder.dim)}
        if wrong:
            raise BankError(
                f"keys and candidates must be {[len(bank), embedder.dim]} for {embedder.name!r}, got {wrong}. Build "
                "the bank with this embedder."
            )
        self.bank, self.embedder, self.damaged = bank, embedder, dict(damaged or {})
        self._steps, self._kept = steps, candidates
        self._places = {step_id: n for n, step_id in enumerate(bank.ids)}
        self._remembered: dict[str, Candidates] = {}

    def __len__(self) -> int:
        return len(self.bank)

    # --- making and keeping ---

    @classmethod
    def build(
        cls,
        stores: StepStore | str | Path | Iterable[StepStore | str | Path],
        embedder: Embedder,
        candidates: bool = True,
        batch_size: int = 64,
    ) -> LiveBank:
        """Embed all steps of step stores. Steps whose record is damaged are left out; see `damaged`.

        Args:
            stores: one or more stores, opened or as folders.
            embedder: of the policy.
            candidates: whether the steps are embedded as memories too, so that routing never waits for it.
            batch_size: steps per call of the embedder, at least 1.

        Raises:
            DataError: if a folder holds no store.
            BankError: if no step can be read.
        """
        steps = open_stores(stores)
        damaged: dict[str, str] = {}
        metas: list[tuple[str, str, str]] = []
        vectors: dict[str, list[Tensor]] = {name: [] for name in ("keys", *CANDIDATES)}
        stream = _whole_steps(steps, damaged)
        while batch := list(itertools.islice(stream, batch_size)):
            metas += [(step.step_id, step.trajectory, step.category) for step in batch]
            vectors["keys"].append(embedder.texts([query_text(step) for step in batch]))
            if candidates:
                vectors["text"].append(text_candidates(batch, embedder))
                vectors["image"].append(image_candidates(batch, embedder))
        if not metas:
            raise BankError(
                f"a bank must have at least one readable step, got {len(damaged)} that are damaged, the first: "
                f"{next(iter(damaged.values()), 'none')} Write the store again."
            )
        rows = {name: torch.cat(parts) for name, parts in vectors.items() if parts}
        ids, trajectories, categories = zip(*metas, strict=True)
        keys = rows.pop("keys")
        return cls(steps, Bank(ids, trajectories, categories, keys), embedder, rows or None, damaged)

    @classmethod
    def of_run(cls, run: str | Path, embedder: Embedder, part: str = "preference", **options: Any) -> LiveBank:
        """Embed the demonstrations of a run: those with which its `fit`, or its `test`, was made.

        Args:
            run: its folder, such as ``runs/pocket``.
            embedder: of the policy.
            part: "preference" takes what `fit` retrieved from, "test" what `test` did.
            **options: `candidates` and `batch_size` of `build`.

        Raises:
            BankError: if the run does not name its bank, or no step of it can be read.
            DataError: if the bank is not where the run says.
        """
        run = Path(run)
        path = run / ("provenance.json" if part == "preference" else f"provenance.{part}.json")
        try:
            stores = [run / name for name in json.loads(path.read_text(encoding="utf-8"))["harvests"][part]["bank"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BankError(
                f"{path} must name the bank of a finished `{'fit' if part == 'preference' else part}`, got: {error!r}. "
                "Run that again, which takes seconds, or give the step stores to `LiveBank.build`."
            ) from error
        return cls.build(stores, embedder, **options)

    def save(self, folder: str | Path) -> None:
        """Write the vectors into a folder; an earlier bank in it is replaced. The steps stay in their stores.

        Raises:
            BankError: if the bank was not built from stores, or without candidates.
        """
        if not isinstance(self._steps, Stores) or self._kept is None:
            raise BankError("only a bank of `LiveBank.build` with candidates can be saved. Build it from step stores.")
        folder = Path(folder)
        partial = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(partial, ignore_errors=True)
        self.bank.save(partial / BANK)
        for name, rows in self._kept.items():
            write_rows(partial / f"{name}.npy", rows)
        facts = {"embedder": self.embedder.name, "steps": self._steps.digest, "damaged": self.damaged}
        write_json(partial / CARD, {"format": FORMAT, **facts})
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)

    @classmethod
    def load(
        cls, folder: str | Path, stores: StepStore | str | Path | Iterable[StepStore | str | Path], embedder: Embedder
    ) -> LiveBank:
        """Inverse of `save`; vectors stay on the disk and are read where they are used.

        Args:
            folder: what `save` wrote.
            stores: the stores that the bank was built from, in the same order.
            embedder: the one that it was built with.

        Raises:
            BankError: if the folder is damaged, or belongs to another embedder or to other steps.
        """
        folder, steps = Path(folder), open_stores(stores)
        try:
            card: dict[str, Any] = json.loads((folder / CARD).read_text(encoding="utf-8"))
            if card["format"] != FORMAT:
                raise ValueError(f"format {card['format']!r} is not {FORMAT!r}")
            candidates = {name: map_rows(folder / f"{name}.npy") for name in CANDIDATES}
            made_of = {"embedder": card["embedder"], "steps": card["steps"]}
            damaged = dict(card["damaged"])
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise BankError(f"{folder} must be a saved live bank, got: {error!r}. Build and save it again.") from error
        given = {"embedder": embedder.name, "steps": steps.digest}
        wrong = [f"`{k}` is {v!r}, saved with {made_of[k]!r}" for k, v in given.items() if v != made_of[k]]
        if wrong:
            raise BankError(f"{folder} must be used as it was built, got: {'; '.join(wrong)}. Build and save it again.")
        return cls(steps, Bank.load(folder / BANK), embedder, candidates, damaged)

    # --- using ---

    def find(self, query: str, category: str | None = None) -> Hit | None:
        """The demonstration with the highest cosine; of equal ones the smallest step id.

        Args:
            query: instruction and textual state, as `query_text` writes them.
            category: when given, only demonstrations of this category count.

        Returns:
            None where there is none.
        """
        vector = self.embedder.texts([query])
        # No trajectory is called "": a live step has none of its own in the bank.
        (hit,) = top1(vector, self.bank, [""], None if category is None else [category])
        return hit

    def step(self, step_id: str) -> Step:
        """A demonstration.

        Raises:
            RecordError: if its record was damaged since the bank was built.
        """
        return self._steps[step_id]

    def candidates(self, demo: Step) -> Candidates:
        """The demonstration's embeddings as Text and as Image memory."""
        place = slice(n := self._places[demo.step_id], n + 1)
        if self._kept is not None:
            return Candidates(*(self._kept[name][place][0] for name in CANDIDATES))
        if demo.step_id not in self._remembered:
            text, image = text_candidates([demo], self.embedder), image_candidates([demo], self.embedder)
            self._remembered[demo.step_id] = Candidates(text[0], image[0])
        return self._remembered[demo.step_id]


def open_stores(stores: StepStore | str | Path | Iterable[StepStore | str | Path]) -> Stores:
    """One or more stores, opened or as folders."""
    several = [stores] if isinstance(stores, (StepStore, str, Path)) else list(stores)
    return Stores(store if isinstance(store, StepStore) else StepStore(Path(store)) for store in several)


def _whole_steps(steps: Stores, damaged: dict[str, str]) -> Iterator[Step]:
    """The readable steps; the reasons of the others are put into `damaged`."""
    for step_id in steps:
        try:
            step = steps[step_id]
        except RecordError as error:
            damaged[step_id] = str(error)
        else:
            yield step
