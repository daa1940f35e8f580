"""switchmem's own step score against a plainly written other one, and rules that hold for any pair of actions."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.benchmarks import get_benchmark
from switchmem.benchmarks.general_score import main_direction, step_score, tapped_element, words_f1
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

WIDTH, HEIGHT = 40, 80
PICTURE = Screenshot(b"", WIDTH, HEIGHT)
USERS = ("appagent", "recorded", "android_control")

# A coarse grid, so that centres meet taps, points lie on edges, and axes tie.
place = st.integers(0, 20).map(lambda n: n / 20)
point = st.tuples(place, place)
words = st.lists(st.sampled_from(["Weather", "weather", "in", "Rome", "", " "]), max_size=4).map(" ".join)


def kinds(*names):
    return st.sampled_from([ActionType(name) for name in names])


actions = st.one_of(
    st.builds(Action, kinds("tap", "long_press"), point),
    st.builds(Action, kinds("swipe", "drag"), point, point),
    st.builds(Action, kinds("type", "open"), text=words),
    st.builds(Action, kinds("back", "home", "enter", "wait", "impossible")),
    st.builds(Action, st.just(ActionType.COMPLETE), text=st.none() | words),
)
boxes = st.tuples(place, place, place, place).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)
elements = st.lists(st.builds(UIElement, boxes, clickable=st.booleans()), max_size=5).map(tuple)


def step(action, listed=()):
    return Step("recorded", "e", 0, "do it", PICTURE, tuple(listed), action)


def same_way(predicted, wanted, gold):
    sides = []
    for action in (predicted, wanted):
        right, down = action.end[0] - action.point[0], action.end[1] - action.point[1]
        if abs(right) > abs(down):
            sides.append("right" if right > 0 else "left")
        else:
            sides.append("down" if down > 0 else "up")
    return sides[0] == sides[1]


def same_place(predicted, wanted, gold):
    candidates = []
    for element in gold.elements:
        left, top, right, bottom = element.box
        if abs((left + right) / 2 - wanted.point[0]) <= 1 / WIDTH:
            if abs((top + bottom) / 2 - wanted.point[1]) <= 1 / HEIGHT:
                candidates.append(element)
    preferred = [element for element in candidates if element.clickable] or candidates
    if preferred:
        smallest = sorted(preferred, key=lambda e: (e.box[2] - e.box[0]) * (e.box[3] - e.box[1]))[0]
        left, top, right, bottom = smallest.box
        if left <= predicted.point[0] <= right and top <= predicted.point[1] <= bottom:
            return True
    off = [p - w for p, w in zip(predicted.point, wanted.point, strict=True)]
    return off[0] * off[0] + off[1] * off[1] <= 0.14 * 0.14


def same_words(predicted, wanted, gold):
    said, meant = (Counter(dict.fromkeys(action.text.lower().split(), 1)) for action in (predicted, wanted))
    if not said and not meant:
        return True
    common = (said & meant).total()
    if not common:
        return False
    precision, recall = common / said.total(), common / meant.total()
    return 2 * precision * recall / (precision + recall) > 0.5 - 1e-12


RULES = {"swipe": same_way, "drag": same_way, "tap": same_place, "long_press": same_place}
RULES |= {"type": same_words, "open": same_words}


def reference(predicted, gold):
    """The rule told by cases, with lists, products and precision and recall."""
    if predicted is None or predicted.type.value != gold.action.type.value:
        return 0.0
    rule = RULES.get(gold.action.type.value, lambda *_: True)
    return 1.0 if rule(predicted, gold.action, gold) else 0.0


@given(st.none() | actions, actions, elements)
@settings(max_examples=1500, deadline=None)
def test_the_score_is_that_of_the_reference(predicted, wanted, listed):
    gold = step(wanted, listed)
    assert step_score(predicted, gold) == reference(predicted, gold)


@given(point, point, elements)
@settings(max_examples=1000, deadline=None)
def test_taps_are_those_of_the_reference(predicted, wanted, listed):
    # each element once more around the tap, so that one is centred there often
    centred = [
        UIElement((wanted[0] - r, wanted[1] - r, wanted[0] + r, wanted[1] + r), clickable=e.clickable)
        for e in listed
        if (r := min(e.area, *wanted, 1 - wanted[0], 1 - wanted[1])) >= 0
    ]
    gold = step(Action(ActionType.TAP, wanted), [*listed, *centred])
    tap = Action(ActionType.TAP, predicted)
    assert step_score(tap, gold) == reference(tap, gold)


@given(actions, elements)
@settings(max_examples=300, deadline=None)
def test_the_recorded_action_is_right_and_no_answer_is_wrong(action, listed):
    gold = step(action, listed)
    assert step_score(action, gold) == 1.0
    assert step_score(None, gold) == 0.0


@given(st.none() | actions, actions, elements)
@settings(max_examples=200, deadline=None)
def test_every_benchmark_without_an_official_score_uses_it(predicted, wanted, listed):
    gold = step(wanted, listed)
    assert {get_benchmark(name).score(predicted, gold) for name in USERS} == {step_score(predicted, gold)}


@pytest.mark.parametrize("axis", [0, 1])
def test_a_tap_is_near_up_to_the_distance(axis):
    gold = step(Action(ActionType.TAP, (0.0, 0.0)))
    for distance, expected in ((0.14, 1.0), (math.nextafter(0.14, 1), 0.0)):
        where = (distance, 0.0) if axis == 0 else (0.0, distance)
        assert step_score(Action(ActionType.TAP, where), gold) == expected


def test_of_centred_elements_the_clickable_then_the_smallest_counts():
    label, row = UIElement((0.4, 0.45, 0.6, 0.55)), UIElement((0.2, 0.4, 0.8, 0.6), clickable=True)
    page = UIElement((0.0, 0.0, 1.0, 1.0), clickable=True)
    aside = UIElement((0.5, 0.5, 0.6, 0.6), clickable=True)  # holds the point, but its middle is elsewhere
    tap = Action(ActionType.TAP, (0.5, 0.5))
    for listed in ([label, row, page, aside], [page, aside, row, label]):
        assert tapped_element(step(tap, listed), tap.point) == row
    assert tapped_element(step(tap, [label, aside]), tap.point) == label
    assert tapped_element(step(tap, [aside]), tap.point) is None


@pytest.mark.parametrize(
    "end, direction",
    [((0.9, 0.5), (0, 1)), ((0.1, 0.6), (0, -1)), ((0.6, 0.9), (1, 1)), ((0.75, 0.25), (1, -1)), ((0.5, 0.5), (1, -1))],
)
def test_directions(end, direction):
    assert main_direction(Action(ActionType.SWIPE, (0.5, 0.5), end)) == direction


@pytest.mark.parametrize(
    "first, second, expected",
    [("", "", 1.0), ("", "a", 0.0), ("A b", "b  a", 1.0), ("a", "a b c", 0.5), ("a a a", "a", 1.0), ("a", "b", 0.0)],
)
def test_words(first, second, expected):
    assert words_f1(first, second) == words_f1(second, first) == pytest.approx(expected)
