"""Places: the resized picture as the model's own processor makes it, scales, and directions as paths."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from switchmem.actors.grammars.base import Unreadable
from switchmem.actors.grammars.places import (
    OPPOSITE,
    PictureLimits,
    Pixels,
    Relative,
    finger_direction,
    finger_path,
    numbers,
    read_place,
)

LIMITS = [
    (28, 56 * 56, 12_845_056),
    (28, 100 * 784, 16384 * 784),
    (28, 256 * 784, 937_664),
    (32, 65_536, 1_003_520),
    (28, 3136, 3136),
]


@settings(deadline=None, max_examples=500)
@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(LIMITS))
def test_pictures_are_resized_as_the_image_processor_does(width, height, limits):
    if max(width, height) / min(width, height) > 200:
        return  # the processor refuses such a picture
    expected = smart_resize(height, width, *limits)
    assert PictureLimits(*limits).resized((width, height)) == expected[::-1]


def test_halves_are_rounded_to_even_multiples():
    # 1022 / 28 = 36.5 and 1522 / 28 = 54.36; with halves rounded up it would be 1036.
    assert PictureLimits().resized((1022, 1522)) == (1008, 1512)
    assert PictureLimits().resized((1050, 1050)) == (1064, 1064)  # 37.5 -> 38


def test_a_long_picture_has_a_size_too():
    width, height = PictureLimits().resized((1, 100_000))
    assert width > 0 and height > 0


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0.0), (1000, 1.0), (1010, 1.0), (-10, 0.0), (-0.5, 0.0), (999.9, 0.9999)]
)
def test_a_place_just_outside_is_at_the_edge(value, expected):
    assert Relative(1000).read(value, 500, (1, 1)) == (pytest.approx(expected), 0.5)


@pytest.mark.parametrize("value", [1010.1, -10.1, float("nan"), float("inf"), -float("inf"), 10**400, True])
def test_a_place_far_outside_is_refused(value):
    with pytest.raises(Unreadable, match="bad_place"):
        Relative(1000).read(500, value, (1, 1))


def test_pixels_of_the_screenshot_itself():
    assert Pixels(None).read(270, 1200, (1080, 2400)) == (0.25, 0.5)
    assert Pixels(None).for_screen((1080, 2400)).write(0.25, 0.5) == (270, 1200)
    assert Pixels(None).limited(100) == Pixels(None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("(197,525)", [197, 525]),
        ("[1, 2, 3, 4]", [1, 2, 3, 4]),
        ("<|box_start|>( 197 , 525.5 )<|box_end|>", [197, 525.5]),
        ("< |box_start|>(1,2)< |box_end|>", [1, 2]),
        ("<point>197 525</point>", [197, 525]),
        ("<bbox>1 2 3 4</bbox>", [1, 2, 3, 4]),
        ("(.5, -1e-1)", [0.5, -0.1]),
        ("(197,525", [197, 525]),
    ],
)
def test_numbers_of_a_place(text, expected):
    assert numbers(text) == expected


@pytest.mark.parametrize("text", ["=", "x1, y1", "197px", "1,2" * 200, "0x10, 5", "１２,５", "1:2"])
def test_what_is_no_place_is_refused(text):
    if text == "１２,５":  # Python reads wide digits as digits
        assert numbers(text) == [12, 5]
        return
    with pytest.raises(Unreadable, match="bad_place"):
        numbers(text)


@pytest.mark.parametrize(("values", "reason"), [([], "missing_argument"), ([1], "bad_place"), ([1, 2, 3], "bad_place")])
def test_a_place_is_two_numbers_or_a_box(values, reason):
    with pytest.raises(Unreadable, match=reason):
        read_place(values, Relative(10), (1, 1))
    assert read_place([1, 2, 3, 4], Relative(10), (1, 1)) == (pytest.approx(0.2), pytest.approx(0.3))


@settings(deadline=None)
@given(st.sampled_from(sorted(OPPOSITE)), st.none() | st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_direction_becomes_a_path_on_the_screen(direction, touch):
    start, end = finger_path(direction, touch)
    assert finger_direction(start, end) == direction
    assert all(0 <= v <= 1 for v in (*start, *end))
    length = abs(end[0] - start[0]) + abs(end[1] - start[1])
    assert 0.2 - 1e-6 <= length <= 0.4 + 1e-6, "one axis, and far more than a tap"
    if touch is not None:
        across = 0 if direction in ("up", "down") else 1
        assert start[across] == touch[across], "it stays in its column or row"


def test_directions_are_the_fingers():
    assert finger_direction((0.5, 0.8), (0.5, 0.2)) == "up" and finger_direction((0.2, 0.5), (0.8, 0.4)) == "right"
    assert finger_direction((0.1, 0.1), (0.2, 0.2)) == "down", "the vertical one where both are equal"
    with pytest.raises(Unreadable):
        finger_path("sideways")
