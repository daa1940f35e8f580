"""LearnGUI's few-shot tasks: which demonstrations go with which query.

``task_split.json`` lists ``{app, split, k_shot, query, support}``, where ``query`` is ``{episode_id, goal, ...}`` and
``support`` a list of ``{episode: {episode_id}, similarity, ...}``.
The same query comes once for each ``k_shot`` of 1, 2 and 3; a support list may be longer than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.learngui.fields import excerpt, first_text, id_of, load_json, require_object
from switchmem.benchmarks.learngui.layout import GUIDE, Layout
from switchmem.steps import RecordError

TEST = "test"


@dataclass(frozen=True)
class Task:
    """A query and its demonstrations.

    Args:
        query: id of the episode that is asked.
        support: ids of the demonstrated episodes, the most similar first; never the query itself.
        app: of the task, or "".
    """

    query: str
    support: tuple[str, ...]
    app: str = ""


def _task(entry: dict[str, object]) -> tuple[Task, bool]:
    """The task, and whether its query was among its own support."""
    query = require_object(entry.get("query"), "`query`")
    query_id = id_of(query.get("episode_id"))
    if not query_id:
        raise RecordError(f"`query` must have an `episode_id`, got {excerpt(query)}.")
    listed = entry.get("support")
    if not isinstance(listed, list):
        raise RecordError(f"`support` must be a list, got {excerpt(listed)}.")
    support = []
    for item in listed:
        episode = require_object(require_object(item, "an item of `support`").get("episode"), "a support's `episode`")
        support.append(id_of(episode.get("episode_id")))
        if not support[-1]:
            raise RecordError(f"a support's `episode` must have an `episode_id`, got {excerpt(episode)}.")
    others = tuple(dict.fromkeys(name for name in support if name != query_id))
    app = first_text(entry, "app") or first_text(query, "detected_app")
    return Task(query_id, others, app), query_id in support


def _entries(layout: Layout) -> list[object]:
    repeated: list[str] = []
    try:
        entries = load_json(layout.split, repeated.append)
    except RecordError as error:
        raise DataError(f"{layout.split} cannot be used: {error}\n{GUIDE}") from error
    if not isinstance(entries, list):
        raise DataError(f"{layout.split} must hold a list of tasks, got {excerpt(entries)}.\n{GUIDE}")
    return entries


def load_tests(
    layout: Layout, k_shot: int, episodes: Collection[str], benchmark: str, report: DataReport
) -> dict[str, Task]:
    """The test tasks of one ``k_shot`` by query, each with at most that many demonstrations.

    As the authors do, demonstrations that are not among the episodes are passed over before the list is cut.

    Args:
        layout: where the files are.
        k_shot: 1, 2 or 3.
        episodes: ids of the usable Offline episodes.
        benchmark: the name in front of the ids in `report`.
        report: gets entries that cannot be used, and queries without a usable demonstration, by id.

    Raises:
        DataError: if the file is no list, or holds no usable test task of that ``k_shot``.
    """
    tasks: dict[str, Task] = {}
    seen: Counter[str] = Counter()
    for number, entry in enumerate(_entries(layout)):
        place = f"{benchmark}/{layout.name(layout.split)}#{number}"
        try:
            fields = require_object(entry, "a task")
            shots = id_of(fields.get("k_shot"))
            seen[f"{excerpt(fields.get('split'))} with k_shot {shots or excerpt(fields.get('k_shot'))}"] += 1
            if fields.get("split") != TEST or shots != str(k_shot):
                continue
            task, asks_itself = _task(fields)
            place = f"{benchmark}/{task.query}"
            if asks_itself:
                report.note("tasks_that_list_their_query_as_support")
            if task.query in tasks:
                raise RecordError(f"the query comes twice with k_shot {k_shot}; the first is kept.")
            if task.query not in episodes:
                raise RecordError(f"the query must be one of the episodes in {layout.instructions.name}, got none.")
        except RecordError as error:
            report.add(place, str(error))
            continue
        tasks[task.query] = _cut(task, k_shot, episodes, benchmark, report)
    if not tasks:
        found = ", ".join(f"{count} of {what}" for what, count in sorted(seen.items())) or "none"
        raise DataError(f"{layout.split} must hold usable tasks of split 'test' with k_shot {k_shot}, got {found}.")
    return tasks


def _cut(task: Task, k_shot: int, episodes: Collection[str], benchmark: str, report: DataReport) -> Task:
    known = tuple(name for name in task.support if name in episodes)
    report.note("supports_without_an_episode", len(task.support) - len(known))
    if not known:
        listed = ", ".join(task.support) or "none"
        report.add(f"{benchmark}/{task.query}", f"the query has no usable demonstration; listed: {listed[:120]}.")
    report.note("tasks_with_fewer_demonstrations_than_k_shot", int(len(known) < k_shot))
    return Task(task.query, known[:k_shot], task.app)
