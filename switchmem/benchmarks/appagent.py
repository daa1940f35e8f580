"""AppAgent run folders to `Step`, and a score for them.

A run is a folder ``task_<app>_<time>`` with ``<folder>_<n>.png`` and ``<folder>_<n>.xml`` per round and one log,
``log_<app>_<folder>.txt``, of one JSON object per line. The agent's answer names an element by the number
that AppAgent drew on the screenshot; the number is resolved here by AppAgent's own selection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.uiautomator import Node, foreground_package, parse_hierarchy, ui_elements
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

NAME = "appagent"
TAP_DISTANCE = 0.14
MIN_DISTANCE = 30  # pixels between the centres of two numbered elements (AppAgent's MIN_DIST)

_LAYOUT = "A run is a folder with log_<app>_<folder>.txt, <folder>_<n>.png and <folder>_<n>.xml, n from 1."
_LABELS = re.compile(r"^[ \t]*(Observation|Thought|Intermediate Goal|Action|Function|Summary):[ \t]*", re.MULTILINE)
_TASK = re.compile(
    r"The task you need to complete is to (.*?)"
    r"(?:\. Your past actions|\s*Here are some possible action paths|\s*Now, given)",
    re.DOTALL,
)
_AT_ELEMENT = re.compile(r"(tap|long_press)\(\s*(\d+)\s*\)")
_SWIPE = re.compile(r"swipe\(\s*(\d+)\s*,\s*[\"'](up|down|left|right)[\"']\s*,\s*[\"'](short|medium|long)[\"']\s*\)")
_TEXT = re.compile(r"text\(\s*\"((?:[^\"\\]|\\.|\"(?!\s*\)))*)\"\s*\)", re.DOTALL)  # a quote ends it only before ")"
_DIRECTIONS = {"up": (0, -2), "down": (0, 2), "left": (-1, 0), "right": (1, 0)}  # twice as far up and down
_DISTANCES = {"short": 1, "medium": 2, "long": 3}
_STEP_NUMBER = re.compile(rb'^\s*\{"step":\s*(\d+)\s*,')


def _words_f1(first: str, second: str) -> float:
    """F1 of the two texts' sets of lower-case words; 1.0 when both are empty."""
    a, b = set(first.lower().split()), set(second.lower().split())
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else 1.0


def _direction(action: Action) -> tuple[int, int]:
    """Main axis (0 for x, 1 for y) and sign of a finger's path."""
    assert action.point is not None and action.end is not None  # `Action` guarantees both for a path
    dx, dy = action.end[0] - action.point[0], action.end[1] - action.point[1]
    return (0, 1 if dx > 0 else -1) if abs(dx) > abs(dy) else (1, 1 if dy > 0 else -1)


def _gold_element(gold: Step, point: tuple[float, float]) -> UIElement | None:
    """The element that a recorded tap went to: AppAgent taps its middle, rounded down to whole pixels."""
    margin_x, margin_y = 1 / gold.screenshot.width, 1 / gold.screenshot.height
    centred = [
        element
        for element in gold.elements
        if abs(element.center[0] - point[0]) <= margin_x and abs(element.center[1] - point[1]) <= margin_y
    ]
    return min(centred, key=lambda element: (not element.clickable, element.area), default=None)


class AppAgentBenchmark:
    """Score of AppAgent runs. AppAgent defines none offline; this one is switchmem's own, in the spirit of AITW's.

    The types must be equal. Then a tap or a long press is right inside the recorded element's box or within 0.14
    of the recorded point (fractions of the screen); a swipe or drag when the main direction agrees, sign
    included; a typed text when the F1 of its set of words is at least 0.5; anything else by its type.
    """

    name = NAME

    def score(self, action: Action | None, gold: Step) -> float:
        """1.0 or 0.0 by the rule of the class."""
        if action is None or action.type is not gold.action.type:
            return 0.0
        if action.end is not None:
            return float(_direction(action) == _direction(gold.action))
        if action.point is not None and gold.action.point is not None:
            (x, y), (gold_x, gold_y) = action.point, gold.action.point
            element = _gold_element(gold, gold.action.point)
            near = (x - gold_x) ** 2 + (y - gold_y) ** 2 <= TAP_DISTANCE**2
            return float(near or (element is not None and element.contains(action.point)))
        if action.type in (ActionType.TYPE, ActionType.OPEN):
            return float(_words_f1(action.text or "", gold.action.text or "") >= 0.5)
        return 1.0


def _is_close(node: Node, others: Iterable[Node]) -> bool:
    x, y = node.center
    return any((x - other.center[0]) ** 2 + (y - other.center[1]) ** 2 <= MIN_DISTANCE**2 for other in others)


