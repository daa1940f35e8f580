"""What an action grammar is: the actor's way to write places, elements and actions, and to be read back."""

from __future__ import annotations

from dataclasses import dataclass
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

    def parse(self, text: str, size: tuple[int, int]) -> Parsed:
        """Read an answer. Never raises: whatever cannot be read gets a reason.

        Args:
            text: the actor's raw answer.
            size: ``(width, height)`` of the current screenshot in pixels, for grammars that write pixels.
        """


_GRAMMARS = {
    "pocket": "switchmem.actors.grammars.pocket:PocketGrammar",
    "mobile_use": "switchmem.actors.grammars.mobile_use:MobileUseGrammar",
}


def get_grammar(name: str) -> Grammar:
    """The grammar of that name.

    Raises:
        GrammarError: if there is none.

    >>> get_grammar("pocket").point(0.6, 0.5)
    'r3c2'
    """
    if name not in _GRAMMARS:
        raise GrammarError(f"`grammar` must be one of {', '.join(_GRAMMARS)}, got {name!r}.")
    module, cls = _GRAMMARS[name].split(":")
    grammar: Grammar = getattr(import_module(module), cls)()
    return grammar
