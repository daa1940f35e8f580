"""What a generated screen is drawn from: its theme, its measures, its words."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

from switchmem.steps import UIElement

WORDS = (
    "account alarm album archive backup battery bluetooth calendar call camera chat clock cloud contact copy date "
    "device display download draft edit email event favourite file folder friend game group help history home "
    "image inbox invite label language library light list location lock mail map media message mode movie music "
    "mute network news note notification number order page payment phone photo place playlist podcast print "
    "privacy profile quality recent record reminder report save screen search security send setting share shop "
    "sleep song sound storage store sync system theme time timer travel update user video volume wallet weather "
    "work "
).split()
Rect = tuple[int, int, int, int]
Colour = tuple[int, int, int]


@dataclass
class Theme:
    """Colours of a screen."""

    page: Colour
    card: Colour
    ink: Colour
    faint: Colour
    accent: Colour


@dataclass
class Scene:
    """What both screens of a pair are drawn from.

    Args:
        rng: of everything that both share.
        size: width and height in pixels.
        theme: colours.
        unit: a density-independent pixel, in pixels.
    """

    rng: random.Random
    size: tuple[int, int]
    theme: Theme
    unit: float
    elements: list[UIElement] = field(default_factory=list)

    def dp(self, value: float) -> int:
        """Pixels of a length."""
        return max(1, round(value * self.unit))

    def words(self, count: int) -> str:
        """So many words."""
        return " ".join(self.rng.choice(WORDS) for _ in range(count)).capitalize()


def theme_of(rng: random.Random) -> Theme:
    """A dark theme for about a third, else a light or a coloured one."""
    accent = rng.choice([(26, 115, 232), (0, 137, 123), (216, 67, 21), (142, 36, 170), (56, 142, 60)])
    if rng.random() < 0.35:
        page = rng.choice([(18, 18, 18), (0, 0, 0), (28, 32, 38)])
        return Theme(page, tuple(min(255, c + 26) for c in page), (232, 232, 232), (150, 150, 150), accent)
    page = rng.choice([(255, 255, 255), (242, 242, 246), (250, 245, 235), (225, 236, 245)])
    card = rng.choice([(255, 255, 255), (232, 232, 238)])
    return Theme(page, card, (28, 28, 30), (120, 120, 126), accent)


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(max(6, size))


def write(scene: Scene, image: Image.Image, at: tuple[int, int], text: str, size: float, colour: Colour) -> Rect:
    """Write a text and give its box; `size` is in density-independent pixels."""
    draw, font = ImageDraw.Draw(image), _font(scene.dp(size))
    draw.text(at, text, colour, font)
    return tuple(round(v) for v in draw.textbbox(at, text, font))


def element(box: Rect, size: tuple[int, int], text: str = "", kind: str = "") -> UIElement:
    """An element of the tree for a box in pixels, cut at the screen's edges."""
    width, height = size
    left, right = (min(1.0, max(0.0, v / width)) for v in (box[0], box[2]))
    top, bottom = (min(1.0, max(0.0, v / height)) for v in (box[1], box[3]))
    return UIElement((left, top, max(left, right), max(top, bottom)), text, kind)
