"""A folder of recorded runs: your own JSONL, AppAgent task folders, AndroidControl episodes, or AITW TFRecords."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from data_modules.base import StepsDataModule
from data_modules.features import split_by_trajectory
from data_modules.parts import PartSteps
from switchmem.benchmarks.aitw import read_tfrecords
from switchmem.benchmarks.androidcontrol import read_episodes
from switchmem.benchmarks.appagent import read_runs
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.jsonl import read_jsonl
from switchmem.benchmarks.store import write_steps
from switchmem.stages import Stage, fingerprint
from switchmem.steps import Step

Format = Literal["appagent", "aitw_tfrecord", "jsonl", "android_control"]

READERS: dict[str, Callable[[Path, DataReport], Iterator[Step]]] = {
    "appagent": read_runs,
    "aitw_tfrecord": lambda root, report: read_tfrecords([root], report),
    "jsonl": read_jsonl,
    "android_control": read_episodes,
}
"""What reads each `Format`."""

GUIDE = """Say where they are with `--data.init_args.root DIR`, and what they are with `--data.init_args.format`:
    jsonl            your own: DIR/*.jsonl of one step per line, and pictures (README, "Bring your own")
    appagent         AppAgent runs: DIR/task_<app>_<time>/ with screenshots, UIAutomator XML and a log
    android_control  AndroidControl-style episodes: DIR/*.json with accessibility trees, and pictures
    aitw_tfrecord    gzip TFRecords of Android in the Wild; the benchmark itself has `--config aitw.yaml`
Without any data, `--config pocket.yaml` runs in minutes."""

OWN_TRAJECTORY_NOTE = "Memories come from the query's own trajectory too, which leaks: the results mean nothing."


class TrajectoriesDataModule(StepsDataModule):
    """Small recorded folders: some trajectories are held out for the test, the others are queries and memory alike.

    A query never retrieves from its own trajectory, so at least three are needed: two that remember each other, and one
    to test on. With `own_trajectory` a single one is enough to see the path run; of fewer than three, none is held out,
    and `test` has nothing to score. The folder is read once, into a copy that is dealt out to the parts and removed, as
    which trajectories are held out depends on all of them.

    Args:
        root: the folder; it must be given.
        format: "jsonl" for your own recordings as JSONL and pictures, "appagent" for a folder of AppAgent runs
            (screenshots, UIAutomator XML, logs), "android_control" for AndroidControl-style episodes as JSON with
            pictures, "aitw_tfrecord" for a file or folder of gzip TFRecords of AITW.
        test_fraction: share of trajectories held out for the test, in (0, 1); at least one.
        batch_size: steps per forward pass of the actor, at least 1.
        num_workers: processes that read steps for the actor, at least 0.
        router_batch_size: steps per training batch of the router, at least 1.
        val_fraction: share of trajectories on which the router's fit is validated, in [0, 1); 0 turns validation off.
        seed: chooses the test and validation trajectories, and the training order.
        own_trajectory: let a step retrieve other steps of its own trajectory, never itself. The answer often stands in
            the next step of the same task, so this leaks and the results mean nothing: only for a look at the path.

    Raises:
        DataError: if the folder is missing or has fewer than three trajectories with usable steps (without
            `own_trajectory`).
    """

    def __init__(
        self,
        root: str | None = None,
        format: Format = "appagent",
        test_fraction: float = 0.25,
        batch_size: int = 8,
        num_workers: int = 0,
        router_batch_size: int = 256,
        val_fraction: float = 0.1,
        seed: int = 42,
        own_trajectory: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, router_batch_size, val_fraction, seed)
        if format not in READERS:
            raise DataError(f"`format` must be one of {', '.join(READERS)}, got {format!r}.")
        if not 0.0 < test_fraction < 1.0:
            raise DataError(
                f"`test_fraction` must be in (0, 1), got {test_fraction}. At least one trajectory is held out."
            )
        if root is None:
            raise DataError(f"recorded runs are missing: no folder is named.\n{GUIDE}")
        self.root, self.format, self.test_fraction = _place(root), format, test_fraction
        self.own_trajectory = own_trajectory
        self.notes = (OWN_TRAJECTORY_NOTE,) if own_trajectory else ()

    @property
    def _copy(self) -> Path:
        """Where all steps lie while they are dealt out; the same after a kill, so that nothing is left over."""
        return self.stages.root / f".{self.steps_stage.key}.all"

    def write(self, stage: Stage, report: DataReport) -> None:
        """Read the folder once and deal its steps out to the parts."""
        try:
            super().write(stage, report)
        finally:
            shutil.rmtree(self._copy, ignore_errors=True)

    def read(self, report: DataReport) -> Mapping[str, PartSteps]:
        """Preference queries, which are the memory too, and test queries, if there are trajectories for both."""
        shutil.rmtree(self._copy, ignore_errors=True)
        self._check_format()
        store = write_steps(READERS[self.format](self.root, report), self._copy)
        names = {step_id: store.meta(step_id).trajectory for step_id in store.step_ids}
        trajectories = list(dict.fromkeys(names.values()))
        if len(trajectories) < 3 and self.own_trajectory:
            return {"preference": store.iterate(store.step_ids), "test": None}
        if len(trajectories) < 3:
            raise DataError(
                f"{self.root} must hold at least 3 trajectories with usable steps (two that can remember each other, "
                f"one to test on), got {len(trajectories)} ({report.summary()}). Add recorded runs to the folder; or, "
                "only to see the path run, let steps remember their own trajectory, which leaks: `own_trajectory` "
                "(--data.init_args.own_trajectory true). Nothing is tested then."
            )
        rest, held_out = split_by_trajectory(trajectories, self.test_fraction, self.seed)
        if len(rest) < 2:
            raise DataError(
                f"`test_fraction` must leave at least 2 of {len(trajectories)} trajectories as memory, got "
                f"{self.test_fraction}, which leaves {len(rest)}. Lower it."
            )
        tested = {trajectories[i] for i in held_out}
        return {
            "preference": store.iterate([i for i in store.step_ids if names[i] not in tested]),
            "test": store.iterate([i for i in store.step_ids if names[i] in tested]),
        }

    def _check_format(self) -> None:
        """Tell a forgotten `format` from a folder without runs."""
        if self.format == "appagent" and self.root.is_dir() and any(self.root.glob("*.jsonl")):
            raise DataError(
                f"`format` must say what the folder holds, got appagent for {self.root}, where there are .jsonl files. "
                "Add `--data.init_args.format jsonl`."
            )

    def fingerprint(self) -> Any:
        """Names, sizes and times of the files, and how they are split."""
        files = [self.root] if self.root.is_file() else sorted(p for p in self.root.rglob("*") if p.is_file())
        if not files:
            raise DataError(
                f"`root` must be a folder or file of recorded runs, got {self.root.absolute()}. Check the path."
            )
        if self.stages.root.absolute().is_relative_to(self.root.absolute()):
            raise DataError(
                f"`root` must not hold what runs write, got {self.root.absolute()} with {self.stages.root} in it. "
                "Choose another folder for the runs: `run.dir`."
            )
        facts = [(str(f.relative_to(self.root)), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
        return {
            "format": self.format,
            "files": fingerprint(facts),
            "test_fraction": self.test_fraction,
            "seed": self.seed,
        }


def _place(root: str) -> Path:
    """The path, if a file system takes it at all.

    Raises:
        DataError: if it does not, or a folder above may not be entered.
    """
    path = Path(root)
    try:
        path.exists()
    except OSError as error:
        raise DataError(f"`root` cannot be looked at: {error.strerror}, got {root[:200]!r}. Check the path.") from error
    return path
