"""A memory baseline in an agent's own loop, so that it can be played where SwitchMem is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from PIL import Image
from torch import Tensor

from switchmem.actors.protocol import Actor
from switchmem.actors.showing import make_scene, show_and_ask
from switchmem.actors.spec import ActorSpec
from switchmem.agent.agent import Picture, live_step
from switchmem.agent.live_bank import LiveBank
from switchmem.memory.baseline import Baseline, Writer
from switchmem.memory.views import query_text
from switchmem.memory.writing import costs
from switchmem.steps import Action, RecordError, Step, UIElement

T = TypeVar("T")


@dataclass(frozen=True)
class BaselineDecision:
    """What an agent decided at a step under a baseline.

    Args:
        action: None where the answer could not be read.
        reason: one word for why, else None.
        answer: the actor's raw answer.
        memory: step id of the retrieved demonstration; None where there was none.
        cosine: of the screen and the demonstration; NaN without one.
        fallbacks: what a model should have written and did not, as "<what>: <why>".
        notes: what else must be counted, such as "irrelevant".
        writing: calls, tokens and seconds of what was written, see `switchmem.memory.writing.costs`.
        seconds: wall time of the answer and of what was written now, without retrieval and preprocessing.
        tokens: of the answer's prompt and of the answer; None where they are not told.
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

    Calls of `act` may come from several threads; they take turns.

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
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget the episode; the baseline keeps what it made of the bank."""
        with self._lock:
            self._around.past.clear()

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
            BudgetError: if what may not be left out of a textual screen exceeds `state_tokens`.
        """
        with self._lock:
            around = self._around
            step = replace(live_step(goal, screenshot, ui_elements, activity, caption), index=len(around.past))
            around.category = category
            hit = self.bank.find(query_text(step), category)
            demo = None if hit is None else self.bank.step(hit.step_id)
            scene = make_scene(self.spec, self.actor, step, demo, around)
            (shown,) = show_and_ask(self.spec, self.actor, self.baseline, self.writer, [scene], self.max_new_tokens)
            reader = self.baseline.reader(scene) or self._grammar
            read = reader.parse(shown.answer.text, (step.screenshot.width, step.screenshot.height))
            if read.action is not None:
                around.past.append(replace(step, action=read.action))
            written = sum(answer.seconds for answer in shown.spent.answers if not answer.kept)
            return BaselineDecision(
                action=read.action,
                reason=None if read.reason is None else str(getattr(read.reason, "value", read.reason)),
                answer=shown.answer.text,
                memory=None if hit is None else hit.step_id,
                cosine=float("nan") if hit is None else hit.cosine,
                fallbacks=shown.view.fallbacks,
                notes=shown.view.notes,
                writing=costs(shown.spent, self.writer.fingerprint),
                seconds=shown.answer.seconds + written,
                tokens=(shown.answer.tokens_in, shown.answer.tokens_out),
            )
