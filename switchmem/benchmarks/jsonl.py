"""Your own recordings: a folder with ``*.jsonl`` and pictures, to `Step`.

Each line is one step, a JSON object in UTF-8:

| field | what | needed |
|---|---|---|
| episode | the trajectory's name, a text or an integer; unique over the folder | yes |
| step | its place in the trajectory, an integer from 0 | yes |
| instruction | the task given to the agent | yes |
| screenshot | path of a PNG, WebP or JPEG, below the folder of the file that names it | yes |
| action | what was done, by the table of `switchmem.benchmarks.recorded_actions` | yes |
| units | "fractions" of the screen in [0, 1], the default, or "pixels"; of the action and of `elements` | |
| screen | [width, height] in pixels that coordinates refer to, where it is not the picture's own size | |
| elements | the screen's elements: objects with `box` [left, top, right, bottom] and any of `text`, `kind`, | |
| | `description`, `resource_id`, `clickable`, `editable`, `checked`, `scrollable` | |
| xml | instead of `elements`: path of a UIAutomator dump, whose bounds are pixels of `screen` | |
| app | the app's name | |
| activity | the foreground activity or package; that of the dump where it is not given | |
| caption | a sentence that describes the page | |
| extra | anything of your own; it is not read | |

Coordinates are x right and y down from the top left. Nothing is guessed: pixels without ``"units": "pixels"``, and
fractions with it, are refused. A misspelt field is refused too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.general_score import step_score
from switchmem.benchmarks.recorded_actions import Frame, check_shape, read_action
from switchmem.benchmarks.uiautomator import foreground_package, parse_hierarchy, ui_elements
from switchmem.benchmarks.untrusted import (
    decode_object,
    numbered_lines,
    optional_text,
    read_below,
    refuse_unknown,
    shorten,
)
from switchmem.steps import Action, RecordError, Screenshot, Step, UIElement

NAME = "recorded"
FIELDS = (
    "episode", "step", "instruction", "screenshot", "action", "units", "screen", "elements", "xml", "app", "activity",
    "caption", "extra",
)  # fmt: skip
ELEMENT_TEXTS = ("text", "kind", "description", "resource_id")
ELEMENT_FLAGS = ("clickable", "editable", "checked", "scrollable")
MAX_NUMBER = 2**31 - 1

_LAYOUT = (
    "It must hold .jsonl files of one step per line, such as "
    '{"episode": "a", "step": 0, "instruction": "Turn on wifi", "screenshot": "a0.png", "action": {"type": "back"}}.'
)
_OF_FRACTIONS = 'Where these are pixels, say so on the line: "units": "pixels".'
_OF_PIXELS = (
    "Where they refer to a larger screen than the picture, give its size on the line: "
    '"screen": [width, height]. A box may leave the screen, a point may not.'
)


class RecordedBenchmark:
    """Name and score of recordings of your own: switchmem's step score (`step_score`)."""

    name = NAME

    def score(self, action: Action | None, gold: Step) -> float:
        """1.0 or 0.0; see `step_score`."""
        return step_score(action, gold)


def _is_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_NUMBER


def _identity(values: Mapping[str, Any]) -> tuple[str, int]:
    """Episode and step number.

    Raises:
        RecordError: if one of them is missing or of another kind.
    """
    episode, number = values.get("episode"), values.get("step")
    if isinstance(episode, int) and not isinstance(episode, bool):
        episode = str(episode)
    if not isinstance(episode, str) or not episode:
        raise RecordError(f"`episode` must be a text or an integer, got {shorten(episode)}.")
    if not _is_integer(number, 0):
        raise RecordError(f"`step` must be an integer from 0 to {MAX_NUMBER}, got {shorten(number)}.")
    return episode, int(number)  # type: ignore[arg-type]  # `_is_integer` has looked


def _screen(values: Mapping[str, Any], screenshot: Screenshot) -> tuple[int, int]:
    """``(width, height)`` in pixels of what coordinates refer to."""
    size = values.get("screen")
    if size is None:
        return screenshot.width, screenshot.height
    if not isinstance(size, list) or len(size) != 2 or not all(_is_integer(v, 1) for v in size):
        raise RecordError(f"`screen` must be [width, height] in whole pixels, got {shorten(size)}.")
    check_shape((size[0], size[1]), screenshot)
    return size[0], size[1]


def _frame(values: Mapping[str, Any], screen: tuple[int, int]) -> Frame:
    units = values.get("units")
    if units not in (None, "fractions", "pixels"):
        raise RecordError(f'`units` must be "fractions" or "pixels", got {shorten(units)}.')
    return Frame(screen, _OF_PIXELS) if units == "pixels" else Frame(None, _OF_FRACTIONS)


