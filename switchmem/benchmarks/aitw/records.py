"""AITW's TFRecord episodes to `Step`.

One record is one step, with every key of the official release; ``android_api_level``, ``current_activity``,
``device_type``, ``episode_length`` and the annotations may be absent. Pictures are raw pixels, whatever the key's name
says, and become PNG files.

AITW writes points as (y, x) and boxes as (y, x, height, width), fractions of the screen. Both are turned
into the (x, y) convention of `Step` here, turned back for the score, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import cast

import numpy as np
from numpy.typing import NDArray

from switchmem.benchmarks.aitw.score import DUAL_POINT, GLOBAL_ACTIONS, NAME, TYPE, is_tap
from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.png import encode_png
from switchmem.benchmarks.sources import SourceFile, find_files, open_source
from switchmem.benchmarks.survey import EpisodeLog, Seen
from switchmem.benchmarks.tfrecord import Feature, parse_example, read_records
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

CATEGORIES = ("general", "google_apps", "install", "single", "web_shopping")

_SHARD = re.compile(r"(?:.*/)?[^/]*-\d{5}-of-\d{5}(?:\.tfrecord)?(?:\.gz)?")
_ENDS = frozenset({ActionType.COMPLETE, ActionType.IMPOSSIBLE})
_PICTURE = "image/encoded"
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


def _episode(features: Mapping[str, Feature]) -> str:
    """The episode's id; bytes that are no text would make two episodes one."""
    values = features.get("episode_id")
    if not isinstance(values, list) or not values:
        raise _missing("episode_id")
    try:
        return values[0].decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"`episode_id` must be UTF-8, got {values[0][:40]!r}.") from error


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
    if is_tap(np.asarray(touch[::-1], np.float32), np.asarray(lift[::-1], np.float32)):
        return Action(ActionType.TAP, point=touch)  # the official score looks only at a tap's touch
    return Action(ActionType.SWIPE, point=touch, end=lift)


def _pixels(features: Mapping[str, Feature]) -> NDArray[np.uint8]:
    """The screenshot, [height, width, 3]."""
    height, width, channels = (_int(features, f"image/{side}") for side in ("height", "width", "channels"))
    pixels = features.get(_PICTURE)
    if isinstance(pixels, list) and pixels:
        pixels = np.frombuffer(pixels[0], np.uint8)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise _missing(_PICTURE)
    if channels != 3 or min(height, width) < 1 or len(pixels) != height * width * channels:
        raise RecordError(
            f"`{_PICTURE}` must hold height x width x 3 raw bytes (no PNG, whatever the name says), "
            f"got {len(pixels)} bytes for {height} x {width} x {channels}."
        )
    return cast(NDArray[np.uint8], pixels).reshape(height, width, channels)


@dataclass(frozen=True, slots=True)
class _Annotations:
    """What is marked on a screen, n elements.

    Args:
        boxes: (left, top, right, bottom) in [0, 1], [n, 4].
        recorded: by number of an element whose box leaves the screen, the box before it was cut.
        texts, kinds: of each.
        dropped: how many more had no place on the screen.
    """

    boxes: NDArray[np.float64]
    recorded: dict[int, tuple[float, float, float, float]]
    texts: list[str]
    kinds: list[str]
    dropped: int

    def elements(self) -> tuple[UIElement, ...]:
        rows = zip(self.boxes.tolist(), self.texts, self.kinds, strict=True)
        elements = [UIElement((box[0], box[1], box[2], box[3]), text, kind) for box, text, kind in rows]
        for number, box in self.recorded.items():
            elements[number] = replace(elements[number], recorded=box)
        return tuple(elements)


def _annotations(features: Mapping[str, Feature]) -> _Annotations:
    """The annotations, those without a place (a negative size, or not a number) left out."""
    kinds = _texts(features, "image/ui_annotations_ui_types")
    texts = _texts(features, "image/ui_annotations_text")
    if len(texts) != len(kinds):
        raise RecordError(
            f"`image/ui_annotations_text` must hold one text per type, got {len(texts)} for {len(kinds)}."
        )
    y, x, height, width = _numbers(features, "image/ui_annotations_positions", 4 * len(kinds)).reshape(-1, 4).T
    with np.errstate(invalid="ignore"):  # infinities of both signs
        corners = np.stack([x, y, x + width, y + height], axis=1)
        placed = np.isfinite(corners).all(axis=1) & (height >= 0) & (width >= 0)
    if not placed.all():
        kept = np.flatnonzero(placed).tolist()
        corners, texts, kinds = corners[kept], [texts[i] for i in kept], [kinds[i] for i in kept]
    boxes = corners.clip(0.0, 1.0)
    leaving = np.flatnonzero((boxes != corners).any(axis=1)).tolist()
    recorded = {number: tuple(corners[number].tolist()) for number in leaving}
    return _Annotations(boxes, recorded, texts, kinds, len(placed) - len(kinds))


