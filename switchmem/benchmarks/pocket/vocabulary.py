"""The words and glyphs of the pocket world.

Labels are brand-like names that say nothing about what they do, as apps like to have them: what
stands for what is a convention of each app, and only a demonstration reveals it.
"""

from __future__ import annotations

LABELS = tuple(
    "hub nest loop spark wave pulse orbit prism atlas bloom cove dune ember flux glow haze "
    "iris jade kite lumen mint nova opal pixel quill reef sage tide umber vista".split()
)
"""Names that an app gives to its entries."""

ICONS = tuple(
    "star heart gear bell house key lock flag cloud sun moon leaf bolt book camera clock eye mail "
    "music cart gem plus tag user".split()
)
"""Glyphs that an app uses for its entries; a drawing of each is in `glyphs`."""

ADJECTIVES = tuple("blue calm deep early fair green happy jolly lucky quick solar tiny".split())
NOUNS = tuple("fox owl bear crane deer frog hare koala lynx mole otter panda raven seal tiger whale".split())
"""An app's name is an adjective and a noun; the twelve by sixteen names are dealt to the splits."""

OBJECTS = tuple("photo note song list file card form post".split())
VERBS = tuple("share print hide sort archive rename export merge".split())
MANNERS = tuple("now daily weekly twice quietly later".split())
"""An instruction is ``verb object manner in adjective noun``."""

SYSTEM_WORDS = ("ok", "cancel", "done", "ad", "search")
"""Words of dialogs, banners and text fields; they mean the same in every app."""

BLANK = "blank"
UNLABELLED = "unlabelled"
"""What the textual state says of an element without a label, and what a person says of one too faint to read."""

SCREENS = ("main", "item", "option")
"""The three screens of an app; each has its own convention: for objects, verbs and manners."""
