"""Tasks of taps on what the instruction names: buttons, links, tabs, dialogs, widgets and coloured boxes."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

from PIL import ImageColor

from switchmem.envs.miniwob.demonstrators.view import Actions, Lost, View, first
from switchmem.steps import UIElement

_WIDGETS = {"radio": "RadioButton", "checkbox": "CheckBox", "button": "Button"}


def tap_button(*labels: str) -> Callable[[View], Actions]:
    """A demonstrator that taps buttons one after the other; none taps the only one."""

    def script(view: View) -> Actions:
        for label in labels or ("",):
            yield view.tap(view.button(label) if label else view.button())

    return script


def click_named(view: View) -> Actions:
    """Tap the button that the instruction quotes."""
    yield view.tap(view.button(view.quoted[0]))


def click_dialog(view: View) -> Actions:
    """Tap the dialog's button that the instruction quotes; "x" is the one that closes it."""
    name = view.quoted[0]
    yield view.tap(view.button("Close" if name == "x" else name))


def click_link(view: View) -> Actions:
    """Tap the word that the instruction quotes."""
    yield view.tap(first(links(view, view.quoted[0]), "the link"))


def links(view: View, text: str) -> list[UIElement]:
    """Words that can be tapped, and say that text."""
    boxes = {e.box for e in view.elements if e.clickable and not e.text}
    return [e for e in view.elements if e.text == text and (e.clickable or e.box in boxes)]


def click_tab(view: View) -> Actions:
    """Tap the tab that the instruction names."""
    (name,) = view.words(r"(Tab #\d+)")
    yield view.tap(view.one(name))


def click_tab_link(view: View) -> Actions:
    """Look through the tabs for a link; one that is on none of them is found by going to the second tab."""
    wanted = view.quoted[0]
    bar = first([e for e in view.elements if e.kind == "TabWidget"], "the tabs")
    tabs = [e for e in view.elements if e is not bar and e.clickable and _inside(e, bar)]
    for tab in tabs:
        if not tab.checked:
            yield view.tap(tab)
        if found := links(view, wanted):
            yield view.tap(found[0])
            return
    raise Lost(f"a tab must hold the link {wanted!r}, got none of {len(tabs)}.")


def _inside(inner: UIElement, outer: UIElement) -> bool:
    return outer.contains(inner.center)


def expand_and_submit(view: View) -> Actions:
    """Expand the one section, then submit."""
    yield view.tap(first([e for e in view.elements if e.text.startswith("Section")], "the section"))
    yield view.tap(view.one("Submit"))


def expand_and_find(view: View) -> Actions:
    """Expand one section after the other until the link is seen."""
    wanted = view.quoted[0]
    for name in ("Section #1", "Section #2", "Section #3"):
        yield view.tap(view.one(name))
        if found := links(view, wanted):
            yield view.tap(found[0])
            return
    raise Lost(f"a section must hold the link {wanted!r}, got none.")


def click_widget(view: View) -> Actions:
    """Tap a widget of the kind that the instruction names."""
    wanted = view.quoted[0]
    if wanted in _WIDGETS:
        yield view.tap(first([e for e in view.elements if e.kind == _WIDGETS[wanted]], wanted))
        return
    # a tree calls both of them EditText: only the page knows which of the fields has several lines
    places = view.query(
        f"[...document.querySelectorAll('.widget [data-type={wanted}]')].map((e) => e.getBoundingClientRect())"
        ".map((b) => [b.left + b.width / 2, b.top + b.height / 2])"
    )
    if not places:
        raise Lost(f"the page must hold a {wanted}, got none.")
    yield view.tap_at(*places[0])


def click_colour(view: View) -> Actions:
    """Tap the box of the colour that the instruction names, by its pixels."""
    (name,) = view.words(r"the (\S+) colored")
    wanted = ImageColor.getrgb(name)
    boxes = [e for e in view.elements if e.clickable and view.colour(e) == wanted]
    yield view.tap(first(boxes, f"a box in {name}"))


def click_shades(view: View) -> Actions:
    """Tap all boxes of one of three hues, by their pixels."""
    (name,) = view.words(r"shades of (\w+)")
    hue = {"red": 0, "green": 1, "blue": 2}[name]
    boxes = [e for e in view.elements if e.clickable and not e.label]
    for box in boxes:
        if round(colorsys.rgb_to_hsv(*view.colour(box))[0] * 3) % 3 == hue:
            yield view.tap(box)
    yield view.tap(view.button("Submit"))
