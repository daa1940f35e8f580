"""Sweeps without W&B: every combination of a sweep file is fitted and tested here, in parallel processes.

    runs/sweeps/pocket-target/
        sweep.json  sweep.csv  sweep.txt     one row per combination
        <key>.json  <key>.log  <key>/        a finished combination's row, what it said, and its run folder

The stages (harvest, targets, routers) are those of all other runs. A combination is known by its whole resolved config,
so that a second call does what is missing, and a changed setting is another combination.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from switchmem.arguments import CONFIG_FLAGS, CONFIGS, find_config
from switchmem.console import quiet, say
from switchmem.evaluation.results import POLICY_OF_TARGET
from switchmem.pipeline.sweep_file import Combination, SweepError, SweepFile, arguments
from switchmem.pipeline.sweep_table import write_table
from switchmem.stages import fingerprint, make_folder, write_json

Command = Callable[[list[str]], int]
"""Runs one command of the command line and returns its exit status."""

ROUTER_DATA = frozenset({"router_batch_size", "val_fraction", "seed"})
"""Arguments of the data that change routers alone."""
HARVEST_STUDY = frozenset({"probe_layers", "limit", "bank_fraction"})
"""Settings of the study that ask for another harvest."""


@dataclass(frozen=True)
class Job:
    """One combination to run.

    Args:
        combination: its settings.
        key: names it.
        flags: all flags of its commands.
        folder: of the sweep.
    """

    combination: Combination
    key: str
    flags: tuple[str, ...]
    folder: Path

    @property
    def row(self) -> Path:
        """Where its row is kept once it is finished."""
        return self.folder / f"{self.key}.json"


def run_sweep(words: Sequence[str], command: Command) -> int:
    """``train.py sweep``: run a sweep file here.

    Args:
        words: the arguments behind "sweep"; what is not the sweep's own goes to every `fit` and `test`.
        command: the command line's `main`; a function that other processes can import.

    Returns:
        0, or 1 if a combination failed; the others' rows are there.

    Raises:
        SweepError: if the sweep cannot be run as asked; before anything is run.
    """
    options, flags = _parser().parse_known_args(list(words))
    sweep = SweepFile.read(Path(find_config(_with_suffix(options.sweep), CONFIGS / "sweeps", "--sweep")))
    if options.workers is not None and options.workers < 1:
        raise SweepError(f"`--workers` must be at least 1, got {options.workers}.")
    base = _base_flags(sweep, flags)
    if "--print_config" in flags:
        return command(["fit", *base])
    combinations = sweep.combinations(options.runs, options.seed)
    jobs = list(_jobs(sweep, combinations, base, command))
    todo = [job for job in jobs if not job.row.is_file()]
    folder = jobs[0].folder
    make_folder(folder)
    workers = min(options.workers or os.cpu_count() or 1, max(1, len(todo)))
    if workers > 1 and harvested_anew(sweep.parameters):
        say("each combination needs a harvest of its own, so that they run one after another")
        workers = 1
    say(f"sweep {sweep.name}: {len(jobs)} combinations, {len(jobs) - len(todo)} finished before, {workers} at a time")
    failed = {}
    for done, (job, row) in enumerate(_run_all(todo, workers, command), start=1):
        say(f"[{done}/{len(todo)}] {' '.join(arguments(job.combination))}: {_told(row)}")
        if "error" in row:
            failed[job.key] = row
    rows = [failed.get(job.key) or json.loads(job.row.read_text(encoding="utf-8")) for job in jobs]
    write_table(folder, sweep.name, sweep.method, list(sweep.parameters), rows)
    say((folder / "sweep.txt").read_text(encoding="utf-8") + f"sweep folder: {folder}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="train.py sweep",
        allow_abbrev=False,
        description="Fit and test every combination of a W&B sweep file on this machine, and end in one table. "
        "All other flags are those of `fit`.",
    )
    parser.add_argument("--sweep", required=True, help="a file, or the name of one in configs/sweeps/")
    parser.add_argument("--workers", type=int, help="combinations at a time, at least 1 (default: one per core)")
    parser.add_argument("--runs", type=int, help="the most combinations (default: the file's run_cap)")
    parser.add_argument("--seed", type=int, default=0, help="of a random search (default: 0)")
    return parser


def _with_suffix(name: str) -> str:
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"


def _base_flags(sweep: SweepFile, flags: Sequence[str]) -> list[str]:
    """The file's flags and then the user's, whose configs replace the file's."""
    own = list(sweep.flags)
    if any(flag.partition("=")[0] in CONFIG_FLAGS for flag in flags):
        while any(flag in CONFIG_FLAGS for flag in own):
            place = next(n for n, flag in enumerate(own) if flag in CONFIG_FLAGS)
            del own[place : place + 2]
    return [*own, *flags]


