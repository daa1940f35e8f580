"""AITW's action matching on many pairs, most of them on a border, against a plain re-telling in exact arithmetic.

The reference works on one pair in Python numbers. A float32 operation is a double operation rounded once more, which is
exact for + - * and square roots (53 >= 2 * 24 + 2 bits). The fused square sum of a distance is decided in fractions.
"""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest

from switchmem.benchmarks.aitw import actions_match
from switchmem.benchmarks.aitw.score import match_actions

PAIRS = 24_000  # of each of nine kinds
DUAL_POINT = 4


def single(value):
    """Rounded to float32, as a Python number; JAX takes what is smaller than any normal number for 0."""
    rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded if abs(rounded) >= 2.0**-126 else 0.0


def following(value):
    """The next float32 above a positive one."""
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] + 1))[0]


class Within:
    """Whether a finger's way is at most `limit`, as ``sqrt(fma(dy, dy, dx * dx)) <= limit`` in float32."""

    def __init__(self, limit):
        self.limit = limit
        last = single(limit * limit * 0.999)
        while single(math.sqrt(following(last))) <= single(limit):
            last = following(last)
        even = struct.unpack("<I", struct.pack("<f", last))[0] % 2 == 0
        self.middle, self.includes_middle = (Fraction(last) + Fraction(following(last))) / 2, even

    def __call__(self, one, other):
        dy, dx = (single(a - b) for a, b in zip(one, other, strict=True))
        rough = math.hypot(dy, dx)
        if abs(rough - self.limit) > 1e-5:
            return rough < self.limit
        total = Fraction(dy) ** 2 + Fraction(single(dx * dx))
        return total < self.middle or (total == self.middle and self.includes_middle)


is_tap, is_near = Within(0.04), Within(0.14)


def side(start, size):
    """Where an enlarged box starts and ends along one axis."""
    growth = single(single(1.4) * size)
    first = max(0.0, single(start - growth / 2))
    return first, single(first + min(1.0, single(size + growth)))


def in_box(point, box):
    y, x, height, width = box
    (top, bottom), (left, right) = side(y, height), side(x, width)
    return top <= point[0] <= bottom and left <= point[1] <= right


def is_vertical(touch, lift):
    dy, dx = (abs(single(b - a)) for a, b in zip(touch, lift, strict=True))
    return dy >= dx


def reference(touch_1, lift_1, type_1, touch_2, lift_2, type_2, boxes):
    if type_1 != DUAL_POINT or type_2 != DUAL_POINT:
        return type_1 == type_2
    touch_1, lift_1, touch_2, lift_2 = ([single(v) for v in point] for point in (touch_1, lift_1, touch_2, lift_2))
    boxes = [[single(v) for v in box] for box in boxes]
    first_taps, second_taps = is_tap(touch_1, lift_1), is_tap(touch_2, lift_2)
    if first_taps and second_taps:
        return is_near(touch_1, touch_2) or any(in_box(touch_1, box) and in_box(touch_2, box) for box in boxes)
    if first_taps or second_taps:
        return False
    return is_vertical(touch_1, lift_1) == is_vertical(touch_2, lift_2)


def shaken(values, random, steps=3):
    """Float32 values moved by up to `steps` of their own spacing."""
    values = np.asarray(values, np.float32)
    for _ in range(steps):
        values = np.nextafter(values, values + random.integers(-1, 2, values.shape).astype(np.float32))
    return values


def at_distance(points, distance, random):
    """Points at about a distance in any direction, one in four straight along an axis."""
    angle = random.uniform(0, 2 * np.pi, len(points))
    straight = random.random(len(points)) < 0.25
    angle[straight] = random.integers(0, 4, straight.sum()) * np.pi / 2
    return shaken(points + distance * np.stack([np.sin(angle), np.cos(angle)], 1), random)


def edge_points(boxes, random):
    """For each box two points: one on an edge or corner of the enlarged box, give or take a spacing, one anywhere."""
    growth = np.float32(1.4) * boxes[:, 2:]
    first = np.maximum(np.float32(0), boxes[:, :2] - growth / 2)
    last = first + np.minimum(np.float32(1), boxes[:, 2:] + growth)
    along = random.random(first.shape).astype(np.float32)
    on_edge = np.where(random.random(first.shape) < 0.5, first, last)
    inside = first + along * (last - first)
    one = np.where(random.random(first.shape) < 0.7, on_edge, inside)
    return shaken(one, random, 1), shaken(np.where(random.random(first.shape) < 0.5, inside, on_edge), random, 1)


def some_boxes(count, random, corner=1.0):
    """One array of up to four (y, x, h, w) boxes per pair, some without any, some boxes of no size."""
    found = []
    for number in random.integers(0, 5, count):
        boxes = np.concatenate([random.uniform(0, corner, (number, 2)), random.uniform(0, 0.3, (number, 2))], 1)
        boxes[random.random(number) < 0.2, 2:] = 0
        found.append(boxes.astype(np.float32))
    return found


