"""LearnGUI as a data module: preferences from its Online demonstrations, tests on its Offline few-shot tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from data_modules.base import StepsDataModule
from data_modules.parts import PartSteps
from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.learngui import Episode, StepReader, Task, find_layout, load_offline, load_online, load_tests
from switchmem.console import Advance, progress
from switchmem.stages import Stage, fingerprint
from switchmem.steps import Step

CORRECTED_NOTE = "Scored by LearnGUI's corrected rule, so that no number compares with published ones."
WAY_OUT = "Check that screenshots are unpacked, and that their names are those of the JSON files."


class LearnGuiDataModule(StepsDataModule):
    """LearnGUI by the recipe of SwitchMem, appendix B.1.

    Preference queries and their memory are the Online demonstrations, each query without its own trajectory. Test
    queries are the Offline tasks of split "test" with `k_shot`; each retrieves from the steps of its own support
    demonstrations alone. A support that is itself a query elsewhere stays one, but never of its own steps. An Online
    episode that is a test query is left out.

    Args:
        root: folder with ``offline`` and ``online`` of the release, its archives unpacked.
        k_shot: 1, 2 or 3, demonstrations of a test query.
        score: "official", or "corrected" for a rule without the official one's gaps, whose numbers do not compare with
            published ones; see `switchmem.benchmarks.learngui.score`.
        batch_size: steps per forward pass of the actor, at least 1.
        num_workers: processes that read steps for the actor, at least 0.
        router_batch_size: steps per training batch of the router, at least 1.
        val_fraction: share of trajectories on which the router's fit is validated, in [0, 1); 0 turns validation off.
        seed: chooses the validation trajectories and the training order.

    Raises:
        DataError: if an argument is out of range, or files are missing; it names them, and how to get them.
    """

    def __init__(
        self,
        root: str = "data/learngui",
        k_shot: int = 1,
        score: Literal["official", "corrected"] = "official",
        batch_size: int = 8,
        num_workers: int = 0,
        router_batch_size: int = 256,
        val_fraction: float = 0.1,
        seed: int = 42,
    ) -> None:
        super().__init__(batch_size, num_workers, router_batch_size, val_fraction, seed)
        if k_shot not in (1, 2, 3):
            raise DataError(f"`k_shot` must be 1, 2 or 3, got {k_shot}. LearnGUI has no other tasks.")
        if score not in ("official", "corrected"):
            raise DataError(f"`score` must be official or corrected, got {score!r}.")
        self.layout = find_layout(root)
        self.k_shot, self.score = k_shot, score
        corrected = score == "corrected"
        self._online, self._offline = (StepReader(self.layout, online, corrected) for online in (True, False))
        self.benchmark = self._offline.benchmark
        self.notes = (CORRECTED_NOTE,) if corrected else ()
        self._advance: Advance | None = None

    # --- steps ---

    def write(self, stage: Stage, report: DataReport) -> None:
        """Write the parts, with a bar."""
        with progress("LearnGUI") as self._advance:
            super().write(stage, report)
        self._advance = None

    def read(self, report: DataReport) -> Mapping[str, PartSteps]:
        """Online steps as preference queries and their memory; Offline test queries; the steps of their supports."""
        offline = load_offline(self.layout, self.benchmark, report)
        tasks = load_tests(self.layout, self.k_shot, offline, self.benchmark, report)
        online = self._apart(load_online(self.layout, self.benchmark, report), tasks, report)
        supports = dict.fromkeys(name for task in tasks.values() for name in task.support)
        _note_parts(online, tasks, supports, report)
        queries = [replace(offline[name], app=offline[name].app or task.app) for name, task in tasks.items()]
        told = _Progress(self._advance, [*online, *queries, *(offline[name] for name in supports)])
        # What a query and a support share is counted once.
        fresh = [offline[name] for name in supports if name not in tasks]
        shared = [offline[name] for name in supports if name in tasks]
        return {
            "preference": told(self._required(self._online, online, report)),
            "test": told(self._required(self._offline, queries, report)),
            "test_bank": told(self._bank(fresh, shared, report)),
        }

    def _apart(self, online: dict[str, Episode], tasks: Mapping[str, Task], report: DataReport) -> list[Episode]:
        """Online episodes without those that are test queries too."""
        for name in sorted(online.keys() & tasks.keys()):
            report.add(f"{self.benchmark}/{name}", "the Online episode is a test query too; it is left out of Online.")
        return [episode for name, episode in online.items() if name not in tasks]

    def _required(self, reader: StepReader, episodes: Sequence[Episode], report: DataReport) -> Iterator[Step]:
        before = report.kept
        yield from reader.read(episodes, report)
        sources = dict.fromkeys(episode.source for episode in episodes[:3])
        require_steps(report.kept - before, report, sources or [self.layout.root], WAY_OUT)

    def _bank(self, fresh: Iterable[Episode], shared: Iterable[Episode], report: DataReport) -> Iterator[Step]:
        yield from self._offline.read(fresh, report)
        yield from self._offline.read(shared, DataReport())

    def fingerprint(self) -> Any:
        """Names and sizes of the files, times of the JSON ones, and the settings that decide which steps there are."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> dict[str, Any]:
        return {"benchmark": self.benchmark, "k_shot": self.k_shot, "files": fingerprint(self.layout.facts())}

    # --- memory ---

    def allowed(self, part: str, query_ids: Sequence[str], bank_ids: Sequence[str]) -> Tensor | None:
        """Test queries retrieve from the steps of their own supports, bool ``[B, M]``; others from all of Online."""
        if part != "test":
            return None
        columns: dict[str, list[int]] = {}
        for place, step_id in enumerate(bank_ids):
            columns.setdefault(_episode_of(step_id), []).append(place)
        mask = np.zeros((len(query_ids), len(bank_ids)), dtype=np.bool_)
        for row, step_id in enumerate(query_ids):
            for support in self._supports.get(_episode_of(step_id), ()):
                mask[row, columns.get(support, [])] = True
        return torch.from_numpy(mask)

    @cached_property
    def _supports(self) -> dict[str, tuple[str, ...]]:
        """Support episodes by query episode; read again, since the steps may have been written by an earlier run."""
        offline = load_offline(self.layout, self.benchmark, DataReport())
        tasks = load_tests(self.layout, self.k_shot, offline, self.benchmark, DataReport())
        return {name: task.support for name, task in tasks.items()}


