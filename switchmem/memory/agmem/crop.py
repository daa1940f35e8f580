"""The action-grounded crop: where on the next screen an action took effect, as a pure function of two arrays.

The steps are those of AGMem, appendix B.1: pixel-wise difference, minus a locally smoothed version of itself; a soft
and a sharp threshold; opening and closing; the tightest box; the smallest element that contains it; the whole screen
where no region is distinct. Pixels outside the box of all differences are equal, and every filter of a zero is zero,
so that the filters run inside that box alone and give what they would give on the whole screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from switchmem.memory.agmem.config import CropConfig, CropError
from switchmem.memory.agmem.morphology import closed, dilated, opened

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Box = tuple[int, int, int, int]
"""``(left, top, right, bottom)`` in pixels, right and bottom excluded."""
Fractions = tuple[float, float, float, float]
"""``(left, top, right, bottom)`` as fractions of the screen in [0, 1]."""

_DARK = 12
"""Levels below which a quotient of two pixels says nothing of a dimming."""
_FIT = 3
"""Levels by which a dimmed pixel may miss its factor: rounding, and a little of a codec's noise."""
_FACTORS = (0.2, 5.0)
_IDENTITY = 0.1
"""A factor as near to 1 is none."""
_BRIGHT = 48
"""Levels from which any dimming is seen."""
_LEFT = 0.6
"""Bright pixels that a dimming may leave as they were, for one that it changes: a white dialog on a white page."""
_FAINT = 8
_RING = 9
_TRACES = 0.1
"""Share of the pixels around a change, within half of `_RING`, that a codec makes differ by up to `_FAINT` levels."""
_SLIM = 2.2
"""How many times higher than wide a text cursor is, at least; a codec's blocks make it wider."""
_NEAR = 0.03
"""How near to the most common ratio, in natural logarithm, others count for the factor."""


class Reason(str, Enum):
    """Why a view is what it is."""

    CONTAINER = "container"
    """The smallest element that contains the change."""
    CHANGE = "change"
    """The change itself: no element contains it."""
    LAST = "last"
    """The whole screen: there is no later one."""
    SIZE = "size"
    """The whole screen: the later one has another size, as after a rotation."""
    NOTHING = "nothing"
    """The whole screen: nothing changed, or nothing but bars, clocks and cursors."""
    INDISTINCT = "indistinct"
    """The whole screen: nearly all of it changed."""


