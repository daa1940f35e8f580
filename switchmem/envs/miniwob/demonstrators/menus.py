"""Tasks of menus, trees, terminals and games."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from switchmem.envs.miniwob.demonstrators.lists import pick_day
from switchmem.envs.miniwob.demonstrators.view import Actions, Lost, View, first
from switchmem.steps import UIElement

_PLAYBACK = ("Prev", "Stop", "Play", "Next")
_BY_ICON = {
    "ui-icon-disk": "Save",
    "ui-icon-seek-start": "Prev",
    "ui-icon-stop": "Stop",
    "ui-icon-play": "Play",
    "ui-icon-seek-end": "Next",
    "ui-icon-zoomin": "Zoom In",
    "ui-icon-zoomout": "Zoom Out",
}
_AT_RANDOM = 0.55  # how often the opponent moves without looking; else it completes a line, or keeps X from one
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def menu(view: View) -> Actions:
    """Open the menu, and its part for playback where the entry is there, then tap the entry.

    An entry may be asked for by its icon, of which the tree says nothing: the page is asked which it is.
    """
    if len(view.quoted) > 1:
        label = view.quoted[1]
    else:
        classes = view.query("document.querySelector('#query .ui-icon').className").split()
        label = next(_BY_ICON[name] for name in classes if name in _BY_ICON)
    yield view.tap(view.button("Menu"))
    if label in _PLAYBACK:
        yield view.tap(view.one("Playback"))
    yield view.tap(view.one(label))


def pie(view: View) -> Actions:
    """Expand the pie, then tap the slice of that label."""
    yield view.tap(view.one("+"))
    yield view.tap(view.one(view.quoted[0], "TextView"))


def tree(view: View) -> Actions:
    """Open the folders from the top until the name is seen."""
    name = view.quoted[0]
    opened = 0
    while not view.all(name, "TextView"):
        folders = [e for e in view.elements if e.clickable and not e.label and _is_handle(view, e)]
        handle = first(folders[opened:], f"a folder that holds {name!r}")
        yield view.tap(first(_beside(view, handle), "the folder's name"))
        opened += 1
    yield view.tap(view.one(name, "TextView"))


def _is_handle(view: View, element: UIElement) -> bool:
    left, top, right, bottom = view.box(element)
    return right - left < 20 and bottom - top < 20


def _beside(view: View, handle: UIElement) -> list[UIElement]:
    x, y = view.middle(handle)
    words = [e for e in view.elements if e.kind == "TextView"]
    return [e for e in words if abs(view.middle(e)[1] - y) < 6 and view.middle(e)[0] > x]


def terminal(view: View) -> Actions:
    """List the files, then delete one with the extension that the instruction names."""
    found = re.search(r"extension \.(\S+)$", view.utterance)
    extension = found[1] if found else ""
    yield view.tap(first([e for e in view.elements if e.resource_id == "terminal"], "the terminal"))
    yield view.type("ls")
    texts = [e.text for e in view.elements if e.kind == "TextView"]
    files = [name for text in texts[texts.index("ls") + 1 :] if "user$" not in text for name in text.split()]
    # the page looks for the first place of the extension in the name, so that it must not come up earlier
    fitting = [f for f in files if (f.find(extension) + len(extension) == len(f) if extension else "." not in f)]
    if not fitting:
        raise Lost(f"the listing must hold a file for {view.utterance!r}, got {files}.")
    yield view.type(f"rm {fitting[0]}")


def guess_number(view: View) -> Actions:
    """Halve the numbers that are left by the page's answers. Enter sends a guess."""
    low, high = 0, 9
    while low <= high:
        guess = (low + high) // 2
        yield from view.enter(view.fields[0], str(guess), clear=bool(view.fields[0].text))
        said = " ".join(e.text for e in view.elements)
        if "higher" in said:
            low = guess + 1
        else:
            high = guess - 1


