"""Generated screens before and after an action, with the changed region known, for the action-grounded crop.

Drawn with Pillow: settings lists, forms, feeds and grids in light, dark and coloured themes, on five screen sizes. The
change is one of fifteen kinds. Beside it there is noise that no crop should hold: a status bar's clock goes on, a clock
on the page does, a text cursor blinks somewhere else, a pointer moves, a codec leaves traces.

The true box is that of the widget where the screen's tree lists it, and else the box of all pixels that the change
alone alters, found by drawing both screens once more without any noise.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from switchmem.steps import UIElement

SIZES = ((1080, 2400), (1080, 1920), (720, 1280), (540, 1080), (1280, 800))
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
    scene = Scene(rng, size, _theme(rng), min(size) / 400)
    page, top = _page(scene)
    kind = rng.choice(sorted(CHANGES))
    clean_before, clean_after, widget, dim = CHANGES[kind](scene, page, top)
    truth = _difference_box(clean_before, clean_after)
    listed = rng.random() < 0.5
    noise = _noises(rng)
    elements = _tree(scene, truth, widget, listed)
    before, after = _dimmed(clean_before, clean_after, widget, dim)
    return _finish(scene, before, after, elements, widget if listed else truth, kind, listed, noise)


def _tree(scene: Scene, truth: Rect, widget: Rect, listed: bool) -> list[UIElement]:
    """The elements of the later screen: what the widget covers or lies in is not among them, as it is behind it."""
    size = scene.size
    apart = [element for element in scene.elements[1:] if not _holds(element, truth, size)]
    return [scene.elements[0], *apart, *([_element(widget, size, kind="Widget")] if listed else [])]


def _holds(element: UIElement, box: Rect, size: tuple[int, int]) -> bool:
    left, top, right, bottom = (round(v * side) for v, side in zip(element.box, size * 2, strict=True))
    about = min(size) // 40
    return left - about <= box[0] and top - about <= box[1] and right + about >= box[2] and bottom + about >= box[3]


def _noises(rng: random.Random) -> tuple[str, ...]:
    """Clock and cursor always, the others now and then."""
    rare = [name for name, share in (("page clock", 0.2), ("pointer", 0.2), ("codec", 0.15)) if rng.random() < share]
    return ("clock", "cursor", *rare)


def _theme(rng: random.Random) -> Theme:
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


def _text(scene: Scene, image: Image.Image, at: tuple[int, int], text: str, size: float, colour: Colour) -> Rect:
    draw, font = ImageDraw.Draw(image), _font(scene.dp(size))
    draw.text(at, text, colour, font)
    return tuple(round(v) for v in draw.textbbox(at, text, font))


def _element(box: Rect, size: tuple[int, int], text: str = "", kind: str = "") -> UIElement:
    width, height = size
    left, right = (min(1.0, max(0.0, v / width)) for v in (box[0], box[2]))
    top, bottom = (min(1.0, max(0.0, v / height)) for v in (box[1], box[3]))
    return UIElement((left, top, max(left, right), max(top, bottom)), text, kind)


# --- pages ---


def _page(scene: Scene) -> tuple[Image.Image, int]:
    """A page with its app bar, and where its content begins."""
    width, height = scene.size
    image = Image.new("RGB", scene.size, scene.theme.page)
    bar = (0, scene.dp(28), width, scene.dp(80))
    if scene.rng.random() < 0.5:
        ImageDraw.Draw(image).rectangle((0, 0, width, bar[3]), fill=scene.theme.accent)
    title = _text(scene, image, (scene.dp(20), bar[1] + scene.dp(12)), scene.words(2), 20, scene.theme.ink)
    scene.elements += [_element((0, 0, width, height), scene.size, kind="Root")]
    scene.elements += [_element(bar, scene.size, kind="Toolbar"), _element(title, scene.size, "title", "Text")]
    scene.rng.choice((_list, _cards, _form))(scene, image, bar[3])
    return image, bar[3]


def _list(scene: Scene, image: Image.Image, top: int) -> None:
    for y in range(top + scene.dp(8), image.height - scene.dp(70), scene.dp(64)):
        _row(scene, image, (0, y, image.width, y + scene.dp(64)))


def _row(scene: Scene, image: Image.Image, box: Rect) -> None:
    draw, dp = ImageDraw.Draw(image), scene.dp
    x, y = box[0] + dp(20), box[1] + dp(12)
    colour = tuple(scene.rng.randrange(40, 220) for _ in range(3))
    draw.ellipse((x, y, x + dp(36), y + dp(36)), fill=colour)
    label = _text(scene, image, (x + dp(52), y), scene.words(2), 15, scene.theme.ink)
    _text(scene, image, (x + dp(52), y + dp(21)), scene.words(3), 12, scene.theme.faint)
    draw.line((x + dp(52), box[3] - 1, box[2], box[3] - 1), fill=scene.theme.card, width=max(1, dp(0.5)))
    scene.elements += [_element(box, scene.size, kind="Row"), _element(label, scene.size, "row", "Text")]


def _cards(scene: Scene, image: Image.Image, top: int) -> None:
    dp, draw = scene.dp, ImageDraw.Draw(image)
    columns = scene.rng.choice((2, 3, 4))
    side = (image.width - dp(12)) // columns
    for y in range(top + dp(12), image.height - side - dp(40), side):
        for column in range(columns):
            box = dp(12) + column * side, y, (column + 1) * side, y + side - dp(12)
            draw.rounded_rectangle(box, dp(10), fill=tuple(scene.rng.randrange(60, 240) for _ in range(3)))
            _text(scene, image, (box[0] + dp(8), box[3] - dp(24)), scene.words(1), 13, (10, 10, 10))
            scene.elements.append(_element(box, scene.size, kind="Card"))


def _form(scene: Scene, image: Image.Image, top: int) -> None:
    dp, draw = scene.dp, ImageDraw.Draw(image)
    for y in range(top + dp(20), image.height - dp(120), dp(82)):
        _text(scene, image, (dp(20), y), scene.words(2), 13, scene.theme.faint)
        box = (dp(20), y + dp(22), image.width - dp(20), y + dp(66))
        draw.rounded_rectangle(box, dp(6), outline=scene.theme.faint, width=max(1, dp(1)))
        scene.elements.append(_element(box, scene.size, kind="Field"))


# --- changes: each gives (before, after, the widget's box, how strongly the rest is dimmed) ---

Change = tuple[Image.Image, Image.Image, Rect, float]


def _panel(scene: Scene, image: Image.Image, box: Rect, lines: int, radius: float = 12) -> None:
    """A raised box with a title, some lines and two buttons; what is too long is cut at its edge."""
    dp, size = scene.dp, (box[2] - box[0], box[3] - box[1])
    inside = image.crop(box)
    edge = (0, 0, size[0] - 1, size[1] - 1)
    ImageDraw.Draw(inside).rounded_rectangle(
        edge, dp(radius), fill=scene.theme.card, outline=scene.theme.faint, width=dp(1)
    )
    _text(scene, inside, (dp(16), dp(14)), scene.words(2), 17, scene.theme.ink)
    for line in range(1, lines + 1):
        if dp(14) + line * dp(26) < size[1] - dp(60):
            _text(scene, inside, (dp(16), dp(14) + line * dp(26)), scene.words(3), 13, scene.theme.faint)
    for share, colour in ((0.45, scene.theme.accent), (0.75, scene.theme.ink)):
        _text(scene, inside, (round(share * size[0]), size[1] - dp(32)), scene.words(1), 14, colour)
    image.paste(inside, box[:2])


def _inner(scene: Scene, top: int, width: tuple[float, float], height: tuple[float, float]) -> Rect:
    """A box inside the page, of a random size in the given shares of the page."""
    w, h = scene.size
    across = round(w * scene.rng.uniform(*width))
    down = round((h - top) * scene.rng.uniform(*height))
    left = scene.rng.randrange(scene.dp(8), max(scene.dp(9), w - across - scene.dp(8)))
    upper = scene.rng.randrange(top + scene.dp(4), max(top + scene.dp(5), h - down - scene.dp(30)))
    return left, upper, left + across, upper + down


def _dialog(scene: Scene, page: Image.Image, top: int) -> Change:
    after = page.copy()
    box = _inner(scene, top, (0.6, 0.9), (0.2, 0.5))
    _panel(scene, after, box, 6)
    return page, after, box, 0.0


def _dimmed_dialog(scene: Scene, page: Image.Image, top: int) -> Change:
    before, after, box, _ = _dialog(scene, page, top)
    return before, after, box, scene.rng.uniform(0.3, 0.6)


def _closed_dialog(scene: Scene, page: Image.Image, top: int) -> Change:
    before, after, box, dim = _dialog(scene, page, top)
    return after, before, box, -scene.rng.uniform(0.3, 0.6) if scene.rng.random() < 0.5 else dim


def _menu(scene: Scene, page: Image.Image, top: int) -> Change:
    after = page.copy()
    box = _inner(scene, top, (0.35, 0.55), (0.15, 0.35))
    _panel(scene, after, box, 8, radius=4)
    return page, after, box, 0.0


def _switch(scene: Scene, page: Image.Image, top: int) -> Change:
    dp = scene.dp
    x = scene.size[0] - dp(76)
    y = scene.rng.randrange(top + dp(4), scene.size[1] - dp(90))
    box = (x, y, x + dp(52), y + dp(30))
    images = []
    for on in (False, True):
        image = page.copy()
        draw = ImageDraw.Draw(image)
        track = scene.theme.accent if on else (158, 158, 158)
        draw.rounded_rectangle((*box[:2], box[2] - 1, box[3] - 1), dp(15), fill=track)
        knob = box[2] - dp(28) if on else box[0] + dp(2)
        draw.ellipse((knob, y + dp(2), knob + dp(26), y + dp(28)), fill=(245, 245, 245))
        images.append(image)
    return images[0], images[1], box, 0.0


def _checkbox(scene: Scene, page: Image.Image, top: int) -> Change:
    dp = scene.dp
    x, y = scene.rng.randrange(dp(16), scene.size[0] - dp(60)), scene.rng.randrange(top + dp(4), scene.size[1] - dp(90))
    box = (x, y, x + dp(24), y + dp(24))
    before, after = page.copy(), page.copy()
    ImageDraw.Draw(before).rectangle((*box[:2], box[2] - 1, box[3] - 1), fill=scene.theme.page)
    draw = ImageDraw.Draw(after)
    draw.rectangle((*box[:2], box[2] - 1, box[3] - 1), fill=scene.theme.accent)
    draw.line((x + dp(5), y + dp(12), x + dp(10), y + dp(18), x + dp(19), y + dp(6)), fill=(255, 255, 255), width=dp(3))
    return before, after, box, 0.0


def _typed(scene: Scene, page: Image.Image, top: int) -> Change:
    dp = scene.dp
    y = scene.rng.randrange(top + dp(8), scene.size[1] // 2)
    box = (dp(20), y, scene.size[0] - dp(20), y + dp(48))
    before, after = page.copy(), page.copy()
    for image in (before, after):
        ImageDraw.Draw(image).rounded_rectangle(
            (*box[:2], box[2] - 1, box[3] - 1), dp(6), fill=scene.theme.card, outline=scene.theme.accent, width=dp(2)
        )
    _text(scene, after, (box[0] + dp(14), y + dp(13)), scene.words(scene.rng.randint(1, 5)), 17, scene.theme.ink)
    return before, after, box, 0.0


def _scrolled(scene: Scene, page: Image.Image, top: int) -> Change:
    """A list inside the page that went on by some of its rows."""
    dp = scene.dp
    box = _inner(scene, top, (0.7, 0.96), (0.35, 0.75))
    row = dp(56)
    strip = Image.new("RGB", (box[2] - box[0], 3 * (box[3] - box[1])), scene.theme.card)
    for y in range(0, strip.height, row):
        draw = ImageDraw.Draw(strip)
        draw.rectangle((0, y, strip.width, y + row - 2), fill=tuple(scene.rng.randrange(90, 250) for _ in range(3)))
        _text(scene, strip, (dp(14), y + dp(16)), scene.words(3), 16, (12, 12, 12))
    shift = scene.rng.randrange(row // 2, strip.height - (box[3] - box[1]))
    before, after = page.copy(), page.copy()
    for image, offset in ((before, 0), (after, shift)):
        image.paste(strip.crop((0, offset, strip.width, offset + box[3] - box[1])), box[:2])
    return before, after, box, 0.0


def _plain_scrolled(scene: Scene, page: Image.Image, top: int) -> Change:
    """A list of text on the page's own colour: between its lines nothing changes."""
    dp = scene.dp
    box = _inner(scene, top, (0.8, 0.96), (0.4, 0.7))
    before, after = page.copy(), page.copy()
    for image in (before, after):
        ImageDraw.Draw(image).rectangle((*box[:2], box[2] - 1, box[3] - 1), fill=scene.theme.page)
        for y in range(box[1] + dp(4), box[3] - dp(26), dp(44)):
            _text(scene, image, (box[0] + dp(6), y), scene.words(scene.rng.randint(2, 4)), 15, scene.theme.ink)
            _text(scene, image, (box[2] - dp(44), y), str(scene.rng.randrange(100, 999)), 14, scene.theme.faint)
    return before, after, box, 0.0


