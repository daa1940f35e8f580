"""A memory baseline in an agent's own loop, so that it can be played where SwitchMem is."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from PIL import Image
from torch import Tensor

from switchmem.actors.protocol import Actor
from switchmem.actors.showing import ask_on, make_scene, show_and_ask
from switchmem.actors.spec import ActorSpec
from switchmem.actors.writer import Answer
from switchmem.agent.agent import Picture, live_step
from switchmem.agent.decision import Timings, plain
from switchmem.agent.live_bank import LiveBank
from switchmem.memory.baseline import Baseline, Checked, Scene, Spent, View, Writer
from switchmem.memory.views import query_text
from switchmem.memory.writing import Tally, costs, total
from switchmem.steps import Action, RecordError, Step, UIElement

T = TypeVar("T")


@dataclass(frozen=True)
class BaselineDecision:
    """What an agent decided at a step under a baseline.

    Args:
        action: None where the answer could not be read.
        reason: one word for why, else None.
        answer: the actor's raw answer; the last one where it was asked again.
        memory: step id of the retrieved demonstration; None where there was none.
        cosine: of the screen and the demonstration; NaN without one.
        fallbacks: what a model should have written and did not, as "<what>: <why>".
        notes: what else must be counted, such as "irrelevant".
        writing: calls, tokens and seconds of what was written, see `switchmem.memory.writing.costs`.
        seconds: wall time of the answers and of what was written now, without retrieval and preprocessing.
        tokens: of the answers' prompts and of the answers; None where they are not told.
        once: by piece, the fallbacks of what was to be written for the bank, told when they are met.
        baseline: its name.
        answers: how often the actor was asked: once, or twice where a checker blocked what it proposed.
        proposal: the raw answer that was blocked, or "".
        timings: seconds; "memory" is what was written for the step, as it took when it was made, and "decoding" the
            answers.
    """

    action: Action | None
    reason: str | None
    answer: str
    memory: str | None
    cosine: float
    fallbacks: tuple[str, ...]
    notes: tuple[str, ...]
    writing: Mapping[str, Any]
    seconds: float
    tokens: tuple[int | None, int | None]
    once: Mapping[str, str] = field(default_factory=dict)
    baseline: str = ""
    answers: int = 1
    proposal: str = ""
    timings: Timings = field(default_factory=Timings)

    @property
    def form(self) -> str:
        """In which form the memory was shown: the baseline's own."""
        return self.baseline

    @property
    def why(self) -> str:
        """One word for why there is no action, or ""."""
        return self.reason or ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with those of `Decision` that traces and pages read."""
        values = {
            **asdict(self),
            "action": None if self.action is None else self.action.to_dict(),
            "condition": self.baseline,
            "r": math.nan,
            "threshold": math.nan,
        }
        return plain(values)


class LiveSurroundings:
    """Surroundings of a live step: the past of the episode, and the whole bank.

    Args:
        bank: the demonstrations.
    """

    def __init__(self, bank: LiveBank) -> None:
        self.past: list[Step] = []
        self.category: str | None = None
        self._live = bank
        self._of: dict[str, list[str]] = {}
        for step_id, trajectory in zip(bank.bank.ids, bank.bank.trajectories, strict=True):
            self._of.setdefault(trajectory, []).append(step_id)
        self._categories = dict(zip(bank.bank.ids, bank.bank.categories, strict=True))
        self._made: dict[str, Any] = {}

    def fresh(self) -> LiveSurroundings:
        """Those of another episode: without a past, with all that was made of the bank."""
        other = copy.copy(self)
        other.past, other.category = [], None
        return other

    def before(self, step: Step) -> tuple[Step, ...]:
        """See `Surroundings.before`."""
        return tuple(self.past)

    def trace(self, demo: Step) -> tuple[Step, ...]:
        """See `Surroundings.trace`."""
        return tuple(sorted(self._whole(self._of.get(demo.trajectory, ())), key=lambda step: step.index))

    def bank(self) -> Iterator[Step]:
        """See `Surroundings.bank`."""
        return self._whole(self._live.bank.ids)

    def _whole(self, ids: Sequence[str]) -> Iterator[Step]:
        for step_id in ids:
            try:
                yield self._live.step(step_id)
            except RecordError as error:  # it was whole when the bank was built
                self._live.damaged[step_id] = str(error)

    def demonstration(self, step_id: str) -> Step:
        """See `Surroundings.demonstration`.

        Raises:
            RecordError: if its record was damaged since the bank was built.
        """
        return self._live.step(step_id)

    def usable(self, step: Step, ids: Sequence[str]) -> set[str]:
        """See `Surroundings.usable`: all of the bank, or of the category that the step retrieves in."""
        known = [i for i in ids if i in self._categories]
        return {i for i in known if self.category is None or self._categories[i] == self.category}

    def embed(self, texts: Sequence[str]) -> Tensor:
        """See `Surroundings.embed`."""
        return self._live.embedder.texts(list(texts))

    def embed_pictures(self, pictures: Sequence[Image.Image]) -> Tensor:
        """See `Surroundings.embed_pictures`."""
        return self._live.embedder.multimodal([("", picture) for picture in pictures])

    def once(self, name: str, make: Callable[[], T]) -> T:
        """See `Surroundings.once`."""
        if name not in self._made:
            self._made[name] = make()
        found: T = self._made[name]
        return found


class BaselineAgent:
    """A frozen actor under one memory baseline. It remembers the episode; `reset` begins another.

    Calls of `act` may come from several threads; they take turns. Episodes that are played side by side each need an
    agent of their own: see `episode`. What a baseline checks before an action is carried out, as AGMem's guard does, is
    part of `act`.

    Args:
        baseline: makes the views.
        spec: which actor.
        actor: that actor, loaded; one behind an endpoint will do.
        bank: the demonstrations.
        writer: answers the baseline's calls: a `KeptWriter` around a `ModelWriter`, or a `TemplateWriter`.
        max_new_tokens: the most tokens of an answer, at least 1.
    """

    def __init__(
        self,
        baseline: Baseline,
        spec: ActorSpec,
        actor: Actor,
        bank: LiveBank,
        writer: Writer,
        max_new_tokens: int = 128,
    ) -> None:
        if max_new_tokens < 1:
            raise ValueError(f"`max_new_tokens` must be at least 1, got {max_new_tokens}.")
        self.baseline, self.spec, self.actor, self.bank, self.writer = baseline, spec, actor, bank, writer
        self.max_new_tokens = max_new_tokens
        self._grammar, self._around = spec.load_grammar(), LiveSurroundings(bank)
        self._tally = Tally(writer)
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget the episode; the baseline keeps what it made of the bank."""
        with self._lock:
            self._around.past.clear()

    def episode(self) -> BaselineAgent:
        """An agent for another episode beside this one's: with a past of its own, and all else in common.

        They take turns, so that one loaded actor serves them all.
        """
        other = copy.copy(self)
        other._around = self._around.fresh()
        return other

    def act(
        self,
        goal: str,
        screenshot: Picture,
        ui_elements: Sequence[UIElement | Mapping[str, object]] = (),
        *,
        activity: str = "",
        caption: str = "",
        category: str | None = None,
    ) -> BaselineDecision:
        """Decide what to do on a screen; arguments as of `SwitchMemAgent.act`.

        A decided action is taken to be carried out: it is part of the history at the next call. An answer that cannot
        be read is not.

        Raises:
            RecordError: if an argument breaks a rule of `Step`, or the retrieved demonstration's record is damaged.
            PromptError: if a prompt is longer than the actor's or the writer's limit.
            RequestsFailedError: if an endpoint, the actor's or the writer's, gave no answer.
            BudgetError: if what may not be left out of a textual screen exceeds `state_tokens`.
        """
        with self._lock:
            started = time.perf_counter()
            around = self._around
            step = replace(live_step(goal, screenshot, ui_elements, activity, caption), index=len(around.past))
            around.category = category
            looked = time.perf_counter()
            hit = self.bank.find(query_text(step), category)
            demo = None if hit is None else self.bank.step(hit.step_id)
            found = time.perf_counter()
            turn = _Turn(self, make_scene(self.spec, self.actor, step, demo, around))
            checked = turn.decide()
            if checked.action is not None:
                around.past.append(replace(step, action=checked.action))
            whole, retrieval = time.perf_counter() - started, found - looked
            writing, answering = costs(turn.spent, self.writer.fingerprint), sum(a.seconds for a in turn.answers)
            now = answering + sum(written.seconds for written in turn.spent.answers if not written.kept)
            return BaselineDecision(
                action=checked.action,
                reason=turn.reason,
                answer=turn.answers[-1].text,
                memory=None if hit is None else hit.step_id,
                cosine=math.nan if hit is None else hit.cosine,
                fallbacks=checked.fallbacks,
                notes=checked.notes,
                writing=writing,
                seconds=now,
                tokens=(total([a.tokens_in for a in turn.answers]), total([a.tokens_out for a in turn.answers])),
                once=checked.once,
                baseline=self.baseline.name,
                answers=len(turn.answers),
                proposal="" if len(turn.answers) == 1 else turn.answers[0].text,
                timings=Timings(
                    retrieval=retrieval,
                    preprocessing=max(0.0, whole - retrieval - now),
                    memory=writing["seconds"],
                    decoding=answering,
                ),
            )

    def _read(self, scene: Scene, answer: Answer) -> tuple[Action | None, str | None]:
        """An answer's action, or one word for why it has none."""
        reader = self.baseline.reader(scene) or self._grammar
        read = reader.parse(answer.text, (scene.step.screenshot.width, scene.step.screenshot.height))
        return read.action, None if read.reason is None else str(getattr(read.reason, "value", read.reason))

    def _checked(self, scene: Scene, view: View, proposal: Action, ask: Callable[[View], Action | None]) -> Checked:
        """What the baseline's checker, if it has one, makes of a proposal; its calls are noted."""
        checker = self.baseline.checker(self._around, self._tally)
        return Checked(proposal) if checker is None else checker.decide(scene, view, proposal, ask)

    def _noted(self) -> Spent:
        """What checking has cost since the last look."""
        return self._tally.take()


