"""Steps: validation at the border, the dict round trip, and element density on a grid of pixels."""

import io
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

PICTURE = Screenshot.from_image(Image.new("RGB", (4, 6), "red"))
POINT, END = (0.25, 0.5), (0.75, 1.0)

AT_POINT = {ActionType.TAP, ActionType.LONG_PRESS}
ALONG_PATH = {ActionType.SWIPE, ActionType.DRAG}
WITH_TEXT = {ActionType.TYPE, ActionType.OPEN}


def step(**fields):
    values = {
        "benchmark": "test",
        "episode_id": "e",
        "index": 0,
        "instruction": "Do it",
        "screenshot": PICTURE,
        "elements": (),
        "action": Action(ActionType.BACK),
    }
    return Step(**{**values, **fields})


@pytest.mark.parametrize("kind", ActionType)
@pytest.mark.parametrize("point", [None, POINT])
@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("text", [None, ""])
def test_an_action_takes_exactly_what_its_type_needs(kind, point, end, text):
    valid = (point is not None) == (kind in AT_POINT | ALONG_PATH) or kind is ActionType.TYPE
    valid &= (end is not None) == (kind in ALONG_PATH)
    valid &= text is not None or kind not in WITH_TEXT
    if valid:
        assert Action(kind, point, end, text).type.is_spatial == (kind in AT_POINT | ALONG_PATH)
    else:
        with pytest.raises(RecordError, match=f"action '{kind.value}'"):
            Action(kind, point, end, text)


@pytest.mark.parametrize(
    "point",
    [(1.01, 0.5), (0.5, -0.01), (math.nan, 0.5), (0.5,), (0.1, 0.2, 0.3), ("0.5", 0.5), [0.5, 0.5], 0.5, (540, 9)],
)
def test_a_point_outside_the_screen_says_what_to_do(point):
    with pytest.raises(RecordError, match=r"`point` must be \(x, y\) fractions .*Divide pixels"):
        Action(ActionType.TAP, point)
    with pytest.raises(RecordError, match="`end` must be"):
        Action(ActionType.SWIPE, POINT, point)


@pytest.mark.parametrize("point", [(0, 0), (1, 1), (0.0, 1.0)])
def test_the_screen_includes_its_edges(point):
    assert Action(ActionType.TAP, point).point == point


@pytest.mark.parametrize(
    "values, found",
    [
        ({}, "whose `type` is one of tap, long_press"),
        ({"type": "scroll"}, "'scroll'"),
        ({"type": ["tap"]}, "whose `type`"),
        ({"type": "tap", "point": 5}, "`point` must be"),
        ({"type": "tap", "point": "ab"}, "`point` must be"),
        ({"type": "tap"}, "needs a `point`"),
        ("tap", "must be an object"),
    ],
)
def test_an_action_from_a_bad_dict_is_a_record_error(values, found):
    with pytest.raises(RecordError, match=found):
        Action.from_dict(values)


@pytest.mark.parametrize(
    "box",
    [(0.5, 0, 0.4, 1), (0, 0.5, 1, 0.4), (-0.1, 0, 1, 1), (0, 0, 1, 1.1), (0, 0, math.nan, 1), (0, 0, 1), None, "abcd"],
)
def test_a_box_must_lie_on_the_screen(box):
    with pytest.raises(RecordError, match=r"`box` must be .*Clamp or drop"):
        UIElement(box)


@pytest.mark.parametrize("box", [(0, 0, math.nan, 1), (0, 0, 1, math.inf), (0, 0, 1), (0, 0, 1, "a"), [0, 0, 1, 1]])
def test_a_recorded_box_must_be_four_finite_numbers(box):
    with pytest.raises(RecordError, match=r"`recorded` must be .*Leave it out"):
        UIElement((0, 0, 1, 1), recorded=box)


def test_an_element_has_an_area_a_middle_and_a_label():
    element = UIElement((0.25, 0.5, 0.75, 1.0), description="Search")
    assert (element.area, element.center, element.label) == (0.25, (0.5, 0.75), "Search")
    assert UIElement((0, 0, 1, 1), text="Go", description="Search").label == "Go"
    assert element.contains((0.25, 1.0)) and not element.contains((0.24, 0.6))
    assert UIElement((0.5, 0.5, 0.5, 0.5)).area == 0.0


@pytest.mark.parametrize("values", [{}, {"box": 3}, {"box": [0, 0, 1]}, {"box": [0, 0, 1, 1], "colour": "red"}])
def test_an_element_from_a_bad_dict_is_a_record_error(values):
    with pytest.raises(RecordError):
        UIElement.from_dict(values)


