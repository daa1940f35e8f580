"""Screenshots made small, as many as a page may carry."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from switchmem.report.browser import Picture
from switchmem.steps import Screenshot

SIDE = 640
"""The longest side of a picture in a page, in pixels."""
QUALITY = 72
CHUNK = 64
"""Steps whose pictures are made at once; bounds how many are made in vain when the page is full."""
FEW_COLOURS = 256
"""Drawn screens of so few colours are kept without loss, which also is smaller."""


def shrunk(screenshot: Screenshot, side: int = SIDE) -> Picture:
    """A screenshot as WebP whose longest side is at most `side` pixels."""
    image = screenshot.image()
    factor = max(image.size) // side
    if factor > 1:
        image = image.reduce(factor)  # whole pixels first: cheap, and no worse
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    if image.getcolors(FEW_COLOURS) is not None:
        image.save(buffer, "WEBP", lossless=True, method=4)
    else:
        image.save(buffer, "WEBP", quality=QUALITY, method=4)
    return Picture(buffer.getvalue(), *image.size)


def encoded_size(picture: Picture) -> int:
    """Bytes that a picture takes in the page, its element included."""
    return 4 * -(-len(picture.data) // 3) + 64


def embed(
    wanted: Sequence[Sequence[str]],
    read: Callable[[str], Screenshot | None],
    limit: float,
    advance: Callable[[float, float], None] = lambda done, total: None,
) -> tuple[dict[str, Picture], int]:
    """Make the pictures of steps until the page is full.

    Args:
        wanted: for each step the ids of its pictures, the most wanted step first.
        read: gives a step's screenshot, or None where it is not at hand; called from several threads.
        limit: bytes that pictures may take in the page.
        advance: told how many steps are done.

    Returns:
        Pictures by id, and the number of steps, from the first, that have all of theirs.
    """
    found: dict[str, Picture] = {}
    absent: set[str] = set()
    used, steps = 0, 0

    def make(step_id: str) -> Picture | None:
        screenshot = read(step_id)
        return None if screenshot is None else shrunk(screenshot)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes and encodes outside the interpreter's lock
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            new = [i for i in dict.fromkeys(i for ids in chunk for i in ids) if i not in found and i not in absent]
            made = dict(zip(new, pool.map(make, new), strict=True))
            for ids in chunk:
                own = {i: picture for i in ids if i not in found and (picture := made.get(i)) is not None}
                cost = sum(map(encoded_size, own.values()))
                if used + cost > limit:
                    return found, steps
                used += cost
                found |= own
                absent |= set(ids) - set(found)
                steps += set(ids) <= set(found)
            advance(start + len(chunk), len(wanted))
    return found, steps