@dataclass(frozen=True)
class Crop:
    """Where to cut.

    Args:
        box: of the view, in pixels of the later screenshot.
        reason: why.
        change: the tightest box of the change; None where there is none.
    """

    box: Box
    reason: Reason
    change: Box | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the view fell back to the whole screen."""
        return self.reason not in (Reason.CONTAINER, Reason.CHANGE)


def action_grounded_crop(
    before: Pixels,
    after: Pixels | None,
    elements: Sequence[Fractions] = (),
    ignored: Sequence[Fractions] = (),
    config: CropConfig | None = None,
) -> Crop:
    """The region in which an action took effect.

    Args:
        before: ``[H, W, 3]`` or ``[H, W]``, the screen on which it was done.
        after: the next screen, of the same number of channels; None for the last step of a trajectory.
        elements: boxes of the later screen's elements, to snap to.
        ignored: boxes in which changes mean nothing, as clocks; see `clocks` and `around`.
        config: the constants; None for the defaults.

    Raises:
        CropError: if an array is no picture.
    """
    config = config if config is not None else CropConfig()
    _check(before, "before")
    if after is None:
        return Crop(_whole(before), Reason.LAST)
    _check(after, "after")
    if before.shape != after.shape:
        return Crop(_whole(after), Reason.SIZE)
    height, width = after.shape[:2]
    change = changed_box(before, after, ignored, config)
    if change is None:
        return Crop(_whole(after), Reason.NOTHING)
    if _area(change) > config.most * width * height:
        return Crop(_whole(after), Reason.INDISTINCT, change)
    container = smallest_container(change, elements, (width, height), config)
    if container is None:
        return Crop(change, Reason.CHANGE, change)
    return Crop(container, Reason.CONTAINER, change)


def changed_box(before: Pixels, after: Pixels, ignored: Sequence[Fractions], config: CropConfig) -> Box | None:
    """The tightest box of all connected changes that count; None where there are none."""
    difference = _difference(before, after, config)
    if config.exact < 1.0 and not has_traces(difference):
        config = replace(config, soft=config.soft * config.exact, sharp=config.sharp * config.exact)
    inside = _extent(difference >= config.soft)
    if inside is None:
        return None
    reach = max(_odd(config.smoothing, after) // 2, _odd(config.closing, after))
    left, top, right, bottom = _grown(inside, reach, after)
    labels, sharp = _components(difference[top:bottom, left:right], config, after)
    found = [
        (part[1].start + left, part[0].start + top, part[1].stop + left, part[0].stop + top)
        for number, part in enumerate(ndimage.find_objects(labels), 1)
        if part is not None and sharp[number]
    ]
    counted = [box for box in found if not is_noise(box, ignored, after, config)]
    if not counted:
        return None
    lefts, tops, rights, bottoms = zip(*counted, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def has_traces(difference: Pixels) -> bool:
    """Whether a lossy codec has left its traces: what surrounds a change then differs by a few levels.

    Args:
        difference: ``[H, W]``.
    """
    strong = difference > _FAINT
    ring = dilated(strong, _RING) & ~strong
    return bool(np.count_nonzero(difference[ring]) > _TRACES * np.count_nonzero(ring))


def smallest_container(
    box: Box, elements: Sequence[Fractions], size: tuple[int, int], config: CropConfig
) -> Box | None:
    """The smallest element that fully contains a box, in pixels; None where none of a distinct size does.

    Args:
        box: the change.
        elements: boxes as fractions.
        size: ``(width, height)`` of the screen in pixels.
        config: `slack` and `most` are used.
    """
    width, height = size
    slack = config.slack * min(size)
    best: Box | None = None
    for element in elements:
        left, top, right, bottom = in_pixels(element, size)
        holds = (
            left - slack <= box[0] and top - slack <= box[1] and right + slack >= box[2] and bottom + slack >= box[3]
        )
        if not holds or not 0 < _area((left, top, right, bottom)) <= config.most * width * height:
            continue
        if best is None or _area((left, top, right, bottom)) < _area(best):
            best = left, top, right, bottom
    return best


def in_pixels(box: Fractions, size: tuple[int, int]) -> Box:
    """A box of fractions in whole pixels.

    >>> in_pixels((0.0, 0.1, 0.5, 1.0), (100, 200))
    (0, 20, 50, 200)
    """
    width, height = size
    return round(box[0] * width), round(box[1] * height), round(box[2] * width), round(box[3] * height)


def _check(pixels: Pixels, name: str) -> None:
    good = pixels.dtype == np.uint8 and pixels.size > 0 and (pixels.ndim == 2 or pixels.ndim == 3)
    if not good:
        raise CropError(
            f"`{name}` must be [H, W] or [H, W, 3] of uint8 with at least one pixel, got {pixels.dtype} of shape "
            f"{pixels.shape}. Decode the screenshot with `np.asarray(image.convert('RGB'))`."
        )


def _whole(pixels: Pixels) -> Box:
    return 0, 0, pixels.shape[1], pixels.shape[0]


def _area(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _odd(fraction: float, pixels: Pixels) -> int:
    """A fraction of the shorter side as an odd number of pixels, at least 1."""
    return max(1, round((fraction * min(pixels.shape[:2]) - 1) / 2) * 2 + 1)


def _side(fraction: float, pixels: Pixels) -> int:
    """A fraction of the shorter side in pixels, at least 1."""
    return max(1, round(fraction * min(pixels.shape[:2])))


def _difference(before: Pixels, after: Pixels, config: CropConfig) -> Pixels:
    """``[H, W]``: the largest difference of a pixel's channels, a uniform dimming taken out."""
    factor = dimming_factor(before, after, config.dimmed) if config.dimming else 1.0
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
        strongest[strongest <= _FIT] = 0
    return strongest


def _times(pixels: Pixels, factor: float) -> Pixels:
    return np.rint(np.arange(256) * factor).astype(np.uint8)[pixels]