class _Turn:
    """One step of an agent: the answers, and what was spent for them."""

    def __init__(self, agent: BaselineAgent, scene: Scene) -> None:
        self.agent, self.scene = agent, scene
        self.answers: list[Answer] = []
        self.spent = Spent()
        self.reason: str | None = None

    def decide(self) -> Checked:
        """The action to carry out, with all that must be counted."""
        agent, scene = self.agent, self.scene
        agent._noted()  # what a step that failed has left behind
        most = agent.max_new_tokens
        (shown,) = show_and_ask(agent.spec, agent.actor, agent.baseline, agent.writer, [scene], most)
        proposal = self._take(shown.answer)
        checked = Checked(None) if proposal is None else agent._checked(scene, shown.view, proposal, self._ask)
        noted = agent._noted()
        calls, answers = (*shown.spent.calls, *noted.calls), (*shown.spent.answers, *noted.answers)
        self.spent = Spent(calls, answers)
        view = shown.view
        fallbacks, notes = view.fallbacks + checked.fallbacks, view.notes + checked.notes
        return Checked(checked.action, fallbacks, notes, {**view.once, **checked.once})

    def _ask(self, view: View) -> Action | None:
        agent = self.agent
        (answer,) = ask_on(agent.spec, agent.actor, [(self.scene, view)], agent.max_new_tokens)
        return self._take(answer)

    def _take(self, answer: Answer) -> Action | None:
        self.answers.append(answer)
        action, self.reason = self.agent._read(self.scene, answer)
        return action
