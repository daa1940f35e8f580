"""AndroidControl-style episodes to `Step`.

AndroidControl is published as TFRecords with protobuf accessibility trees; this reads the JSON form that converters
make of them. An episode has a `goal`, N `actions` with N `step_instructions`, and N + 1 `screenshots` (paths below the
JSON file's folder), `accessibility_trees`, `screenshot_widths` and `screenshot_heights`: the last screen is what the
last action led to, and makes no step. A file holds one episode, a JSON list of them, or several one after another;
``.jsonl`` has one per line, which keeps memory small and a broken episode from hiding those behind it.

Conventions, converted here:

- clicks and boxes are pixels of the declared width and height;
- `scroll` names where the view goes: what is recorded with "swipe up to view the product" is ``{"direction": "down"}``.
  The finger moves the other way, over half the screen through the middle, as the recording does not tell where;
- the step's instruction becomes the action's description; it and the goal lose nothing but blanks at their ends.

Lists of episode ids by split (``splits.json``) are passed over: the data module holds out trajectories by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.general_score import step_score
from switchmem.benchmarks.recorded_actions import Frame, check_shape, read_action
from switchmem.benchmarks.untrusted import (
    decode_json,
    decode_object,
    decode_text,
    numbered_lines,
    optional_text,
    read_below,
    shorten,
)
from switchmem.steps import Action, RecordError, Screenshot, Step, UIElement

NAME = "android_control"
PER_ACTION = ("actions", "step_instructions")
PER_SCREEN = ("screenshots", "accessibility_trees", "screenshot_widths", "screenshot_heights")
SPLITS = {"train", "validation", "val", "test"}
MAX_PIXELS = 100_000

_LAYOUT = (
    "It must hold .json or .jsonl files of episodes: objects with episode_id, goal, "
    + ", ".join((*PER_ACTION, *PER_SCREEN))
    + "."
)
_WAY_OUT = "Check `screenshot_widths` and `screenshot_heights`."
_INTERACTIVE = ("is_clickable", "is_long_clickable", "is_scrollable", "is_checkable", "is_editable")
_GOAL_STATUS = {"successful": "complete", "complete": "complete", "infeasible": "impossible"}


class AndroidControlBenchmark:
    """Name of AndroidControl-style episodes, scored by switchmem's own `step_score`.

    That is not the step accuracy of AndroidControl's authors, and not comparable with published figures.
    """

    name = NAME

    def score(self, action: Action | None, gold: Step) -> float:
        """1.0 or 0.0; see `step_score`."""
        return step_score(action, gold)


def parse_action(values: object, size: tuple[int, int], description: str = "") -> Action:
    """One recorded action.

    Args:
        values: such as ``{"action_type": "click", "x": 540, "y": 390}``; fields of other types are ignored.
        size: ``(width, height)`` of the screen in pixels.
        description: the sentence that goes with it.

    Raises:
        RecordError: if the type is none that a phone agent has, or a field is missing or off the screen.
    """
    if not isinstance(values, Mapping):
        raise RecordError(f"an action must be an object with `action_type`, got {shorten(values)}.")
    kind, text = values.get("action_type"), None
    if kind == "status":
        status = values.get("goal_status")
        kind = _GOAL_STATUS.get(status) if isinstance(status, str) else None
        if kind is None:
            raise RecordError(f"`goal_status` must be one of {', '.join(_GOAL_STATUS)}, got {shorten(status)}.")
    elif kind == "open_app":
        text = values.get("app_name")
    elif kind == "input_text":
        text = values.get("text")
    fields = {"type": kind, "text": text, "description": description}
    if kind in ("click", "long_press"):
        fields["point"] = [values.get("x"), values.get("y")]
    elif kind in ("scroll", "swipe"):
        fields["direction"] = values.get("direction")
    return read_action(fields, Frame(size, _WAY_OUT))


def _is_worth_listing(node: Mapping[str, Any]) -> bool:
    named = any(node.get(name) for name in ("text", "content_description", "hint_text", "tooltip"))
    return node.get("is_visible") is not False and (named or any(node.get(flag) is True for flag in _INTERACTIVE))


def _element(node: Mapping[str, Any], frame: Frame) -> UIElement | None:
    bounds = node.get("bbox_pixels")
    bounds = bounds if isinstance(bounds, Mapping) else {}
    box = frame.box([bounds.get(edge) for edge in ("x_min", "y_min", "x_max", "y_max")], "bbox_pixels")
    names = ("text", "class_name", "content_description", "hint_text", "tooltip", "resource_id")
    text, kind, description, hint, tooltip, resource = (optional_text(node, name) or "" for name in names)
    if box is None:
        return None
    return UIElement(
        box=box,
        text=text,
        kind=kind.rpartition(".")[2],
        description=description or hint or tooltip,
        resource_id=resource,
        clickable=node.get("is_clickable") is True,
        editable=node.get("is_editable") is True or kind.endswith("EditText"),
        checked=node.get("is_checked") is True,
        scrollable=node.get("is_scrollable") is True,
    )


def tree_elements(tree: object, size: tuple[int, int]) -> tuple[tuple[UIElement, ...], int]:
    """Elements of a screen: visible nodes that have words or can be acted on, layout containers left out.

    Args:
        tree: the screen's flattened accessibility tree.
        size: ``(width, height)`` of the screen in pixels.

    Returns:
        The elements in the tree's order with their boxes cut to the screen, and how many were dropped because nothing
        of their box is on the screen (empty, inverted and outlying boxes).

    Raises:
        RecordError: if the tree is no list of nodes with `bbox_pixels`.
    """
    if not isinstance(tree, list) or not all(isinstance(node, Mapping) for node in tree):
        raise RecordError(f"an accessibility tree must be a list of nodes, got {shorten(tree)}.")
    frame = Frame(size, _WAY_OUT)
    listed = [_element(node, frame) for node in tree if _is_worth_listing(node)]
    elements = tuple(element for element in listed if element is not None)
    return elements, len(listed) - len(elements)


def _size(episode: Mapping[str, Any], number: int) -> tuple[int, int]:
    width, height = (episode[name][number] for name in ("screenshot_widths", "screenshot_heights"))
    for value in (width, height):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PIXELS:
            raise RecordError(f"a screen's width and height must be whole pixels, got {shorten([width, height])}.")
    return width, height


def _step(episode: Mapping[str, Any], name: str, number: int, folder: Path, report: DataReport) -> Step:
    size = _size(episode, number)
    described = episode["step_instructions"][number]
    description = optional_text({"step_instruction": described}, "step_instruction") or ""
    screenshot = Screenshot.from_bytes(read_below(folder, episode["screenshots"][number], "screenshots"))
    check_shape(size, screenshot)
    elements, dropped = tree_elements(episode["accessibility_trees"][number], size)
    step = Step(
        benchmark=NAME,
        episode_id=name,
        index=number,
        instruction=(optional_text(episode, "goal") or "").strip(),
        screenshot=screenshot,
        elements=elements,
        action=parse_action(episode["actions"][number], size, description.strip()),
    )
    report.note("elements_dropped", dropped)
    return step


def _check_episode(episode: object) -> tuple[str, int]:
    """Name and number of actions of an episode whose lists fit together."""
    if not isinstance(episode, Mapping):
        raise RecordError(f"an episode must be an object, got {shorten(episode)}.")
    missing = [name for name in ("episode_id", "goal", *PER_ACTION, *PER_SCREEN) if name not in episode]
    if missing:
        raise RecordError(f"an episode must have {', '.join(missing)}, got {shorten(sorted(episode))}. {_LAYOUT}")
    name = episode["episode_id"]
    if isinstance(name, bool) or not isinstance(name, (int, str)) or name == "":
        raise RecordError(f"`episode_id` must be an integer or a text, got {shorten(name)}.")
    return str(name), len(episode["actions"]) if isinstance(episode["actions"], list) else 0


def _check_lengths(episode: Mapping[str, Any], actions: int) -> None:
    for names, wanted in ((PER_ACTION, actions), (PER_SCREEN, actions + 1)):
        for name in names:
            found = episode[name]
            if not isinstance(found, list) or len(found) != wanted:
                told = len(found) if isinstance(found, list) else shorten(found)
                raise RecordError(
                    f"`{name}` must be a list of {wanted} for {actions} actions, got {told}. Which screen belongs to "
                    "which action is not known otherwise."
                )


class _Reader:
    def __init__(self, root: Path, report: DataReport) -> None:
        self.root, self.report = root, report
        self.seen: set[str] = set()

    def steps(self, file: Path) -> Iterator[Step]:
        """Steps of one file."""
        place = f"{NAME}/{file.relative_to(self.root) if file != self.root else file.name}"
        try:
            for name, episode in self._episodes(file, place):
                yield from self._episode(name, episode, file.parent)
        except OSError as error:
            self.report.add(place, f"the file cannot be read: {error.strerror}.")

    def _episodes(self, file: Path, place: str) -> Iterator[tuple[str, Any]]:
        """What should be episodes, each with its place."""
        if file.suffix == ".jsonl":
            for number, line in numbered_lines(file):
                name = f"{place}#line-{number}"
                try:
                    yield name, decode_object(line)
                except RecordError as error:
                    self._lose(name, error)
            return
        number = 0
        try:
            for value in _values(decode_text(file.read_bytes())):
                if _is_splits(value):
                    self.report.note("lists_of_splits")
                else:
                    yield f"{place}#episode-{number}", value
                number += 1
            if not number:
                raise RecordError("the file holds no episode.")
        except RecordError as error:
            self._lose(f"{place}#episode-{number}", f"{error} What follows in the file is lost.")

    def _lose(self, name: str, reason: object) -> None:
        self.report.read += 1
        self.report.add(name, str(reason))

    def _episode(self, name: str, episode: Any, folder: Path) -> Iterator[Step]:
        try:
            episode_id, actions = _check_episode(episode)
            name = f"{NAME}/{episode_id}"
            if name in self.seen:
                raise RecordError("the episode comes twice; the first counts.")
            self.seen.add(name)
            _check_lengths(episode, actions)
        except RecordError as error:
            self._lose(name, error)
            return
        self.report.note("episodes")
        for number in range(actions):
            self.report.read += 1
            try:
                step = _step(episode, episode_id, number, folder, self.report)
            except RecordError as error:
                self.report.add(f"{name}/{number}", str(error))
                continue
            self.report.kept += 1
            yield step


def _values(text: str) -> Iterator[Any]:
    """The JSON values of a text, one after another; a list's items in its stead, decoded one by one."""
    place = _skip_blanks(text, 0)
    inside = text.startswith("[", place)
    place = _skip_blanks(text, place + inside)
    while place < len(text):
        if inside and text[place] == "]":
            after = text[place + 1 : place + 81].strip()
            if after:
                raise RecordError(f"nothing must follow a JSON list, got {shorten(after)}.")
            return
        value, place = decode_json(text, place)
        yield value
        place = _skip_blanks(text, place)
        if inside and text.startswith(",", place):
            place = _skip_blanks(text, place + 1)
    if inside:
        raise RecordError("a JSON list must end with ']', got the end of the file.")


