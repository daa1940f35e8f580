"""How fast the cluster bootstrap and the sign-flip test are, against a plain loop over the definitions.

    python benchmarks/resampling.py [--replicates 20000]

Sizes are those of the AITW test split: 5,000 steps of 759 trajectories. The loop is timed on a part of the replicates,
so that the script ends within seconds, and compared per replicate. The last line is one JSON object.

(The file is not called `statistics.py`: scripts put their folder first on the import path, and the name would hide the
standard library's module from everything that imports it.)
"""

import argparse
import json
import random
import time
from collections import defaultdict

import numpy as np

from switchmem.evaluation.statistics import cluster_bootstrap, cluster_sign_flip

STEPS, TRAJECTORIES = 5_000, 759


def steps(seed: int = 0) -> tuple[list[float], list[str]]:
    """Differences in {-1, 0, 1} of steps, every trajectory with at least one."""
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(TRAJECTORIES), rng.integers(0, TRAJECTORIES, STEPS - TRAJECTORIES)])
    return rng.choice([-1.0, 0.0, 1.0], STEPS, p=[0.10, 0.78, 0.12]).tolist(), [f"b/{g}" for g in groups]


def plain_bootstrap(diff: list[float], groups: list[str], n: int) -> tuple[float, float]:
    """The percentile interval by its definition: draw trajectories, average their steps."""
    of_group = defaultdict(list)
    for value, group in zip(diff, groups, strict=True):
        of_group[group].append(value)
    clusters, rng, means = list(of_group.values()), random.Random(0), []
    for _ in range(n):
        drawn = [value for cluster in rng.choices(clusters, k=len(clusters)) for value in cluster]
        means.append(sum(drawn) / len(drawn))
    lo, hi = np.quantile(means, [0.025, 0.975])
    return float(lo), float(hi)


def plain_sign_flip(diff: list[float], groups: list[str], n: int) -> float:
    """The randomisation p-value by its definition: one sign per trajectory."""
    rng, names = random.Random(0), sorted(set(groups))
    observed, extreme = abs(sum(diff)), 0
    for _ in range(n):
        sign = {name: rng.choice((-1, 1)) for name in names}
        extreme += abs(sum(sign[g] * v for v, g in zip(diff, groups, strict=True))) >= observed
    return (1 + extreme) / (n + 1)


def seconds(function, *arguments) -> tuple[float, object]:
    """Wall-clock seconds of one call, and its result."""
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def main() -> None:
    """Time both tests and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicates", type=int, default=20_000)
    parser.add_argument("--loop-replicates", type=int, default=500)
    options = parser.parse_args()
    data = steps()
    summary: dict[str, float] = {"steps": STEPS, "trajectories": TRAJECTORIES, "replicates": options.replicates}
    pairs = {"bootstrap": (cluster_bootstrap, plain_bootstrap), "sign_flip": (cluster_sign_flip, plain_sign_flip)}
    for name, (fast, plain) in pairs.items():
        fast_seconds, fast_result = seconds(fast, *data, options.replicates)
        loop_seconds, loop_result = seconds(plain, *data, options.loop_replicates)
        ratio = (loop_seconds / options.loop_replicates) / (fast_seconds / options.replicates)
        print(f"{name}: {fast_seconds:.3f} s for {options.replicates} replicates, {ratio:.0f} times a plain loop")
        print(f"  {fast_result}; the loop's {options.loop_replicates} replicates say {loop_result}")
        summary |= {f"{name}_seconds": round(fast_seconds, 4), f"{name}_ratio": round(ratio, 1)}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
