"""Tasks of fields to be filled in: text, passwords, sums, tables and search forms."""

from __future__ import annotations

import re

from switchmem.envs.miniwob.demonstrators.view import Actions, Lost, View, first
from switchmem.steps import UIElement

_FIELD_NAMES = {"Genre": ("Genre",), "Director": ("Director",), "Year": ("Year", "Released")}


def submit(view: View) -> Actions:
    """Tap the form's button, whatever it is called."""
    yield view.tap(view.button("Submit", "Login", "OK", "Search", "Go!"))


def focus(view: View) -> Actions:
    """Tap the field of the number that the instruction names, else the only one."""
    numbers = re.findall(r"(\d)(?:st|nd|rd)", view.utterance)
    yield view.tap(view.fields[int(numbers[0]) - 1 if numbers else 0])


def enter_quoted(view: View) -> Actions:
    """Type what the instruction quotes into every field."""
    for index in range(len(view.fields)):
        yield from view.enter(view.fields[index], view.quoted[0])
    yield from submit(view)


def enter_in_case(view: View) -> Actions:
    """Type what the instruction quotes in upper or lower case."""
    text = view.quoted[0]
    text = text.upper() if "upper case" in view.utterance else text.lower()
    yield from view.enter(view.fields[0], text)
    yield from submit(view)


def login(view: View) -> Actions:
    """Type a name and a password; a box that comes up in between is sent away, and the field filled in after it."""
    for index, text in enumerate(view.quoted[:2]):
        yield view.tap(view.fields[index])
        if cancel := view.all("Cancel"):
            yield view.tap(cancel[0])
            yield view.tap(view.fields[index])
        yield view.type(text)
    yield from submit(view)


def copy_text(view: View) -> Actions:
    """Type what stands in the long field, or in that of the number the instruction names, into the empty one."""
    numbers = re.findall(r"(\d)(?:st|nd|rd)", view.utterance)
    filled = [e for e in view.fields if e.text]
    text = filled[int(numbers[0]) - 1 if numbers else 0].text
    yield from view.enter(first([e for e in view.fields if not e.text], "an empty field"), text)
    yield from submit(view)


def find_word(view: View) -> Actions:
    """Type the word of the number that the instruction names."""
    (number,) = view.words(r"(\d+)\w\w word")
    paragraph = " ".join(e.text for e in view.elements if e.kind == "TextView")
    word = paragraph.split()[int(number) - 1]
    yield from view.enter(view.fields[0], re.sub(r"[^A-Za-z]", "", word))
    yield from submit(view)


def read_captcha(view: View) -> Actions:
    """Type the letters that stand aslant, from left to right."""
    letters = [e for e in view.elements if e.kind == "TextView"]
    text = "".join(e.text for e in letters)
    yield from view.enter(view.fields[0], text)
    yield from submit(view)


def arithmetic(view: View) -> Actions:
    """Add, subtract or multiply two numbers."""
    left, sign, right = _sum(view, r"(-?\d+) ([-+x]) (-?\d+) =")
    a, b = int(left), int(right)
    yield from view.enter(view.fields[0], str({"+": a + b, "-": a - b, "x": a * b}[sign]))
    yield from submit(view)


def algebra(view: View) -> Actions:
    """Solve ``x + a = b``, ``x - a = b``, ``a + x = b`` or ``a - x = b``."""
    left, sign, right, total = _sum(view, r"(\w+) ([-+]) (\w+) = (-?\d+)")
    b = int(total)
    if left == "x":
        answer = b - int(right) if sign == "+" else b + int(right)
    else:
        answer = b - int(left) if sign == "+" else int(left) - b
    yield from view.enter(view.fields[0], str(answer))
    yield from submit(view)


def _sum(view: View, pattern: str) -> tuple[str, ...]:
    for element in view.elements:
        if match := re.search(pattern, element.text):
            return match.groups()
    raise Lost(f"the screen must show {pattern!r}, got no such sum.")


def _rows(view: View) -> dict[str, str]:
    """A table of two columns: the second's text by the first's."""
    cells = [e for e in view.elements if e.kind == "TextView"]
    rows: dict[str, str] = {}
    for name in cells:
        x, y = view.middle(name)
        beside = [e for e in cells if abs(view.middle(e)[1] - y) < 3 and view.middle(e)[0] > x]
        if beside:
            rows.setdefault(name.text, beside[0].text)
    return rows


def read_table(view: View) -> Actions:
    """Type the value that stands beside the name in the instruction."""
    (name,) = view.words(r"value of (.+?) into")
    yield from view.enter(view.fields[0], _rows(view)[name])
    yield from submit(view)


def read_table_twice(view: View) -> Actions:
    """Type the values that stand beside the two names before the fields."""
    names = [e.text.rstrip(":") for e in view.elements if e.text.endswith(":")]
    rows = _rows(view)
    for index, name in enumerate(names):
        yield from view.enter(view.fields[index], rows[name])
    yield from submit(view)


def search_film(view: View) -> Actions:
    """Fill in genre, director and year, each into the field beside or above its name."""
    genre, director, year = view.words(r"Search for (.+?) movies directed by (.+?) from year (\d+)")
    for name, text in (("Genre", genre), ("Director", director), ("Year", year)):
        yield from view.enter(_field_of(view, name), text)
    yield view.tap(first([e for e in view.elements if e.text in ("Submit", "Search", "Go!")], "a button"))


def _field_of(view: View, name: str) -> UIElement:
    """The field of a name: on its line, else the nearest one on the side on which the names stand."""
    words = [e for e in view.elements if e.kind == "TextView"]
    labels = [e for e in words if any(part in e.text for parts in _FIELD_NAMES.values() for part in parts)]
    own = first([e for e in labels if any(part in e.text for part in _FIELD_NAMES[name])], name)
    # names and fields come in the same order: the first name belongs to the first field, above or below it
    by_height = sorted(labels, key=lambda e: view.middle(e)[1])
    return sorted(view.fields, key=lambda e: view.middle(e)[1])[by_height.index(own)]