def _skip_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _is_splits(value: object) -> bool:
    """Whether it is an object of lists of episode ids by split."""
    if not isinstance(value, Mapping) or not value or not set(value) <= SPLITS:
        return False
    return all(isinstance(ids, list) for ids in value.values())


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    found = root.rglob("*.json*") if root.is_dir() else iter(())
    files = sorted(path for path in found if path.suffix in (".json", ".jsonl") and path.is_file())
    if not files:
        raise DataError(f"No .json or .jsonl file in {root.absolute()}. {_LAYOUT}")
    return files


def read_episodes(root: Path, report: DataReport) -> Iterator[Step]:
    """Steps of AndroidControl-style episodes, file by file in the order of their names.

    What cannot be read, a missing picture above all, is counted by id in `report` and the rest goes on. An episode
    whose lists do not fit together, or whose id came before, is left out as a whole.

    Args:
        root: a folder with ``.json`` or ``.jsonl`` files at any depth, or one such file.
        report: filled while reading; `episodes` counts those that were looked into.

    Raises:
        DataError: if `root` is missing, holds no such file, or none of its steps is usable.
    """
    root = Path(root)
    reader, kept = _Reader(root, report), 0
    for file in _files(root):
        for step in reader.steps(file):
            kept += 1
            yield step
    require_steps(kept, report, [root.absolute()], _LAYOUT)
