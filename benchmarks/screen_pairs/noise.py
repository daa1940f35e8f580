"""What a pair differs in beside the change: clocks, cursors, pointers, a scrim, the traces of a codec."""

from __future__ import annotations

import io
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from benchmarks.screen_pairs.scene import Rect, Scene, element, write
from switchmem.steps import UIElement


def noises(rng: random.Random) -> tuple[str, ...]:
    """Clock and cursor always, the others now and then."""
    rare = [name for name, share in (("page clock", 0.2), ("pointer", 0.2), ("codec", 0.15)) if rng.random() < share]
    return ("clock", "cursor", *rare)


def dimmed(before: Image.Image, after: Image.Image, box: Rect, dim: float) -> tuple[Image.Image, Image.Image]:
    """The pair with one screen dimmed outside the box: the later one for dim > 0, the earlier one for dim < 0."""
    if dim == 0.0:
        return before, after
    shown = after if dim > 0 else before
    dark = shown.point([round(value * (1.0 - abs(dim))) for value in range(256)] * 3)
    dark.paste(shown.crop(box), box[:2])
    return (before, dark) if dim > 0 else (dark, after)


@dataclass(frozen=True)
class Noisy:
    """A pair with its noise.

    Args:
        images: the earlier and the later screen.
        elements: what the noise adds to either screen's tree.
        points: where a pointer was and is, as fractions of the screen.
    """

    images: tuple[Image.Image, Image.Image]
    elements: tuple[list[UIElement], list[UIElement]]
    points: tuple[tuple[float, float], ...]


def add_noise(scene: Scene, clean: tuple[Image.Image, Image.Image], truth: Rect, names: Collection[str]) -> Noisy:
    """Copies of both screens with a clock in the status bar, a cursor, and whatever else `names` asks for."""
    before, after = clean[0].copy(), clean[1].copy()
    minute = scene.rng.randrange(59)
    hour = scene.rng.randrange(1, 12)
    clock = (scene.rng.choice((scene.dp(14), scene.size[0] // 2 - scene.dp(20))), scene.dp(5))
    caret = free_place(scene, truth, (scene.dp(2), scene.dp(20)))
    spot = free_place(scene, truth, (scene.dp(90), scene.dp(40)))
    elements: tuple[list[UIElement], list[UIElement]] = ([], [])
    ink = (235, 235, 235) if sum(before.getpixel(clock)) < 380 else (30, 30, 30)
    for n, image in enumerate((before, after)):
        time = f"{hour}:{minute + n:02d}"
        write(scene, image, clock, time, 14, ink)
        if n and caret is not None:
            ImageDraw.Draw(image).rectangle(caret, fill=scene.theme.accent)
        if "page clock" in names and spot is not None:
            # the minute's place keeps its width, as in a monospaced widget
            box = write(scene, image, (spot[0], spot[1]), time, 30, scene.theme.ink)
            elements[n].append(element(box, scene.size, time, "Clock"))
    points = _point(scene, (before, after), truth) if "pointer" in names else ()
    if "codec" in names:
        before, after = (recoded(image, scene.rng.randint(90, 96)) for image in (before, after))
    return Noisy((before, after), elements, points)


def free_place(scene: Scene, taken: Rect, size: tuple[int, int]) -> Rect | None:
    """A place on the page, well apart from the change; None where there is none."""
    width, height = scene.size
    apart = scene.dp(14)
    for _ in range(60):
        left = scene.rng.randrange(scene.dp(10), width - size[0] - scene.dp(10))
        top = scene.rng.randrange(scene.dp(90), height - size[1] - scene.dp(40))
        box = left, top, left + size[0], top + size[1]
        if box[2] + apart < taken[0] or box[0] - apart > taken[2]:
            return box
        if box[3] + apart < taken[1] or box[1] - apart > taken[3]:
            return box
    return None


def _point(scene: Scene, images: Sequence[Image.Image], truth: Rect) -> tuple[tuple[float, float], ...]:
    """Draw a pointer that moved."""
    points = []
    for image in images:
        place = free_place(scene, truth, (scene.dp(8), scene.dp(14)))
        if place is None:
            continue
        x, y = place[:2]
        shape = [(x, y), (x, y + scene.dp(13)), (x + scene.dp(4), y + scene.dp(10)), (x + scene.dp(8), y + scene.dp(9))]
        ImageDraw.Draw(image).polygon(shape, fill=(255, 255, 255), outline=(0, 0, 0))
        points.append((x / image.width, y / image.height))
    return tuple(points)


def recoded(image: Image.Image, quality: int) -> Image.Image:
    """What is left of a picture after JPEG."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")
