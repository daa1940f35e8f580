"""Steps of MobileMiniWoB++ as a data module: scripted demonstrators play them in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from data_modules.base import StepsDataModule
from data_modules.parts import PartSteps
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.console import progress
from switchmem.steps import Step

MISSING = 'MobileMiniWoB++ must be installed, got: {error}. Run pip install "switchmem[envs]".'


class MiniWobDataModule(StepsDataModule):
    """Successful episodes of the scripted demonstrators, to train a policy on before a rollout.

    Each task's first instances are preference queries and memory alike, the others are for the test. No instance of the
    rollout's own suite seeds is played. Needs the extra `envs` and a Chromium.

    Args:
        suite_seed: AndroidWorld's suite seed of the instances; none of the rollout's own.
        episodes: instances of each task for preference queries and memory, at least 2.
        test_episodes: instances of each task for the test, at least 1.
        tasks: names of tasks; None for all that have a demonstrator.
        html_root: the folder of the pages; None takes those of the package `miniwob`.
        batch_size: steps per forward pass of the actor, at least 1.
        num_workers: processes that read steps for the actor, at least 0.
        router_batch_size: steps per training batch of the router, at least 1.
        val_fraction: share of trajectories on which the router's fit is validated, in [0, 1); 0 turns validation off.
        seed: chooses the validation trajectories and the training order.

    Raises:
        DataError: if an argument is out of range, or the environment cannot be had.
    """

    notes = (
        "Steps of MobileMiniWoB++ are what scripted demonstrators did; the score is switchmem's own, step by step.",
    )

    def __init__(
        self,
        suite_seed: int = 3_000_000,
        episodes: int = 3,
        test_episodes: int = 1,
        tasks: list[str] | None = None,
        html_root: str | None = None,
        batch_size: int = 8,
        num_workers: int = 0,
        router_batch_size: int = 256,
        val_fraction: float = 0.1,
        seed: int = 42,
    ) -> None:
        super().__init__(batch_size, num_workers, router_batch_size, val_fraction, seed)
        for name, value, least in (("episodes", episodes, 2), ("test_episodes", test_episodes, 1)):
            if value < least:
                raise DataError(f"`{name}` must be at least {least}, got {value}.")
        try:
            from switchmem.envs.miniwob.demonstrators import DEMONSTRATORS
            from switchmem.envs.miniwob.demonstrators.recording import check_suite
        except ImportError as error:
            raise DataError(MISSING.format(error=error)) from error
        try:
            check_suite(suite_seed)
        except ValueError as error:
            raise DataError(str(error)) from error
        known = ", ".join(DEMONSTRATORS)
        if unknown := [task for task in tasks or () if task not in DEMONSTRATORS]:
            raise DataError(f"`tasks` must have a demonstrator, got {unknown}. Known are {known}.")
        self.tasks = list(DEMONSTRATORS) if tasks is None else tasks
        self.suite_seed, self.episodes, self.test_episodes = suite_seed, episodes, test_episodes
        self.html_root = html_root

    def read(self, report: DataReport) -> Mapping[str, PartSteps]:
        """Preference queries, which are the memory too, and test queries, played while they are drawn."""
        first, last = range(self.episodes), range(self.episodes, self.episodes + self.test_episodes)
        return {"preference": self._played(first, report), "test": self._played(last, report)}

    def _played(self, indices: range, report: DataReport) -> Iterator[Step]:
        from switchmem.envs.miniwob.browser import BrowserError
        from switchmem.envs.miniwob.demonstrators.recording import record, unstudied_seeds
        from switchmem.envs.miniwob.env import MiniWobEnv
        from switchmem.envs.miniwob.tasks import PagesError

        try:
            env = MiniWobEnv(html_root=self.html_root)
        except (BrowserError, PagesError) as error:
            raise DataError(str(error)) from error
        try:
            with progress("demonstrations") as advance:
                for n, task in enumerate(self.tasks):
                    advance(n, len(self.tasks))
                    seeds = unstudied_seeds(self.suite_seed, task, indices)

                    for step in record(env, task, seeds, partial(_left_out, report, task)):
                        report.read += 1
                        report.kept += 1
                        yield step
        finally:
            env.close()

    def fingerprint(self) -> Any:
        """The suite, the tasks, and digests of the code and pages that play them."""
        from switchmem.envs.miniwob.browser import BrowserError
        from switchmem.envs.miniwob.identity import identity, scripts_digest
        from switchmem.envs.miniwob.tasks import PagesError

        try:
            played = {**identity(self.html_root), "scripts": scripts_digest()}
        except (BrowserError, PagesError) as error:
            raise DataError(str(error)) from error
        return {
            "suite_seed": self.suite_seed,
            "episodes": self.episodes,
            "test_episodes": self.test_episodes,
            "tasks": self.tasks,
            **played,
        }


def _left_out(report: DataReport, task: str, seed: int, why: str) -> None:
    report.add(f"miniwob/{task}-{seed}", why)
