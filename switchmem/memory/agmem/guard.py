"""AGMem's recovery-aware verification, for agents: a detector before each action (arXiv 2606.14106, appendix B.2).

    guard = Guard.build(surroundings, writer)
    checked = guard.decide(scene, view, proposal, ask)

In recorded steps the past is always right, so that there is nothing to recover from. A guard keeps nothing of an
episode: what it sees of it is in the scene, so that several episodes may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from torch import Tensor

from switchmem.memory.agmem import recovery
from switchmem.memory.agmem.config import CropConfig
from switchmem.memory.agmem.failure_modes import SAID
from switchmem.memory.agmem.recovery import Recovery, Verdict, detector_call, find_recoveries, read_verdict
from switchmem.memory.agmem.retrieval import combined, nearest
from switchmem.memory.agmem.traces import bank_traces
from switchmem.memory.baseline import BaselineError, Checked, Scene, Surroundings, View, Writer
from switchmem.memory.telling import tell_action
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Unusable
from switchmem.steps import Action, Step


@dataclass(frozen=True)
class GuardConfig:
    """How AGMem checks an action before it is carried out.

    Args:
        enabled: whether it does; without it no detector is asked.
        recent: past screens that the detector sees, at least 0; the paper's history has 3.
        shown: examples of recovery that are shown, at least 1.
        longest: the most steps of a fault that the bank's trajectories are searched for, at least 1.
        tokens: the most tokens of the detector's answer, at least 1.

    Raises:
        BaselineError: if a setting breaks a rule above.
    """

    enabled: bool = True
    recent: int = 3
    shown: int = 5
    longest: int = 4
    tokens: int = 48

    def __post_init__(self) -> None:
        for name, least in (("recent", 0), ("shown", 1), ("longest", 1), ("tokens", 1)):
            if getattr(self, name) < least:
                raise BaselineError(f"`guard.{name}` must be at least {least}, got {getattr(self, name)}.")

    def identity(self) -> dict[str, Any]:
        """Everything that can change what a guard does, as plain JSON values."""
        if not self.enabled:
            return {"enabled": False}
        said = {mode.value: words for mode, words in SAID.items()}
        return {**asdict(self), "words": {**Guard.WORDS, **recovery.WORDS}, "modes": said}


def guard_config(values: GuardConfig | Mapping[str, Any]) -> GuardConfig:
    """The settings, from a section of a config where they come as one.

    Raises:
        BaselineError: if a name is unknown, or a value out of range.
    """
    if isinstance(values, GuardConfig):
        return values
    known = [field.name for field in fields(GuardConfig)]
    if unknown := sorted(set(values) - set(known)):
        raise BaselineError(f"`guard` must have no other field than {', '.join(known)}, got {', '.join(unknown)}.")
    return GuardConfig(**values)


class Guard:
    """Recovery-aware verification: a detector before each action, and examples of recovery where it sees an error.

    Args:
        recoveries: the recovery memory.
        surroundings: embeds.
        writer: the detector.
        config: the constants.
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
        config: GuardConfig | None = None,
    ) -> None:
        self.recoveries, self.writer, self.config = tuple(recoveries), writer, config or GuardConfig()
        self._around, self._unnamed = surroundings, dict[str, str]()  # faults of the build that no decision has told
        self._vectors: Tensor | None = None

    @classmethod
    def build(
        cls,
        surroundings: Surroundings,
        writer: Writer,
        config: GuardConfig | None = None,
        crop: CropConfig | None = None,
    ) -> Guard:
        """A guard whose memory is every detour of the bank's trajectories; the writer names their modes.

        Args:
            surroundings: hold the bank.
            writer: the detector; it also names the modes.
            config: the constants.
            crop: those by which two screens are the same.
        """
        guard = cls((), surroundings, writer, config)
        longest, tokens = guard.config.longest, guard.config.tokens
        found = [one for trace in bank_traces(surroundings) for one in find_recoveries(trace, longest, crop)]
        answers = writer.write([recovery.mode_call(one, tokens) for one in found]) if found else []
        named = []
        for one, answer in zip(found, answers, strict=True):
            try:
                named.append(replace(one, mode=recovery.read_fault_mode(answer.text)))
            except Unusable as error:
                guard._unnamed[f"mode of {one.correction.step_id}"] = f"recovery's mode: {error.fault.value}"
                named.append(one)
        guard.recoveries = tuple(named)
        return guard

    def check(self, scene: Scene, proposal: Action) -> Verdict:
        """Whether the agent is in an erroneous state. An unusable answer is no error, and says why."""
        past = scene.surroundings.before(scene.step)
        call = detector_call(scene.step, past, proposal, self.config.recent, self.config.tokens)
        return read_verdict(self.writer.write([call])[0].text)

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
        for number, (place, _) in enumerate(nearest(query, self._vectors[places], self.config.shown), 1):
            parts += self._told(number, self.recoveries[places[place]], scene)
        return tuple(parts)

    def decide(self, scene: Scene, view: View, proposal: Action, ask: Callable[[View], Action | None]) -> Checked:
        """The proposal; what the agent answers when it is blocked and shown recoveries, which is carried out as it is.

        Where there is no recovery to show, it is asked again without a memory.

        Args:
            scene: of the current step.
            view: on which the proposal was made; its `kept` parts stay.
            proposal: the agent's.
            ask: asks the agent again, with another memory; None where its answer is no action.

        Returns:
            The action. Its notes are "checked" and "blocked: <mode>", its fallbacks "detector: <fault>" and "recovery:
            none to show", and once for each recovery of the bank "recovery's mode: <fault>".
        """
        verdict = self.check(scene, proposal)
        once, self._unnamed = self._unnamed, {}
        if verdict.mode is None:
            faults = (f"detector: {verdict.fault}",) if verdict.fault else ()
            return Checked(proposal, faults, ("checked",), once)
        examples = self.examples(scene, verdict)
        action = ask(replace(view, memory=(*view.memory[: view.kept], *examples)))
        faults = () if examples else ("recovery: none to show",)
        return Checked(action, faults, ("checked", f"blocked: {verdict.mode.value}"), once)

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
