"""Apps of the pocket world: a name, a look, and a convention that only a demonstration reveals."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from switchmem.benchmarks.pocket.vocabulary import (
    ADJECTIVES,
    ICONS,
    LABELS,
    MANNERS,
    NOUNS,
    OBJECTS,
    SCREENS,
    VERBS,
)

Color = tuple[int, int, int]

ACCENTS: tuple[Color, ...] = (
    (33, 97, 200),
    (196, 52, 62),
    (28, 134, 84),
    (142, 68, 173),
    (214, 118, 16),
    (20, 128, 148),
)
LAYOUTS = ("pairs", "grid", "toolbar", "navigation")
"""Arrangements of a screen, from airy (list rows) to dense (single tiles)."""

ICON_LAYOUTS = ("grid", "toolbar")
"""Arrangements that a tidy app fills with icons."""

ENTRIES = 7
"""Entries of a screen."""

FOLDS = ("actor", "preference", "test")
"""Names are dealt to these; no name is in two."""


def generator(*key: object) -> np.random.Generator:
    """A random generator that depends on ``key`` alone, whatever was drawn elsewhere."""
    text = "/".join(map(str, key))
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of an app."""

    accent: Color
    dark: bool

    @property
    def ground(self) -> Color:
        """Background of the screen."""
        return (24, 26, 31) if self.dark else (246, 247, 249)

    @property
    def card(self) -> Color:
        """Background of a tile or row."""
        return (44, 47, 55) if self.dark else (255, 255, 255)

    @property
    def line(self) -> Color:
        """Outlines and faint strokes."""
        return (70, 74, 84) if self.dark else (214, 218, 224)

    @property
    def ink(self) -> Color:
        """Text."""
        return (235, 237, 240) if self.dark else (22, 24, 28)


@dataclass(frozen=True, slots=True)
class App:
    """One app.

    Args:
        adjective, noun: its name.
        theme: its colours.
        layouts: arrangement of each of its screens.
        conventions: for each screen, what stands for what: ``{word of the instruction: icon or label}``.
        search: whether its main screen starts with a text field.
    """

    adjective: str
    noun: str
    theme: Theme
    layouts: dict[str, str]
    conventions: dict[str, dict[str, str]]
    search: bool

    @property
    def name(self) -> str:
        """As instructions call it."""
        return f"{self.adjective} {self.noun}"


def app_names(fold: str) -> list[tuple[str, str]]:
    """The (adjective, noun) names of a fold: half of them for the actor, a quarter each for the other two.

    Raises:
        ValueError: if there is no such fold.
    """
    if fold not in FOLDS:
        raise ValueError(f"`fold` must be one of {', '.join(FOLDS)}, got {fold!r}.")
    names = [(a, n) for a in ADJECTIVES for n in NOUNS]
    order = generator("names").permutation(len(names))
    half, rest = len(names) // 2, (len(names) * 3) // 4
    part = {"actor": order[:half], "preference": order[half:rest], "test": order[rest:]}[fold]
    return [names[i] for i in part]


def _convention(rng: np.random.Generator, words: tuple[str, ...], icon_share: float) -> dict[str, str]:
    """Give each of at most `ENTRIES` words an icon or a label; no symbol stands for two."""
    chosen = [words[i] for i in rng.permutation(len(words))[:ENTRIES]]
    icons = int(round(icon_share * len(chosen)))
    symbols = [*rng.choice(ICONS, icons, replace=False), *rng.choice(LABELS, len(chosen) - icons, replace=False)]
    return {word: str(symbols[i]) for word, i in zip(chosen, rng.permutation(len(chosen)), strict=True)}


def make_app(name: tuple[str, str], rng: np.random.Generator, *, tidy: bool = False) -> App:
    """Draw an app's look and conventions.

    Each screen is mostly icons or mostly words, as toolbars and menus are, so that the modality that helps
    depends on the screen and changes within a trajectory.

    Args:
        name: adjective and noun.
        rng: everything is drawn from it.
        tidy: entries follow the layout, as in real apps: grids and toolbars hold icons, rows hold words, with one
            exception on each screen. Otherwise any layout holds five of the one and two of the other.
    """
    layouts = {screen: str(rng.choice(LAYOUTS)) for screen in SCREENS} if tidy else {}
    conventions = {}
    for screen, words in zip(SCREENS, (OBJECTS, VERBS, MANNERS), strict=True):
        share = (0.85 if layouts[screen] in ICON_LAYOUTS else 0.15) if tidy else float(rng.choice([0.27, 0.73]))
        conventions[screen] = _convention(rng, words, share)
    return App(
        *name,
        theme=Theme(ACCENTS[rng.integers(len(ACCENTS))], bool(rng.random() < 0.3)),
        layouts=layouts or {screen: str(rng.choice(LAYOUTS)) for screen in SCREENS},
        conventions=conventions,
        search=bool(rng.random() < 0.3),
    )
