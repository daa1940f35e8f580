"""Pictures: how small they get, which go in, and that none is made for nothing."""

import io
import threading

import numpy as np
import pytest
from PIL import Image

from switchmem.report import embed, shrunk
from switchmem.report.pictures import SIDE, encoded_size
from switchmem.steps import Screenshot


def noisy(width, height, seed=0):
    rng = np.random.default_rng(seed)
    return Screenshot.from_image(Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)))


def opened(picture):
    image = Image.open(io.BytesIO(picture.data))
    image.load()
    assert image.format == "WEBP" and image.size == (picture.width, picture.height)
    return image.convert("RGB")


@pytest.mark.parametrize("size", [(1080, 2400), (2400, 1080), (641, 640), (720, 1280)])
def test_a_large_picture_is_made_small_and_keeps_its_shape(size):
    gradient = Image.linear_gradient("L").resize(size).convert("RGB")
    coloured = Image.merge(
        "RGB", (gradient.getchannel(0), Image.radial_gradient("L").resize(size), gradient.getchannel(1))
    )
    picture = shrunk(Screenshot.from_image(coloured))
    assert max(picture.width, picture.height) == SIDE
    assert picture.width / picture.height == pytest.approx(size[0] / size[1], rel=0.01)
    exact = np.asarray(coloured.resize((picture.width, picture.height), Image.Resampling.BOX), float)
    assert np.abs(np.asarray(opened(picture), float) - exact).mean() < 4


def test_a_drawn_screen_is_kept_as_it_is():
    image = Image.new("RGB", (128, 224), "navy")
    image.paste("white", (10, 10, 60, 20))
    assert opened(shrunk(Screenshot.from_image(image))).tobytes() == image.tobytes()


def test_a_small_photograph_keeps_its_size():
    picture = shrunk(noisy(300, 200))
    assert (picture.width, picture.height) == (300, 200)


def test_the_size_in_the_page_is_not_underestimated():
    picture = shrunk(noisy(60, 90))
    element = f'<script type="text/plain" id="picture-99999">{"x" * (-(-len(picture.data) // 3) * 4)}</script>'
    assert len(element) <= encoded_size(picture) <= len(element) + 12


class Shots:
    """Screenshots by id that count how often each is read."""

    def __init__(self, missing=()):
        self.read, self.missing, self._lock = [], set(missing), threading.Lock()

    def __call__(self, step_id):
        with self._lock:
            self.read.append(step_id)
        return None if step_id in self.missing else noisy(40, 60, seed=len(step_id) + int(step_id[1:]))


WANTED = [(f"s{k}", f"d{k % 7}") for k in range(200)]


def test_everything_goes_in_where_there_is_room_and_each_picture_is_made_once():
    shots, told = Shots(), []
    pictures, steps = embed(WANTED, shots, 1e9, lambda done, total: told.append((done, total)))
    assert steps == 200 and set(pictures) == {i for pair in WANTED for i in pair}
    assert sorted(shots.read) == sorted(pictures)
    assert told[-1] == (200, 200)


@pytest.mark.parametrize("limit", [0, 10_000, 200_000])
def test_the_first_steps_go_in_until_the_page_is_full(limit):
    pictures, steps = embed(WANTED, Shots(), limit)
    used = sum(map(encoded_size, pictures.values()))
    assert used <= limit
    assert set(pictures) == {i for pair in WANTED[:steps] for i in pair}
    assert steps < 200
    more = [i for i in WANTED[steps] if i not in pictures]
    shots = Shots()
    assert used + sum(encoded_size(shrunk(shots(i))) for i in more) > limit
    # the same, whatever order the threads finished in
    assert embed(WANTED, Shots(), limit) == (pictures, steps)


def test_a_step_whose_screen_is_lost_is_not_counted_and_stops_nothing():
    pictures, steps = embed(WANTED, Shots(missing={"s3", "d5"}), 1e9)
    assert "s3" not in pictures and "d5" not in pictures and "s5" in pictures
    assert steps == sum("s3" not in pair and "d5" not in pair for pair in WANTED)


def test_no_step_wanted_makes_no_picture():
    assert embed([], Shots(), 1e9) == ({}, 0)
