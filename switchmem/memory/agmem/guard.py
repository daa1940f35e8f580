"""AGMem's recovery-aware verification, for agents: a detector before each action (arXiv 2606.14106, appendix B.2).

    guard = Guard.build(surroundings, writer)
    action, verdict = guard.decide(scene, view, proposal, ask)

In recorded steps the past is always right, so that there is nothing to recover from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from switchmem.memory.agmem import recovery
from switchmem.memory.agmem.recovery import Recovery, Verdict, detector_call, find_recoveries, read_verdict
from switchmem.memory.agmem.retrieval import combined, nearest
from switchmem.memory.agmem.whole import bank_traces
from switchmem.memory.baseline import BaselineError, Scene, Surroundings, View, Writer
from switchmem.memory.telling import tell_action
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Unusable
from switchmem.steps import Action, Step


class Guard:
    """Recovery-aware verification: a detector before each action, and examples of recovery where it sees an error.

    Args:
        recoveries: the recovery memory.
        surroundings: embeds.
        writer: the detector.
        recent: past screens that the detector sees, at least 0; the paper's history has 3.
        shown: examples that are shown, at least 1.
        tokens: the most of the detector's answer.

    Attributes:
        counts: of "checked", "blocked", "unanswered" (no example to show) and "detector: <fault>".
    """

    WORDS: ClassVar[dict[str, str]] = {
        "head": "\nThe last proposal was blocked: {mode}. How others got out of such a state:\n",
        "example": "\nExample {number}, of the task: {instruction}\nWhat went wrong: {faulty}\nWhat led back: "
        "{action}\nThe screen it was done on:\n",
    }

    def __init__(
        self,
        recoveries: Sequence[Recovery],
        surroundings: Surroundings,
        writer: Writer,
        recent: int = 3,
        shown: int = 5,
        tokens: int = 48,
    ) -> None:
        for name, value, least in (("recent", recent, 0), ("shown", shown, 1), ("tokens", tokens, 1)):
            if value < least:
                raise BaselineError(f"`{name}` must be at least {least}, got {value}.")
        self.recoveries, self.writer, self.counts = tuple(recoveries), writer, Counter[str]()
        self._around, self._recent, self._shown, self._tokens = surroundings, recent, shown, tokens
        self._vectors: Tensor | None = None

    @classmethod
    def build(cls, surroundings: Surroundings, writer: Writer, tokens: int = 48, **settings: Any) -> Guard:
        """A guard whose memory is every detour of the bank's trajectories; the writer names their modes."""
        found = [one for trace in bank_traces(surroundings) for one in find_recoveries(trace)]
        guard = cls((), surroundings, writer, tokens=tokens, **settings)
        answers = writer.write([recovery.mode_call(one, tokens) for one in found]) if found else []
        named = []
        for one, answer in zip(found, answers, strict=True):
            try:
                named.append(replace(one, mode=recovery.read_fault_mode(answer.text)))
            except Unusable as error:
                guard.counts[f"mode: {error.fault.value}"] += 1
                named.append(one)
        guard.recoveries = tuple(named)
        return guard

    def check(self, scene: Scene, proposal: Action) -> Verdict:
        """Whether the agent is in an erroneous state. An unusable answer is no error, and is counted."""
        past = self._around.before(scene.step)
        call = detector_call(scene.step, past, proposal, self._recent, self._tokens)
        verdict = read_verdict(self.writer.write([call])[0].text)
        self.counts["checked"] += 1
        self.counts["blocked"] += verdict.blocked
        if verdict.fault:
            self.counts[f"detector: {verdict.fault}"] += 1
        return verdict

    def examples(self, scene: Scene, verdict: Verdict) -> tuple[Part, ...]:
        """The recoveries of the flagged mode that are nearest to the task and screen; of any mode where it has none."""
        of_mode = [n for n, one in enumerate(self.recoveries) if one.mode in (verdict.mode, None)]
        places = of_mode or list(range(len(self.recoveries)))
        if not places or verdict.mode is None:
            return ()
        query = self._combined([one_line(scene.step.instruction)], [scene.step])[0]
        if self._vectors is None:
            texts = [one_line(one.correction.instruction) for one in self.recoveries]
            self._vectors = self._combined(texts, [one.correction for one in self.recoveries])
        parts: list[Part] = [self.WORDS["head"].format(mode=verdict.mode.value)]
        for number, (place, _) in enumerate(nearest(query, self._vectors[places], self._shown), 1):
            parts += self._told(number, self.recoveries[places[place]], scene)
        return tuple(parts)

    def decide(
        self, scene: Scene, view: View, proposal: Action, ask: Callable[[View], Action | None]
    ) -> tuple[Action | None, Verdict]:
        """The action to carry out: the proposal, or what the agent answers when it is blocked and shown recoveries.

        Args:
            scene: of the current step.
            view: on which the proposal was made.
            proposal: the agent's.
            ask: asks the agent again, with another memory; None where its answer is no action.
        """
        verdict = self.check(scene, proposal)
        if not verdict.blocked:
            return proposal, verdict
        examples = self.examples(scene, verdict)
        if not examples:
            self.counts["unanswered"] += 1
        return ask(replace(view, memory=examples)), verdict

    def _combined(self, texts: Sequence[str], steps: Sequence[Step]) -> Tensor:
        pictures = self._around.embed_pictures([step.screenshot.image() for step in steps])
        return combined(self._around.embed(list(texts)), pictures)

    def _told(self, number: int, one: Recovery, scene: Scene) -> tuple[Part, ...]:
        step = one.correction
        style = scene.style.for_screen((step.screenshot.width, step.screenshot.height))
        text = self.WORDS["example"].format(
            number=number,
            instruction=one_line(step.instruction),
            faulty="; ".join(tell_action(faulty).rstrip(".") for faulty in one.faulty),
            action=style.action(step.action),
        )
        return (text, step.screenshot.image())
