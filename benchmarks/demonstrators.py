"""How many tasks of MobileMiniWoB++ a phone's action space can solve: scripts try each on unseen seeds.

    python -m benchmarks.demonstrators
    python -m benchmarks.demonstrators --tasks click-button,use-slider --seeds 20

A task is solved if every instance ends with a raw reward of exactly 1. Instances have AndroidWorld's seeds under a
suite seed that neither training nor evaluation uses. Tasks without a script count as failed; the reasons are printed.
One row for each task; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

from switchmem.envs.miniwob.demonstrators import DEMONSTRATORS, OUT_OF_REACH, PARTLY_OUT_OF_REACH, demonstrate
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv
from switchmem.envs.miniwob.tasks import TASKS, instance_seed

SUITE_SEED = 5


def solve(env: MiniWobEnv, task: str, seeds: Sequence[int]) -> tuple[list[bool], list[int], list[str]]:
    """Whether a task's instances were solved, in how many actions, and what became of the others."""
    solved, actions, troubles = [], [], []
    for seed in seeds:
        try:
            episode = demonstrate(env, task, seed)
        except EpisodeError as error:
            solved.append(False)
            troubles.append(f"seed {seed}: {error}")
            continue
        solved.append(episode.succeeded)
        actions.append(len(episode.steps))
        if not episode.succeeded:
            why = episode.ending.value if episode.ending is not None else "gave up"
            said = f"raw reward {episode.raw_reward}" if episode.raw_reward is not None else episode.detail
            troubles.append(f"seed {seed}: {why}, {said}: {episode.utterance}")
    return solved, actions, troubles


def main() -> None:
    """Print one row for each task, and all of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="instances of each task")
    parser.add_argument("--suite-seed", type=int, default=SUITE_SEED, help="AndroidWorld's seed of the suite")
    parser.add_argument("--tasks", default=",".join(TASKS), help="names, separated by commas")
    options = parser.parse_args()
    successes: dict[str, int] = {}
    start, episodes = time.perf_counter(), 0
    env = MiniWobEnv()
    try:
        for task in options.tasks.split(","):
            if task not in DEMONSTRATORS:
                print(f"{task:28} no script: {OUT_OF_REACH[task]}", flush=True)
                successes[task] = 0
                continue
            seeds = [instance_seed(options.suite_seed, task, index) for index in range(options.seeds)]
            solved, actions, troubles = solve(env, task, seeds)
            successes[task], episodes = sum(solved), episodes + len(seeds)
            mean = sum(actions) / max(1, len(actions))
            reason = f"  ({PARTLY_OUT_OF_REACH[task]})" if not all(solved) and task in PARTLY_OUT_OF_REACH else ""
            print(f"{task:28} {sum(solved)}/{len(solved)}  {mean:4.1f} actions{reason}", flush=True)
            for trouble in troubles:
                print(f"    {trouble}")
    finally:
        env.close()
    result = {
        "solved_tasks": sum(count == options.seeds for count in successes.values()),
        "tasks": len(successes),
        "successes": successes,
        "seeds": options.seeds,
        "suite_seed": options.suite_seed,
        "seconds_per_episode": round((time.perf_counter() - start) / max(1, episodes), 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
