"""The web actor's grammar: cells of a grid, elements by kind, and answers that are read or refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.actors.grammars.base import get_grammar
from switchmem.steps import Action, ActionType, UIElement

SIZE = (1080, 2180)
GRAMMAR = get_grammar("miniwob")
unit = st.floats(0, 1)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def actions(draw) -> Action:
    kind = draw(st.sampled_from(ActionType))
    spatial = kind.is_spatial or (kind is ActionType.TYPE and draw(st.booleans()))
    point = (draw(unit), draw(unit)) if spatial else None
    end = (draw(unit), draw(unit)) if kind in (ActionType.SWIPE, ActionType.DRAG) else None
    return Action(kind, point, end, draw(words) if kind in (ActionType.TYPE, ActionType.OPEN) else None)


@settings(deadline=None)
@given(actions())
def test_what_is_written_is_read_back(action):
    read = GRAMMAR.parse(GRAMMAR.action(action), SIZE).action
    assert read.type is action.type
    for there, back in ((action.point, read.point), (action.end, read.end)):
        assert (there is None) == (back is None)
        if there is not None:
            assert abs(there[0] - back[0]) <= 0.5 / 54 + 1e-9 and abs(there[1] - back[1]) <= 0.5 / 109 + 1e-9
    assert (read.text or "").split() == (action.text or "").split()
    assert GRAMMAR.action(read) == GRAMMAR.action(action), "a second time nothing may change"


@settings(deadline=None)
@given(words | st.lists(st.sampled_from("tap type swipe x1 y1 x99 y200 done".split())).map(" ".join))
def test_no_answer_raises(text):
    parsed = GRAMMAR.parse(text, SIZE)
    assert (parsed.action is None) != (parsed.reason is None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  ", "empty"),
        ("Tap x1 y1", "unknown_action"),
        ("x1 y1", "unknown_action"),
        ("tap", "missing_argument"),
        ("swipe x1 y1", "missing_argument"),
        ("tap x54 y1", "bad_place"),
        ("tap x1 y109", "bad_place"),
        ("tap y1 x1", "bad_place"),
        ("tap x1", "bad_place"),
        ("tap x1 y1 x2 y2", "extra_words"),
        ("done now", "extra_words"),
    ],
)
def test_what_cannot_be_read_says_why(text, reason):
    assert GRAMMAR.parse(text, SIZE).reason.value == reason


def test_text_with_and_without_a_place():
    there = GRAMMAR.parse("type x27 y54 Ada  L", SIZE).action
    assert there.text == "Ada L" and there.point == (27.5 / 54, 54.5 / 109)
    assert GRAMMAR.parse("type First name x27 y54 Ada L", SIZE).action == there
    assert GRAMMAR.parse("tap Green tea x27 y54", SIZE).action == Action(ActionType.TAP, there.point)
    assert GRAMMAR.parse("type Ada", SIZE).action == Action(ActionType.TYPE, text="Ada")
    assert GRAMMAR.parse("type", SIZE).action == Action(ActionType.TYPE, text="")


def test_cells_and_elements():
    cells = {GRAMMAR.point((c + 0.5) / 54, (r + 0.5) / 109) for r in range(109) for c in range(54)}
    assert len(cells) == 54 * 109 and GRAMMAR.point(1.0, 1.0) == "x53 y108" and GRAMMAR.point(0.0, 0.0) == "x0 y0"
    box = (0.0, 0.0, 0.1, 0.02)
    full = UIElement(box, text="Green\ntea", kind="android.widget.CheckBox", resource_id="app:id/ch0", checked=True)
    assert GRAMMAR.element(full) == "CheckBox checked #ch0 Green tea x2 y1"
    assert GRAMMAR.element(UIElement(box, kind="Image")) == "Image x2 y1"