def numbered_elements(nodes: Sequence[Node]) -> list[Node]:
    """The elements that AppAgent numbers on a screen; its tag k is item k - 1.

    Clickable nodes come first, then focusable ones, each in document order. A node is passed over when its
    centre is within 30 pixels of one already taken from its own list, and a focusable one also when it is that
    close to a clickable one. Empty and inverted boxes take numbers too.
    """
    lists: dict[str, list[Node]] = {"clickable": [], "focusable": []}
    for flag, taken in lists.items():
        for node in nodes:
            if node.is_set(flag) and not _is_close(node, taken):
                taken.append(node)
    clickable, focusable = lists.values()
    return clickable + [node for node in focusable if not _is_close(node, clickable)]


def _target(number: int, nodes: Sequence[Node]) -> tuple[int, int]:
    """Centre in pixels of the element with that tag."""
    elements = numbered_elements(nodes)
    if not 1 <= number <= len(elements):
        raise RecordError(f"tag {number} must be one of the screen's {len(elements)} numbered elements.")
    return elements[number - 1].center


def parse_call(call: str, nodes: Sequence[Node], size: tuple[int, int], description: str = "") -> Action:
    """One of AppAgent's function calls as an action.

    Args:
        call: such as ``tap(5)``, ``text("Hello")``, ``swipe(21, "up", "medium")`` or ``FINISH``.
        nodes: the screen's hierarchy.
        size: ``(width, height)`` of the screen in pixels.
        description: the sentence that goes with it.

    Raises:
        RecordError: if it is no single call of AppAgent's, calls up the grid overlay, or its tag is not on the screen.
    """
    width, height = size
    call = call.strip().strip("`").strip()
    if match := _AT_ELEMENT.fullmatch(call):
        x, y = _target(int(match[2]), nodes)
        kind = ActionType.TAP if match[1] == "tap" else ActionType.LONG_PRESS
        return Action(kind, point=(x / width, y / height), description=description)
    if match := _TEXT.fullmatch(call):
        return Action(ActionType.TYPE, text=match[1].replace('\\"', '"'), description=description)
    if match := _SWIPE.fullmatch(call):
        x, y = _target(int(match[1]), nodes)
        across, down = _DIRECTIONS[match[2]]
        length = width // 10 * _DISTANCES[match[3]]
        end_x = min(max(x + across * length, 0), width)
        end_y = min(max(y + down * length, 0), height)
        if (end_x, end_y) == (x, y):
            raise RecordError(f"{call!r} starts at the edge it swipes to; it has no path on the screen.")
        return Action(
            ActionType.SWIPE, (x / width, y / height), (end_x / width, end_y / height), description=description
        )
    if "(" not in call and "FINISH" in call:
        return Action(ActionType.COMPLETE, description=description)
    if call.startswith("grid("):
        raise RecordError("grid() calls up AppAgent's overlay and is no action on the phone.")
    raise RecordError(f"the answer must be one call of tap, text, long_press, swipe or FINISH, got {call[:80]!r}.")


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a log."""

    number: int
    task: str
    image: str
    call: str
    description: str


def _answer(response: object) -> tuple[str, str]:
    """``(call, description)`` of an answer in either of AppAgent's layouts, as text or as an object."""
    if isinstance(response, Mapping):
        fields = {str(key): str(value).strip() for key, value in response.items()}
    else:
        parts = _LABELS.split(str(response))
        fields = {label: text.strip() for label, text in zip(parts[1::2], parts[2::2], strict=True)}
    if "Function" in fields:
        return fields["Function"], fields.get("Action", "")
    if "Action" in fields:
        return fields["Action"], fields.get("Thought", "")
    raise RecordError("the answer must have an `Action` or a `Function`, got " + repr(str(response)[:80]) + ".")


def _parse_row(line: bytes) -> _Row:
    try:
        row: dict[str, Any] = json.loads(line)
        number, prompt, image, response = int(row["step"]), str(row["prompt"]), str(row["image"]), row["response"]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"a log line must be one JSON object with step, prompt, image and response: {error}."
        ) from error
    task = _TASK.search(prompt)
    if task is None or not task[1].strip():
        raise RecordError(f"the prompt must say 'The task you need to complete is to ...', got {prompt[:60]!r}.")
    # The log names the drawn-on screenshot, which is often not kept; the plain one's name lacks the suffix.
    plain = re.sub(r"_(labeled|grid)(?=\.png$)", "", Path(image).name)
    return _Row(number, task[1].strip(), plain, *_answer(response))


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}.") from error


