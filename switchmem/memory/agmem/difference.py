"""How two screens differ, pixel by pixel; what a scrim or a lossy codec does to all of it is told apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from switchmem.memory.agmem.config import CropConfig
from switchmem.memory.agmem.morphology import Mask, dilated

Pixels = NDArray[np.uint8]

_FACTORS = (0.2, 5.0)
_NEAR = 0.03
"""How near to the most common ratio, in natural logarithm, others count for the factor."""


def difference_of(before: Pixels, after: Pixels, config: CropConfig) -> Pixels:
    """``[H, W]``: the largest difference of a pixel's channels, a uniform dimming taken out.

    Args:
        before: ``[H, W, ...]``.
        after: the same for the later screen.
        config: the fields from `dimming` to `left` are used.
    """
    factor = dimming_factor(before, after, config) if config.dimming else 1.0
    if factor < 1.0:
        before = _times(before, factor)
    elif factor > 1.0:
        after = _times(after, 1.0 / factor)
    difference = np.maximum(before, after)
    difference -= np.minimum(before, after)
    strongest = difference if difference.ndim == 2 else difference[..., 0].copy()
    for channel in range(1, difference.shape[2] if difference.ndim == 3 else 1):
        np.maximum(strongest, difference[..., channel], out=strongest)
    if factor != 1.0:
        strongest[strongest <= config.fit] = 0
    return strongest


def _times(pixels: Pixels, factor: float) -> Pixels:
    return np.rint(np.arange(256) * factor).astype(np.uint8)[pixels]


def dimming_factor(before: Pixels, after: Pixels, config: CropConfig) -> float:
    """By what a screen was dimmed (below 1) or undimmed (above 1) as a whole; 1.0 where no factor explains it.

    A scrim behind a dialog multiplies every pixel by one factor, so that its text and edges change although nothing
    happened there. Every fourth pixel of every fourth row is enough to see it.

    Args:
        before: ``[H, W, ...]``.
        after: the same for the later screen.
        config: the fields from `dimmed` to `left` are used.
    """
    first, second = before[::4, ::4].astype(np.float32), after[::4, ::4].astype(np.float32)
    bright = np.minimum(first, second) >= config.dark
    ratio = second[bright] / first[bright]
    moved = (np.abs(ratio - 1.0) > config.undimmed) & (ratio > _FACTORS[0]) & (ratio < _FACTORS[1])
    if not moved.any():
        return 1.0
    # The most common ratio on a logarithmic scale, bright pixels first: those tell it to a smaller fraction.
    places = np.log(ratio[moved])
    counts, edges = np.histogram(places, bins=160, weights=first[bright][moved])
    middle = (edges[counts.argmax()] + edges[counts.argmax() + 1]) / 2
    near = np.abs(places - middle) <= _NEAR
    factor = float(np.average(ratio[moved][near], weights=first[bright][moved][near]))
    darker, brighter, by = (second, first, factor) if factor < 1.0 else (first, second, 1.0 / factor)
    changed = _all_channels(np.abs(second - first) > config.fit, any_channel=True)
    seen = _all_channels(brighter >= config.bright, any_channel=True)
    if seen[~changed].sum() > config.left * changed.sum():
        return 1.0  # a scrim leaves little as it was
    explained = _all_channels(np.abs(darker - brighter * by) <= config.fit)[seen & changed]
    return factor if explained.size and float(explained.mean()) >= config.dimmed else 1.0


def _all_channels(mask: Mask, any_channel: bool = False) -> Mask:
    """Per pixel whether it holds in all channels, or in any."""
    if mask.ndim == 2:
        return mask
    return np.any(mask, axis=2) if any_channel else np.all(mask, axis=2)


def has_traces(difference: Pixels, config: CropConfig) -> bool:
    """Whether a lossy codec has left its traces: what surrounds a change then differs by a few levels.

    Args:
        difference: ``[H, W]``.
        config: `faint`, `ring` and `traces` are used.
    """
    strong = difference > config.faint
    ring = dilated(strong, config.ring) & ~strong
    return bool(np.count_nonzero(difference[ring]) > config.traces * np.count_nonzero(ring))
