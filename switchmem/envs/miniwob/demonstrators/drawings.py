"""Tasks of what a page draws: shapes, grids, points and blocks, of which its tree says little."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import ImageColor

from switchmem.envs.miniwob.demonstrators.forms import submit
from switchmem.envs.miniwob.demonstrators.view import QUERY_HEIGHT, QUERY_WIDTH, Actions, Lost, View
from switchmem.envs.miniwob.geometry import PAGE_HEIGHT, SCALE

_SIDES = range(3, 8)
_DARK = 128
_TAGS = {"rect": "rectangle", "circle": "circle", "polygon": "triangle"}
_BUTTONS = {name.lower(): name for name in ("Circle", "Rectangle", "Triangle", "Letter")} | {"digit": "Number"}

# The shapes of a drawing: tag, text, colour, and the box on the page. The letters' boxes are taller than their size.
_SHAPES = """[...document.querySelectorAll('#area_svg > *')].map((e) => {
  const b = e.getBoundingClientRect();
  return { tag: e.tagName, text: e.textContent, color: e.getAttribute('fill'), x: b.left + b.width / 2,
    y: b.top + b.height / 2, size: parseFloat(e.getAttribute('font-size')) || b.width };
})"""
_CIRCLES = """[...document.querySelectorAll('svg circle')].map((e) => {
  const b = e.ownerSVGElement.getBoundingClientRect();
  return { x: e.cx.baseVal.value, y: e.cy.baseVal.value, name: e.id + ' ' + e.getAttribute('class') };
})"""


def _kinds(shape: dict[str, Any]) -> set[str]:
    """All words by which an instruction may call a shape, besides size and colour."""
    if shape["tag"] != "text":
        return {"item", "shape", _TAGS[shape["tag"]]}
    return {"item", "digit" if shape["text"].isdigit() else "letter", shape["text"]}


def _fits(shape: dict[str, Any], words: list[str]) -> bool:
    *qualities, kind = words
    own = {"large" if shape["size"] > 15 else "small", shape["color"]}
    return kind in _kinds(shape) and own.issuperset(qualities)


def click_shape(view: View) -> Actions:
    """Tap a shape of the size, colour and kind that the instruction names."""
    (words,) = view.words(r"Click on a (.+)$")
    fitting = [s for s in view.query(_SHAPES) if _fits(s, words.split())]
    if not fitting:
        raise Lost(f"the page must draw a {words}, got none.")
    yield view.tap_at(fitting[0]["x"], fitting[0]["y"])


def count_shapes(view: View) -> Actions:
    """Count the shapes of a size, colour and kind."""
    (words,) = view.words(r"How many (.+)s are there")
    count = sum(_fits(s, words.split()) for s in view.query(_SHAPES))
    yield view.tap(view.button(str(count)))


def identify_shape(view: View) -> Actions:
    """Say what the one shape is."""
    names = {
        "circle": "Circle",
        "rectangle": "Rectangle",
        "triangle": "Triangle",
        "letter": "Letter",
        "digit": "Number",
    }
    (shape,) = view.query(_SHAPES)
    yield view.tap(view.button(*(names[kind] for kind in _kinds(shape) if kind in names)))


def count_sides(view: View) -> Actions:
    """Count the sides of a regular shape from its picture: how its distance from the middle goes around."""
    first_button = min(view.box(e)[1] for e in view.elements if e.kind == "Button")
    picture = view.picture()[QUERY_HEIGHT * SCALE : int(first_button) * SCALE].min(axis=2)
    y, x = np.nonzero(picture < _DARK)
    angle = np.arctan2(y - y.mean(), x - x.mean())
    distance = np.hypot(y - y.mean(), x - x.mean())
    around = np.exp(-1j * np.outer(np.array(_SIDES), angle)) @ distance
    yield view.tap(view.button(str(_SIDES[int(np.abs(around).argmax())])))


def grid(view: View) -> Actions:
    """Tap the point of the coordinates that the instruction names; its element is called by them."""
    (name,) = view.words(r"coordinate (\(\S+\))")
    found = [e for e in view.elements if e.resource_id == name]
    if not found:
        raise Lost(f"the grid must hold {name}, got no such point.")
    yield view.tap(found[0])


def count_blocks(view: View) -> Actions:
    """Type how many blocks there are; they are drawn by styles alone, and the tree leaves them out."""
    count = view.query("document.querySelectorAll('.addition-block').length")
    yield from view.enter(view.fields[0], str(count))
    yield from submit(view)


def midpoint(view: View) -> Actions:
    """Tap half way between two points. The page sees whole pixels: half ones it counts as missed."""
    a, b = view.query(_CIRCLES)
    yield view.tap_at((a["x"] + b["x"]) / 2, (a["y"] + b["y"]) / 2 + QUERY_HEIGHT)
    yield from submit(view)


def colour_by_name(view: View) -> Actions:
    """Type a colour's code over the one in the field."""
    (name,) = view.words(r"Select (\w+) with")
    yield from _enter_colour(view, ImageColor.getrgb(name)[:3])


def colour_by_sample(view: View) -> Actions:
    """The same for the square in the instruction: of what is neither its ground nor its words, the commonest colour."""
    pixels = view.picture()[: QUERY_HEIGHT * SCALE, : QUERY_WIDTH * SCALE].reshape(-1, 3)
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    for plain in ((255, 255, 0), (255, 255, 255), (0, 0, 0)):
        counts[(colours == plain).all(axis=1)] = 0
    yield from _enter_colour(view, tuple(int(part) for part in colours[counts.argmax()]))


def _enter_colour(view: View, colour: tuple[int, ...]) -> Actions:
    yield from view.enter(view.fields[0], "".join(f"{part:02X}" for part in colour), clear=True)
    # the wheel that the tap on the field opened lies over the button, until something else is tapped
    yield view.tap_at(QUERY_WIDTH / 2, PAGE_HEIGHT * 3 / 4)
    yield from submit(view)