class _Run:
    """One run folder being read."""

    def __init__(self, folder: Path, report: DataReport) -> None:
        self.folder, self.report = folder, report
        self.seen: set[int] = set()
        self.grid = False
        self.finished = False
        self._last: tuple[object, ...] = ()

    def _step(self, row: _Row, app: str) -> Step:
        if self.grid:
            self.grid = row.call.startswith("grid(")
            raise RecordError("the answer was given on AppAgent's grid overlay, whose areas are no elements.")
        self.grid = row.call.startswith("grid(")
        screenshot = Screenshot.from_bytes(_read_file(self.folder / row.image))
        size = (screenshot.width, screenshot.height)
        dump = _read_file((self.folder / row.image).with_suffix(".xml"))
        nodes = parse_hierarchy(dump)
        elements, dropped = ui_elements(nodes, *size)
        action = parse_call(row.call, nodes, size, row.description)
        self.report.note("elements_dropped", dropped)
        self._note_repeat(dump, action)
        return Step(
            benchmark=NAME,
            episode_id=self.folder.name,
            index=row.number - 1,
            instruction=row.task,
            screenshot=screenshot,
            elements=elements,
            action=action,
            category=app,
            activity=foreground_package(nodes),
        )

    def _note_repeat(self, dump: bytes, action: Action) -> None:
        seen = (dump, action.type, action.point, action.text)
        self.report.note("steps_repeated_on_same_screen", int(seen == self._last))
        self._last = seen

    def _line(self, log: Path, number: int, line: bytes) -> Step | None:
        """The step of one log line, or None after counting why there is none."""
        self.report.read += 1
        known = _STEP_NUMBER.match(line)
        name = f"{NAME}/{self.folder.name}/" + (str(int(known[1]) - 1) if known else f"{log.name}#line-{number}")
        try:
            row = _parse_row(line)
            if row.number in self.seen:
                raise RecordError(f"step {row.number} comes twice in the log; the first is kept.")
            self.seen.add(row.number)
            step = self._step(row, _app(log, self.folder))
        except RecordError as error:
            self.report.add(name, str(error))
            return None
        self.report.kept += 1
        self.finished |= step.action.type is ActionType.COMPLETE
        return step

    def steps(self) -> Iterator[Step]:
        """Read all logs of the run."""
        self.report.note("runs")
        logs = sorted(self.folder.glob("log_*.txt"))
        if not logs:
            self.report.add(f"{NAME}/{self.folder.name}", f"the run has no log, so its actions are unknown. {_LAYOUT}")
        for log in logs:
            lines = log.read_bytes().split(b"\n")  # only "\n": texts may hold other line separators
            for number, line in enumerate(lines, 1):
                step = self._line(log, number, line) if line.strip() else None
                if step is not None:
                    yield step
        screens = re.compile(re.escape(self.folder.name) + r"_(\d+)\.png")
        numbers = {int(match[1]) for file in self.folder.iterdir() if (match := screens.fullmatch(file.name))}
        self.report.note("screens_without_action", len(numbers - self.seen))
        self.report.note("runs_finished", int(self.finished))


def _app(log: Path, folder: Path) -> str:
    """The app in ``log_<app>_<folder>.txt``; "" where the name is another."""
    name = log.stem.removeprefix("log_")
    return name.removesuffix(f"_{folder.name}") if name.endswith(f"_{folder.name}") else ""


def _belongs_to_run(file: Path) -> bool:
    is_screen = file.suffix == ".png" and file.name.startswith(f"{file.parent.name}_")
    return is_screen or (file.suffix == ".txt" and file.name.startswith("log_"))


def _run_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise DataError(f"No folder of AppAgent runs at {root.absolute()}. {_LAYOUT}")
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    runs = [path for path in folders if any(map(_belongs_to_run, path.iterdir()))]
    if not runs:
        raise DataError(f"No AppAgent run in {root.absolute()} or its folders. {_LAYOUT}")
    return runs


def read_runs(root: Path, report: DataReport) -> Iterator[Step]:
    """Steps of AppAgent runs, by folder name and then in the order of each log.

    A gold action is what the agent did, whether or not the run succeeded; `report.notes` counts the runs, those
    that ended with FINISH, screens after which nothing was logged, and actions repeated on an unchanged
    hierarchy. What cannot be read is counted by id in `report` and the rest goes on.

    Args:
        root: a folder of run folders, or one run folder.
        report: filled while reading.

    Raises:
        DataError: if `root` is missing, holds no run, or none of its steps is usable.
    """
    root = Path(root)
    kept = 0
    for folder in _run_folders(root):
        for step in _Run(folder, report).steps():
            kept += 1
            yield step
    require_steps(kept, report, [root.absolute()], _LAYOUT)