def _element(values: object, frame: Frame, field: str) -> UIElement | None:
    """An element; None where nothing of its box is on the screen."""
    if not isinstance(values, Mapping):
        raise RecordError(f"`{field}` must be an object with a `box`, got {shorten(values)}.")
    refuse_unknown(values, ("box", *ELEMENT_TEXTS, *ELEMENT_FLAGS), f"`{field}`")
    box = frame.box(values.get("box"), f"{field}.box")
    texts = {name: optional_text(values, name, f"{field}.") or "" for name in ELEMENT_TEXTS}
    flags = {name: values.get(name) or False for name in ELEMENT_FLAGS}
    odd = next((name for name, flag in flags.items() if not isinstance(flag, bool)), None)
    if odd:
        raise RecordError(f"`{field}.{odd}` must be true or false, got {shorten(flags[odd])}.")
    return None if box is None else UIElement.from_dict({"box": box, **texts, **flags})


def _listed(listed: object, frame: Frame) -> tuple[tuple[UIElement, ...], int]:
    """Elements of the line itself, and how many of them are not on the screen."""
    if listed is None:
        return (), 0
    if not isinstance(listed, list):
        raise RecordError(f"`elements` must be a list of objects, got {shorten(listed)}.")
    elements = [_element(values, frame, f"elements[{number}]") for number, values in enumerate(listed)]
    kept = tuple(element for element in elements if element is not None)
    return kept, len(elements) - len(kept)


def read_step(values: Mapping[str, Any], folder: Path, report: DataReport) -> Step:
    """The step of one line.

    Args:
        values: the line's object.
        folder: that its paths start from, and may not leave.
        report: `elements_dropped` counts elements of which nothing is on the screen.

    Raises:
        RecordError: if a rule of the module's table is broken.
    """
    refuse_unknown(values, FIELDS, "the line")
    episode, number = _identity(values)
    screenshot = Screenshot.from_bytes(read_below(folder, values.get("screenshot"), "screenshot"))
    screen = _screen(values, screenshot)
    frame = _frame(values, screen)
    activity = optional_text(values, "activity")
    if values.get("xml") is None:
        elements, dropped = _listed(values.get("elements"), frame)
    elif values.get("elements") is None:
        nodes = parse_hierarchy(read_below(folder, values["xml"], "xml"))
        elements, dropped = ui_elements(nodes, *screen)
        activity = foreground_package(nodes) if activity is None else activity
    else:
        raise RecordError("a line must have either `elements` or `xml`, got both. Leave one out.")
    step = Step(
        benchmark=NAME,
        episode_id=episode,
        index=number,
        instruction=optional_text(values, "instruction") or "",
        screenshot=screenshot,
        elements=elements,
        action=read_action(values.get("action"), frame),
        category=optional_text(values, "app") or "",
        activity=activity or "",
        caption=optional_text(values, "caption") or "",
    )
    report.note("elements_dropped", dropped)
    return step


class _Reader:
    def __init__(self, root: Path, report: DataReport) -> None:
        self.root, self.report = root, report
        self.places: dict[str, str] = {}  # by id of a usable step, where it was first

    def _line(self, file: Path, number: int, line: bytes) -> Step | None:
        """The step of one line, or None after counting why there is none."""
        self.report.read += 1
        name = str(file.relative_to(self.root)) if file != self.root else file.name
        place = f"{name}#line-{number}"
        known = f"{NAME}/{place}"
        try:
            values = decode_object(line)
            step_id = "{}/{}/{}".format(NAME, *_identity(values))
            if step_id in self.places:
                known = step_id
                raise RecordError(
                    f"the step comes twice: at {place}, and first at {self.places[step_id]}, which counts."
                )
            known = step_id
            step = read_step(values, file.parent, self.report)
            self.places[step_id] = place  # a copy that cannot be used does not stand in the way of one that can
        except RecordError as error:
            self.report.add(known, str(error))
            return None
        self.report.kept += 1
        return step

    def steps(self, file: Path) -> Iterator[Step]:
        """Steps of one file."""
        name = file.relative_to(self.root) if file != self.root else file.name
        if not file.is_file():
            self.report.read += 1
            self.report.add(f"{NAME}/{name}", "it must be a regular file, got a folder, a pipe or a link to nothing.")
            return
        try:
            for number, line in numbered_lines(file):
                step = self._line(file, number, line)
                if step is not None:
                    yield step
        except OSError as error:
            self.report.add(f"{NAME}/{name}", f"the file cannot be read: {error.strerror}.")


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    files = sorted(root.rglob("*.jsonl")) if root.is_dir() else []
    if not files:
        raise DataError(f"No .jsonl file in {root.absolute()}. {_LAYOUT}")
    return files


def read_jsonl(root: Path, report: DataReport) -> Iterator[Step]:
    """Steps of a folder by the module's table, file by file in the order of their names and line by line.

    What cannot be read is counted in `report` by the step's id, or by file and line where the line does not tell it,
    and the rest goes on. Blank lines are passed over.

    Args:
        root: a folder with ``*.jsonl`` at any depth, or one such file.
        report: filled while reading.

    Raises:
        DataError: if `root` is missing, holds no such file, or none of its lines is usable.
    """
    root = Path(root)
    reader, kept = _Reader(root, report), 0
    for file in _files(root):
        for step in reader.steps(file):
            kept += 1
            yield step
    require_steps(kept, report, [root.absolute()], _LAYOUT)
