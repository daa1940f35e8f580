"""Numbers on the elements of a screen: which element has which, and the screenshot with the numbers drawn on it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from PIL import Image, ImageDraw, ImageFont

from switchmem.steps import Step, UIElement

REFERENCE_WIDTH = 1080
"""Pixels of the width for which the sizes below are meant; they are scaled with the screenshot."""
PATCH, BORDER, TAG = (35, 25), 4, 44
_LEAST_FONT = 8.0
GREEN, WHITE, BLACK, DARK = (0, 255, 0), (255, 255, 255), (0, 0, 0), (32, 32, 32)


def listed(step: Step) -> dict[int, UIElement]:
    """A screen's elements by their place in the recording; those without an area are left out, so there are gaps."""
    return {n: element for n, element in enumerate(step.elements) if element.area > 0}


def interactive(step: Step, apart: float) -> dict[int, UIElement]:
    """The elements that can be acted on, numbered from 1: what is clickable first, then what can be filled or moved.

    Where the recording does not say what can be acted on, as with annotations, all elements are numbered.

    Args:
        step: whose screen.
        apart: a centre nearer than this to that of an element before it has no number of its own, as a fraction of the
            screen's width, >= 0.
    """
    elements = list(listed(step).values())
    groups = [[e for e in elements if e.clickable], [e for e in elements if e.editable or e.scrollable]]
    if not any(groups):
        groups = [elements]
    ratio = step.screenshot.height / step.screenshot.width
    chosen: list[UIElement] = []
    for element in (e for group in groups for e in group):
        x, y = element.center
        near = (math.hypot(x - c[0], (y - c[1]) * ratio) < apart for c in (other.center for other in chosen))
        if element not in chosen and not any(near):
            chosen.append(element)
    return dict(enumerate(chosen, 1))


def boxed(image: Image.Image, elements: Mapping[int, UIElement]) -> Image.Image:
    """A copy with a green box around each element, and its number on a white patch in the box's top left corner."""
    marked, scale = image.convert("RGB"), image.width / REFERENCE_WIDTH
    draw, font = ImageDraw.Draw(marked), _font(scale)
    for number, element in elements.items():
        left, top, right, bottom = _pixels(element, image.size)
        draw.rectangle((left, top, right, bottom), outline=GREEN, width=max(1, round(BORDER * scale)))
        _label(draw, str(number), (left, top), font, WHITE, BLACK, scale)
    return marked


def tagged(image: Image.Image, elements: Mapping[int, UIElement]) -> Image.Image:
    """A copy with each element's number on a dark tag at the middle of its box."""
    marked, scale = image.convert("RGB"), image.width / REFERENCE_WIDTH
    draw, font = ImageDraw.Draw(marked), _font(scale)
    for number, element in elements.items():
        left, top, right, bottom = _pixels(element, image.size)
        x0, y0, x1, y1 = draw.textbbox((0, 0), str(number), font=font)
        corner = ((left + right - (x1 - x0)) // 2, (top + bottom - (y1 - y0)) // 2)
        _label(draw, str(number), (int(corner[0]), int(corner[1])), font, DARK, WHITE, scale)
    return marked


def _font(scale: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(max(_LEAST_FONT, 22 * scale))


def _label(
    draw: ImageDraw.ImageDraw,
    text: str,
    corner: tuple[int, int],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    ground: tuple[int, int, int],
    ink: tuple[int, int, int],
    scale: float,
) -> None:
    """A number on a patch whose top left corner is given; the patch grows with the number."""
    x0, y0, x1, y1 = draw.textbbox(corner, text, font=font)
    width, height = max(x1 - x0 + 2, PATCH[0] * scale), max(y1 - y0 + 2, PATCH[1] * scale)
    draw.rectangle((corner[0], corner[1], corner[0] + width, corner[1] + height), fill=ground)
    draw.text((corner[0] + 1 - (x0 - corner[0]), corner[1] + 1 - (y0 - corner[1])), text, fill=ink, font=font)


def _pixels(element: UIElement, size: tuple[int, int]) -> tuple[int, int, int, int]:
    left, top, right, bottom = element.box
    width, height = size[0] - 1, size[1] - 1
    return round(left * width), round(top * height), round(right * width), round(bottom * height)
