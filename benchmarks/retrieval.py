"""How fast top-1 retrieval is and what memory it takes, against plain brute force and scikit-learn.

    python benchmarks/retrieval.py [--rows 50000] [--dim 2048] [--queries 512]
    python benchmarks/retrieval.py --rows 1000000 --queries 64      # 8 GB in a temporary folder, deleted afterwards

Keys are random unit vectors of which a fifth are copies of another, as real banks have; queries are keys with noise.
The keys lie in a mapped file. Brute force is the whole float64 product in one matrix; it and scikit-learn's
`NearestNeighbors` (brute, cosine) get their keys in memory, and are left out from 200,000 rows on, where brute force is
a loop over blocks of float64 instead. All leave out the query's own trajectory of 7 steps, scikit-learn by finding 8
neighbours; of equal ones it takes any, so that it cannot agree on all.

Memory is what a search adds to the process's anonymous pages (`RssAnon`, sampled), and their peak with everything else
that the process holds. Pages of the mapped file, which the kernel can drop at any time, do not count to them. The last
line is one JSON object.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from switchmem.memory.bank import Bank, map_rows, write_rows
from switchmem.memory.retrieval import TIE, top1

BLOCK, LARGE = 4096, 200_000


class MadeUpRows:
    """Unit vectors that are a function of their number, made when they are asked for, in blocks of `BLOCK`."""

    def __init__(self, rows: int, dim: int) -> None:
        self.shape = (rows, dim)

    def __getitem__(self, index: slice) -> torch.Tensor:
        rng = np.random.default_rng(index.start)
        rows = rng.standard_normal((index.stop - index.start, self.shape[1]), dtype=np.float32)
        copies = rng.integers(0, len(rows), (2, len(rows) // 5))
        rows[copies[0]] = rows[copies[1]]
        return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def status(name: str) -> int:
    """A line of ``/proc/self/status`` in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def measured(function: Callable[[], Any]) -> tuple[Any, float, int, int]:
    """The result of a call, its wall-clock seconds, and the anonymous memory that it added and had at its peak."""
    before, peak, done = status("RssAnon"), 0, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, status("RssAnon"))

    sampler = threading.Thread(target=sample)
    sampler.start()
    start = time.perf_counter()
    try:
        result = function()
    finally:
        seconds = time.perf_counter() - start
        done.set()
        sampler.join()
    return result, seconds, max(0, peak - before), peak


def chosen(cosines: np.ndarray, ids: np.ndarray) -> list[str]:
    """Of the best and what ties with it, the smallest id, for each row."""
    best = cosines.max(axis=1, keepdims=True)
    return [str(min(ids[row])) for row in cosines >= best - TIE]


def brute_force(queries: np.ndarray, keys: np.ndarray, ids: np.ndarray, own: np.ndarray, groups: np.ndarray) -> list:
    """All cosines in one float64 matrix."""
    cosines = queries.astype(np.float64) @ keys.astype(np.float64).T
    cosines[own[:, None] == groups[None]] = -np.inf
    return chosen(cosines, ids)


def block_loop(queries: np.ndarray, keys: np.ndarray, ids: np.ndarray, own: np.ndarray, groups: np.ndarray) -> list:
    """The same, a block of keys at a time; what a front of ties would need is made up for by keeping them all."""
    kept: list[dict[str, float]] = [{} for _ in queries]
    wide = queries.astype(np.float64)
    for start in range(0, len(keys), BLOCK):
        part = slice(start, start + BLOCK)
        cosines = wide @ keys[part].astype(np.float64).T
        cosines[own[:, None] == groups[None, part]] = -np.inf
        for row, (values, found) in enumerate(zip(cosines, kept, strict=True)):
            best = max([values.max(), *found.values()])
            found.update({str(ids[start + n]): float(values[n]) for n in np.flatnonzero(values >= best - TIE)})
            kept[row] = {i: v for i, v in found.items() if v >= best - TIE}
    return [min(found) for found in kept]


def scikit_learn(queries: np.ndarray, keys: np.ndarray, ids: np.ndarray, own: np.ndarray, groups: np.ndarray) -> list:
    """The nearest of 8 neighbours that is not of the own trajectory."""
    search = NearestNeighbors(n_neighbors=8, algorithm="brute", metric="cosine").fit(keys)
    neighbours = search.kneighbors(queries, return_distance=False)
    return [str(ids[next(n for n in row if groups[n] != name)]) for row, name in zip(neighbours, own, strict=True)]


def compare(path: Path, rows: int, dim: int, count: int) -> dict[str, Any]:
    """Run every method on the same keys and queries."""
    write_rows(path, MadeUpRows(rows, dim), BLOCK)
    keys = map_rows(path)
    ids = tuple(f"aitw/{n // 7:07d}/{n % 7}" for n in range(rows))
    groups = tuple(f"aitw/{n // 7:07d}" for n in range(rows))
    bank = Bank(ids, groups, ("",) * rows, keys)
    rng = np.random.default_rng(1)
    picked = np.sort(rng.choice(rows, count, replace=False))
    noisy = keys[picked].numpy() + 0.02 * rng.standard_normal((count, dim), dtype=np.float32)
    queries = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)
    own = [groups[n] for n in picked]
    found, seconds, memory, peak = measured(lambda: top1(torch.from_numpy(queries), bank, own))
    told = "{:.1f} queries/s, {:.2f} s, {:.0f} MB more, {:.0f} MB in all"
    print("top1: " + told.format(count / seconds, seconds, memory / 1e6, peak / 1e6))
    summary: dict[str, Any] = {"rows": rows, "dim": dim, "queries": count, "bank_mb": round(path.stat().st_size / 1e6)}
    summary |= {"top1_queries_per_s": round(count / seconds, 2), "top1_extra_mb": round(memory / 1e6)}
    summary |= {"top1_peak_anonymous_mb": round(peak / 1e6)}
    hits = [hit.step_id for hit in found if hit is not None]
    array = keys.numpy() if rows >= LARGE else np.array(keys.numpy())
    names, owns, of = np.array(ids), np.array(own), np.array(groups)
    for method in (block_loop,) if rows >= LARGE else (brute_force, scikit_learn):
        others, other_seconds, memory, peak = measured(partial(method, queries, array, names, owns, of))
        same, name = sum(a == b for a, b in zip(hits, others, strict=True)), method.__name__
        print(f"{name}: " + told.format(count / other_seconds, other_seconds, memory / 1e6, peak / 1e6))
        print(f"  top1 takes {seconds / other_seconds:.2f} of the time and agrees on {same} of {count}")
        figures = {"queries_per_s": round(count / other_seconds, 2), "extra_mb": round(memory / 1e6), "same": same}
        summary |= {f"{name}_{figure}": value for figure, value in figures.items()}
    return summary


def main() -> int:
    """Build the keys, run, print, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--folder", default=None, help="where the temporary folder is made; default: the system's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        need, free = int(1.05 * options.rows * options.dim * 4), shutil.disk_usage(folder).free
        if need > free:
            print(
                f"error: {folder} must have {need / 1e9:.1f} GB free, got {free / 1e9:.1f} GB. Give another --folder."
            )
            return 1
        summary = compare(Path(folder) / "keys.npy", options.rows, options.dim, options.queries)
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
