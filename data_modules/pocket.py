"""The pocket world as a data module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from data_modules.base import StepsDataModule
from data_modules.parts import PARTS, PartSteps
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.pocket import PocketSpec, fingerprint, generate_steps
from switchmem.steps import Step


class PocketDataModule(StepsDataModule):
    """Generated phone steps; see `switchmem.benchmarks.pocket`.

    Preference and test queries live in different apps, and each side has a bank of its own with the same apps in other
    episodes.

    Args:
        world: "mixed", where icons have no name in the textual state and the words of a demonstration's screenshot are
            too small to read; or "control", where either view tells everything.
        world_seed: of everything that is drawn.
        apps: apps of the preference part.
        test_apps: apps of the test part.
        goals: different instructions of an app.
        episodes: trajectories per app among the queries.
        bank_episodes: trajectories per app in a bank.
        batch_size: steps per forward pass of the actor, at least 1.
        num_workers: processes that read steps for the actor, at least 0.
        router_batch_size: steps per training batch of the router, at least 1.
        val_fraction: share of trajectories on which the router's fit is validated, in [0, 1); 0 turns validation off.
        seed: chooses the validation trajectories and the training order.

    Raises:
        DataError: if an argument is out of range.
    """

    notes = ("The pocket world is synthetic: its scores say nothing about real apps.",)

    def __init__(
        self,
        world: Literal["mixed", "control"] = "mixed",
        world_seed: int = 0,
        apps: int = 40,
        test_apps: int = 24,
        goals: int = 6,
        episodes: int = 9,
        bank_episodes: int = 12,
        batch_size: int = 8,
        num_workers: int = 0,
        router_batch_size: int = 256,
        val_fraction: float = 0.1,
        seed: int = 42,
    ) -> None:
        super().__init__(batch_size, num_workers, router_batch_size, val_fraction, seed)
        try:
            self.spec = PocketSpec(world, world_seed, apps, test_apps, goals, episodes, bank_episodes)
        except ValueError as error:
            raise DataError(f"the pocket world cannot be made: {error}") from error

    def read(self, report: DataReport) -> Mapping[str, PartSteps]:
        """All four parts, generated while they are drawn."""
        return {part: self._steps(part, report) for part in PARTS}

    def _steps(self, part: str, report: DataReport) -> Iterator[Step]:
        for step in generate_steps(self.spec, part):
            report.read += 1
            report.kept += 1
            yield step

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.spec)

    def fingerprint(self) -> Any:
        """The world's settings, and a digest of what its code draws."""
        return self._fingerprint
