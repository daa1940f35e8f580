"""LearnGUI's episodes to `Step`, one picture in memory at a time.

A step's index is its place in the episode's list, from 0. The release numbers steps by ``step_id``, which may be absent
(its loader then counts from 1) and is only checked here: where numbers do not rise, the report counts the episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from switchmem.benchmarks.base import DataReport
from switchmem.benchmarks.learngui.annotations import LISTS, load_annotation, read_annotation
from switchmem.benchmarks.learngui.episodes import Episode
from switchmem.benchmarks.learngui.fields import excerpt, first_text, require_object, text_of
from switchmem.benchmarks.learngui.layout import Layout, below, files_below, is_file
from switchmem.benchmarks.learngui.score import CorrectedLearnGuiBenchmark, LearnGuiBenchmark
from switchmem.benchmarks.learngui.strings import is_read_officially, recorded_action
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

IMAGE_KEYS = ("image_path", "image", "screenshot")
"""Names under which a step's image path is read; Offline has the first, those of Online are not documented."""

_NEVER_MATCHED = (ActionType.LONG_PRESS, ActionType.IMPOSSIBLE)


class _Offline:
    """Where the pictures and annotations of Offline are."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def picture(self, name: str, episode: Episode) -> Path:
        """The file of an image path, which is bare, or below the pictures' folder.

        Raises:
            RecordError: if the path leads out of the folder, or there is no such file.
        """
        return _first_file([below(base, name) for base in self.layout.screens], name)

    def annotation(self, picture: Path) -> Path | None:
        """The annotation of a picture, by the name of its file."""
        return _annotation(picture, self.layout.elements)


class _Online:
    """Where the pictures and annotations of Online are; the release does not say, so several places are looked at."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def picture(self, name: str, episode: Episode) -> Path:
        """The file of an image path: below ``raw_data``, below the episode's folder in it, beside the episode's JSON.

        Where there is none, the only file of that name anywhere in ``raw_data`` is taken, or the only one of it below a
        folder that is named by the episode.

        Raises:
            RecordError: if the path leads out of the folder, or no or several files can be meant.
        """
        raw = self.layout.raw_data
        homes = [raw / episode.source.stem, raw, raw.parent, episode.source.parent]
        if "/" not in episode.id and episode.id not in (".", ".."):
            homes.insert(0, raw / episode.id)
        inner = [home / folder for home in homes[:2] for folder in ("screenshot", "screenshots", "images")]
        for path in [below(base, name) for base in (*homes, *inner)]:
            if is_file(path):
                return path
        named = self._by_name.get(Path(name).name, [])
        own = [path for path in named if episode.id in path.parts or episode.source.stem in path.parts]
        for found in (own, named):
            if len(found) > 1:
                raise RecordError(f"`image_path` {name[:120]!r} may be any of {len(found)} files of that name.")
            if found:
                return found[0]
        raise _no_file(name)

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for path in sorted(files_below(self.layout.raw_data)):
            found.setdefault(path.name, []).append(path)
        return found

    def annotation(self, picture: Path) -> Path | None:
        """The annotation of a picture: beside it, in a folder ``element_anno`` next to it, or with those of Offline."""
        parents = (picture.parent, picture.parent.parent, self.layout.raw_data.parent)
        folders = (picture.parent, *(parent / "element_anno" for parent in parents))
        return _annotation(picture, (*folders, *self.layout.elements))


def _no_file(name: str) -> RecordError:
    return RecordError(f"the picture {name[:120]!r} is not in the data's folders. Unpack or fetch it again.")


def _first_file(paths: Iterable[Path], name: str) -> Path:
    for path in paths:
        if is_file(path):
            return path
    raise _no_file(name)


def _annotation(picture: Path, folders: Iterable[Path]) -> Path | None:
    return next((path for folder in folders if is_file(path := folder / f"{picture.stem}.json")), None)


