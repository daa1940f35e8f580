"""Textual screens under a budget: never too long, never without what was demonstrated, always in order."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.grammars.base import get_grammar
from switchmem.memory.budget import Budget, BudgetError, Entry, fit, largest, shortened
from switchmem.memory.views import DEFAULT_LAYOUT, demonstrated, text_state
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

SCREEN = Screenshot.from_image(Image.new("RGB", (90, 160), "red"))
STYLE = get_grammar("mobile_use")
WHERE = re.compile(r"^\((\d+), (\d+)\)-\((\d+), (\d+)\)")


def pieces(text: str) -> int:
    """Like a subword tokenizer: up to four letters or digits, or one other character, with a blank in front."""
    return len(re.findall(r" ?\w{1,4}|\s|[^\w\s]", text))


def octets(text: str) -> int:
    """Rounds the whole, so that the parts of a text need not add up to it."""
    return math.ceil(len(text.encode()) / 3)


counters = st.sampled_from([pieces, octets, len])
words = st.text('abcdefgh xyzé漢🙂<|>"\\', max_size=30) | st.just("") | st.sampled_from(["long " * 80, "x" * 700])
unit = st.floats(0, 1)


@st.composite
def boxes(draw):
    left, top = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    return (left / 10, top / 10, draw(st.integers(left + 1, 10)) / 10, draw(st.integers(top + 1, 10)) / 10)


@st.composite
def actions(draw):
    point = draw(st.tuples(unit, unit))
    return draw(
        st.sampled_from(
            [
                Action(ActionType.TAP, point),
                Action(ActionType.SWIPE, point, draw(st.tuples(unit, unit))),
                Action(ActionType.TYPE, text="hello"),
                Action(ActionType.BACK),
            ]
        )
    )


@st.composite
def steps(draw, benchmark="aitw") -> Step:
    """Screens of AITW, whose lines begin with the box, so that each line tells which element it is of."""
    elements = [
        UIElement(box, draw(words), draw(st.sampled_from(["", "TEXT", "ICON_STAR"])), editable=draw(st.booleans()))
        for box in draw(st.lists(boxes(), max_size=12, unique=True))
    ]
    return Step(
        benchmark, "e", 0, "Do it.", SCREEN, tuple(elements), draw(actions()), activity=draw(words), caption=draw(words)
    )  # fmt: skip


def written(step: Step, tokens: int, count) -> str | int:
    """The text, or the number of tokens that the error asks for."""
    try:
        return text_state(step, STYLE, budget=Budget(tokens, count))
    except BudgetError as error:
        return int(re.search(r"`state_tokens` must be at least (\d+)", str(error))[1])


def place(box) -> tuple[str, ...]:
    return tuple(str(round(value * 1000)) for value in box)


def shown_places(text: str) -> list[tuple[str, ...]]:
    return [match.groups() for line in text.split("\n") if (match := WHERE.match(line))]


def distance(step: Step, element: UIElement, point) -> float:
    """In pixels, by clamping the point into the box."""
    x = min(max(point[0], element.box[0]), element.box[2])
    y = min(max(point[1], element.box[1]), element.box[3])
    return math.dist((x * 90, y * 160), (point[0] * 90, point[1] * 160))


@settings(max_examples=200, deadline=None)
@given(steps(), st.integers(1, 400), counters)
def test_what_the_budget_promises(step, tokens, count):
    text = written(step, tokens, count)
    whole = text_state(step, STYLE)
    if isinstance(text, int):
        assert text > tokens, "an error asks for more"
        text = written(step, tokens := text, count)
        assert isinstance(text, str), "and what it asks for is enough"
    assert count(text) <= tokens
    assert text == written(step, tokens, count), "the same again"
    if count(whole) <= tokens:
        assert text == whole
    shown, listed = shown_places(text), [place(element.box) for element in step.elements]
    assert shown == [box for box in listed if box in shown], "in the recording's order"
    missing = len(listed) - len(shown)
    assert text.endswith(f"... {missing} more of the screen's elements") == bool(missing)
    target = demonstrated(step)
    assert target is None or place(target.box) in shown
    assert ("Activity: " in text) == bool(step.activity) and ("Page: " in text) == bool(step.caption)


@settings(max_examples=150, deadline=None)
@given(steps(), st.integers(20, 300), counters)
def test_who_has_to_go(step, tokens, count):
    text = written(step, tokens, count)
    if isinstance(text, int):
        return
    target, shown = demonstrated(step), set(shown_places(text))
    others = [element for element in step.elements if element is not target]
    kept = [element for element in others if place(element.box) in shown]
    gone = [element for element in others if place(element.box) not in shown]
    if any(element.label.strip() for element in gone):
        assert all(element.label.strip() for element in kept), "the unlabelled go first"
    anchor = step.action.point or (target.center if target else None)
    for labelled in (True, False):
        near = [e for e in kept if bool(e.label.strip()) is labelled]
        far = [e for e in gone if bool(e.label.strip()) is labelled]
        if not near or not far:
            continue
        if anchor is None:
            assert max(map(step.elements.index, near)) < min(map(step.elements.index, far))
        else:
            assert max(distance(step, e, anchor) for e in near) <= min(distance(step, e, anchor) for e in far) + 1e-6


@settings(max_examples=150, deadline=None)
@given(steps())
def test_the_demonstrated_element(step):
    target, point = demonstrated(step), step.action.point
    if point is None:
        fields = [element for element in step.elements if element.editable]
        wanted = fields[0] if fields and step.action.type is ActionType.TYPE else None
        assert target is wanted
        return
    hit = [element for element in step.elements if element.contains(point)]
    if hit:
        assert target in hit and target.area == min(element.area for element in hit)
    elif step.elements:
        assert distance(step, target, point) <= min(distance(step, e, point) for e in step.elements) + 1e-6


@settings(max_examples=100, deadline=None)
@given(steps("learngui"))
def test_without_a_budget_everything_is_written(step):
    lines = [f"Activity: {' '.join(step.activity.split())}"] if step.activity else []
    lines += [f"Page: {' '.join(step.caption.split())}"] if step.caption else []
    lines += [STYLE.element(element) for element in step.elements]
    assert text_state(step, STYLE).split("\n") == (lines or [""])


def screen(*elements, action=None, **fields) -> Step:
    return Step("x", "e", 0, "Do.", SCREEN, elements, action or Action(ActionType.TAP, (0.55, 0.55)), **fields)


def row(number: int, text: str = "", **fields) -> UIElement:
    return UIElement((0.0, number / 10, 1.0, (number + 1) / 10), text, **fields)


def test_a_long_text_of_another_element_is_shortened_before_any_goes():
    step = screen(*(row(n, "terms " * 300 if n == 2 else f"row {n}") for n in range(9)))
    lines = text_state(step, STYLE, budget=Budget(400, pieces)).split("\n")
    assert len(lines) == 9 and lines[2].startswith('(500, 250) "terms terms') and lines[2].endswith('…"')
    assert pieces(lines[2]) <= 400 // 8


def test_the_demonstrated_elements_own_text_is_shortened_last():
    step = screen(*(row(n, f"row {n} " * (40 if n == 5 else 1)) for n in range(9)), caption="A page. " * 90)
    whole = f'"{" ".join(["row 5"] * 40)}"'
    text = text_state(step, STYLE, budget=Budget(150, pieces))
    assert whole in text and "7 more of" in text and "Page: A page. A" in text and "…" in text
    text = text_state(step, STYLE, budget=Budget(110, pieces))
    assert whole in text and "8 more of" in text and "Page: A page. A…" in text
    text = text_state(step, STYLE, budget=Budget(60, pieces))
    assert whole not in text and '(500, 550) "row 5 row' in text and "Page: …" in text


def test_a_budget_that_is_too_small_names_itself_and_the_step():
    with pytest.raises(BudgetError, match=r"Step 'x/e/0': `state_tokens` must be at least \d+ for .* got 3\. Raise"):
        text_state(screen(row(5, "target")), STYLE, budget=Budget(3, pieces))
    with pytest.raises(BudgetError, match="`state_tokens` must be at least 1 or null, got 0"):
        Budget(0, len)


def test_a_labelled_element_is_the_demonstrated_one_before_an_equal_box_without_a_label():
    icon, button = row(5, clickable=True), row(5, "Save")
    assert demonstrated(screen(row(1), icon, button)) is button
    assert demonstrated(screen(replace(button, box=(0.0, 0.4, 1.0, 0.7)), icon)) is icon, "the smallest comes first"


def test_copies_are_written_once_and_other_words_stay():
    step = screen(row(5, "Save"), row(5, "Save"), row(6, "Save"), row(5, "Save", clickable=True))
    assert text_state(step, STYLE).split("\n") == [
        '(500, 550) "Save"',
        '(500, 650) "Save"',
        '(500, 550) "Save", clickable',
    ]


def test_no_more_than_needed_is_left_out():
    step = screen(*(row(n, "name") for n in range(9)))
    for tokens in range(30, pieces(text_state(step, STYLE))):
        shown = text_state(step, STYLE, budget=Budget(tokens, pieces)).split("\n")
        kept = shown[:-1]
        nearest = sorted(range(9), key=lambda n: (abs(n - 5), -n))[: len(kept) + 1]
        one_more = [STYLE.element(step.elements[n]) for n in sorted(nearest)]
        note = DEFAULT_LAYOUT.more.format(count=9)
        assert pieces("\n".join([*one_more, note])) > tokens


def test_the_number_of_counts_grows_with_the_lines_alone():
    calls = []

    def count(text):
        calls.append(text)
        return pieces(text)

    step = screen(*(row(n % 10, f"name {n}") for n in range(200)))
    text_state(step, STYLE, budget=Budget(300, count))
    assert len(calls) <= 2 * 200 + 10
    calls.clear()
    text_state(step, STYLE, budget=Budget(10**6, count))
    assert len(calls) == 1


@settings(max_examples=60, deadline=None)
@given(steps(), st.integers(60, 600))
def test_with_the_shipped_tokenizer(step, tokens):
    encoder = shipped()
    text = written(step, tokens, encoder.count)
    assert isinstance(text, int) or encoder.count(text) <= tokens


def shipped() -> PromptEncoder:
    from switchmem.actors.spec import ActorSpec

    if not _SHIPPED:
        _SHIPPED.append(ActorSpec().load_encoder())
    return _SHIPPED[0]


_SHIPPED: list[PromptEncoder] = []


@given(st.integers(0, 500), st.integers(0, 600))
def test_largest(most, bound):
    tried = []
    found = largest(most, lambda n: tried.append(n) or n <= bound)
    assert found == min(most, bound)
    assert max(tried, default=0) <= 2 * max(found, 1), "nothing far above the answer is tried"


def test_shortened():
    assert shortened("abcdef", None) == shortened("abcdef", 5) == "abcdef"
    assert shortened("abc def", 4) == "abc…" and shortened("abcdef", 0) == "…"


def test_lines_without_a_rank_stay():
    entries = [Entry(lambda most: shortened("aaaa", most)), Entry(lambda most: "b" * 40, (0,))]
    assert fit(entries, " ", "", Budget(32, len)) == "aaaa"
    assert fit(entries, " ", "{count}!", Budget(32, len)) == "aaaa 1!"
