"""Generated screens before and after an action, with the changed region known, for the action-grounded crop.

Drawn with Pillow: settings lists, forms, feeds and grids in light, dark and coloured themes, on five screen sizes. The
change is one of fifteen kinds. Beside it there is noise that no crop should hold: a status bar's clock goes on, a clock
on the page does, a text cursor blinks somewhere else, a pointer moves, a codec leaves traces.

The true box is that of the widget where the screen's tree lists it, and else the box of all pixels that the change
alone alters, found by drawing both screens once more without any noise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.screen_pairs.changes import CHANGES
from benchmarks.screen_pairs.noise import add_noise, dimmed, noises
from benchmarks.screen_pairs.pages import draw_page
from benchmarks.screen_pairs.scene import Rect, Scene, element, theme_of
from switchmem.steps import UIElement

SIZES = ((1080, 2400), (1080, 1920), (720, 1280), (540, 1080), (1280, 800))


@dataclass(frozen=True)
class Pair:
    """Two consecutive screens.

    Args:
        before, after: ``[H, W, 3]`` uint8.
        elements_before, elements: of either screen.
        truth: the changed region in pixels, right and bottom excluded.
        points: where a pointer was and is.
        kind: what changed.
        listed: whether the tree lists the changed widget.
        noise: what else changed.
    """

    before: NDArray[np.uint8]
    after: NDArray[np.uint8]
    elements_before: tuple[UIElement, ...]
    elements: tuple[UIElement, ...]
    truth: Rect
    points: tuple[tuple[float, float], ...]
    kind: str
    listed: bool
    noise: tuple[str, ...]


def pairs(count: int, seed: int = 0, sizes: Sequence[tuple[int, int]] = SIZES) -> Iterator[Pair]:
    """So many pairs; pair n depends on the seed, n and the sizes alone."""
    for number in range(count):
        yield make_pair(random.Random(f"{seed}-{number}"), sizes)


def make_pair(rng: random.Random, sizes: Sequence[tuple[int, int]] = SIZES) -> Pair:
    """One pair."""
    size = rng.choice(sizes)
    scene = Scene(rng, size, theme_of(rng), min(size) / 400)
    page, top = draw_page(scene)
    kind = rng.choice(sorted(CHANGES))
    clean_before, clean_after, widget, dim = CHANGES[kind](scene, page, top)
    changed = _difference_box(clean_before, clean_after)
    listed = rng.random() < 0.5
    truth = widget if listed else changed
    noise = noises(rng)
    elements = _tree(scene, changed, widget, listed)
    noisy = add_noise(scene, dimmed(clean_before, clean_after, widget, dim), truth, noise)
    before, after = (np.asarray(image) for image in noisy.images)
    return Pair(
        before=before,
        after=after,
        elements_before=(*elements, *noisy.elements[0]),
        elements=(*elements, *noisy.elements[1]),
        truth=truth,
        points=noisy.points,
        kind=kind,
        listed=listed,
        noise=noise,
    )


def _tree(scene: Scene, changed: Rect, widget: Rect, listed: bool) -> list[UIElement]:
    """The elements of the later screen: what the widget covers or lies in is not among them, as it is behind it."""
    size = scene.size
    apart = [other for other in scene.elements[1:] if not _holds(other, changed, size)]
    return [scene.elements[0], *apart, *([element(widget, size, kind="Widget")] if listed else [])]


def _holds(other: UIElement, box: Rect, size: tuple[int, int]) -> bool:
    left, top, right, bottom = (round(v * side) for v, side in zip(other.box, size * 2, strict=True))
    about = min(size) // 40
    return left - about <= box[0] and top - about <= box[1] and right + about >= box[2] and bottom + about >= box[3]


def _difference_box(before: Image.Image, after: Image.Image) -> Rect:
    """The box of all pixels that differ, by a plain look at every pixel."""
    differs = (np.asarray(before) != np.asarray(after)).any(axis=2)
    ys, xs = np.nonzero(differs)
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


def overlap(a: Rect, b: Rect) -> float:
    """Intersection over union of two boxes.

    >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    across = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    down = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    both = across * down
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
