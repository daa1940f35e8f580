"""Android in the Wild (AITW): TFRecord episodes to `Step`, and the official action-matching score.

AITW writes points as (y, x) and boxes as (y, x, height, width), fractions of the screen. Both are turned
into the (x, y) convention of `Step` here and turned back for the score, and nowhere else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.tfrecord import Feature, parse_example, read_records
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

NAME = "aitw"
CATEGORIES = ("general", "google_apps", "install", "single", "web_shopping")

TYPE, DUAL_POINT, NO_MATCH = 3, 4, 0  # 0 is not used by the data, so it matches nothing
_GLOBAL_ACTIONS = {
    5: ActionType.BACK,
    6: ActionType.HOME,
    7: ActionType.ENTER,
    10: ActionType.COMPLETE,
    11: ActionType.IMPOSSIBLE,
}
_IDS = {kind: number for number, kind in _GLOBAL_ACTIONS.items()} | {
    ActionType.TYPE: TYPE,
    ActionType.TAP: DUAL_POINT,
    ActionType.LONG_PRESS: DUAL_POINT,  # AITW records a long press as a touch and lift at one place
    ActionType.SWIPE: DUAL_POINT,
    ActionType.DRAG: DUAL_POINT,
}

TAP_DISTANCE = 0.14  # two taps this near match; fraction of the screen on each axis
SWIPE_DISTANCE = 0.04  # a longer way from touch to lift is a swipe
BOX_GROWTH = 1.4  # annotated boxes grow by this share of their height and width

_SHARD = re.compile(r".*-\d{5}-of-\d{5}")
_EDGE = 0.02  # a finger may leave the screen by this much; it is set back to the edge


def _is_tap(touch: NDArray[np.float32], lift: NDArray[np.float32]) -> bool:
    return bool(np.linalg.norm(touch - lift) <= np.float32(SWIPE_DISTANCE))


def _in_boxes(point: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
    top, left, height, width = boxes.T
    y, x = point
    return (y >= top) & (y <= top + height) & (x >= left) & (x <= left + width)


def _grow(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Enlarge (y, x, h, w) boxes around their middle. Clamping at 0 does not shorten a box: official behaviour."""
    growth = np.float32(BOX_GROWTH) * boxes[:, 2:]
    return np.concatenate([np.maximum(0, boxes[:, :2] - growth / 2), np.minimum(1, boxes[:, 2:] + growth)], axis=1)


def actions_match(
    touch_1: ArrayLike,
    lift_1: ArrayLike,
    type_1: int,
    touch_2: ArrayLike,
    lift_2: ArrayLike,
    type_2: int,
    boxes: ArrayLike,
) -> bool:
    """Whether two actions count as the same, by AITW's official rule.

    Actions other than DUAL_POINT match when their types are equal; typed text is not compared. Two taps match
    when they are within 0.14 or in one enlarged box; two swipes when their main axes agree, whatever the
    sign; a tap never matches a swipe. Computed in float32, as the official code is; where a distance equals a
    threshold to the last bit, that code's own answer depends on the machine's fused arithmetic.

    Args:
        touch_1: where the first finger touches, (y, x) in [0, 1]; points are looked at for DUAL_POINT only.
        lift_1: where it lifts, (y, x) in [0, 1].
        type_1: AITW's id of the first action's type.
        touch_2: as `touch_1`, of the second action.
        lift_2: as `lift_1`, of the second action.
        type_2: as `type_1`, of the second action.
        boxes: (y, x, height, width) of the screen's annotations, shape [n, 4]; n may be 0.

    Example:
        >>> tap = [0.5, 0.5]
        >>> actions_match(tap, tap, 4, [0.6, 0.5], [0.6, 0.5], 4, [])
        True
    """
    if type_1 != DUAL_POINT or type_2 != DUAL_POINT:
        return type_1 == type_2
    touch_1, lift_1, touch_2, lift_2 = (np.asarray(p, np.float32) for p in (touch_1, lift_1, touch_2, lift_2))
    taps = _is_tap(touch_1, lift_1), _is_tap(touch_2, lift_2)
    if taps[0] != taps[1]:
        return False
    if taps[0]:
        grown = _grow(np.asarray(boxes, np.float32).reshape(-1, 4))
        in_one_box = bool(np.any(_in_boxes(touch_1, grown) & _in_boxes(touch_2, grown)))
        return in_one_box or bool(np.linalg.norm(touch_1 - touch_2) <= np.float32(TAP_DISTANCE))
    axes = np.argmax(np.abs(lift_1 - touch_1)), np.argmax(np.abs(lift_2 - touch_2))
    return bool(axes[0] == axes[1])


