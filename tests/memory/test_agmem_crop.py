"""The action-grounded crop: against generated pairs whose change is known, and against SciPy's and OpenCV's filters."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from benchmarks.agmem import opencv, scikit_image
from benchmarks.screen_pairs import overlap, pairs
from switchmem.memory.agmem.config import CropConfig, CropError
from switchmem.memory.agmem.crop import Reason, action_grounded_crop, changed_box
from switchmem.memory.agmem.difference import dimming_factor
from switchmem.memory.agmem.ignored import around, clocks
from switchmem.memory.agmem.morphology import closed, opened
from switchmem.steps import UIElement

PAIRS = 200
SIZES = ((320, 640), (360, 640), (640, 400))


def screen(height=400, width=200, level=255):
    return np.full((height, width, 3), level, np.uint8)


def with_box(box, level=0, **shape):
    pixels = screen(**shape)
    left, top, right, bottom = box
    pixels[top:bottom, left:right] = level
    return pixels


def test_generated_pairs_are_found_in_at_least_95_of_100():
    found = []
    for pair in pairs(PAIRS, 7, SIZES):
        size = pair.after.shape[1], pair.after.shape[0]
        ignored = clocks(pair.elements_before, pair.elements) + around(pair.points, 0.05, size)
        crop = action_grounded_crop(pair.before, pair.after, [e.box for e in pair.elements], ignored)
        found.append((overlap(crop.box, pair.truth) >= 0.9, pair.kind, pair.noise))
        assert {"clock", "cursor"} <= set(pair.noise)
    assert sum(good for good, _, _ in found) >= 0.95 * PAIRS, [rest for good, *rest in found if not good]


def test_without_the_rules_the_noise_is_in_the_box():
    config = CropConfig(status_bar=0.0, caret_width=0.0)
    good = 0
    for pair in pairs(20, 7, SIZES):
        crop = action_grounded_crop(pair.before, pair.after, [e.box for e in pair.elements], (), config)
        good += overlap(crop.box, pair.truth) >= 0.9
    assert good <= 8


def test_both_plain_ways_of_the_benchmark_find_the_same():
    """They share thresholds and rules, and no filter: where one is miswritten, they part."""
    config = CropConfig()
    boxes = [(opencv(pair, config), scikit_image(pair, config)) for pair in pairs(25, 11, SIZES)]
    assert sum(a == b for a, b in boxes) >= 23, boxes  # a window's means are summed up in another order
    assert sum(a is not None for a, _ in boxes) >= 20


@settings(max_examples=40, deadline=None)
@given(arrays(np.bool_, (23, 31)), st.integers(1, 9))
def test_opening_and_closing_are_scipys(mask, side):
    square, padded = np.ones((side, side), dtype=bool), np.pad(mask, side)
    assert np.array_equal(opened(padded, side), ndimage.binary_opening(padded, square))
    assert np.array_equal(closed(mask, side), ndimage.binary_closing(padded, square)[side:-side, side:-side])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_the_box_is_that_of_the_plain_filters_on_the_whole_screen(seed):
    """The same rules with OpenCV, over the whole screen: no region of interest, other code for every filter."""
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 255, (120, 90, 3), dtype=np.uint8)
    after = before.copy()
    for _ in range(rng.integers(1, 4)):
        left, top = rng.integers(0, 70), rng.integers(0, 100)
        right, bottom = left + rng.integers(1, 30), top + rng.integers(1, 30)
        after[top:bottom, left:right] = rng.integers(0, 255, 3)
    config = CropConfig(
        exact=1.0,
        dimming=False,
        status_bar=0,
        nav_bar=0,
        caret_width=0,
        least=0,
        smoothing=0.21,
        opening=0.033,
        closing=0.078,
    )
    difference = cv2.absdiff(before, after).max(axis=2)
    smooth = cv2.blur(difference.astype(np.float32), (19, 19), borderType=cv2.BORDER_CONSTANT)
    residual = difference - smooth
    soft = cv2.morphologyEx((residual >= config.soft).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    padded = cv2.copyMakeBorder(soft, 9, 9, 9, 9, cv2.BORDER_CONSTANT, value=0)
    soft = cv2.morphologyEx(padded, cv2.MORPH_CLOSE, np.ones((7, 7), np.uint8))[9:-9, 9:-9]
    count, labels, stats, _ = cv2.connectedComponentsWithStats(soft.astype(np.uint8), connectivity=8)
    kept = [n for n in range(1, count) if (residual[labels == n] >= config.sharp).any()]
    expected = None
    if kept:
        x, y, w, h = (stats[kept, column] for column in range(4))
        expected = (x.min(), y.min(), (x + w).max(), (y + h).max())
    assert changed_box(before, after, (), config) == expected


def test_a_change_is_cut_out_and_snaps_to_the_smallest_element_around_it():
    before, after = screen(), with_box((60, 100, 120, 160))
    assert action_grounded_crop(before, after).box == (60, 100, 120, 160)
    elements = [(0.0, 0.0, 1.0, 1.0), (0.25, 0.2, 0.75, 0.5), (0.2, 0.2, 0.8, 0.6), (0.3, 0.25, 0.4, 0.3)]
    crop = action_grounded_crop(before, after, elements)
    assert crop.reason is Reason.CONTAINER and crop.box == (50, 80, 150, 200) and crop.change == (60, 100, 120, 160)


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (None, Reason.LAST),
        (screen(200, 400), Reason.SIZE),
        (screen(), Reason.NOTHING),
        (with_box((10, 3, 40, 12)), Reason.NOTHING),  # inside the status bar
        (with_box((90, 391, 110, 398)), Reason.NOTHING),  # inside the navigation bar
        (with_box((90, 200, 92, 218)), Reason.NOTHING),  # a text cursor
        (with_box((90, 200, 92, 202)), Reason.NOTHING),  # a speck
        (with_box((2, 2, 198, 398), 10), Reason.INDISTINCT),
    ],
)
def test_what_is_not_distinct_is_the_whole_screen(after, reason):
    crop = action_grounded_crop(screen(), after)
    height, width = (screen() if after is None else after).shape[:2]
    assert crop.reason is reason and crop.is_whole and crop.box == (0, 0, width, height)


def test_a_change_that_only_begins_in_a_bar_counts():
    assert action_grounded_crop(screen(), with_box((40, 300, 160, 400))).box == (40, 300, 160, 400)


def test_a_dimmed_screen_behind_a_dialog_is_no_change():
    rng = np.random.default_rng(0)
    before = np.kron(rng.integers(60, 255, (40, 20, 3)), np.ones((10, 10, 1))).astype(np.uint8)
    after = np.rint(before * 0.5).astype(np.uint8)
    after[120:260, 40:160] = 240
    assert dimming_factor(before, after, CropConfig()) == pytest.approx(0.5, abs=0.01)
    assert action_grounded_crop(before, after).box == (40, 120, 160, 260)
    assert action_grounded_crop(after, before).box == (40, 120, 160, 260)
    assert action_grounded_crop(before, after, config=CropConfig(dimming=False)).is_whole
    assert (
        dimming_factor(screen(), with_box((0, 0, 200, 180), 128), CropConfig()) == 1.0
    )  # one grey half of a white page


def test_ignored_boxes_are_ignored_unless_the_change_leaves_them():
    after = with_box((50, 100, 70, 120))
    assert action_grounded_crop(screen(), after, ignored=[(0.24, 0.24, 0.36, 0.31)]).reason is Reason.NOTHING
    assert action_grounded_crop(screen(), after, ignored=[(0.24, 0.24, 0.3, 0.31)]).box == (50, 100, 70, 120)


def test_a_clock_goes_on_and_a_set_time_jumps():
    def shown(text, box=(0.1, 0.1, 0.4, 0.2)):
        return [UIElement(box, text)]

    assert clocks(shown("9:41"), shown("9:42")) == [(0.1, 0.1, 0.4, 0.2)]
    assert clocks(shown("12:59"), shown("1:00")) and clocks(shown("23:59"), shown("0:00"))
    assert not clocks(shown("9:41"), shown("11:30")) and not clocks(shown("9:42"), shown("9:41"))
    assert not clocks(shown("9:41"), shown("9:42", (0.5, 0.5, 0.9, 0.6))) and not clocks(shown("9 rows"), shown("9:41"))
    assert around([(0.0, 0.5)], 0.1, (100, 200)) == [(0.0, 0.45, 0.1, 0.55)]


def test_grey_and_colour_without_brightness():
    before = screen()[..., 0]
    after = before.copy()
    after[100:160, 60:120] = 0
    assert action_grounded_crop(before, after).box == (60, 100, 120, 160)
    red, blue = with_box((60, 100, 120, 160), (200, 0, 0)), with_box((60, 100, 120, 160), (0, 0, 200))
    assert action_grounded_crop(red, blue).box == (60, 100, 120, 160)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"soft": 0}, r"`soft` must be a number in \(0, 255\], got 0"),
        ({"sharp": float("nan")}, r"`sharp` must be a number in \(0, 255\], got nan"),
        ({"closing": 0.3}, r"`closing` must be a number in \[0, 0.2\], got 0.3"),
        ({"most": 0.0}, r"`most` must be a number in \(0, 1\]"),
        ({"ring": 2}, r"`ring` must be a whole number in \[3, 33\], got 2"),
        ({"ring": 3.5}, r"`ring` must be a whole number in \[3, 33\], got 3.5"),
        ({"ring": 4}, "`ring` must be odd, .* got 4"),
        ({"fit": True}, r"`fit` must be a whole number in \[0, 32\], got True"),
        ({"dimming": "no"}, "`dimming` must be true or false, got 'no'"),
        ({"status_bar": "8"}, r"`status_bar` must be a number"),
        ({"soft": 30.0, "sharp": 20.0}, "`sharp` must be at least `soft`, got 20.0 and 30.0"),
    ],
)
def test_a_constant_out_of_range_is_told(values, said):
    with pytest.raises(CropError, match=said):
        CropConfig(**values)


def test_what_is_no_picture_is_told():
    with pytest.raises(CropError, match=r"`after` must be \[H, W\] or \[H, W, 3\] of uint8 .* got float64"):
        action_grounded_crop(screen(), screen().astype(float))
    with pytest.raises(CropError, match="`before` must be"):
        action_grounded_crop(np.zeros((0, 4), np.uint8), None)
