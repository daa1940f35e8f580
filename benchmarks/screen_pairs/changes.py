"""Fifteen kinds of change; each gives (before, after, the widget's box, how strongly the rest is dimmed)."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image, ImageDraw

from benchmarks.screen_pairs.scene import Rect, Scene, write

Change = tuple[Image.Image, Image.Image, Rect, float]


def _panel(scene: Scene, image: Image.Image, box: Rect, lines: int, radius: float = 12) -> None:
    """A raised box with a title, some lines and two buttons; what is too long is cut at its edge."""
    dp, size = scene.dp, (box[2] - box[0], box[3] - box[1])
    inside = image.crop(box)
    edge = (0, 0, size[0] - 1, size[1] - 1)
    ImageDraw.Draw(inside).rounded_rectangle(
        edge, dp(radius), fill=scene.theme.card, outline=scene.theme.faint, width=dp(1)
    )
    write(scene, inside, (dp(16), dp(14)), scene.words(2), 17, scene.theme.ink)
    for line in range(1, lines + 1):
        if dp(14) + line * dp(26) < size[1] - dp(60):
            write(scene, inside, (dp(16), dp(14) + line * dp(26)), scene.words(3), 13, scene.theme.faint)
    for share, colour in ((0.45, scene.theme.accent), (0.75, scene.theme.ink)):
        write(scene, inside, (round(share * size[0]), size[1] - dp(32)), scene.words(1), 14, colour)
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
    write(scene, after, (box[0] + dp(14), y + dp(13)), scene.words(scene.rng.randint(1, 5)), 17, scene.theme.ink)
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
        write(scene, strip, (dp(14), y + dp(16)), scene.words(3), 16, (12, 12, 12))
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
            write(scene, image, (box[0] + dp(6), y), scene.words(scene.rng.randint(2, 4)), 15, scene.theme.ink)
            write(scene, image, (box[2] - dp(44), y), str(scene.rng.randrange(100, 999)), 14, scene.theme.faint)
    return before, after, box, 0.0


def _highlight(scene: Scene, page: Image.Image, top: int) -> Change:
    dp = scene.dp
    y = scene.rng.randrange(top + dp(4), scene.size[1] - dp(140))
    box = (0, y, scene.size[0], y + dp(56))
    before, after = page.copy(), page.copy()
    words = scene.words(3)
    for image, colour in ((before, scene.theme.page), (after, scene.theme.accent)):
        ImageDraw.Draw(image).rectangle((*box[:2], box[2] - 1, box[3] - 1), fill=colour)
        write(scene, image, (dp(20), y + dp(16)), words, 16, scene.theme.ink)
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
            write(scene, after, (x + key // 3, y + step // 4), letter, 17, scene.theme.ink)
    y = box[1] + dp(8) + len(rows) * step
    draw.rounded_rectangle((2 * key, y, 8 * key, y + step - dp(6)), dp(4), fill=scene.theme.page)
    for x, sign in ((key // 2, "?123"), (8 * key + key // 2, "done")):
        write(scene, after, (x, y + step // 4), sign, 15, scene.theme.ink)
    return page, after, box, 0.0


def _snackbar(scene: Scene, page: Image.Image, top: int) -> Change:
    dp, (width, height) = scene.dp, scene.size
    y = height - dp(scene.rng.randint(90, 130))
    box = (dp(12), y, width - dp(12), y + dp(48))
    after = page.copy()
    fill = (50, 50, 50) if sum(scene.theme.page) > 300 else (225, 225, 225)
    ImageDraw.Draw(after).rounded_rectangle((*box[:2], box[2] - 1, box[3] - 1), dp(4), fill=fill)
    ink = (240, 240, 240) if fill[0] < 100 else (20, 20, 20)
    write(scene, after, (box[0] + dp(14), y + dp(14)), scene.words(4), 14, ink)
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