@pytest.mark.parametrize(
    "fields, found",
    [
        ({"benchmark": ""}, "`benchmark` must be a name"),
        ({"benchmark": "a/b"}, "`benchmark` must be a name"),
        ({"episode_id": ""}, "`episode_id` must be"),
        ({"episode_id": 18446744073709551615}, "`episode_id` must be"),
        ({"index": -1}, "`index` must be"),
        ({"index": "0"}, "`index` must be"),
        ({"instruction": " \n"}, "`instruction` must not be empty"),
        ({"instruction": None}, "`instruction` must not be empty"),
    ],
)
def test_a_step_is_checked(fields, found):
    with pytest.raises(RecordError, match=found):
        step(**fields)


def test_ids_keep_any_episode_name():
    odd = step(episode_id="12.0-3.open a/b ", index=7)
    assert (odd.step_id, odd.trajectory) == ("test/12.0-3.open a/b /7", "test/12.0-3.open a/b ")


@pytest.mark.parametrize("name", ["benchmark", "episode_id", "index", "instruction", "elements", "action"])
def test_a_missing_field_is_named(name):
    values = step().to_dict()
    del values[name]
    with pytest.raises(RecordError, match=f"'{name}'"):
        Step.from_dict(values, PICTURE)


@pytest.mark.parametrize("values", [[], {**step().to_dict(), "elements": 5}, {**step().to_dict(), "elements": [5]}])
def test_a_step_from_a_bad_dict_is_a_record_error(values):
    with pytest.raises(RecordError):
        Step.from_dict(values, PICTURE)


unit = st.floats(0, 1)
words = st.text(max_size=12)
boxes = st.tuples(unit, unit, unit, unit).map(
    lambda v: (min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3]))
)
elements = st.builds(
    UIElement,
    boxes,
    words,
    words,
    words,
    words,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.tuples(*[st.floats(-2, 2)] * 4),
)


@st.composite
def actions(draw):
    kind = draw(st.sampled_from(ActionType))
    point = draw(st.tuples(unit, unit)) if kind in AT_POINT | ALONG_PATH else None
    end = draw(st.tuples(unit, unit)) if kind in ALONG_PATH else None
    return Action(kind, point, end, draw(words if kind in WITH_TEXT else st.none() | words), draw(words))


steps = st.builds(
    Step,
    benchmark=words.filter(lambda name: name and "/" not in name),
    episode_id=words.filter(bool),
    index=st.integers(0, 10**6),
    instruction=words.filter(str.strip),
    screenshot=st.just(PICTURE),
    elements=st.lists(elements, max_size=4).map(tuple),
    action=actions(),
    category=words,
    activity=words,
    caption=words,
)


@given(steps)
@settings(deadline=None)
def test_a_step_survives_json(original):
    text = json.dumps(original.to_dict())
    assert Step.from_dict(json.loads(text), PICTURE) == original


GRID = 12
cell = st.integers(0, GRID)


@given(st.lists(st.tuples(cell, cell, cell, cell, st.sampled_from(["", "a"]), st.sampled_from(["", "k"])), max_size=8))
@settings(deadline=None)
def test_density_counts_unique_elements_over_covered_pixels(rows):
    pixels = np.zeros((GRID, GRID), dtype=bool)
    unique, listed = set(), []
    for x0, y0, x1, y1, text, kind in rows:
        left, right, top, bottom = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
        pixels[top:bottom, left:right] = True
        unique.add((left, top, right, bottom, text, kind))
        listed.append(UIElement((left / GRID, top / GRID, right / GRID, bottom / GRID), text, kind))
    found = step(elements=tuple(listed)).density
    if pixels.any():
        assert found == pytest.approx(len(unique) / pixels.mean())
    else:
        assert math.isnan(found)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG"])
def test_a_screenshot_keeps_its_bytes_and_knows_its_size(kind):
    buffer = io.BytesIO()
    Image.new("RGB", (5, 9), "blue").save(buffer, kind)
    screenshot = Screenshot.from_bytes(buffer.getvalue())
    assert (screenshot.data, screenshot.width, screenshot.height) == (buffer.getvalue(), 5, 9)
    assert screenshot.image().mode == "RGB"


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_picture_from_an_image_is_lossless(data):
    height, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    pixels = np.frombuffer(data.draw(st.binary(min_size=3 * height * width, max_size=3 * height * width)), np.uint8)
    pixels = pixels.reshape(height, width, 3)
    assert np.array_equal(np.asarray(Screenshot.from_image(Image.fromarray(pixels)).image()), pixels)


def _encoded(kind):
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("data", [b"", b"hello", _encoded("PNG")[:-200], _encoded("JPEG")[:500], _encoded("GIF")])
def test_what_is_no_whole_picture_is_refused_with_its_first_bytes(data):
    with pytest.raises(RecordError, match=f"got {len(data)} bytes starting '{data[:8].hex(' ')}'"):
        Screenshot.from_bytes(data)


def test_the_bytes_stay_out_of_the_repr():
    assert "data" not in repr(PICTURE) and "width=4" in repr(PICTURE)
