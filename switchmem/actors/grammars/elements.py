"""One line for an element of a screen, and what the grammars of large models have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TypeVar

from switchmem.actors.grammars.places import Places
from switchmem.memory.views import TREE, ElementView, one_line
from switchmem.steps import UIElement

_Own = TypeVar("_Own", bound="PlacedGrammar")
_FLAGS = ("clickable", "editable", "checked", "scrollable")


def quoted(text: str) -> str:
    """A text in double quotes, on one line, so that it cannot be taken for the words around it."""
    return json.dumps(one_line(text), ensure_ascii=False)


@dataclass(frozen=True)
class PlacedGrammar:
    """A grammar whose places are numbers.

    Args:
        places: how places are written as numbers.
    """

    places: Places

    def point(self, x: float, y: float) -> str:
        """A place; ``x`` and ``y`` are fractions of the screen in [0, 1]."""
        return "({}, {})".format(*self.places.write(x, y))

    def element(self, element: UIElement, view: ElementView = TREE) -> str:
        """Place, label, kind and what else the view tells.

        For instance ``(500, 120) "Search" Button, description "Opens the search page", id search_box, clickable``.
        """
        left, top, right, bottom = element.box
        place = f"{self.point(left, top)}-{self.point(right, bottom)}" if view.box else self.point(*element.center)
        label, description = one_line(element.label), one_line(element.description)
        words = [" ".join([place, quoted(label) if label else "unlabelled", *element.kind.split()])]
        if view.description and description not in ("", label):
            words.append(f"description {quoted(description)}")
        if view.resource_id and (name := one_line(element.resource_id.rpartition("/")[2])):
            words.append(f"id {name}")
        if view.flags:
            words += [flag for flag in _FLAGS if getattr(element, flag)]
        return ", ".join(words)

    def for_screen(self: _Own, size: tuple[int, int]) -> _Own:
        """The same grammar on a screenshot of ``(width, height)`` pixels."""
        return replace(self, places=self.places.for_screen(size))