def _official(action: Action) -> tuple[list[float], list[float], int]:
    """(touch yx, lift yx, type id) of an action; (-1, -1) without a point, as the data has it."""
    if action.point is None:
        return [-1.0, -1.0], [-1.0, -1.0], _IDS.get(action.type, NO_MATCH)
    x, y = action.point
    end_x, end_y = action.end or action.point
    return [y, x], [end_y, end_x], _IDS[action.type]


class AitwBenchmark:
    """AITW's name and score: 1.0 where the official action matching accepts the action, else 0.0."""

    name = NAME

    def score(self, action: Action | None, gold: Step) -> float:
        """Score one predicted action; see `actions_match`.

        A long press counts as a tap. Opening an app and waiting do not exist in AITW and match nothing.
        """
        if action is None:
            return 0.0
        boxes = [(e.box[1], e.box[0], e.box[3] - e.box[1], e.box[2] - e.box[0]) for e in gold.elements]
        return float(actions_match(*_official(action), *_official(gold.action), boxes))


def _missing(key: str) -> RecordError:
    return RecordError(f"`{key}` is missing or of another kind. Use the records of the official release.")


def _texts(features: Mapping[str, Feature], key: str) -> list[str]:
    values = features.get(key, [])  # an empty list is often not stored at all
    if not isinstance(values, list):
        raise _missing(key)
    return [value.decode("utf-8", "replace") for value in values]


def _numbers(features: Mapping[str, Feature], key: str, count: int) -> NDArray[np.float64]:
    values = features.get(key, np.empty(0))
    if isinstance(values, list) or len(values) != count:
        raise RecordError(
            f"`{key}` must hold {count} numbers, got {len(values)}. Use the records of the official release."
        )
    return np.asarray(values, np.float64)


def _text(features: Mapping[str, Feature], key: str) -> str:
    values = _texts(features, key)
    if not values:
        raise _missing(key)
    return values[0]


def _int(features: Mapping[str, Feature], key: str) -> int:
    values = features.get(key)
    if values is None or isinstance(values, list) or values.dtype != np.int64 or len(values) != 1:
        raise _missing(key)
    return int(values[0])


def _point(features: Mapping[str, Feature], key: str) -> tuple[float, float]:
    """(x, y) of a (y, x) feature; a finger just over the edge is set back onto it."""
    y, x = _numbers(features, key, 2).tolist()
    if not (-_EDGE <= x <= 1 + _EDGE and -_EDGE <= y <= 1 + _EDGE):
        raise RecordError(f"`{key}` must be (y, x) in [0, 1], got ({y}, {x}).")
    return min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0)


def _action(features: Mapping[str, Feature]) -> Action:
    number = _int(features, "results/action_type")
    if number in _GLOBAL_ACTIONS:
        return Action(_GLOBAL_ACTIONS[number])
    if number == TYPE:
        return Action(ActionType.TYPE, text=_text(features, "results/type_action"))
    if number != DUAL_POINT:
        raise RecordError(f"`results/action_type` must be 3, 4, 5, 6, 7, 10 or 11, got {number}.")
    touch, lift = _point(features, "results/yx_touch"), _point(features, "results/yx_lift")
    if _is_tap(np.asarray(touch, np.float32), np.asarray(lift, np.float32)):
        return Action(ActionType.TAP, point=touch)  # the official score looks only at a tap's touch
    return Action(ActionType.SWIPE, point=touch, end=lift)


def _screenshot(features: Mapping[str, Feature]) -> Screenshot:
    height, width, channels = (_int(features, f"image/{side}") for side in ("height", "width", "channels"))
    pixels = features.get("image/encoded")
    if not isinstance(pixels, list) or not pixels:
        raise _missing("image/encoded")
    if channels != 3 or min(height, width) < 1 or len(pixels[0]) != height * width * channels:
        raise RecordError(
            "`image/encoded` must hold height x width x 3 raw bytes (no PNG, whatever the name says), "
            f"got {len(pixels[0])} bytes for {height} x {width} x {channels}."
        )
    return Screenshot.from_image(Image.fromarray(np.frombuffer(pixels[0], np.uint8).reshape(height, width, channels)))