def dimming_factor(before: Pixels, after: Pixels, share: float) -> float:
    """By what a screen was dimmed (below 1) or undimmed (above 1) as a whole; 1.0 where no factor explains it.

    A scrim behind a dialog multiplies every pixel by one factor, so that its text and edges change although nothing
    happened there. Every fourth pixel of every fourth row is enough to see it.

    Args:
        before: ``[H, W, ...]``.
        after: the same for the later screen.
        share: least share of the changed pixels that the factor must explain, in all their channels.
    """
    first, second = before[::4, ::4].astype(np.float32), after[::4, ::4].astype(np.float32)
    bright = np.minimum(first, second) >= _DARK
    ratio = second[bright] / first[bright]
    moved = (np.abs(ratio - 1.0) > _IDENTITY) & (ratio > _FACTORS[0]) & (ratio < _FACTORS[1])
    if not moved.any():
        return 1.0
    # The most common ratio on a logarithmic scale, bright pixels first: those tell it to a smaller fraction.
    places = np.log(ratio[moved])
    counts, edges = np.histogram(places, bins=160, weights=first[bright][moved])
    middle = (edges[counts.argmax()] + edges[counts.argmax() + 1]) / 2
    near = np.abs(places - middle) <= _NEAR
    factor = float(np.average(ratio[moved][near], weights=first[bright][moved][near]))
    darker, brighter, by = (second, first, factor) if factor < 1.0 else (first, second, 1.0 / factor)
    changed = _all_channels(np.abs(second - first) > _FIT, any_channel=True)
    seen = _all_channels(brighter >= _BRIGHT, any_channel=True)
    if seen[~changed].sum() > _LEFT * changed.sum():
        return 1.0  # a scrim leaves little as it was
    explained = _all_channels(np.abs(darker - brighter * by) <= _FIT)[seen & changed]
    return factor if explained.size and float(explained.mean()) >= share else 1.0


def _all_channels(mask: Mask, any_channel: bool = False) -> Mask:
    """Per pixel whether it holds in all channels, or in any."""
    if mask.ndim == 2:
        return mask
    return np.any(mask, axis=2) if any_channel else np.all(mask, axis=2)


def _extent(mask: Mask) -> Box | None:
    """The tightest box of a mask."""
    rows = np.flatnonzero(mask.any(axis=1))
    if not rows.size:
        return None
    columns = np.flatnonzero(mask[rows[0] : rows[-1] + 1].any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _grown(box: Box, by: int, pixels: Pixels) -> Box:
    height, width = pixels.shape[:2]
    return max(0, box[0] - by), max(0, box[1] - by), min(width, box[2] + by), min(height, box[3] + by)


def _components(difference: Pixels, config: CropConfig, screen: Pixels) -> tuple[NDArray[np.int32], Mask]:
    """Connected changes of a part of the screen, labelled from 1, and which of them reach the sharp threshold."""
    window = _odd(config.smoothing, screen)
    smooth = ndimage.uniform_filter(difference, window, output=np.float32, mode="constant")
    residual = difference - smooth
    soft = closed(opened(residual >= config.soft, _side(config.opening, screen)), _odd(config.closing, screen))
    labels, count = ndimage.label(soft, structure=np.ones((3, 3), dtype=np.int8))
    sharp = np.zeros(count + 1, dtype=np.bool_)
    sharp[labels[residual >= config.sharp]] = True
    sharp[0] = False
    return labels, sharp


def is_noise(box: Box, ignored: Sequence[Fractions], screen: Pixels, config: CropConfig) -> bool:
    """Whether a connected change is a bar's, a clock's, a cursor's, or too small to be anything.

    Args:
        box: of the change, in pixels.
        ignored: boxes as of `action_grounded_crop`.
        screen: one of the screens.
        config: the rules.
    """
    height, width = screen.shape[:2]
    left, top, right, bottom = box
    shorter = min(width, height)
    if bottom <= config.status_bar * shorter or top >= height - config.nav_bar * shorter:
        return True
    if _area(box) < config.least * width * height:
        return True
    across, down = right - left, bottom - top
    if across <= config.caret_width * shorter and _SLIM * across <= down <= config.caret_height * shorter:
        return True
    slack = config.slack * shorter
    return any(
        part[0] * width - slack <= left
        and part[1] * height - slack <= top
        and part[2] * width + slack >= right
        and part[3] * height + slack >= bottom
        for part in ignored
    )