@dataclass(frozen=True, slots=True)
class _Record:
    """A record that keeps every rule.

    Args:
        step: the step without its picture's bytes and without its elements, which cost the most time.
        pixels: of the picture, [height, width, 3].
        annotations: what the elements are made of.
        length: steps of the whole episode, 0 where it is not told.
    """

    step: Step
    pixels: NDArray[np.uint8]
    annotations: _Annotations
    length: int

    @property
    def seen(self) -> Seen:
        step = self.step
        return Seen(step.trajectory, step.category, step.index, self.length, step.action.type in _ENDS)

    def whole(self) -> Step:
        """The step with its elements and its picture, as lossless PNG."""
        screenshot = replace(self.step.screenshot, data=encode_png(self.pixels))
        return replace(self.step, screenshot=screenshot, elements=self.annotations.elements())


def _record(features: Mapping[str, Feature], category: str) -> _Record:
    """Check everything that a step needs.

    Raises:
        RecordError: if a key is missing or breaks a rule.
    """
    activity = _texts(features, "current_activity")
    pixels = _pixels(features)
    step = Step(
        benchmark=NAME,
        episode_id=_episode(features),
        index=_int(features, "step_id"),
        instruction=_text(features, "goal_info"),
        screenshot=Screenshot(b"", pixels.shape[1], pixels.shape[0]),
        elements=(),
        action=_action(features),
        category=category,
        activity=activity[0] if activity else "",
    )
    length = _int(features, "episode_length") if "episode_length" in features else 0
    return _Record(step, pixels, _annotations(features), length)


def _name(features: Mapping[str, Feature], record: str) -> str:
    """The step's id where the record tells it, else the record's place."""
    try:
        return f"{NAME}/{_episode(features)}/{_int(features, 'step_id')}"
    except RecordError:
        return record


def category_of(source: SourceFile) -> str:
    """The official set a shard belongs to, by its file name or its folder's."""
    path = PurePosixPath(source.url.partition("::")[0])
    for name in (path.name.split("-", 1)[0], path.parent.name):
        if name in CATEGORIES:
            return name
    raise DataError(
        f"The AITW set of {source.url} cannot be told: neither the file's name nor its folder begins with one of "
        f"{', '.join(CATEGORIES)}. Keep the official names, such as general/general-00000-of-00321."
    )


def find_shards(paths: Iterable[str | Path]) -> list[SourceFile]:
    """TFRecord files of the given files and folders, folders searched to any depth, sorted by name.

    Args:
        paths: local paths or fsspec URLs.

    Raises:
        DataError: if a path does not exist, a folder holds no shard, or a shard's set cannot be told.
    """
    found = []
    for path in paths:
        try:
            found += find_files(path, is_shard)
        except DataError as error:
            raise DataError(
                f"No AITW data: {error} Shards are files such as general/general-00000-of-00321."
            ) from error
    for source in found:
        category_of(source)  # a bad name is not found after hours
    return found


def is_shard(name: str) -> bool:
    """Whether a file's name is that of a shard.

    >>> is_shard("general/general-00000-of-00321"), is_shard("general/README.md")
    (True, False)
    """
    return _SHARD.fullmatch(name) is not None


class AitwReader:
    """Reads AITW's shards, gzipped or not. The step's index is the record's own ``step_id``."""

    def survey(self, source: SourceFile, report: DataReport) -> Iterator[Seen]:
        """Every usable step of a shard, checked as fully as `read` checks it."""
        for record in self._records(source, report):
            if record.annotations.dropped:
                report.note("elements_dropped", record.annotations.dropped)
            yield record.seen

    def read(self, source: SourceFile, wanted: Container[str], report: DataReport) -> Iterator[Step]:
        """The wanted steps of a shard."""
        for record in self._records(source, report):
            if record.step.step_id in wanted:
                yield record.whole()

    def _records(self, source: SourceFile, report: DataReport) -> Iterator[_Record]:
        category = category_of(source)
        place = f"{NAME}/{PurePosixPath(source.name).name}#record-"

        def damaged(number: int, reason: str) -> None:
            report.read += 1
            report.add(f"{place}{number}", reason)

        before = report.read
        with open_source(source) as file:
            for number, payload in read_records(file, damaged):
                report.read += 1
                features: dict[str, Feature] = {}
                try:
                    features = parse_example(payload, _PICTURE)
                    yield _record(features, category)
                except RecordError as error:
                    report.add(_name(features, f"{place}{number}"), str(error))
        if report.read == before:
            damaged(0, "the file holds no record. Fetch it again.")


def read_tfrecords(paths: Iterable[str | Path], report: DataReport) -> Iterator[Step]:
    """Steps of AITW's shards, in the order of the files, read one after another in this process.

    What cannot be read is counted by id in `report` and the rest goes on; a step that comes twice is kept once.
    `report.notes` counts episodes, and those that are incomplete (fewer steps here than their ``episode_length``), out
    of order, not numbered through from 0, spread over several files, or without an end.

    Args:
        paths: shards, or folders that are searched for shards; local or fsspec URLs.
        report: filled while reading.

    Raises:
        DataError: if a path is missing, a folder has no shard, a shard's set cannot be told, or no record
            at all is usable.
    """
    shards = find_shards(paths)
    log, reader = EpisodeLog(report), AitwReader()
    kept = report.kept
    for number, source in enumerate(shards):
        for record in reader._records(source, report):
            if log.add(record.seen, number, source.name):
                if record.annotations.dropped:
                    report.note("elements_dropped", record.annotations.dropped)
                yield record.whole()
    names = [source.url for source in shards[:3]]
    require_steps(report.kept - kept, report, names, "Check that the shards are whole and of the official release.")
    log.note()
