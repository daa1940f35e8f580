"""The action-grounded crop on generated pairs: how often it is right, and its time beside the plain OpenCV way.

The plain way is what one writes first: OpenCV's filters, one after the other, over the whole screen, with the same
thresholds and the same rules for noise. Times are of one core's CPU clock, without decoding.

    python -m benchmarks.agmem --pairs 2000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from benchmarks.screen_pairs import Pair, overlap, pairs
from switchmem.memory.agmem import crop as cropping
from switchmem.memory.agmem.config import CropConfig
from switchmem.memory.agmem.crop import Box, Crop, action_grounded_crop
from switchmem.memory.agmem.ignored import around, clocks

GOOD = 0.9
"""Intersection over union from which a box counts as found."""


def ours(pair: Pair, config: CropConfig) -> Crop:
    """The project's crop of a pair."""
    boxes = [element.box for element in pair.elements]
    return action_grounded_crop(pair.before, pair.after, boxes, ignored_of(pair), config)


def ignored_of(pair: Pair) -> list[tuple[float, float, float, float]]:
    """Clocks and pointers of a pair."""
    size = pair.after.shape[1], pair.after.shape[0]
    return clocks(pair.elements_before, pair.elements) + around(pair.points, 0.05, size)


def plain(pair: Pair, config: CropConfig) -> Box | None:
    """The change by OpenCV's filters over the whole screen."""
    shorter = min(pair.after.shape[:2])
    window, opening, closing = (
        max(1, round(value * shorter)) | 1 for value in (config.smoothing, config.opening, config.closing)
    )
    difference = cv2.absdiff(pair.before, pair.after).max(axis=2)
    smooth = cv2.blur(difference.astype(np.float32), (window, window), borderType=cv2.BORDER_CONSTANT)
    residual = difference - smooth
    mask = (residual >= config.soft).astype(np.uint8)
    mask = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((opening, opening), np.uint8))
    mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((closing, closing), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    sharp = np.zeros(count, dtype=bool)
    sharp[labels[residual >= config.sharp]] = True
    found = []
    for number in range(1, count):
        left, top, width, height = (int(value) for value in stats[number, :4])
        box = left, top, left + width, top + height
        if sharp[number] and not cropping.is_noise(box, ignored_of(pair), pair.after, config):
            found.append(box)
    if not found:
        return None
    lefts, tops, rights, bottoms = zip(*found, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the milliseconds of CPU that it took."""
    start = time.process_time()
    given = work()
    return given, 1000.0 * (time.process_time() - start)


def measure(count: int, seed: int, config: CropConfig) -> dict[str, Any]:
    """Both ways on the same pairs, one after the other."""
    good: dict[str, list[bool]] = defaultdict(list)
    mine: list[float] = []
    theirs: list[float] = []
    plainly = 0
    for pair in pairs(count, seed):
        crop, milliseconds = timed(lambda pair=pair: ours(pair, config))
        mine.append(milliseconds)
        box, milliseconds = timed(lambda pair=pair: plain(pair, config))
        theirs.append(milliseconds)
        plainly += box is not None and overlap(box, pair.truth) >= GOOD
        found = overlap(crop.box, pair.truth) >= GOOD
        for name in ("all", pair.kind, "listed" if pair.listed else "not listed"):
            good[name].append(found)
        good["codec" if "codec" in pair.noise else "lossless"].append(found)
    for name, values in sorted(good.items()):
        print(f"{name:14} {len(values):6} pairs  {100 * sum(values) / len(values):6.2f} %")
    return {
        "pairs": count,
        "seed": seed,
        "found_percent": round(100 * sum(good["all"]) / count, 2),
        "found_percent_lossless": round(100 * sum(good["lossless"]) / max(1, len(good["lossless"])), 2),
        "found_percent_plain": round(100 * plainly / count, 2),
        "ms_mean": round(float(np.mean(mine)), 2),
        "ms_median": round(float(np.median(mine)), 2),
        "ms_mean_opencv": round(float(np.mean(theirs)), 2),
        "ms_median_opencv": round(float(np.median(theirs)), 2),
    }


def main() -> int:
    """Measure and print; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    print(json.dumps(measure(options.pairs, options.seed, CropConfig())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
