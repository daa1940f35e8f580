"""PNG files against Pillow, which must see exactly the same pixels."""

import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.benchmarks.png import encode_png
from switchmem.steps import Screenshot


def decoded(data):
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        image.load()
        return np.asarray(image)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32), st.sampled_from([2, 256]))
@example(1, 1, 0, 256)
@example(1, 40, 0, 256)
@example(40, 1, 0, 256)
@settings(deadline=None)
def test_pillow_decodes_the_same_pixels(height, width, seed, values):
    pixels = np.random.default_rng(seed).integers(0, values, (height, width, 3), dtype=np.uint8)
    data = encode_png(pixels)
    assert np.array_equal(decoded(data), pixels)
    assert encode_png(pixels.copy()) == data


@pytest.mark.parametrize("flip", [np.flipud, np.fliplr, lambda a: a.transpose(1, 0, 2)])
def test_arrays_that_are_views_are_encoded_as_they_look(flip):
    pixels = flip(np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8))
    assert np.array_equal(decoded(encode_png(pixels)), pixels)


def test_a_screen_gets_small_and_passes_the_check_of_screenshots():
    pixels = np.full((1080, 540, 3), 240, np.uint8)
    pixels[100:140, 20:400] = (10, 20, 200)
    shot = Screenshot.from_bytes(encode_png(pixels))
    assert (shot.width, shot.height) == (540, 1080)
    assert len(shot.data) < pixels.size / 100


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((2, 2, 4), np.uint8),
        np.zeros((2, 2), np.uint8),
        np.zeros((2, 2, 3), np.float32),
        np.zeros((0, 2, 3), np.uint8),
        np.zeros((2, 0, 3), np.uint8),
    ],
)
def test_anything_else_is_refused(pixels):
    with pytest.raises(ValueError, match=r"uint8 of shape \[height, width, 3\]"):
        encode_png(pixels)
