"""AITW's TFRecord episodes to `Step`.

AITW writes points as (y, x) and boxes as (y, x, height, width), fractions of the screen. Both are turned
into the (x, y) convention of `Step` here, turned back for the score, and nowhere else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from switchmem.benchmarks.aitw.score import DUAL_POINT, GLOBAL_ACTIONS, NAME, TYPE, is_tap
from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.tfrecord import Feature, parse_example, read_records
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

CATEGORIES = ("general", "google_apps", "install", "single", "web_shopping")

_SHARD = re.compile(r".*-\d{5}-of-\d{5}")
_EDGE = 0.02  # a finger may leave the screen by this much; it is set back to the edge


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
    if number in GLOBAL_ACTIONS:
        return Action(GLOBAL_ACTIONS[number])
    if number == TYPE:
        return Action(ActionType.TYPE, text=_text(features, "results/type_action"))
    if number != DUAL_POINT:
        raise RecordError(f"`results/action_type` must be 3, 4, 5, 6, 7, 10 or 11, got {number}.")
    touch, lift = _point(features, "results/yx_touch"), _point(features, "results/yx_lift")
    if is_tap(np.asarray(touch, np.float32), np.asarray(lift, np.float32)):
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