def harvested_anew(names: Iterable[str]) -> bool:
    """Whether settings by these names change what is harvested.

    >>> harvested_anew(["study.components", "model.init_args.lr"]), harvested_anew(["actor.memory_first"])
    (False, True)
    """
    for name in names:
        section, _, rest = name.partition(".")
        last = rest.rpartition(".")[2]
        if section in ("actor", "memory", "sampling") or (section == "study" and last in HARVEST_STUDY):
            return True
        if section == "data" and last not in ROUTER_DATA:
            return True
    return False


# --- combinations to jobs ---


def _jobs(sweep: SweepFile, combinations: Sequence[Combination], base: list[str], command: Command) -> Iterator[Job]:
    """A job per combination, each parsed first: a misspelt setting stops the sweep before anything is run."""
    seen = set()
    for combination in combinations:
        flags = [*base, *arguments(combination)]
        config = _resolved(flags, command)
        run = config.pop("run")
        if str(config["trainer"]["devices"]) != "1":
            raise SweepError(
                f"`trainer.devices` must be 1 in a sweep, got {config['trainer']['devices']}: every process trains "
                "small routers. Harvest on all devices first, with `harvest` and `test`."
            )
        stages = run["stages_dir"] or str(Path(run["dir"]) / "stages")
        folder = Path(run["dir"]) / "sweeps" / f"{run['name']}-{sweep.name}"
        key = fingerprint(json.loads(json.dumps(config, default=str)))
        if key not in seen:
            seen.add(key)
            places = [f"--run.dir={folder}", f"--run.name={key}", f"--run.stages_dir={stages}", "--run.report=false"]
            yield Job(combination, key, (*flags, *places), folder)


def _resolved(flags: list[str], command: Command) -> dict[str, Any]:
    """The whole config that flags ask for, as the parser prints it."""
    printed, complaints = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
            status: Any = command(["fit", *flags, "--print_config"])
    except SystemExit as end:  # the parser's way to end
        status = end.code
    if status:
        raise SweepError(
            f"every combination must be one that `fit` takes, got {flags}: {complaints.getvalue().strip()}"
        )
    config: dict[str, Any] = yaml.safe_load(printed.getvalue())
    return config


# --- running them ---


def _run_all(jobs: Sequence[Job], workers: int, command: Command) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Run the jobs; the first one alone, since it may have to harvest for all of them."""
    alone = jobs if workers == 1 else jobs[:1]
    for job in alone:
        yield job, run_job(job, command)
    if len(alone) == len(jobs):
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = {pool.submit(run_job, job, command): job for job in jobs[len(alone) :]}
        try:
            for future in as_completed(futures):
                yield futures[future], _result(future, futures[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _result(future: Any, job: Job) -> dict[str, Any]:
    try:
        row: dict[str, Any] = future.result()
        return row
    except BrokenProcessPool:
        return _row(job, error="a process died, perhaps for lack of memory. Take fewer `--workers`.")


def run_job(job: Job, command: Command) -> dict[str, Any]:
    """Fit and test one combination, and keep its row.

    Args:
        job: the combination.
        command: the command line's `main`.

    Returns:
        The row; with an "error" instead of measures if it failed, in which case it is not kept.
    """
    started = time.monotonic()
    log = job.folder / f"{job.key}.log"
    with log.open("w", encoding="utf-8", errors="backslashreplace") as file:
        with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file), quiet():
            status = _status(job, command)
    if status:
        lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
        return _row(job, error=f"{lines[-1] if lines else f'status {status}'} (see {log})")
    row = _row(job, seconds=round(time.monotonic() - started, 1), **_measures(job.folder / job.key))
    write_json(job.row, row)
    return row


def _status(job: Job, command: Command) -> int:
    argv = sys.argv
    try:
        for words in (["fit", *job.flags], ["test", *job.flags]):
            sys.argv = [argv[0], *words]  # what provenance names, and what Lightning would launch again
            status = command(words)
            if status:
                return status
        return 0
    except SystemExit as end:
        return 0 if end.code is None else 1
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.argv = argv


def _measures(run: Path) -> dict[str, Any]:
    """What a tested run says about its own policy."""
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    target = config["model"]["init_args"]["target"]
    policy, compared = POLICY_OF_TARGET[target], results["comparisons"][POLICY_OF_TARGET[target]]
    frozen = json.loads((run / "policy" / "policies.json").read_text(encoding="utf-8"))["policies"]
    regrets = [row["val_regret"] for row in frozen if row["target"] == target and row["val_regret"] is not None]
    lo, hi = compared["ci95"]
    return {
        "policy": policy,
        "baseline": compared["baseline"],
        **results["policies"][policy],
        **{"diff": compared["diff"], "lo": lo, "hi": hi, "p": compared["p"]},
        "val_regret": 100.0 * sum(regrets) / len(regrets) if regrets else None,
        "steps": results["n_steps"],
        "trajectories": results["n_trajectories"],
        "notes": results["notes"],
    }


def _told(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return f"failed: {row['error']}"
    return f"{row['score']:.2f} %, {row['diff']:+.2f} points over {row['baseline']}, {row['seconds']:.0f} s"


def _row(job: Job, **values: Any) -> dict[str, Any]:
    return {"parameters": job.combination, "key": job.key, "folder": str(job.folder / job.key), **values}