def pairs(kind, random):
    """(touch_1, lift_1, touch_2, lift_2, boxes) of one kind, PAIRS of each."""
    touch = random.random((PAIRS, 2)).astype(np.float32)
    other = random.random((PAIRS, 2)).astype(np.float32)
    boxes = some_boxes(PAIRS, random)
    if kind == "anywhere":
        return touch, random.random((PAIRS, 2)), other, random.random((PAIRS, 2)), boxes
    if kind == "swipe border":
        other = at_distance(touch, 0.1, random)
        return touch, at_distance(touch, 0.04, random), other, at_distance(other, 0.04, random), boxes
    if kind == "tap border":
        return touch, touch, (other := at_distance(touch, 0.14, random)), other, boxes
    if kind in ("box edge", "box at the top left"):
        boxes = some_boxes(PAIRS, random, corner=1.0 if kind == "box edge" else 0.02)
        chosen = np.stack([each[0] if len(each) else np.array([0.4, 0.4, 0.1, 0.2], np.float32) for each in boxes])
        touch, other = edge_points(chosen, random)
        return touch, touch, other, other, boxes
    if kind == "box without size":
        where = random.integers(0, 2, PAIRS)
        boxes = [
            np.array([[*(point if w else (0, 0)), 0, 0]], np.float32) for point, w in zip(touch, where, strict=True)
        ]
        other = np.where(random.random((PAIRS, 1)) < 0.5, touch, other)
        return touch, touch, other, other, boxes
    if kind == "axis ties":
        ways = random.integers(1, 9, (2, PAIRS, 1)) / 16 * random.choice([-1, 1], (2, PAIRS, 2))
        grid = random.integers(0, 17, (2, PAIRS, 2)) / 16
        return grid[0], shaken(grid[0] + ways[0], random, 1), grid[1], grid[1] + ways[1], boxes
    if kind == "without points":
        gone = np.full((PAIRS, 2), -1.0)
        return gone, gone, np.where(random.random((PAIRS, 1)) < 0.5, gone, other), other, boxes
    return touch, touch, touch, at_distance(touch, 0.04, random), [np.empty((0, 4))] * PAIRS


KINDS = (
    "anywhere",
    "swipe border",
    "tap border",
    "box edge",
    "box at the top left",
    "box without size",
    "axis ties",
    "without points",
    "no boxes",
)


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    random = np.random.default_rng(KINDS.index(request.param))
    touch_1, lift_1, touch_2, lift_2, boxes = pairs(request.param, random)
    any_type = request.param == "without points"
    ids = random.integers(0, 12, (2, PAIRS))
    types = np.where(random.random((2, PAIRS)) < (0.2 if any_type else 0.95), DUAL_POINT, ids)
    arrays = [np.asarray(each, np.float32) for each in (touch_1, lift_1, touch_2, lift_2)]
    plain = [each.tolist() for each in arrays], types.tolist(), [each.tolist() for each in boxes]
    (from_1, to_1, from_2, to_2), (kinds_1, kinds_2), screens = plain
    expected = list(map(reference, from_1, to_1, kinds_1, from_2, to_2, kinds_2, screens))
    return (*arrays[:2], types[0]), (*arrays[2:], types[1]), boxes, np.array(expected)


def test_all_pairs_together_are_enough():
    assert PAIRS * len(KINDS) >= 200_000


def test_the_score_is_the_official_rule_on_its_borders(case):
    one, other, boxes, expected = case
    assert np.array_equal(match_actions(*one, *other, boxes), expected)
    assert 100 < expected.sum() < PAIRS - 100


def test_the_rule_is_symmetric_and_boxes_may_be_padded(case):
    one, other, boxes, expected = case
    padded = np.zeros((PAIRS, 5, 4), np.float32)
    mask = np.zeros((PAIRS, 5), bool)
    for row, each in enumerate(boxes):
        padded[row, 5 - len(each) :], mask[row, 5 - len(each) :] = each, True
    assert np.array_equal(match_actions(*other, *one, padded, mask), expected)
    assert np.array_equal(match_actions(*one, *other, padded), expected)  # a box of zeros holds only (0, 0)


def test_one_pair_is_decided_as_in_a_batch(case):
    one, other, boxes, expected = case
    for row in range(0, PAIRS, 97):
        pair = [each[row].tolist() for each in (*one, *other)]
        assert actions_match(*pair, boxes[row]) is bool(expected[row])


def test_each_type_matches_itself_alone():
    ids = np.arange(12)
    first, second = (grid.ravel() for grid in np.meshgrid(ids, ids))
    gone = np.full((144, 2), -1.0)
    matches = match_actions(gone, gone, first, gone, gone, second, [[]] * 144)
    assert np.array_equal(matches, first == second)


# What the authors' code answered under JAX 0.10.2 on an x86 CPU, where an unfused square sum gives the other answer.
RECORDED = [
    ((0.440313458442688, 0.2395639568567276), (0.4803134500980377, 0.2395361363887787), "is a tap", True),
    ((0.31381070613861084, 0.3122306764125824), (0.27385374903678894, 0.31408587098121643), "is a tap", False),
    ((0.01179402507841587, 0.19240213930606842), (0.1252932846546173, 0.11043921858072281), "taps match", True),
    ((0.19246350228786469, 0.9279056787490845), (0.29788801074028015, 0.8357879519462585), "taps match", True),
    ((0.5246747136116028, 0.6310131549835205), (0.6634694933891296, 0.6126825213432312), "taps match", False),
    ((0.364989310503006, 0.9376302361488342), (0.22620730102062225, 0.9192031621932983), "taps match", False),
]


@pytest.mark.parametrize("one, other, question, answer", RECORDED)
def test_distances_at_a_threshold_are_decided_as_the_official_code_did(one, other, question, answer):
    if question == "is a tap":  # a way matches a tap at its own place exactly if it is a tap itself
        assert actions_match(one, other, DUAL_POINT, one, one, DUAL_POINT, []) is answer
    else:
        assert actions_match(one, one, DUAL_POINT, other, other, DUAL_POINT, []) is answer
