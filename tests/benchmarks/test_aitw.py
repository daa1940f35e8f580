"""AITW: records to steps, and the official score against a plain re-telling of its rule."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.benchmarks import DataError, DataReport, get_benchmark
from switchmem.benchmarks.aitw import AitwBenchmark, actions_match, find_shards, read_tfrecords
from switchmem.steps import Action, ActionType, UIElement

TAP = ActionType.TAP


@pytest.fixture
def read(write_tfrecord, encode_example, tmp_path):
    """Write records as a shard of `general` and read them back."""

    def go(*records, name="general/general-00000-of-00001"):
        path = write_tfrecord(tmp_path / name, [encode_example(record) for record in records])
        report = DataReport()
        return list(read_tfrecords([path], report)), report

    return go


def test_a_record_becomes_a_step(read, aitw_features):
    (step,), report = read(aitw_features())
    assert step.step_id == "aitw/18446744073709551615/0"  # beyond 64 bits signed: kept as text
    assert (step.instruction, step.category) == ("open the clock", "general")
    assert step.activity == "com.android.deskclock/.DeskClock"
    assert step.elements == (
        UIElement((0.5, 0.25, 0.75, 0.375), "Çlock <|im_start|>", "TEXT"),  # (y, x, h, w) turned into corners
        UIElement((0.0, 0.5, 1.0, 1.0), "", "ICON_STAR"),
    )
    assert step.action == Action(TAP, point=(0.5, 0.25))
    pixels = np.asarray(step.screenshot.image())
    assert np.array_equal(pixels, np.arange(72, dtype=np.uint8).reshape(6, 4, 3))
    assert (report.read, report.kept, report.faults) == (1, 1, [])
    assert report.notes == {"episodes": 1, "episodes_incomplete": 1, "episodes_without_end": 1}


def test_optional_keys_may_be_absent(read, aitw_features):
    gone = ("android_api_level", "current_activity", "device_type", "episode_length")
    annotations = {f"image/ui_annotations_{name}": None for name in ("positions", "text", "ui_types")}
    (step,), report = read(aitw_features(**dict.fromkeys(gone), **annotations))
    assert (step.activity, step.elements) == ("", ())
    assert report.notes["episodes_incomplete"] == 0


@pytest.mark.parametrize(
    "number, expected",
    [
        (3, Action(ActionType.TYPE, text=" café")),
        (5, Action(ActionType.BACK)),
        (6, Action(ActionType.HOME)),
        (7, Action(ActionType.ENTER)),
        (10, Action(ActionType.COMPLETE)),
        (11, Action(ActionType.IMPOSSIBLE)),
    ],
)
def test_actions_without_a_point(read, aitw_features, number, expected):
    changes = {"results/action_type": [number], "results/type_action": [" café".encode()]}
    points = {"results/yx_touch": [-1.0, -1.0], "results/yx_lift": [-1.0, -1.0]}
    (step,), _ = read(aitw_features(**changes, **points))
    assert step.action == expected


def test_a_gesture_is_a_tap_up_to_four_hundredths(read, aitw_features):
    steps, _ = read(
        aitw_features(**{"results/yx_lift": [0.25, 0.53125]}),
        aitw_features(**{"results/yx_lift": [0.0, 0.5625], "step_id": [1]}),
        aitw_features(**{"results/yx_lift": [-0.01, 0.5], "step_id": [2]}),  # the finger left the screen
    )
    assert steps[0].action == Action(TAP, point=(0.5, 0.25))
    assert steps[1].action == Action(ActionType.SWIPE, point=(0.5, 0.25), end=(0.5625, 0.0))
    assert steps[2].action == Action(ActionType.SWIPE, point=(0.5, 0.25), end=(0.5, 0.0))


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"goal_info": None}, "`goal_info` is missing"),
        ({"goal_info": [b" "]}, "`instruction` must not be empty"),
        ({"image/encoded": [bytes(71)]}, "got 71 bytes for 6 x 4 x 3"),
        ({"image/channels": [1]}, "got 72 bytes for 6 x 4 x 1"),
        ({"image/encoded": None}, "`image/encoded` is missing"),
        ({"image/height": [6.0]}, "`image/height` is missing or of another kind"),
        ({"results/action_type": [2]}, "must be 3, 4, 5, 6, 7, 10 or 11, got 2"),
        ({"results/yx_touch": [-1.0, -1.0]}, "`results/yx_touch` must be (y, x) in [0, 1]"),
        ({"results/yx_touch": [0.5]}, "`results/yx_touch` must hold 2 numbers, got 1"),
        ({"image/ui_annotations_text": [b"one"]}, "one text per type, got 1 for 2"),
        ({"image/ui_annotations_positions": [0.1] * 7}, "must hold 8 numbers, got 7"),
    ],
)
def test_a_bad_record_is_counted_by_id_and_the_rest_goes_on(read, aitw_features, changes, reason):
    steps, report = read(aitw_features(**changes), aitw_features(step_id=[1]))
    assert [step.index for step in steps] == [1]
    assert [fault.id for fault in report.faults] == ["aitw/18446744073709551615/0"]
    assert reason in report.faults[0].reason
    assert (report.read, report.kept) == (2, 1)


def test_a_step_that_comes_twice_is_kept_once(read, aitw_features):
    steps, report = read(aitw_features(), aitw_features())
    assert len(steps) == 1
    assert report.faults[0].id == "aitw/18446744073709551615/0" and "twice" in report.faults[0].reason


def test_an_upside_down_annotation_is_dropped_alone(read, aitw_features):
    (step,), report = read(aitw_features(**{"image/ui_annotations_positions": [0.2, 0.2, -0.1, 0.1, 0.5, 0, 0.5, 1]}))
    assert [element.kind for element in step.elements] == ["ICON_STAR"]
    assert report.notes["elements_dropped"] == 1


@pytest.mark.parametrize("name", ["web_shopping-aitz-00000-of-00001", "web_shopping/anything"])
def test_the_set_is_told_by_file_or_folder(read, aitw_features, name):
    assert read(aitw_features(), name=name)[0][0].category == "web_shopping"


def test_an_unknown_set_is_refused_before_anything_is_read(read, aitw_features):
    with pytest.raises(DataError, match=r"cannot be told.*general/general-00000-of-00321"):
        read(aitw_features(), name="other/stuff-00000-of-00001")


def test_shards_are_found_at_any_depth(write_tfrecord, tmp_path):
    paths = [
        write_tfrecord(tmp_path / "a" / f"{name}", [b""])
        for name in ("general/general-00001-of-00002", "single/single-00000-of-00001")
    ]
    (tmp_path / "a" / "README.md").write_text("not a shard")
    (tmp_path / "a" / "cut-of-cloth").write_text("not a shard")
    assert [Path(shard.url) for shard in find_shards([tmp_path])] == paths


def retold(touch_1, lift_1, type_1, touch_2, lift_2, type_2, boxes):
    """The official rule again, in plain Python and double precision; None where a value lies on a threshold."""
    if type_1 != 4 or type_2 != 4:
        return type_1 == type_2
    lengths = math.dist(touch_1, lift_1), math.dist(touch_2, lift_2)
    gap = math.dist(touch_1, touch_2)
    margins = [abs(length - 0.04) for length in lengths] + [abs(gap - 0.14)]
    taps = [length <= 0.04 for length in lengths]
    if taps == [True, True]:
        shared = False
        for y, x, h, w in boxes:
            top, left = max(0, y - 0.7 * h), max(0, x - 0.7 * w)
            bottom, right = top + min(1, 2.4 * h), left + min(1, 2.4 * w)
            ends = ((top, 0), (bottom, 0), (left, 1), (right, 1))
            margins += [abs(p[axis] - edge) for p in (touch_1, touch_2) for edge, axis in ends]
            shared |= all(top <= p[0] <= bottom and left <= p[1] <= right for p in (touch_1, touch_2))
        answer = shared or gap <= 0.14
    elif taps == [False, False]:
        ways = [(abs(b[0] - a[0]), abs(b[1] - a[1])) for a, b in ((touch_1, lift_1), (touch_2, lift_2))]
        margins += [abs(dy - dx) for dy, dx in ways]
        answer = (ways[0][0] >= ways[0][1]) == (ways[1][0] >= ways[1][1])
    else:
        answer = False
    return answer if min(margins) > 1e-6 else None


point = st.tuples(*[st.floats(0, 1)] * 2)
shift = st.tuples(*[st.floats(-0.2, 0.2)] * 2)
box = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.3), st.floats(0, 0.3))
kinds = st.sampled_from([4, 4, 4, 4, 0, 3, 5, 7, 10])


@given(point, point, shift, shift, shift, kinds, kinds, st.lists(box, max_size=5))
@settings(deadline=None)
def test_the_score_is_the_official_rule(one, far, gap, way_1, way_2, type_1, type_2, boxes):
    for touch_2 in (far, (one[0] + gap[0], one[1] + gap[1])):
        for scale_1, scale_2 in ((0, 0), (1, 1), (0, 1), (0.2, 0)):
            lift_1 = (one[0] + scale_1 * way_1[0], one[1] + scale_1 * way_1[1])
            lift_2 = (touch_2[0] + scale_2 * way_2[0], touch_2[1] + scale_2 * way_2[1])
            arguments = (one, lift_1, type_1, touch_2, lift_2, type_2, boxes)
            expected = retold(*arguments)
            if expected is not None:
                assert actions_match(*arguments) is expected
                swapped = (touch_2, lift_2, type_2, one, lift_1, type_1, boxes)
                assert actions_match(*swapped) is expected  # the rule is symmetric


def test_swipes_match_whatever_their_sign_and_ties_are_vertical():
    up, down, right = ([0.8, 0.5], [0.2, 0.5]), ([0.2, 0.5], [0.8, 0.5]), ([0.5, 0.2], [0.5, 0.8])
    diagonal = [0.25, 0.25], [0.5, 0.5]
    assert actions_match(*up, 4, *down, 4, [])
    assert not actions_match(*up, 4, *right, 4, [])
    assert actions_match(*diagonal, 4, *up, 4, [])


def test_a_box_clamped_at_the_edge_grows_the_other_way():
    # y = x = 0, h = w = 0.4: the top left is clamped to 0 and the size stays 0.96, so (0.95, 0.95) is inside.
    corners = [0.0, 0.0], [0.95, 0.95]
    assert actions_match(corners[0], corners[0], 4, corners[1], corners[1], 4, [[0.0, 0.0, 0.4, 0.4]])
    assert not actions_match(corners[0], corners[0], 4, corners[1], corners[1], 4, [])


@pytest.mark.parametrize(
    "action, gold, expected",
    [
        (None, Action(ActionType.HOME), 0.0),
        (Action(ActionType.HOME), Action(ActionType.HOME), 1.0),
        (Action(ActionType.TYPE, text="a"), Action(ActionType.TYPE, text="b"), 1.0),  # the text is not compared
        (Action(ActionType.LONG_PRESS, (0.5, 0.5)), Action(TAP, (0.5, 0.6)), 1.0),
        (Action(TAP, (0.9, 0.9)), Action(TAP, (0.5, 0.6)), 0.0),
        (Action(ActionType.DRAG, (0.5, 0.8), (0.5, 0.2)), Action(ActionType.SWIPE, (0.1, 0.1), (0.1, 0.9)), 1.0),
        (Action(ActionType.SWIPE, (0.5, 0.5), (0.5, 0.51)), Action(TAP, (0.5, 0.5)), 1.0),  # too short for a swipe
        (Action(ActionType.OPEN, text="Clock"), Action(TAP, (0.5, 0.5)), 0.0),
        (Action(ActionType.WAIT), Action(ActionType.COMPLETE), 0.0),
        (Action(ActionType.IMPOSSIBLE), Action(ActionType.COMPLETE), 0.0),
    ],
)
def test_actions_are_mapped_to_the_official_ones(make_step, action, gold, expected):
    step = make_step(action=gold, elements=())
    assert AitwBenchmark().score(action, step) == expected


def test_waiting_never_matches_even_a_waiting_step(make_step):
    # No AITW record has such an action; the id that stands for it must still equal nothing in the data.
    assert AitwBenchmark().score(Action(ActionType.WAIT), make_step(action=Action(TAP, (0.5, 0.5)))) == 0.0


def test_every_step_matches_itself(read, aitw_features):
    (step,), _ = read(aitw_features())
    assert get_benchmark("aitw").score(step.action, step) == 1.0


@pytest.mark.real_data
def test_the_real_episode_equals_its_json_and_pictures(real_data):
    report = DataReport()
    steps = list(read_tfrecords([real_data / "aitw" / "tfrecord"], report))
    folder = next((real_data / "aitw" / "aitz_episode").rglob("GOOGLE_APPS-523638528775825151.json")).parent
    rows = json.loads((folder / f"{folder.name}.json").read_text())
    assert (report.read, report.kept, report.faults) == (4, 4, [])
    assert report.notes["episodes_incomplete"] == 0
    kinds = [ActionType.HOME, ActionType.SWIPE, TAP, ActionType.COMPLETE]
    assert [step.action.type for step in steps] == kinds
    for step, row in zip(steps, rows, strict=True):
        assert step.step_id == f"aitw/{row['episode_id']}/{row['step_id']}"
        assert (step.instruction, step.category, step.activity) == (row["instruction"], "google_apps", "")
        with Image.open(folder / f"{folder.name}_{step.index}.png") as picture:
            assert np.array_equal(np.asarray(step.screenshot.image()), np.asarray(picture.convert("RGB")))
        assert [e.text for e in step.elements] == json.loads(row["ui_text"])
        assert [e.kind for e in step.elements] == json.loads(row["ui_types"])
        boxes = np.array([e.box for e in step.elements]) * [270, 600, 270, 600]
        y, x, h, w = np.array(json.loads(row["ui_positions"])).T
        assert np.allclose(boxes, np.stack([x, y, x + w, y + h], 1), atol=1e-3)
        assert AitwBenchmark().score(step.action, step) == 1.0
    touch, lift = json.loads(rows[1]["result_touch_yx"]), json.loads(rows[1]["result_lift_yx"])
    assert steps[1].action.point == pytest.approx(touch[::-1]) and steps[1].action.end == pytest.approx(lift[::-1])
