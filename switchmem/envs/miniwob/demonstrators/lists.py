"""Tasks of choices: check boxes, radio buttons, lists, sliders, dates and times in pickers."""

from __future__ import annotations

from switchmem.envs.miniwob.demonstrators.forms import submit
from switchmem.envs.miniwob.demonstrators.view import Actions, View, first

# The page's groups of words that mean the same.
_ALIKE = tuple(
    frozenset(group.split())
    for group in """
    big large huge enormous gigantic
    small tiny little mini petite
    red scarlet crimson vermillion
    happy cheerful joyful gleeful delighted
    sad unhappy sorrowful miserable tragic
    angry mad furious irritated
    evil wicked immoral sinful corrupt depraved
    wrong incorrect mistaken erroneous
    real genuine actual
    strange odd peculiar unusual weird
    stop cease halt end finish
    scared terrified panicked fearful frightened afraid
    quiet calm peaceful serene mild
    old aged archaic
    love like adore favor
    kill murder assassinate
    keep retain preserve sustain maintain
    hide conceal camouflage
    hate despise loathe detest dislike
    funny humorous amusing comical laughable
    fat fleshy plump chubby
    stupid dumb dull unwise
    delicious savory delectable appetizing
    cut slice carve chop
    brave courageous fearless
    begin start initiate launch
    answer reply response
    television televisions TV TVs
    house home houses homes
    fire flame fires flames
    pig pork swine
    rabbit rabbits bunny bunnies
    car cars automobile automobiles vehicle vehicles
    water
    """.strip().splitlines()
)


def _named(view: View, pattern: str) -> list[str]:
    (names,) = view.words(pattern)
    return [] if names == "nothing" else names.split(", ")


def check(view: View) -> Actions:
    """Tick the boxes that the instruction names."""
    for name in _named(view, r"Select (.*) and click Submit"):
        yield view.tap(view.one(name, "CheckBox"))
    yield from submit(view)


def check_alike(view: View) -> Actions:
    """Tick the boxes whose words mean what the instruction names."""
    wanted = set(_named(view, r"similar to (.*) and click Submit"))
    groups = [group for group in _ALIKE if group & wanted]
    for box in [e for e in view.elements if e.kind == "CheckBox"]:
        if any(box.text in group for group in groups):
            yield view.tap(box)
    yield from submit(view)


def pick_radio(view: View) -> Actions:
    """Choose the radio button that the instruction names."""
    (name,) = view.words(r"Select (.*) and click Submit")
    yield view.tap(view.one(name, "RadioButton"))
    yield from submit(view)


def pick_from_list(view: View) -> Actions:
    """Open the list, choose what the instruction names, submit."""
    (name,) = view.words(r"Select (.*) from the list")
    yield view.tap(first([e for e in view.elements if e.kind == "Spinner"], "a list"))
    yield from _scroll_to_option(view, name)
    yield view.tap(view.one(name, "CheckedTextView"))
    yield from submit(view)


def pick_several(view: View) -> Actions:
    """Open the list of several choices, tick what the instruction names, submit."""
    names = _named(view, r"Select (.*) from the scroll list")
    yield view.tap(first([e for e in view.elements if e.kind == "ListView"], "a list"))
    for name in names:
        yield from _scroll_to_option(view, name)
        yield view.tap(view.one(name, "CheckedTextView"))
    yield view.tap(view.button("OK"))
    yield from submit(view)


def _scroll_to_option(view: View, name: str) -> Actions:
    yield from view.scroll_to(lambda: view.all(name, "CheckedTextView"), f"the choice {name!r}")
