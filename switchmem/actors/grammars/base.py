"""What an action grammar is: the actor's way to write places, elements and actions, and to be read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from importlib import import_module
from typing import Protocol

from switchmem.memory.views import TREE, ElementView
from switchmem.steps import Action, UIElement


class GrammarError(ValueError):
    """A grammar is unknown; the message lists the known ones."""


class ParseReason(str, Enum):
    """Why an answer is no action. Unparsable answers score 0 and are counted by these."""

    EMPTY = "empty"
    NO_ACTION = "no_action"
    UNKNOWN_ACTION = "unknown_action"
    MISSING_ARGUMENT = "missing_argument"
    BAD_PLACE = "bad_place"
    EXTRA_WORDS = "extra_words"
    BAD_SYNTAX = "bad_syntax"


@dataclass(frozen=True)
class Parsed:
    """What an answer means: exactly one of ``action`` and ``reason`` is None."""

    action: Action | None
    reason: ParseReason | None = None

    def __post_init__(self) -> None:
        if (self.action is None) == (self.reason is None):
            raise ValueError(
                f"`Parsed` must have exactly one of action and reason, got {self.action!r} and {self.reason!r}."
            )


class Unreadable(Exception):
    """Carries a reason from where it is found to `Grammar.parse`, which raises nothing itself."""

    def __init__(self, reason: ParseReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Grammar(Protocol):
    """One way to write and read actions. It is also the `TextStyle` of the prompts."""

    @property
    def name(self) -> str:
        """Under which `get_grammar` finds it."""

    @property
    def system(self) -> str:
        """The system message that tells which actions there are, or ""."""

    def point(self, x: float, y: float) -> str:
        """A place; ``x`` and ``y`` are fractions of the screen in [0, 1]."""

    def element(self, element: UIElement, view: ElementView = TREE) -> str:
        """One element of a screen, without a line break; what there is no word for is left out."""

    def action(self, action: Action) -> str:
        """One action as the actor itself would write it; `parse` reads it back."""

    def for_screen(self, size: tuple[int, int]) -> Grammar:
        """The grammar that writes places on a screenshot of ``(width, height)`` pixels.

        Grammars that write pixels need it before `point`, `element` and `action`; the others return themselves.
        """

    def parse(self, text: str, size: tuple[int, int]) -> Parsed:
        """Read an answer. Never raises: whatever cannot be read gets a reason, in a time linear in the text.

        Args:
            text: the actor's raw answer.
            size: ``(width, height)`` of the current screenshot in pixels, for grammars that write pixels.
        """


_GRAMMARS = {
    "pocket": "pocket:PocketGrammar",
    "miniwob": "miniwob:MiniWobGrammar",
    "mobile_use": "mobile_use:MobileUseGrammar",
    "mobile_use_pixels": "mobile_use:MobileUsePixelsGrammar",
    "ui_tars": "ui_tars:UITarsGrammar",
    "ui_tars_15": "ui_tars:UITars15Grammar",
    "aguvis": "aguvis:AguvisGrammar",
    "learngui": "learngui:LearnGUIGrammar",
}


def grammar_names() -> tuple[str, ...]:
    """The names that `get_grammar` knows."""
    return tuple(_GRAMMARS)


def get_grammar(name: str, max_pixels: int | None = None) -> Grammar:
    """The grammar of that name.

    Args:
        name: one of `grammar_names`.
        max_pixels: the most pixels of a picture, where the actor's image processor has another limit than its
            model's own; it moves the places of grammars that write pixels of the resized picture.

    Raises:
        GrammarError: if there is none.

    >>> get_grammar("pocket").point(0.6, 0.5)
    'r3c2'
    """
    if name not in _GRAMMARS:
        raise GrammarError(f"`grammar` must be one of {', '.join(_GRAMMARS)}, got {name!r}.")
    module, cls = _GRAMMARS[name].split(":")
    grammar: Grammar = getattr(import_module(f"switchmem.actors.grammars.{module}"), cls)()
    places = getattr(grammar, "places", None)
    if max_pixels is None or places is None:
        return grammar
    return replace(grammar, places=places.limited(max_pixels))  # type: ignore[type-var]
