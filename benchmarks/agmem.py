"""The action-grounded crop on generated pairs: how often it is right, and its time beside the plain ways.

A plain way is what one writes first: the filters of OpenCV, or of scikit-image, one after the other over the whole
screen, with the same thresholds, the same rules for noise and the same elements to snap to. Neither lowers the
thresholds for pairs without a codec's traces, nor takes a dimming out. scikit-image has no mean over a square of
fractional values; SciPy's, on which it stands, takes its place. Times are of one core's CPU clock, without decoding.

    python -m benchmarks.agmem --pairs 3000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

import cv2
import numpy as np
from scipy import ndimage
from skimage import measure, morphology

from benchmarks.screen_pairs import Pair, overlap, pairs
from switchmem.memory.agmem.config import CropConfig
from switchmem.memory.agmem.crop import Box, action_grounded_crop, is_noise, smallest_container
from switchmem.memory.agmem.ignored import around, clocks

GOOD = 0.9
"""Intersection over union from which a box counts as found."""


def ours(pair: Pair, config: CropConfig) -> Box | None:
    """The project's crop of a pair."""
    boxes = [element.box for element in pair.elements]
    return action_grounded_crop(pair.before, pair.after, boxes, ignored_of(pair), config).box


def ignored_of(pair: Pair) -> list[tuple[float, float, float, float]]:
    """Clocks and pointers of a pair."""
    size = pair.after.shape[1], pair.after.shape[0]
    return clocks(pair.elements_before, pair.elements) + around(pair.points, 0.05, size)


def opencv(pair: Pair, config: CropConfig) -> Box | None:
    """The change by OpenCV's filters over the whole screen."""
    window, opening, closing = sides(pair, config)
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
        if sharp[number]:
            found.append((left, top, left + width, top + height))
    return snapped(found, pair, config)


def scikit_image(pair: Pair, config: CropConfig) -> Box | None:
    """The change by scikit-image's filters over the whole screen."""
    window, opening, closing = sides(pair, config)
    difference = np.abs(pair.before.astype(np.int16) - pair.after).max(axis=2).astype(np.float32)
    residual = difference - ndimage.uniform_filter(difference, window, mode="constant")
    mask = morphology.opening(residual >= config.soft, morphology.footprint_rectangle((opening, opening)))
    mask = morphology.closing(mask, morphology.footprint_rectangle((closing, closing)))
    found = []
    for region in measure.regionprops(measure.label(mask, connectivity=2), intensity_image=residual):
        top, left, bottom, right = region.bbox
        if region.intensity_max >= config.sharp:
            found.append((left, top, right, bottom))
    return snapped(found, pair, config)


def sides(pair: Pair, config: CropConfig) -> tuple[int, int, int]:
    """Sides of the smoothing, the opening and the closing, in pixels."""
    shorter = min(pair.after.shape[:2])
    window, opening, closing = (
        max(1, round(value * shorter)) | 1 for value in (config.smoothing, config.opening, config.closing)
    )
    return window, opening, closing


def snapped(found: Iterable[Box], pair: Pair, config: CropConfig) -> Box | None:
    """The box of all changes that are no noise, or the smallest element around it; None where there are none."""
    ignored = ignored_of(pair)
    kept = [box for box in found if not is_noise(box, ignored, pair.after, config)]
    if not kept:
        return None
    lefts, tops, rights, bottoms = zip(*kept, strict=True)
    change = min(lefts), min(tops), max(rights), max(bottoms)
    size = pair.after.shape[1], pair.after.shape[0]
    return smallest_container(change, [element.box for element in pair.elements], size, config) or change


WAYS: dict[str, Callable[[Pair, CropConfig], Box | None]] = {
    "ours": ours,
    "opencv": opencv,
    "scikit_image": scikit_image,
}


def measured(count: int, seed: int, config: CropConfig) -> tuple[dict[str, list[float]], dict[str, list[bool]]]:
    """Every way on the same pairs, one after the other: CPU milliseconds, and found or not, by way.

    What was found is told by group too: by kind of change, by noise, and by whether the tree lists the widget.
    """
    milliseconds: dict[str, list[float]] = defaultdict(list)
    found: dict[str, list[bool]] = defaultdict(list)
    for pair in pairs(count, seed):
        for name, way in WAYS.items():
            start = time.process_time()
            box = way(pair, config)
            milliseconds[name].append(1000.0 * (time.process_time() - start))
            found[name].append(box is not None and overlap(box, pair.truth) >= GOOD)
        codec = "codec" if "codec" in pair.noise else "lossless"
        for group in (pair.kind, "listed" if pair.listed else "not listed", codec):
            found[f"ours: {group}"].append(found["ours"][-1])
    return milliseconds, found


def main() -> int:
    """Measure and print; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    milliseconds, found = measured(options.pairs, options.seed, CropConfig())
    for name, values in sorted(found.items()):
        print(f"{name:20} {len(values):6} pairs  {100 * sum(values) / len(values):6.2f} %")
    told = {
        name: {
            "found_percent": round(100 * sum(found[name]) / options.pairs, 2),
            "ms_mean": round(float(np.mean(milliseconds[name])), 2),
            "ms_median": round(float(np.median(milliseconds[name])), 2),
        }
        for name in WAYS
    }
    print(json.dumps({"pairs": options.pairs, "seed": options.seed, **told}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
