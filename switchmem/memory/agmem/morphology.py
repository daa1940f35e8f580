"""Opening and closing of masks by squares, at the speed of memory.

A dilation by k pixels is an "or" of k shifted copies; by doubling, it takes log2(k) of them per axis. SciPy's binary
morphology visits every pixel of the square instead, which for 15 x 15 on a phone's screen takes seconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def dilated(mask: Mask, side: int) -> Mask:
    """The mask dilated by a square of `side` pixels whose origin is at ``side // 2``; outside is False."""
    return _along(_along(mask, side, 0), side, 1)


def eroded(mask: Mask, side: int) -> Mask:
    """The mask eroded by the square of `dilated`, mirrored, so that the two make openings; outside is True."""
    return ~_along(_along(~mask, side, 0, mirrored=True), side, 1, mirrored=True)


def opened(mask: Mask, side: int) -> Mask:
    """Without what a square of `side` pixels does not fit into."""
    return mask if side <= 1 else dilated(eroded(mask, side), side)


def closed(mask: Mask, side: int) -> Mask:
    """With the gaps that a square of `side` pixels does not fit into."""
    if side <= 1:
        return mask
    height, width = mask.shape
    padded = np.pad(mask, side)  # else what is near the border would grow to it
    return eroded(dilated(padded, side), side)[side : side + height, side : side + width]


def _along(mask: Mask, side: int, axis: int, mirrored: bool = False) -> Mask:
    """Or of `side` copies along an axis, shifted by ``-(side // 2) .. side - 1 - side // 2``, or the mirror of that."""
    length = mask.shape[axis]
    before = side // 2 if not mirrored else side - 1 - side // 2
    shape = list(mask.shape)
    shape[axis] = length + side - 1
    padded = np.zeros(shape, dtype=np.bool_)
    # Entry n of `padded` is pixel n - (side - 1 - before): entry n of the result covers `side` entries from n on.
    _part(padded, axis, side - 1 - before, length)[...] = mask
    reach = 1
    while reach < side:
        step = min(reach, side - reach)
        kept = padded.shape[axis] - step
        padded = _part(padded, axis, 0, kept) | _part(padded, axis, step, kept)
        reach += step
    return padded


def _part(array: Mask, axis: int, start: int, length: int) -> Mask:
    return array[start : start + length] if axis == 0 else array[:, start : start + length]