def flight(view: View) -> Actions:
    """Fill in the form with the suggestions, look through the flights, book the best."""
    best, start, end, date = view.words(r"Book the (\w+) one-way flight from: (.+) to: (.+) on (\S+)\.")
    for index, place in enumerate((start, end)):
        field = view.fields[index]
        # an airport's three letters are part of many names; in brackets they are its own
        yield from view.enter(field, f"({place})" if re.fullmatch("[A-Z]{3}", place) else place)

        def hints(place: str = place, below: float = view.box(field)[3]) -> list[UIElement]:
            words = [e for e in view.elements if e.kind == "TextView" and view.box(e)[1] >= below]
            return [e for e in words if place in e.text]

        yield from view.scroll_to(hints, f"a suggestion with {place!r}")
        yield view.tap(hints()[0])
    yield from pick_day(view, date)
    yield view.tap(view.button("Search"))
    seen: dict[str, tuple[int, int]] = {}
    before = b""
    while view.screen.screenshot.data != before:
        before = view.screen.screenshot.data
        seen.update(_flights(view))
        if any(e.scrollable for e in view.elements):
            yield view.scroll("down", view.scrollable())
    wanted = min(seen, key=lambda label: seen[label][0 if best == "cheapest" else 1])
    for _ in range(12):
        if view.all(wanted):
            break
        yield view.scroll("up", view.scrollable())
    yield view.tap(view.one(wanted))


def _flights(view: View) -> dict[str, tuple[int, int]]:
    """Price and minutes of the flights in sight, by what their buttons say; a duration stands above its button."""
    found = {}
    minutes: int | None = None
    for element in view.elements:
        if match := re.fullmatch(r"(\d+)h (\d+)m", element.text):
            minutes = 60 * int(match[1]) + int(match[2])
        elif (match := re.fullmatch(r"Book flight for \$(\d+)", element.text)) and minutes is not None:
            found[element.text] = (int(match[1]), minutes)
            minutes = None
    return found


def tic_tac_toe(view: View) -> Actions:
    """Play X by the best chance of a win against an opponent who moves at random about half of the time.

    The marks are pictures of which the tree says nothing: the page is asked for them.
    """
    cells = [first([e for e in view.elements if e.resource_id == f"ttt-{i}"], f"cell {i}") for i in range(9)]
    while True:
        classes = view.query("[...document.querySelectorAll('.ttt-row span')].map((e) => e.className)")
        board = tuple(1 if "mark-x" in c else -1 if "mark-o" in c else 0 for c in classes)
        yield view.tap(cells[best_cell(board)])


def best_cell(board: tuple[int, ...]) -> int:
    """The free cell with the best chance of a win for X.

    Args:
        board: row by row, 1 for X, -1 for O, 0 for a free cell.

    Raises:
        Lost: if no cell is free.
    """
    free = [i for i in range(9) if board[i] == 0]
    if not free:
        raise Lost("the board must have a free cell, got a full one.")
    return max(free, key=lambda i: _chance(_put(board, i, 1), False))


def _put(board: Sequence[int], cell: int, mark: int) -> tuple[int, ...]:
    return (*board[:cell], mark, *board[cell + 1 :])


def _has_won(board: Sequence[int], mark: int) -> bool:
    return any(all(board[i] == mark for i in line) for line in _LINES)


@cache
def _chance(board: tuple[int, ...], is_mine: bool) -> float:
    """The chance in [0, 1] that X wins."""
    if _has_won(board, 1):
        return 1.0
    free = [i for i in range(9) if board[i] == 0]
    if _has_won(board, -1) or not free:
        return 0.0
    if is_mine:
        return max(_chance(_put(board, i, 1), False) for i in free)
    chances = {i: _chance(_put(board, i, -1), True) for i in free}
    answers = _completions(board, -1) or _completions(board, 1) or free
    chosen = sum(chances[i] for i in answers) / len(answers)
    return _AT_RANDOM * sum(chances.values()) / len(free) + (1 - _AT_RANDOM) * chosen


def _completions(board: Sequence[int], mark: int) -> list[int]:
    """The free cells that would complete a line of that mark."""
    return [i for i in range(9) if board[i] == 0 and _has_won(_put(board, i, mark), mark)]