def _highlight(scene: Scene, page: Image.Image, top: int) -> Change:
    dp = scene.dp
    y = scene.rng.randrange(top + dp(4), scene.size[1] - dp(140))
    box = (0, y, scene.size[0], y + dp(56))
    before, after = page.copy(), page.copy()
    words = scene.words(3)
    for image, colour in ((before, scene.theme.page), (after, scene.theme.accent)):
        ImageDraw.Draw(image).rectangle((*box[:2], box[2] - 1, box[3] - 1), fill=colour)
        _text(scene, image, (dp(20), y + dp(16)), words, 16, scene.theme.ink)
    return before, after, box, 0.0


def _keyboard(scene: Scene, page: Image.Image, top: int) -> Change:
    dp, (width, height) = scene.dp, scene.size
    box = (0, height - round(height * scene.rng.uniform(0.33, 0.45)), width, height)
    after = page.copy()
    draw = ImageDraw.Draw(after)
    draw.rectangle(box, fill=tuple(max(0, c - 30) for c in scene.theme.card))
    rows = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    key, step = width // 10, (box[3] - box[1]) // 5
    for line, letters in enumerate(rows):
        for n, letter in enumerate(letters):
            x = n * key + (width - key * len(letters)) // 2
            y = box[1] + dp(8) + line * step
            draw.rounded_rectangle((x + dp(2), y, x + key - dp(2), y + step - dp(6)), dp(4), fill=scene.theme.page)
            _text(scene, after, (x + key // 3, y + step // 4), letter, 17, scene.theme.ink)
    y = box[1] + dp(8) + len(rows) * step
    draw.rounded_rectangle((2 * key, y, 8 * key, y + step - dp(6)), dp(4), fill=scene.theme.page)
    for x, sign in ((key // 2, "?123"), (8 * key + key // 2, "done")):
        _text(scene, after, (x, y + step // 4), sign, 15, scene.theme.ink)
    return page, after, box, 0.0


def _snackbar(scene: Scene, page: Image.Image, top: int) -> Change:
    dp, (width, height) = scene.dp, scene.size
    y = height - dp(scene.rng.randint(90, 130))
    box = (dp(12), y, width - dp(12), y + dp(48))
    after = page.copy()
    fill = (50, 50, 50) if sum(scene.theme.page) > 300 else (225, 225, 225)
    ImageDraw.Draw(after).rounded_rectangle((*box[:2], box[2] - 1, box[3] - 1), dp(4), fill=fill)
    ink = (240, 240, 240) if fill[0] < 100 else (20, 20, 20)
    _text(scene, after, (box[0] + dp(14), y + dp(14)), scene.words(4), 14, ink)
    return page, after, box, 0.0


def _sheet(scene: Scene, page: Image.Image, top: int) -> Change:
    width, height = scene.size
    box = (0, height - round(height * scene.rng.uniform(0.3, 0.55)), width, height)
    after = page.copy()
    _panel(scene, after, box, 8, radius=2)
    return page, after, box, scene.rng.choice((0.0, scene.rng.uniform(0.3, 0.6)))


def _picture(scene: Scene, page: Image.Image, top: int) -> Change:
    """A picture or a video gives way to another."""
    box = _inner(scene, top, (0.4, 0.9), (0.2, 0.45))
    images = []
    for _ in range(2):
        image = page.copy()
        coarse = bytes(scene.rng.randrange(256) for _ in range(3 * 8 * 8))
        blurred = Image.frombytes("RGB", (8, 8), coarse).resize(
            (box[2] - box[0], box[3] - box[1]), Image.Resampling.BICUBIC
        )
        image.paste(blurred, box[:2])
        images.append(image)
    return images[0], images[1], box, 0.0


def _slider(scene: Scene, page: Image.Image, top: int) -> Change:
    dp = scene.dp
    y = scene.rng.randrange(top + dp(10), scene.size[1] - dp(100))
    box = (dp(24), y, scene.size[0] - dp(24), y + dp(20))
    images = []
    for share in (scene.rng.uniform(0.0, 0.15), scene.rng.uniform(0.85, 1.0)):
        image = page.copy()
        draw = ImageDraw.Draw(image)
        draw.rectangle((*box[:2], box[2] - 1, box[3] - 1), fill=scene.theme.page)
        x = round(box[0] + dp(10) + share * (box[2] - box[0] - dp(20)))
        draw.line((box[0], y + dp(10), box[2], y + dp(10)), fill=scene.theme.faint, width=dp(4))
        draw.line((box[0], y + dp(10), x, y + dp(10)), fill=scene.theme.accent, width=dp(4))
        draw.ellipse((x - dp(9), y + dp(1), x + dp(9), y + dp(19)), fill=scene.theme.accent)
        images.append(image)
    return images[0], images[1], box, 0.0


CHANGES: dict[str, Callable[[Scene, Image.Image, int], Change]] = {
    "checkbox": _checkbox,
    "closed dialog": _closed_dialog,
    "dialog": _dialog,
    "dimmed dialog": _dimmed_dialog,
    "highlight": _highlight,
    "keyboard": _keyboard,
    "menu": _menu,
    "picture": _picture,
    "plain scroll": _plain_scrolled,
    "scroll": _scrolled,
    "sheet": _sheet,
    "slider": _slider,
    "snackbar": _snackbar,
    "switch": _switch,
    "typed": _typed,
}


# --- noise, and what comes out ---


def _difference_box(before: Image.Image, after: Image.Image) -> Rect:
    """The box of all pixels that differ, by a plain look at every pixel."""
    differs = (np.asarray(before) != np.asarray(after)).any(axis=2)
    ys, xs = np.nonzero(differs)
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


def _dimmed(before: Image.Image, after: Image.Image, box: Rect, dim: float) -> tuple[Image.Image, Image.Image]:
    """The pair with one screen dimmed outside the box: the later one for dim > 0, the earlier one for dim < 0."""
    if dim == 0.0:
        return before, after
    shown = after if dim > 0 else before
    dark = shown.point([round(value * (1.0 - abs(dim))) for value in range(256)] * 3)
    dark.paste(shown.crop(box), box[:2])
    return (before, dark) if dim > 0 else (dark, after)


def _finish(
    scene: Scene,
    before: Image.Image,
    after: Image.Image,
    elements: list[UIElement],
    truth: Rect,
    kind: str,
    listed: bool,
    noise: tuple[str, ...],
) -> Pair:
    images = [before.copy(), after.copy()]
    minute = scene.rng.randrange(59)
    hour = scene.rng.randrange(1, 12)
    clock = (scene.rng.choice((scene.dp(14), scene.size[0] // 2 - scene.dp(20))), scene.dp(5))
    caret = _free(scene, truth, (scene.dp(2), scene.dp(20)))
    spot = _free(scene, truth, (scene.dp(90), scene.dp(40)))
    lists: list[list[UIElement]] = [[], []]
    ink = (235, 235, 235) if sum(images[0].getpixel(clock)) < 380 else (30, 30, 30)
    for n, image in enumerate(images):
        time = f"{hour}:{minute + n:02d}"
        _text(scene, image, clock, time, 14, ink)
        if n and caret is not None:
            ImageDraw.Draw(image).rectangle(caret, fill=scene.theme.accent)
        if "page clock" in noise and spot is not None:
            # the minute's place keeps its width, as in a monospaced widget
            box = _text(scene, image, (spot[0], spot[1]), time, 30, scene.theme.ink)
            lists[n].append(_element(box, scene.size, time, "Clock"))
    points = _point(scene, images, truth) if "pointer" in noise else ()
    if "codec" in noise:
        images = [_recoded(image, scene.rng.randint(90, 96)) for image in images]
    arrays = [np.asarray(image) for image in images]
    return Pair(
        arrays[0],
        arrays[1],
        (*elements, *lists[0]),
        (*elements, *lists[1]),
        truth,
        points,
        kind,
        listed,
        noise,
    )


def _free(scene: Scene, taken: Rect, size: tuple[int, int]) -> Rect | None:
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


def _point(scene: Scene, images: list[Image.Image], truth: Rect) -> tuple[tuple[float, float], ...]:
    """Draw a pointer that moved."""
    points = []
    for image in images:
        place = _free(scene, truth, (scene.dp(8), scene.dp(14)))
        if place is None:
            continue
        x, y = place[:2]
        shape = [(x, y), (x, y + scene.dp(13)), (x + scene.dp(4), y + scene.dp(10)), (x + scene.dp(8), y + scene.dp(9))]
        ImageDraw.Draw(image).polygon(shape, fill=(255, 255, 255), outline=(0, 0, 0))
        points.append((x / image.width, y / image.height))
    return tuple(points)


def _recoded(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def overlap(a: Rect, b: Rect) -> float:
    """Intersection over union of two boxes.

    >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    across = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    down = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    both = across * down
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
