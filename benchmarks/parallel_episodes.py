"""Episodes of MobileMiniWoB++ a minute, several at a time against one at a time.

    python -m benchmarks.parallel_episodes
    python -m benchmarks.parallel_episodes --workers 1,8 --episodes 80 --shared

The scripted demonstrators play the same instances with each number of workers, of a suite seed that neither training
nor evaluation uses. Each worker has a browser of its own; with --shared all have pages in one. A first episode of every
worker, which starts its browser, is not timed. One row for each number of workers; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence

from switchmem.console import progress
from switchmem.envs.crew import Crew
from switchmem.envs.miniwob.browser import Browser
from switchmem.envs.miniwob.demonstrators import DEMONSTRATORS, demonstrate
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv
from switchmem.envs.miniwob.tasks import instance_seed

SUITE_SEED = 5
Instance = tuple[str, int]


def chosen(episodes: int) -> list[Instance]:
    """So many instances, the tasks in turn."""
    tasks = list(DEMONSTRATORS)
    rounds = ((n // len(tasks), tasks[n % len(tasks)]) for n in range(episodes))
    return [(task, instance_seed(SUITE_SEED, task, index)) for index, task in rounds]


def solved(env: MiniWobEnv, instance: Instance) -> bool:
    """Play one; one that does not begin counts as an episode that failed."""
    try:
        return demonstrate(env, *instance).succeeded
    except EpisodeError:
        return False


def minutes_of(instances: Sequence[Instance], make_env: Callable[[], MiniWobEnv], workers: int) -> tuple[float, int]:
    """How long all of them took, and how many were solved."""
    with Crew(make_env, workers) as crew, progress(f"{workers} at a time") as advance:
        list(crew.run(instances[:workers], solved))
        start, successes = time.perf_counter(), 0
        for done, success in enumerate(crew.run(instances, solved), 1):
            successes += success
            advance(done, len(instances))
        return (time.perf_counter() - start) / 60, successes


def main() -> None:
    """Print one row for each number of workers, and all of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4,8", help="episodes at a time, separated by commas")
    parser.add_argument("--episodes", type=int, default=80, help="episodes for each number of workers")
    parser.add_argument("--shared", action="store_true", help="all workers have their pages in one browser")
    options = parser.parse_args()
    instances, rates = chosen(options.episodes), {}
    for workers in map(int, options.workers.split(",")):
        if options.shared:
            with Browser() as browser:
                minutes, successes = minutes_of(instances, lambda b=browser: MiniWobEnv(b), workers)  # type: ignore[misc]
        else:
            minutes, successes = minutes_of(instances, MiniWobEnv, workers)
        rates[workers] = round(len(instances) / minutes, 1)
        print(
            f"{workers} at a time: {rates[workers]:6.1f} a minute, {successes} of {len(instances)} solved", flush=True
        )
    print(json.dumps({"per_minute": rates, "shared": options.shared, "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
