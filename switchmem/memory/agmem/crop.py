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
from switchmem.memory.agmem.difference import Mask, Pixels, difference_of, has_traces
from switchmem.memory.agmem.morphology import closed, opened

Box = tuple[int, int, int, int]
"""``(left, top, right, bottom)`` in pixels, right and bottom excluded."""
Fractions = tuple[float, float, float, float]
"""``(left, top, right, bottom)`` as fractions of the screen in [0, 1]."""


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
    difference = difference_of(before, after, config)
    if config.exact < 1.0 and not has_traces(difference, config):
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
    if across <= config.caret_width * shorter and config.caret_slim * across <= down <= config.caret_height * shorter:
        return True
    slack = config.slack * shorter
    return any(
        part[0] * width - slack <= left
        and part[1] * height - slack <= top
        and part[2] * width + slack >= right
        and part[3] * height + slack >= bottom
        for part in ignored
    )