def _elements(features: Mapping[str, Feature], report: DataReport) -> tuple[UIElement, ...]:
    types = _texts(features, "image/ui_annotations_ui_types")
    texts = _texts(features, "image/ui_annotations_text")
    if len(texts) != len(types):
        raise RecordError(
            f"`image/ui_annotations_text` must hold one text per type, got {len(texts)} for {len(types)}."
        )
    boxes = _numbers(features, "image/ui_annotations_positions", 4 * len(types)).reshape(-1, 4)
    elements = []
    for (y, x, height, width), text, kind in zip(boxes, texts, types, strict=True):
        if not (height >= 0 and width >= 0):
            report.note("elements_dropped")
            continue
        left, top, right, bottom = np.clip([x, y, x + width, y + height], 0.0, 1.0).tolist()
        elements.append(UIElement((left, top, right, bottom), text, kind))
    return tuple(elements)


def _category(path: Path) -> str:
    """The official set a shard belongs to, by its file name or its folder's."""
    for name in (path.name.split("-", 1)[0], path.parent.name):
        if name in CATEGORIES:
            return name
    raise DataError(
        f"The AITW set of {path} cannot be told: neither the file's name nor its folder begins with one of "
        f"{', '.join(CATEGORIES)}. Keep the official names, such as general/general-00000-of-00321."
    )


def find_shards(paths: Iterable[Path]) -> list[Path]:
    """TFRecord files of the given files and folders, folders searched to any depth, sorted by path.

    Raises:
        DataError: if a path does not exist or a folder holds no shard.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"No AITW data at {path.absolute()}. Give TFRecord shards or folders of them.")
        if path.is_file():
            found.append(path)
            continue
        shards = sorted(file for file in path.rglob("*-of-*") if _SHARD.fullmatch(file.name) and file.is_file())
        if not shards:
            raise DataError(
                f"No AITW shard in {path.absolute()}. Looked at any depth for files such as "
                "general/general-00000-of-00321."
            )
        found.extend(shards)
    return found


def _step(features: Mapping[str, Feature], category: str, report: DataReport) -> Step:
    activity = _texts(features, "current_activity")
    return Step(
        benchmark=NAME,
        episode_id=_text(features, "episode_id"),
        index=_int(features, "step_id"),
        instruction=_text(features, "goal_info"),
        screenshot=_screenshot(features),
        elements=_elements(features, report),
        action=_action(features),
        category=category,
        activity=activity[0] if activity else "",
    )


def _name(features: Mapping[str, Feature], record: str) -> str:
    """The step's id where the record tells it, else the record's place."""
    try:
        return f"{NAME}/{_text(features, 'episode_id')}/{_int(features, 'step_id')}"
    except RecordError:
        return record


def _read_shard(path: Path, category: str, report: DataReport, lengths: dict[str, int]) -> Iterator[Step]:

    def damaged(number: int, reason: str) -> None:
        report.read += 1
        report.add(f"{NAME}/{path.name}#record-{number}", reason)

    for number, payload in read_records(path, damaged):
        report.read += 1
        features: dict[str, Feature] = {}
        try:
            features = parse_example(payload)
            step = _step(features, category, report)
        except RecordError as error:
            report.add(_name(features, f"{NAME}/{path.name}#record-{number}"), str(error))
            continue
        if "episode_length" in features:
            lengths[step.trajectory] = _int(features, "episode_length")
        yield step


def read_tfrecords(paths: Iterable[Path], report: DataReport) -> Iterator[Step]:
    """Steps of AITW's gzipped TFRecord shards, in the order of the files.

    The step's index is the record's own ``step_id``. What cannot be read is counted by id in `report` and the
    rest goes on; a step that comes twice is kept once. `report.notes` counts episodes and how many of them
    have fewer steps here than their ``episode_length`` says.

    Args:
        paths: shards, or folders that are searched for shards.
        report: filled while reading.

    Raises:
        DataError: if a path is missing, a folder has no shard, a shard's set cannot be told, or no record
            at all is usable.
    """
    shards = find_shards(paths)
    categories = [_category(path) for path in shards]  # all of them first: a bad name is not found after hours
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    lengths: dict[str, int] = {}
    for path, category in zip(shards, categories, strict=True):
        for step in _read_shard(path, category, report, lengths):
            if step.step_id in seen:
                report.add(step.step_id, f"the step comes twice, again in {path.name}; the first is kept.")
                continue
            seen.add(step.step_id)
            counts[step.trajectory] += 1
            report.kept += 1
            yield step
    require_steps(len(seen), report, shards[:3], "Check that the shards are whole and of the official release.")
    report.note("episodes", len(counts))
    report.note("episodes_incomplete", sum(counts[name] < length for name, length in lengths.items()))
