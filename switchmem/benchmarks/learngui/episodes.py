"""LearnGUI's episodes as they are written down, before any picture is opened.

Offline, one file holds all of them, keyed by episode id: ``{instruction, app, domain, steps}``, and each step is
``{step_id, image_path, action, action_description}``. How the Online files look inside is not documented. These shapes
are read, in each file of the folder; what fits none is a fault:

- an object with ``steps``: one episode; its id is ``episode_id`` or ``id``, else the file's name;
- another object: episodes by id, as Offline;
- a list: episodes that name their ``episode_id`` or ``id``.

The instruction is ``instruction`` or ``goal``. An episode that says ``success: false`` is left out, since only
successful demonstrations may be remembered; one that says nothing about it counts as successful.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.learngui.fields import excerpt, first_text, id_of, load_json, require_object, texts_of
from switchmem.benchmarks.learngui.layout import GUIDE, Layout
from switchmem.steps import RecordError


@dataclass(frozen=True)
class Episode:
    """One episode; its steps are JSON values that are looked at when they are read.

    Args:
        id: of the episode.
        instruction: the task, not empty.
        app: the app, or "".
        steps: at least one.
        source: the file that it stands in.
    """

    id: str
    instruction: str
    app: str
    steps: tuple[object, ...]
    source: Path


class _Loader:
    """Episodes of one side, by id."""

    def __init__(self, layout: Layout, benchmark: str, report: DataReport) -> None:
        self.layout, self.benchmark, self.report = layout, benchmark, report
        self.episodes: dict[str, Episode] = {}

    def fault(self, where: str, reason: str) -> None:
        self.report.add(f"{self.benchmark}/{where}", reason)

    def load(self, path: Path) -> Any:
        """A file's value; ids that it has twice are faults.

        Raises:
            RecordError: if the file is no JSON.
        """
        name = self.layout.name(path)
        return load_json(path, lambda key: self.fault(f"{name}#{key}", "the key comes twice; the first is kept."))

    def keep(self, episode_id: str, value: object, path: Path, place: str) -> None:
        """Keep an episode, or count why it is not kept."""
        try:
            if not episode_id:
                raise RecordError("the episode must have an `episode_id`.")
            if episode_id in self.episodes:
                raise RecordError(f"the episode comes twice, again in {self.layout.name(path)}; the first is kept.")
            self.episodes[episode_id] = _episode(episode_id, value, path)
        except RecordError as error:
            self.fault(episode_id or place, str(error))


def _episode(episode_id: str, value: object, path: Path) -> Episode:
    fields = require_object(value, "the episode")
    instruction = first_text(fields, "instruction", "goal")
    if not instruction:
        raise RecordError("the episode must have an `instruction`.")
    steps = fields.get("steps")
    if not isinstance(steps, list) or not steps:
        raise RecordError(f"`steps` must be a list of at least one step, got {excerpt(steps)}.")
    if fields.get("success") in (False, 0, "false", "False"):
        raise RecordError("the episode did not succeed, so it is no demonstration.")
    return Episode(episode_id, instruction, ", ".join(texts_of(fields.get("app"))), tuple(steps), path)


def load_offline(layout: Layout, benchmark: str, report: DataReport) -> dict[str, Episode]:
    """Offline episodes by id.

    Raises:
        DataError: if the file is no object of episodes, or holds no usable one.
    """
    loader = _Loader(layout, benchmark, report)
    try:
        episodes = require_object(loader.load(layout.instructions), "the file of the Offline episodes")
    except RecordError as error:
        raise DataError(f"{layout.instructions} cannot be used: {error}\n{GUIDE}") from error
    for key, value in episodes.items():
        loader.keep(id_of(key), value, layout.instructions, f"{layout.name(layout.instructions)}#")
    return _require(loader, [layout.instructions])


def load_online(layout: Layout, benchmark: str, report: DataReport) -> dict[str, Episode]:
    """Online episodes by id.

    Raises:
        DataError: if no file holds a usable episode.
    """
    loader = _Loader(layout, benchmark, report)
    for path in layout.online:
        try:
            value = loader.load(path)
            for place, (episode_id, episode) in enumerate(_listed(value, path.stem)):
                loader.keep(episode_id, episode, path, f"{layout.name(path)}#{place}")
        except RecordError as error:
            loader.fault(layout.name(path), str(error))
    return _require(loader, layout.online)


def _listed(value: object, stem: str) -> Iterator[tuple[str, object]]:
    """``(id, episode)`` of everything in an Online file; "" where an id is missing."""
    if isinstance(value, dict) and "steps" in value:
        yield id_of(value.get("episode_id")) or id_of(value.get("id")) or stem, value
    elif isinstance(value, dict):
        yield from ((id_of(key), episode) for key, episode in value.items())
    elif isinstance(value, list):
        for episode in value:
            fields = episode if isinstance(episode, dict) else {}
            yield id_of(fields.get("episode_id")) or id_of(fields.get("id")), episode
    else:
        raise RecordError(f"the file must hold an episode, or episodes by id or in a list, got {excerpt(value)}.")


def _require(loader: _Loader, paths: tuple[Path, ...] | list[Path]) -> dict[str, Episode]:
    if not loader.episodes:
        first = "; ".join(map(str, loader.report.faults[:3]))
        where = f"{paths[0]}" + (f" and {len(paths) - 1} more files" if len(paths) > 1 else "")
        raise DataError(f"No usable episode in {where} ({first or 'it is empty'}).\n{GUIDE}")
    return loader.episodes
