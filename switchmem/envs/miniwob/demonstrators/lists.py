"""Tasks of choices: check boxes, radio buttons, lists, sliders, dates and times in pickers."""

from __future__ import annotations

import re

from switchmem.envs.base import PhoneAction
from switchmem.envs.miniwob.demonstrators.forms import submit
from switchmem.envs.miniwob.demonstrators.view import Actions, Lost, View, first

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


_MONTHS = "January February March April May June July August September October November December".split()


def choose_date(view: View) -> Actions:
    """Open the page's calendar, go to the month, tap the day, submit."""
    (date,) = view.words(r"Select (\S+) as the date")
    yield from pick_day(view, date)
    yield from submit(view)


def pick_day(view: View, date: str) -> Actions:
    """Pick a date, written as MM/DD/YYYY, in the page's own calendar."""
    month, day, year = (int(part) for part in date.split("/"))
    yield view.tap(first([e for e in view.elements if e.resource_id == "datepicker"], "the field of the date"))
    for _ in range(12):
        shown = next((_MONTHS.index(e.text) + 1 for e in view.elements if e.text in _MONTHS), None)
        if shown is None:
            raise Lost("the screen must show a calendar, got none.")
        shown_year = int(first([e for e in view.elements if e.text.isdigit() and len(e.text) == 4], "a year").text)
        if (shown_year, shown) == (year, month):
            break
        yield view.tap(view.one("Prev" if (shown_year, shown) > (year, month) else "Next"))
    yield view.tap(view.one(str(day)))


def enter_date(view: View) -> Actions:
    """Open the phone's picker, choose year, month and day, set the date, submit."""
    (date,) = view.words(r"Enter (\S+) as the date")
    month, day, year = (int(part) for part in date.split("/"))
    yield view.tap(first([e for e in view.elements if e.kind == "Spinner"], "the field of the date"))
    yield view.tap(first([e for e in view.elements if e.label.startswith("Year ")], "the year"))
    yield view.tap(view.one(str(year), "Button"))
    for _ in range(12):
        shown = next(i + 1 for e in view.elements for i, name in enumerate(_MONTHS) if e.label.startswith(name + " "))
        if shown == month:
            break
        yield view.tap(view.one("Previous month" if shown > month else "Next month"))
    yield view.tap(view.one(str(day), "Button"))
    yield view.tap(view.one("SET"))
    yield from submit(view)


def enter_time(view: View) -> Actions:
    """Open the phone's picker, choose the half of the day, the hour and the minute, set the time, submit."""
    hour, minute, half = view.words(r"Enter (\d+):(\d+) ([AP]M)")
    yield view.tap(first([e for e in view.elements if e.kind == "Spinner"], "the field of the time"))
    for label in (half, f"{hour} o'clock", f"{int(minute)} minutes", "SET"):
        yield view.tap(first([e for e in view.screen.elements if e.label == label and e.kind == "Button"], label))
    yield from submit(view)


def complete_word(view: View) -> Actions:
    """Type how the word begins, take from the suggestions the one that ends as it should, submit."""
    begin, *end = view.quoted
    field = view.fields[0]
    yield from view.enter(field, begin)
    below = view.box(field)[3]
    words = [e for e in view.elements if e.kind == "TextView" and view.box(e)[1] >= below]
    fitting = [e for e in words if e.text.startswith(begin) and e.text.endswith(end[0] if end else "")]
    yield view.tap(first(fitting, f"a suggestion with {view.quoted}"))
    yield from submit(view)


def slide(view: View) -> Actions:
    """Tap the slider's track where the value should be; its ends tell how it is scaled.

    A tap on the handle moves nothing, so that a correction goes by way of an end. The page sees whole pixels: where
    there are fewer than values, some values cannot be reached.
    """
    (number,) = view.words(r"Select (-?\d+) with")
    wanted = int(number)
    left, top, right, bottom = view.box(first([e for e in view.elements if e.resource_id == "slider"], "the slider"))
    is_level = right - left > bottom - top
    size = round(right - left if is_level else bottom - top)

    def value() -> int:
        return int(first([e for e in view.elements if re.fullmatch(r"-?\d+", e.text)], "the value").text)

    def at(pixel: int) -> PhoneAction:
        """A tap on a pixel of the track, counted from where values are smallest."""
        if is_level:
            return view.tap_at(left + pixel, (top + bottom) / 2)
        return view.tap_at((left + right) / 2, bottom - pixel)

    for pixel in (size - 1, 1, size - 1):
        yield at(pixel)
        if pixel == 1:
            least = value()
    per_pixel = (value() - least) / (size - 2)
    aim = 1 + round((wanted - least) / per_pixel)
    for step in (0, 1, -1, 2, -2):
        if value() == wanted:
            yield from submit(view)
            return
        if step:
            yield at(1 if aim > size / 2 else size - 1)
        yield at(min(size, max(0, aim + step)))
    raise Lost(f"the slider must reach {wanted}, got steps that leave it out.")


def scroll_end(view: View) -> Actions:
    """Scroll the text to its top or bottom, until nothing moves any more, then submit."""
    direction = "down" if "bottom" in view.utterance else "up"
    before = b""
    while view.screen.screenshot.data != before:
        before = view.screen.screenshot.data
        yield view.scroll(direction, view.fields[0])
    yield from submit(view)


def last_word(view: View) -> Actions:
    """Type the last word of the long text; its element holds all of it, whatever part is in sight."""
    text = first([e for e in view.fields if e.text], "a text").text
    yield from view.enter(first([e for e in view.fields if not e.text], "a field"), text.split()[-1].strip(".,"))
    yield from submit(view)
