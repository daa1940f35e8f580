"""Screens of the pocket world: what is where, how it looks, and what the accessibility tree says.

A screen is 128 x 224 pixels on a grid of 4 columns and 7 rows of 32 pixels, about a phone seen from afar.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from switchmem.benchmarks.pocket.apps import App, Theme
from switchmem.benchmarks.pocket.glyphs import icon, word
from switchmem.benchmarks.pocket.vocabulary import ICONS
from switchmem.steps import UIElement

CELL, COLUMNS, ROWS = 32, 4, 7
WIDTH, HEIGHT = COLUMNS * CELL, ROWS * CELL

_ICONS = frozenset(ICONS)
_FULL = [(row, 0, 4) for row in range(1, 6)]
_SLOTS: dict[str, list[tuple[int, int, int]]] = {
    "pairs": [(row, column, 2) for row in range(1, 7) for column in (0, 2)],
    "grid": [(row, column, 1) for row in (2, 4, 6) for column in range(4)],
    "toolbar": [(1, column, 1) for column in range(4)] + [(row, 0, 4) for row in range(2, 7)],
    "navigation": _FULL + [(6, column, 1) for column in range(4)],
    "dialog": [(4, 0, 2), (4, 2, 2)],
    "banner": [(3, 0, 4)],
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An icon or a word in ``span`` cells of row ``row`` from column ``column`` on."""

    symbol: str
    row: int
    column: int
    span: int
    kind: str = "Button"

    @property
    def is_icon(self) -> bool:
        """Whether a glyph is drawn in place of a word."""
        return self.symbol in _ICONS

    @property
    def box(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) in [0, 1]."""
        return (
            self.column / COLUMNS,
            self.row / ROWS,
            (self.column + self.span) / COLUMNS,
            (self.row + 1) / ROWS,
        )

    @property
    def center(self) -> tuple[float, float]:
        """Where a person taps it, (x, y) in [0, 1]."""
        return ((self.column + self.span / 2) / COLUMNS, (self.row + 0.5) / ROWS)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a screen shows: its kind ("main", "launcher", "dialog", ...), colours, title and entries."""

    kind: str
    theme: Theme
    title: str
    entries: tuple[Entry, ...]

    def find(self, symbol: str) -> Entry:
        """The entry that shows ``symbol``.

        Raises:
            KeyError: if none does.
        """
        for entry in self.entries:
            if entry.symbol == symbol:
                return entry
        raise KeyError(symbol)


def arrange(layout: str, symbols: list[str], rng: np.random.Generator, *, search: bool = False) -> tuple[Entry, ...]:
    """Put the symbols into random slots of a layout, reading order; ``search`` adds a text field on top."""
    slots = _SLOTS[layout]
    if search:
        slots = [s for s in slots if s[0] > 1]
    chosen = sorted(rng.permutation(len(slots))[: len(symbols)].tolist())
    order = rng.permutation(len(symbols))
    entries = [Entry(symbols[k], *slots[slot]) for k, slot in zip(order, chosen, strict=True)]
    field = [Entry("search", 1, 0, 4, "EditText")] if search else []
    return (*field, *entries)


def app_scene(app: App, screen: str, rng: np.random.Generator) -> Scene:
    """A screen of an app, its entries in a new order."""
    search = app.search and screen == "main" and app.layouts[screen] in ("pairs", "grid")
    entries = arrange(app.layouts[screen], list(app.conventions[screen].values()), rng, search=search)
    return Scene(screen, app.theme, app.noun, entries)


def system_scene(kind: str, theme: Theme, symbols: list[str], rng: np.random.Generator) -> Scene:
    """A launcher, dialog, ad or done screen; ``symbols`` are the launcher's apps, unused elsewhere."""
    layout, shown = {
        "launcher": ("pairs", symbols),
        "dialog": ("dialog", ["ok", "cancel"]),
        "ad": ("banner", ["ad"]),
        "done": ("banner", ["done"]),
    }[kind]
    return Scene(kind, theme, "", arrange(layout, shown, rng))


def elements(scene: Scene, *, name_icons: bool) -> tuple[UIElement, ...]:
    """The accessibility tree: words are labelled, icons only where ``name_icons`` (as apps mostly leave them bare)."""
    listed = [] if not scene.title else [UIElement((0.0, 0.0, 1.0, 1 / ROWS), text=scene.title, kind="Title")]
    for e in scene.entries:
        named = name_icons or not e.is_icon
        kind = "ImageButton" if e.is_icon else e.kind
        listed.append(
            UIElement(
                e.box,
                text="" if e.is_icon else e.symbol,
                description=e.symbol if e.is_icon and named else "",
                kind=kind,
                clickable=True,
                editable=kind == "EditText",
            )
        )
    return tuple(listed)


