"""AppAgent run folders to `Step`.

A run is a folder ``task_<app>_<time>`` with ``<folder>_<n>.png`` and ``<folder>_<n>.xml`` per round and one log,
``log_<app>_<folder>.txt``, of one JSON object per line. The agent's answer names an element by the number
that AppAgent drew on the screenshot; the number is resolved here by AppAgent's own selection.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from switchmem.benchmarks.base import DataError, DataReport, require_steps
from switchmem.benchmarks.general_score import step_score
from switchmem.benchmarks.uiautomator import Node, foreground_package, parse_hierarchy, ui_elements
from switchmem.benchmarks.untrusted import decode_object, numbered_lines, read_below
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step

NAME = "appagent"
MIN_DISTANCE = 30  # pixels between the centres of two numbered elements (AppAgent's MIN_DIST)

_LAYOUT = "A run is a folder with log_<app>_<folder>.txt, <folder>_<n>.png and <folder>_<n>.xml, n from 1."
_LABELS = re.compile(r"^[ \t]*(Observation|Thought|Intermediate Goal|Action|Function|Summary):[ \t]*", re.MULTILINE)
_TASK_BEGINS = "The task you need to complete is to "
_TASK_ENDS = re.compile(r"\. Your past actions|Here are some possible action paths|Now, given")
_AT_ELEMENT = re.compile(r"(tap|long_press)\(\s*(\d{1,9})\s*\)")
_SWIPE = re.compile(
    r"swipe\(\s*(\d{1,9})\s*,\s*[\"'](up|down|left|right)[\"']\s*,\s*[\"'](short|medium|long)[\"']\s*\)"
)
_TEXT = re.compile(r"text\(\s*\"((?:[^\"\\]|\\.|\"(?!\s*\)))*)\"\s*\)", re.DOTALL)  # a quote ends it only before ")"
_DIRECTIONS = {"up": (0, -2), "down": (0, 2), "left": (-1, 0), "right": (1, 0)}  # twice as far up and down
_DISTANCES = {"short": 1, "medium": 2, "long": 3}
_STEP_NUMBER = re.compile(rb'^\s*\{"step":\s*(\d{1,9})\s*,')


class AppAgentBenchmark:
    """Name and score of AppAgent runs. AppAgent defines no score offline; this is switchmem's own (`step_score`)."""

    name = NAME

    def score(self, action: Action | None, gold: Step) -> float:
        """1.0 or 0.0; see `step_score`."""
        return step_score(action, gold)


class _Taken:
    """Places that are taken, looked up by squares of `MIN_DISTANCE` pixels, as a hostile dump can have many nodes."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._squares: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        x, y = node.center
        self._squares.setdefault((x // MIN_DISTANCE, y // MIN_DISTANCE), []).append(node.center)

    def is_close(self, node: Node) -> bool:
        x, y = node.center
        column, row = x // MIN_DISTANCE, y // MIN_DISTANCE
        return any(
            (x - other_x) ** 2 + (y - other_y) ** 2 <= MIN_DISTANCE**2
            for square in itertools.product(range(column - 1, column + 2), range(row - 1, row + 2))
            for other_x, other_y in self._squares.get(square, ())
        )


def numbered_elements(nodes: Sequence[Node]) -> list[Node]:
    """The elements that AppAgent numbers on a screen; its tag k is item k - 1.

    Clickable nodes come first, then focusable ones, each in document order. A node is passed over when its
    centre is within 30 pixels of one already taken from its own list, and a focusable one also when it is that
    close to a clickable one. Empty and inverted boxes take numbers too.
    """
    lists: dict[str, list[Node]] = {"clickable": [], "focusable": []}
    for flag, chosen in lists.items():
        taken = _Taken()
        for node in nodes:
            if node.is_set(flag) and not taken.is_close(node):
                chosen.append(node)
                taken.add(node)
    clickable, focusable = lists.values()
    taken = _Taken(clickable)
    return clickable + [node for node in focusable if not taken.is_close(node)]


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
        row = decode_object(line)
        number, prompt, image, response = int(row["step"]), str(row["prompt"]), str(row["image"]), row["response"]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise RecordError(
            f"a log line must be one JSON object with step, prompt, image and response: {error}."
        ) from error
    begins = prompt.partition(_TASK_BEGINS)[2]
    ends = _TASK_ENDS.search(begins)
    task = begins[: ends.start()].strip() if ends else ""
    if not task:
        raise RecordError(f"the prompt must say 'The task you need to complete is to ...', got {prompt[:60]!r}.")
    # The log names the drawn-on screenshot, which is often not kept; the plain one's name lacks the suffix.
    plain = re.sub(r"_(labeled|grid)(?=\.png$)", "", Path(image).name)
    return _Row(number, task, plain, *_answer(response))


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
        screenshot = Screenshot.from_bytes(read_below(self.folder, row.image, "image"))
        size = (screenshot.width, screenshot.height)
        dump = read_below(self.folder, str(Path(row.image).with_suffix(".xml")), "image")
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
        except (RecordError, RecursionError) as error:  # the latter from telling a deeply nested answer
            self.report.add(name, str(error))
            return None
        self.report.kept += 1
        self.finished |= step.action.type is ActionType.COMPLETE
        return step

    def _lines(self, log: Path) -> Iterator[tuple[int, bytes]]:
        try:
            yield from numbered_lines(log)
        except OSError as error:
            self.report.add(f"{NAME}/{self.folder.name}/{log.name}", f"the log cannot be read: {error.strerror}.")

    def steps(self) -> Iterator[Step]:
        """Read all logs of the run."""
        self.report.note("runs")
        logs = sorted(self.folder.glob("log_*.txt"))
        if not logs:
            self.report.add(f"{NAME}/{self.folder.name}", f"the run has no log, so its actions are unknown. {_LAYOUT}")
        for log in logs:
            for number, line in self._lines(log):
                step = self._line(log, number, line)
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
