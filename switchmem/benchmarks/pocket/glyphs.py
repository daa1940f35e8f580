"""Masks of icons and words, drawn once and pasted in any colour.

Icons are drawn by Pillow at eight times their size and shrunk, so that they have soft edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from PIL import Image, ImageDraw, ImageFont

_UP = 8  # supersampling
_N = 20 * _UP  # icons are drawn on a square of this many pixels
Draw = ImageDraw.ImageDraw


def _u(*values: float) -> list[float]:
    """Twentieths of the icon -> drawing pixels."""
    return [v * _UP for v in values]


def _polygon(draw: Draw, *values: float, fill: int = 255) -> None:
    draw.polygon(_u(*values), fill=fill)


def _disc(draw: Draw, x: float, y: float, radius: float, fill: int = 255) -> None:
    draw.ellipse(_u(x - radius, y - radius, x + radius, y + radius), fill=fill)


def _box(draw: Draw, x0: float, y0: float, x1: float, y1: float, radius: float = 0, fill: int = 255) -> None:
    draw.rounded_rectangle(_u(x0, y0, x1, y1), radius * _UP, fill=fill)


def _around(count: int, outer: float, inner: float, turn: float = -math.pi / 2) -> list[float]:
    """Corners of a star about the middle: ``count`` tips at ``outer``, notches at ``inner``."""
    points: list[float] = []
    for k in range(2 * count):
        radius, angle = (inner if k % 2 else outer), turn + math.pi * k / count
        points += [10 + radius * math.cos(angle), 10 + radius * math.sin(angle)]
    return points


def _star(d: Draw) -> None:
    _polygon(d, *_around(5, 9.5, 4))


def _heart(d: Draw) -> None:
    _disc(d, 6, 7, 4.6)
    _disc(d, 14, 7, 4.6)
    _polygon(d, 1.9, 9, 18.1, 9, 10, 18.5)


def _gear(d: Draw) -> None:
    _polygon(d, *_around(8, 9.5, 6.2))
    _disc(d, 10, 10, 3, 0)


def _bell(d: Draw) -> None:
    _disc(d, 10, 8, 5.5)
    _box(d, 4.5, 8, 15.5, 14)
    _box(d, 2.5, 13, 17.5, 15, 1)
    _disc(d, 10, 17, 2)


def _house(d: Draw) -> None:
    _polygon(d, 10, 1, 19, 10, 1, 10)
    _box(d, 4, 9, 16, 18)
    _box(d, 8, 12, 12, 18, fill=0)


def _key(d: Draw) -> None:
    _disc(d, 5.5, 10, 4.5)
    _disc(d, 5.5, 10, 1.8, 0)
    _box(d, 9, 9, 19, 11.2)
    _box(d, 15, 10, 17, 15)


def _lock(d: Draw) -> None:
    _box(d, 5, 1, 15, 14, 5)
    _box(d, 7.3, 3.3, 12.7, 12, 2.5, fill=0)
    _box(d, 3, 9, 17, 19, 1.5)


def _flag(d: Draw) -> None:
    _box(d, 3, 1, 5, 19)
    _polygon(d, 5, 2, 18, 6.5, 5, 11)


def _cloud(d: Draw) -> None:
    _disc(d, 6, 12, 4.2)
    _disc(d, 10.5, 8.5, 5)
    _disc(d, 15, 12.2, 3.8)
    _box(d, 6, 11, 15, 16)


def _sun(d: Draw) -> None:
    _polygon(d, *_around(12, 9.8, 6.2))
    _disc(d, 10, 10, 5.6, 0)
    _disc(d, 10, 10, 4)


def _moon(d: Draw) -> None:
    _disc(d, 10, 10, 8.5)
    _disc(d, 14, 8, 7.2, 0)


def _leaf(d: Draw) -> None:
    _polygon(d, 18, 2, 17, 12, 11, 17, 5, 15, 4, 9, 8, 4)
    d.line(_u(2, 19, 14, 7), fill=0, width=_UP)


def _bolt(d: Draw) -> None:
    _polygon(d, 12, 0.5, 3.5, 11.5, 9, 11.5, 7, 19.5, 16.5, 7.5, 10.5, 7.5)


def _book(d: Draw) -> None:
    _box(d, 1.5, 3, 18.5, 17, 1)
    _box(d, 9.4, 3, 10.6, 17, fill=0)
    for y in (7, 10, 13):
        _box(d, 3.5, y, 8, y + 0.9, fill=0)


def _camera(d: Draw) -> None:
    _box(d, 1, 5, 19, 17, 2)
    _box(d, 6.5, 2.5, 13.5, 7, 1)
    _disc(d, 10, 11, 4, 0)
    _disc(d, 10, 11, 2.2)


def _clock(d: Draw) -> None:
    _disc(d, 10, 10, 9)
    _disc(d, 10, 10, 7, 0)
    _box(d, 9.2, 4.5, 10.8, 11)
    _box(d, 9.2, 9.4, 14.5, 11)


def _eye(d: Draw) -> None:
    _polygon(d, 0.5, 10, 6, 5, 10, 4, 14, 5, 19.5, 10, 14, 15, 10, 16, 6, 15)
    _disc(d, 10, 10, 4.2, 0)
    _disc(d, 10, 10, 2.2)


def _mail(d: Draw) -> None:
    _box(d, 1, 4, 19, 16, 1)
    d.line(_u(1, 4.5, 10, 11.5, 19, 4.5), fill=0, width=int(1.3 * _UP))


def _music(d: Draw) -> None:
    _disc(d, 5, 15.5, 3.2)
    _disc(d, 15, 13.5, 3.2)
    _box(d, 6.6, 3, 8.2, 15.5)
    _box(d, 16.6, 1, 18.2, 13.5)
    _polygon(d, 6.6, 3, 18.2, 1, 18.2, 4.5, 6.6, 6.5)


def _cart(d: Draw) -> None:
    d.line(_u(0.5, 3, 4, 3, 6.5, 13, 16, 13), fill=255, width=int(1.6 * _UP))
    _polygon(d, 5, 5, 19, 5, 16.5, 11, 6.3, 11)
    _disc(d, 7.5, 16.5, 2)
    _disc(d, 14.5, 16.5, 2)


def _gem(d: Draw) -> None:
    _polygon(d, 5, 3, 15, 3, 19, 8, 10, 18.5, 1, 8)
    d.line(_u(1, 8, 19, 8), fill=0, width=_UP)


def _plus(d: Draw) -> None:
    _box(d, 7.6, 1.5, 12.4, 18.5, 1)
    _box(d, 1.5, 7.6, 18.5, 12.4, 1)


def _tag(d: Draw) -> None:
    _polygon(d, 1, 1.5, 10, 1.5, 19, 10.5, 10.5, 19, 1, 10)
    _disc(d, 5.4, 6, 1.8, 0)


def _user(d: Draw) -> None:
    _disc(d, 10, 6, 4.6)
    d.pieslice(_u(1.5, 11.5, 18.5, 28), 180, 360, fill=255)


_PAINTERS: dict[str, Callable[[Draw], None]] = {
    name[1:]: painter
    for name, painter in list(globals().items())
    if name.startswith("_") and callable(painter) and getattr(painter, "__annotations__", {}).get("d") == "Draw"
}


@cache
def icon(name: str, size: int = 20) -> Image.Image:
    """Mask of an icon: mode "L", ``size`` x ``size`` pixels.

    Raises:
        KeyError: if there is no such icon.
    """
    canvas = Image.new("L", (_N, _N), 0)
    _PAINTERS[name](ImageDraw.Draw(canvas))
    return canvas.resize((size, size), Image.Resampling.BOX)


@cache
def word(text: str, size: int = 10) -> Image.Image:
    """Mask of a word in Pillow's built-in font: mode "L", as wide as its ink, one line high.

    The height is that of the font, not of the ink, so that words side by side share a baseline.
    """
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow must be built with FreeType to draw the pocket world. Install its wheel from PyPI.")
    left, _, right, _ = font.getbbox(text)
    ascent, descent = font.getmetrics()
    canvas = Image.new("L", (int(right - left) + 1, ascent + descent), 0)
    ImageDraw.Draw(canvas).text((-left, 0), text, fill=255, font=font)
    return canvas
