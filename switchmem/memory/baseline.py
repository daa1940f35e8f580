"""What a baseline of memory is: another view of the same retrieved step, for the same frozen actor.

A baseline says what stands in the prompt and, where its actions have a form of their own, how the answer is read.
Where its method lets a model write something first, `Baseline.show` yields `WriterCall` and is sent what was written;
whoever runs it decides which model writes, keeps every answer, and counts what it cost:

    showing = baseline.show(scene)
    (view, spent), = run_rounds([showing], writer)

Nothing that a model writes is trusted: a baseline checks it (`switchmem.memory.writing`), and what it does without is
in `View.fallbacks`, where it is counted.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar

from PIL import Image
from torch import Tensor

from switchmem.memory.budget import Budget
from switchmem.memory.views import DEFAULT_LAYOUT, Condition, MemoryLayout, Part, TextStyle, memory_parts, text_state
from switchmem.steps import Action, Step

T = TypeVar("T")


class BaselineError(ValueError):
    """A baseline's setting breaks a rule; the message names it, the rule, the value and the way out."""


class Charge(str, Enum):
    """To what the cost of a call is counted."""

    STEP = "step"  # made for this step, while the agent waits
    EARLIER = "earlier"  # made and counted at an earlier step of the trajectory
    OFFLINE = "offline"  # made once for the bank, before any step