def _episode_of(step_id: str) -> str:
    """``learngui/EPISODE/3`` -> EPISODE, which may hold slashes."""
    return step_id.partition("/")[2].rpartition("/")[0]


def _note_parts(
    online: Sequence[Episode], tasks: Mapping[str, Task], supports: Mapping[str, None], report: DataReport
) -> None:
    """Counts that tell who is in which part; the first is a proof, since it is counted after all is divided."""
    report.note("episodes_in_preference_and_test", len({episode.id for episode in online} & tasks.keys()))
    report.note("episodes_in_preference", len(online))
    report.note("episodes_in_preference_that_are_test_supports", sum(e.id in supports for e in online))
    report.note("test_queries", len(tasks))
    report.note("test_queries_without_a_support", sum(not task.support for task in tasks.values()))
    report.note("test_queries_that_are_supports_of_others", len(supports.keys() & tasks.keys()))
    report.note("test_queries_that_are_their_own_support", sum(name in t.support for name, t in tasks.items()))
    report.note("test_supports", len(supports))


class _Progress:
    """Tells how many of the steps that are written down have been read, over several streams."""

    def __init__(self, advance: Advance | None, episodes: Iterable[Episode]) -> None:
        self.advance, self.total, self.done = advance, sum(len(episode.steps) for episode in episodes), 0

    def __call__(self, steps: Iterable[Step]) -> Iterator[Step]:
        for step in steps:
            self.done += 1
            if self.advance is not None:
                self.advance(self.done, self.total)
            yield step