class StepReader:
    """Reads the steps of Offline or Online episodes.

    Args:
        layout: where the files are.
        online: whether the episodes are those of Online.
        corrected: whether the corrected score is used. Recorded actions that the official one cannot read, which under
            it count as wrong whatever is predicted, are left out as faults, unless it is.
    """

    def __init__(self, layout: Layout, online: bool, corrected: bool = False) -> None:
        self.corrected = corrected
        self.benchmark = (CorrectedLearnGuiBenchmark if corrected else LearnGuiBenchmark).name
        self._files: _Offline | _Online = _Online(layout) if online else _Offline(layout)

    def read(self, episodes: Iterable[Episode], report: DataReport) -> Iterator[Step]:
        """Steps of episodes, in their order; what cannot be read is counted by id and the rest goes on.

        Args:
            episodes: to read.
            report: filled while reading.
        """
        for episode in episodes:
            report.note("episodes_numbered_out_of_order", int(_out_of_order(episode.steps)))
            for index, values in enumerate(episode.steps):
                report.read += 1
                try:
                    step = self._step(episode, index, values, report)
                except RecordError as error:
                    report.add(f"{self.benchmark}/{episode.id}/{index}", str(error))
                    continue
                report.kept += 1
                yield step

    def _step(self, episode: Episode, index: int, values: object, report: DataReport) -> Step:
        fields = require_object(values, "the step")
        text = fields.get("action")
        if not isinstance(text, str) or not text.strip():
            raise RecordError(f"`action` must be a text, got {excerpt(text)}.")
        name = first_text(fields, *IMAGE_KEYS)
        if not name:
            raise RecordError(f"`image_path` must be a text, got {excerpt(fields.get('image_path'))}.")
        picture = self._files.picture(name, episode)
        shot = _screenshot(picture)
        action = self._action(text_of(text), shot, first_text(fields, "action_description"), report)
        elements, caption = self._elements(fields, picture, shot, f"{self.benchmark}/{episode.id}/{index}", report)
        return Step(
            benchmark=self.benchmark,
            episode_id=episode.id,
            index=index,
            instruction=episode.instruction,
            screenshot=shot,
            elements=elements,
            action=action,
            category=episode.app,
            caption=caption,
        )

    def _action(self, text: str, shot: Screenshot, description: str, report: DataReport) -> Action:
        action = recorded_action(text, shot.width, shot.height, description)
        if self.corrected:
            return action
        if not is_read_officially(text, action, shot.width, shot.height):
            raise RecordError(
                f"the official score cannot read {text[:80]!r} and counts the step as wrong whatever is predicted. "
                "The corrected score reads it."
            )
        report.note("steps_that_the_official_score_never_matches", int(action.type in _NEVER_MATCHED))
        return action

    def _elements(
        self, fields: dict[str, object], picture: Path, shot: Screenshot, step_id: str, report: DataReport
    ) -> tuple[tuple[UIElement, ...], str]:
        """Elements and caption, in the step itself or in a file; neither where there is none or it cannot be read."""
        try:
            if any(name in fields for name in LISTS):
                return read_annotation(fields, shot, report)
            path = self._files.annotation(picture)
            if path is not None:
                return load_annotation(path, shot, report)
            report.note("steps_without_an_element_annotation")
        except RecordError as error:
            report.add(step_id, f"the step is kept without elements: {error}")
        return (), ""


def _screenshot(path: Path) -> Screenshot:
    try:
        return Screenshot.from_bytes(path.read_bytes())
    except OSError as error:
        raise RecordError(f"the picture {path.name} cannot be read: {error.strerror}.") from error


def _out_of_order(steps: Iterable[object]) -> bool:
    """Whether the numbers that steps have do not rise."""
    numbers = [step.get("step_id") for step in steps if isinstance(step, dict)]
    given = [number for number in numbers if isinstance(number, int)]
    return any(later <= earlier for earlier, later in zip(given, given[1:], strict=False))