@dataclass(frozen=True)
class WriterCall:
    """One question to the writer.

    Args:
        parts: texts and pictures of the question, in reading order.
        max_tokens: the most tokens of the answer, at least 1.
        draft: an answer of the same form that the record alone gives, for a writer without a model.
        system: the system message, or "".
        charge: to what its cost is counted.
    """

    parts: tuple[Part, ...]
    max_tokens: int
    draft: str
    system: str = ""
    charge: Charge = Charge.STEP

    def key(self, writer: str) -> str:
        """32 hexadecimal digits over everything that decides the answer of the writer with that fingerprint."""
        digest = hashlib.blake2b(json.dumps([writer, self.system, self.max_tokens]).encode(), digest_size=16)
        for part in self.parts:
            if isinstance(part, str):
                data = part.encode("utf-8", "surrogatepass")
                digest.update(f"text {len(data)};".encode() + data)
            else:
                digest.update(f"picture {part.mode} {part.size};".encode() + part.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Written:
    """What a writer gave for a call, and what that cost when it was made.

    Args:
        text: the raw answer.
        calls: of a model; 0 where none was asked.
        tokens_in: of the prompt, visual ones included; None where they are not told.
        tokens_out: of the answer; None likewise.
        seconds: wall time per call of the batch in which it was made.
        kept: whether it was read from the disk instead of being made again; its cost is that of the first time.
    """

    text: str
    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    seconds: float = 0.0
    kept: bool = False


class Writer(Protocol):
    """Answers calls; `switchmem.actors.writer.ModelWriter` lets a model do it."""

    @property
    def fingerprint(self) -> str:
        """Changes with everything that can change an answer."""

    def write(self, calls: Sequence[WriterCall]) -> list[Written]:
        """One answer per call, in order."""


class Surroundings(Protocol):
    """What lies around a step and around its demonstration."""

    def before(self, step: Step) -> tuple[Step, ...]:
        """The steps of the current trajectory before this one, in order; the action of each is what was done."""

    def trace(self, demo: Step) -> tuple[Step, ...]:
        """The demonstration's whole trajectory, in order, as far as its records can be read."""

    def bank(self) -> Iterator[Step]:
        """All demonstrations in the bank's order, as far as their records can be read."""

    def demonstration(self, step_id: str) -> Step:
        """A demonstration by id."""

    def usable(self, step: Step, ids: Sequence[str]) -> set[str]:
        """Those of some demonstrations that retrieval may give to a step."""

    def embed(self, texts: Sequence[str]) -> Tensor:
        """``[n, E]``, rows of length 1, by the embedder of retrieval."""

    def embed_pictures(self, pictures: Sequence[Image.Image]) -> Tensor:
        """``[n, E]``, rows of length 1, of pictures alone, in the same space."""

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made when it is first asked for under that name."""


class ScreenStyle(TextStyle, Protocol):
    """A `TextStyle` that knows on which screenshot it writes."""

    def for_screen(self, size: tuple[int, int]) -> ScreenStyle:
        """The style that writes places on a screenshot of ``(width, height)`` pixels."""


@dataclass(frozen=True)
class Scene:
    """Everything that a baseline may see of one step.

    Args:
        step: the current step; its action is not to be looked at.
        demo: the retrieved step; None where there is none.
        style: how the actor writes places, elements and actions.
        surroundings: the steps around both.
        layout: the actor's words around a demonstration.
        budget: the most tokens of a textual screen; None for no limit.
        is_action: whether the actor's own grammar reads a text as an action: a writer that is the actor may give one
            where it should tell something.
    """

    step: Step
    demo: Step | None
    style: ScreenStyle
    surroundings: Surroundings
    layout: MemoryLayout = DEFAULT_LAYOUT
    budget: Budget | None = None
    is_action: Callable[[str], bool] | None = None

    def as_text(self, demo: Step) -> tuple[Part, ...]:
        """A demonstration as the Text condition shows it.

        Raises:
            BudgetError: if what may not be left out of its screen does not fit.
        """
        style = self.style.for_screen((demo.screenshot.width, demo.screenshot.height))
        state = text_state(demo, style, self.layout, self.budget)
        return memory_parts(demo, Condition.TEXT, style, self.layout, state=state)

    def after(self, demo: Step) -> Step | None:
        """The step that follows a demonstration in its trajectory, if it is there."""
        trace = self.surroundings.trace(demo)
        return next((other for other in trace if other.index == demo.index + 1), None)


@dataclass(frozen=True)
class View:
    """What the actor is shown. What is None is as in every other condition.

    Args:
        memory: texts and pictures of the memory; empty for none.
        current: the current state, in place of the instruction and the screenshot.
        system: the system message, in place of the template's and the grammar's.
        closing: the last words.
        fallbacks: what a model should have written and did not, as "<what>: <why>".
        notes: what happened otherwise and must be counted, such as "irrelevant".
        kept: how many first parts of the memory stay when a `Checker` puts another one in its place.
        once: by piece, the fallbacks of what was to be written for the bank. A rollout that is killed and goes on may
            tell a piece again; it counts once.
    """

    memory: tuple[Part, ...] = ()
    current: tuple[Part, ...] | None = None
    system: str | None = None
    closing: str | None = None
    fallbacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    kept: int = 0
    once: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """A read answer: an action, or one word for why there is none."""

    action: Action | None
    reason: str | None = None


class Reader(Protocol):
    """Reads answers; an actor's grammar is one."""

    def parse(self, text: str, size: tuple[int, int]) -> Any:
        """An object with ``action`` and ``reason``, one of them None; `Reading` is one. Never raises."""


@dataclass(frozen=True)
class Checked:
    """What became of a proposed action.

    Args:
        action: what is to be carried out; None where the agent was asked again and its answer is no action.
        fallbacks: as of `View`.
        notes: likewise.
        once: likewise.
    """

    action: Action | None
    fallbacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    once: Mapping[str, str] = field(default_factory=dict)


class Checker(Protocol):
    """Looks at what an agent proposes before it is carried out. It keeps nothing of an episode."""

    def decide(self, scene: Scene, view: View, proposal: Action, ask: Callable[[View], Action | None]) -> Checked:
        """The proposal, or what the agent answers on another view.

        Args:
            scene: of the current step.
            view: on which the proposal was made.
            proposal: the agent's.
            ask: asks the agent again; None where its answer is no action.
        """


Showing = Generator[Sequence[WriterCall], Sequence[Written], View]
"""Rounds of calls, each answered as a whole, and at the end the view."""


class Baseline(ABC):
    """One way to represent the retrieved step. Subclasses are frozen dataclasses; their fields are their settings."""

    name: ClassVar[str]
    """Its condition's name in files, tables and configs."""
    words: ClassVar[Mapping[str, str]]
    """Every word that it puts around what it shows, so that changed words are another prompt."""
    shows_image: ClassVar[bool] = False
    """Whether the actor is shown the demonstration's screenshot, or a piece of it."""

    @abstractmethod
    def show(self, scene: Scene) -> Showing:
        """What the actor is shown at a step."""

    def reader(self, scene: Scene) -> Reader | None:
        """Reads the actor's answer; None where the actor's own grammar does."""
        return None

    def identity(self) -> dict[str, Any]:
        """Everything of the baseline that can change an answer, as plain JSON values."""
        return {"name": self.name, "settings": dict(vars(self)), "words": dict(self.words)}

    def played_identity(self) -> dict[str, Any]:
        """Likewise in an agent's own loop, where a baseline may do more than on recorded steps."""
        return self.identity()

    def checker(self, surroundings: Surroundings, writer: Writer) -> Checker | None:
        """What checks actions before they are carried out, in an agent's own loop; None for nothing.

        Args:
            surroundings: hold what was made of the bank.
            writer: answers the checker's calls.
        """
        return None


@dataclass(frozen=True)
class Spent:
    """The calls that were made for one view, and their answers."""

    calls: tuple[WriterCall, ...] = ()
    answers: tuple[Written, ...] = ()


class _Run:
    """One showing on its way."""

    def __init__(self, showing: Showing) -> None:
        self._showing = showing
        self.calls: list[WriterCall] = []
        self.answers: list[Written] = []
        self.view: View | None = None

    def go(self, answers: Sequence[Written] | None) -> Sequence[WriterCall]:
        """The next round of calls; none once there is a view."""
        if answers is not None:
            self.answers += answers
        try:
            asked = next(self._showing) if answers is None else self._showing.send(answers)
        except StopIteration as end:
            self.view = end.value
            return ()
        self.calls += asked
        return asked


def run_rounds(showings: Sequence[Showing], writer: Writer) -> list[tuple[View, Spent]]:
    """Run several showings side by side: the calls of a round are written together.

    Args:
        showings: fresh ones.
        writer: answers their calls.

    Returns:
        For each its view, and the calls that were made for it.
    """
    runs = [_Run(showing) for showing in showings]
    given: list[Sequence[Written] | None] = [None] * len(runs)
    while any(run.view is None for run in runs):
        open_ = [n for n, run in enumerate(runs) if run.view is None]
        asked = {n: runs[n].go(given[n]) for n in open_}
        calls = [call for some in asked.values() for call in some]
        written = iter(writer.write(calls) if calls else [])
        for n, some in asked.items():
            given[n] = [next(written) for _ in some]
    return [(run.view or View(), Spent(tuple(run.calls), tuple(run.answers))) for run in runs]