def _paste(image: Image.Image, mask: Image.Image, x: float, y: float, color: tuple[int, int, int]) -> None:
    """Paste a mask centred on (x, y) pixels."""
    image.paste(color, (round(x - mask.width / 2), round(y - mask.height / 2)), mask)


def _text(image: Image.Image, entry: Entry, x: float, y: float, theme: Theme, *, legible: bool) -> None:
    """A word, or, where it is too small to read, the same faint stroke for every word.

    Text below the size at which a renderer can form letters is drawn as a stroke ("greeking"). Its length
    does not follow the word's, so that brightness or length cannot give the word away.
    """
    if legible:
        _paste(image, word(entry.symbol, 9 if entry.span == 1 else 10), x, y, theme.ink)
    else:
        ImageDraw.Draw(image).line([(x - 7, y), (x + 7, y)], fill=theme.line, width=2)


def _frame(draw: ImageDraw.ImageDraw, entry: Entry, theme: Theme) -> None:
    """The tile, row or field behind an entry."""
    x0, y0 = entry.column * CELL, entry.row * CELL
    x1, y1 = x0 + entry.span * CELL - 1, y0 + CELL - 1
    if entry.kind == "EditText":
        draw.rounded_rectangle([x0 + 3, y0 + 6, x1 - 3, y1 - 6], 8, fill=theme.card, outline=theme.accent)
    elif entry.span == COLUMNS:
        draw.rectangle([x0, y0, x1, y1], fill=theme.card)
        draw.line([(x0 + 4, y1), (x1 - 4, y1)], fill=theme.line)
        draw.line([(x1 - 10, y0 + 12), (x1 - 7, y0 + 15), (x1 - 10, y0 + 18)], fill=theme.line)
    else:
        draw.rounded_rectangle([x0 + 1, y0 + 2, x1 - 1, y1 - 2], 5, fill=theme.card, outline=theme.line)


def render(scene: Scene, *, legible: bool) -> Image.Image:
    """Draw a screen: RGB, 128 x 224 pixels. ``legible`` is False for a recording whose words are too small to read."""
    theme = scene.theme
    image = Image.new("RGB", (WIDTH, HEIGHT), theme.ground)
    draw = ImageDraw.Draw(image)
    if scene.kind == "launcher":
        draw.rectangle(
            [0, 0, WIDTH, HEIGHT], fill=tuple((a + 2 * g) // 3 for a, g in zip(theme.accent, theme.ground, strict=True))
        )
    if scene.title:
        draw.rectangle([0, 0, WIDTH, CELL - 3], fill=theme.accent)
        draw.line([(12, 13), (7, 18), (12, 23)], fill=(255, 255, 255), width=2)
        if legible:
            _paste(image, word(scene.title), WIDTH / 2, 18, (255, 255, 255))
        else:
            draw.line([(57, 18), (71, 18)], fill=theme.line, width=2)
    draw.rectangle([WIDTH - 13, 3, WIDTH - 6, 6], outline=theme.line)
    draw.line([(5, 5), (16, 5)], fill=theme.line)
    if scene.kind == "dialog":
        draw.rounded_rectangle([6, 70, WIDTH - 7, 164], 8, fill=theme.card, outline=theme.line)
        draw.line([(18, 88), (96, 88)], fill=theme.line, width=3)
        draw.line([(18, 102), (80, 102)], fill=theme.line, width=3)
    for entry in scene.entries:
        _frame(draw, entry, theme)
        x, y = entry.center[0] * WIDTH, entry.center[1] * HEIGHT
        if entry.is_icon:
            _paste(image, icon(entry.symbol), x, y, theme.accent)
        else:
            _text(image, entry, x, y, theme, legible=legible)
    if scene.kind == "done":
        draw.ellipse([46, 42, 82, 78], outline=(40, 160, 90), width=3)
        draw.line([(54, 61), (62, 69), (75, 52)], fill=(40, 160, 90), width=3)
    if scene.kind == "ad":
        draw.rectangle([10, 40, WIDTH - 11, 90], fill=(250, 204, 70))
        draw.polygon([(30, 82), (58, 48), (76, 70), (88, 60), (104, 82)], fill=(206, 120, 40))
    return image
