"""EchoTrail-GUI as a view of the retrieved step: the trajectory around it as a compact trace of states and intents.

After arXiv 2512.19396: trajectories that a critic scores from 1 to 5 are kept from 4 on; of each step the memory holds
a short description of the interface, the intent and the action, and no screenshot; trajectories are retrieved by their
instruction, dense and sparse mixed. Here the trajectory is that of the retrieved step, unless `retrieval` says
otherwise, so that all baselines start from the same demonstration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from switchmem.memory.baseline import (
    Baseline,
    BaselineError,
    Charge,
    Scene,
    ScreenStyle,
    Showing,
    Surroundings,
    View,
    WriterCall,
)
from switchmem.memory.hybrid import HybridIndex
from switchmem.memory.telling import tell_action, tell_change, tell_screen
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Fault, Unusable, checked_text, read_fields
from switchmem.steps import ActionType, Step

GRADES = (1, 5)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class EchoTrail(Baseline):
    """A textual trace of the demonstration's trajectory, with the retrieved step marked; no screenshot.

    Args:
        window: steps before and after the retrieved one, at least 0.
        state_words: the most words that describe a screen, at least 1.
        critic: "record" drops trajectories that end with the task given up; "writer" has a model grade each trajectory
            from 1 to 5, once for the bank.
        least_grade: of the writer's grades, the lowest that is kept, 1 to 5.
        screen_summary: whether a model summarises the current screen for the prompt, one call per step.
        retrieval: "shared" shows the retrieved step's trajectory; "hybrid" finds trajectories by their instruction.
        alpha: weight of the cosine against BM25 in "hybrid", in [0, 1].
        trajectories: how many are shown in "hybrid", at least 1.
        written_tokens: the most tokens of a grade or a summary, at least 1.

    Raises:
        BaselineError: if a setting breaks a rule above.
    """

    name: ClassVar[str] = "echotrail"
    words: ClassVar[dict[str, str]] = {
        "head": "\nA trace of a past task that succeeded.\nTask of the trace: {instruction}\n",
        "step": "{number}. Screen: {screen}. Intent: {intent}. Action: {action}. Then: {change}.",
        "marked": "{number}. (closest to the current screen) Screen: {screen}. Intent: {intent}. Action: {action}. "
        "Then: {change}.",
        "end": "the trace ends",
        "summary": "\nWhat the current screen shows: {summary}",
        "summarise": "Task: {instruction}\nScreenshot:\n",
        "summary_ask": "\nTell in one line what this screen shows and what matters on it for the task.",
        "critic": "You judge what an agent that operates a phone has done.",
        "judge": "Task: {instruction}\nWhat was done:\n{steps}\nGrade from 1 (failed or aimless) to 5 (succeeded "
        "without a detour). Answer in two lines:\nGrade: a number\nReason: one sentence",
        "grade_draft": "Grade: {grade}\nReason: As the recording ends.",
        "summary_draft": "{screen}",
    }

    window: int = 3
    state_words: int = 16
    critic: Literal["record", "writer"] = "record"
    least_grade: int = 4
    screen_summary: bool = False
    retrieval: Literal["shared", "hybrid"] = "shared"
    alpha: float = 0.5
    trajectories: int = 1
    written_tokens: int = 64

    def __post_init__(self) -> None:
        for name, least in (("window", 0), ("state_words", 1), ("trajectories", 1), ("written_tokens", 1)):
            if getattr(self, name) < least:
                raise BaselineError(f"`{self.name}.{name}` must be at least {least}, got {getattr(self, name)}.")
        if not GRADES[0] <= self.least_grade <= GRADES[1]:
            raise BaselineError(f"`{self.name}.least_grade` must be from 1 to 5, got {self.least_grade}.")
        if not 0.0 <= self.alpha <= 1.0:
            raise BaselineError(f"`{self.name}.alpha` must be in [0, 1], got {self.alpha}.")

    def show(self, scene: Scene) -> Showing:
        """At most one round: grades of the candidates, and the summary of the screen.

        Where a grade is broken, the recording's end decides; where a summary is, there is none. A trajectory that the
        critic drops is not shown, and where none is left, there is no memory.
        """
        traces = self._traces(scene)
        calls = [self._grading(trace) for trace in traces] if self.critic == "writer" else []
        if self.screen_summary:
            calls.append(self._summarising(scene.step))
        written = (yield calls) if calls else []
        fallbacks: list[str] = []
        summary = self._summary(scene, written[-1].text, fallbacks) if self.screen_summary else ""
        if self.critic == "writer":
            verdicts = [self._passes(t, w.text, fallbacks) for t, w in zip(traces, written, strict=False)]
        else:
            verdicts = [not gave_up(trace) for trace in traces]
        kept = [trace for trace, passes in zip(traces, verdicts, strict=True) if passes]
        text = "".join(self._told(trace, scene) for trace in kept)
        notes = ("dropped_by_critic",) * (len(traces) - len(kept))
        return View(memory=(text + summary,) if text or summary else (), fallbacks=tuple(fallbacks), notes=notes)

    # --- which trajectories ---

    def _traces(self, scene: Scene) -> list[tuple[Step, ...]]:
        if scene.demo is None:
            return []
        if self.retrieval == "shared":
            return [scene.surroundings.trace(scene.demo) or (scene.demo,)]
        ids = self._hybrid(scene)
        return [scene.surroundings.trace(scene.surroundings.demonstration(step_id)) for step_id in ids]

    def _hybrid(self, scene: Scene) -> list[str]:
        """The first step of each of the best trajectories, the best first; of equal ones that of the smallest id."""
        around = scene.surroundings
        ids, index = around.once("echotrail index", lambda: make_index(around))
        usable = around.usable(scene.step, ids)
        among = [n for n, step_id in enumerate(ids) if step_id in usable]
        if not among:
            return []
        query = one_line(scene.step.instruction)
        scores = index.scores(query, around.embed([query])[0], among, self.alpha)
        ranked = sorted(zip(scores, (ids[n] for n in among), strict=True), key=lambda pair: (-pair[0], pair[1]))
        return [step_id for _, step_id in ranked[: self.trajectories]]

    # --- the critic and the summary ---

    def _grading(self, trace: Sequence[Step]) -> WriterCall:
        steps = "\n".join(f"{n}. {tell_action(step)}" for n, step in enumerate(trace, 1))
        question = self.words["judge"].format(instruction=one_line(trace[0].instruction), steps=steps)
        draft = self.words["grade_draft"].format(grade=GRADES[0] if gave_up(trace) else GRADES[1])
        return WriterCall((question,), self.written_tokens, draft, self.words["critic"], Charge.OFFLINE)

    def _passes(self, trace: Sequence[Step], text: str, fallbacks: list[str]) -> bool:
        try:
            return read_grade(text) >= self.least_grade
        except Unusable as error:
            fallbacks.append(f"grade: {error.fault.value}")
            return not gave_up(trace)

    def _summarising(self, step: Step) -> WriterCall:
        opening = self.words["summarise"].format(instruction=one_line(step.instruction))
        parts: tuple[Part, ...] = (opening, step.screenshot.image(), self.words["summary_ask"])
        draft = self.words["summary_draft"].format(screen=tell_screen(step))
        return WriterCall(parts, self.written_tokens, draft, self.words["critic"])

    def _summary(self, scene: Scene, text: str, fallbacks: list[str]) -> str:
        try:
            return self.words["summary"].format(summary=checked_text(text, 400, scene.is_action))
        except Unusable as error:
            fallbacks.append(f"summary: {error.fault.value}")
            return ""

    # --- the trace ---

    def _told(self, trace: Sequence[Step], scene: Scene) -> str:
        demo = scene.demo
        here = [n for n, step in enumerate(trace) if demo is not None and step.step_id == demo.step_id]
        middle = here[0] if here else min(self.window, len(trace) - 1)
        first = max(0, middle - self.window)
        near = trace[first : middle + self.window + 1]
        lines = [
            self._line(n, step, trace[first + n :][:1], scene.style, bool(here) and first + n - 1 == middle)
            for n, step in enumerate(near, 1)
        ]
        return self.words["head"].format(instruction=one_line(trace[0].instruction)) + "\n".join(lines)

    def _line(self, number: int, step: Step, after: Sequence[Step], style: ScreenStyle, marked: bool) -> str:
        """One triple of state, intent and action, and how the screen changed."""
        written = style.for_screen((step.screenshot.width, step.screenshot.height)).action(step.action)
        return self.words["marked" if marked else "step"].format(
            number=number,
            screen=tell_screen(step, self.state_words),
            intent=tell_action(step).rstrip("."),
            action=written,
            change=tell_change(step, after[0], self.state_words) if after else self.words["end"],
        )


def gave_up(trace: Sequence[Step]) -> bool:
    """Whether a trajectory ends with the task given up as impossible."""
    return trace[-1].action.type is ActionType.IMPOSSIBLE


def read_grade(text: str) -> int:
    """A critic's grade from 1 to 5.

    Raises:
        Unusable: if the answer is empty, refuses, or holds no such grade.

    >>> read_grade("Grade: 4 of 5, Reason: fine")
    4
    """
    found = _NUMBER.match(read_fields(text, ("Grade",))["Grade"].lstrip(" *"))
    if found is None or not GRADES[0] <= int(found[0][:3]) <= GRADES[1]:
        raise Unusable(Fault.MALFORMED)
    return int(found[0])


def make_index(around: Surroundings) -> tuple[list[str], HybridIndex]:
    """The first whole step of each of the bank's trajectories, and the index of their instructions."""
    firsts: dict[str, tuple[int, str, str]] = {}  # not the steps: their screenshots would fill the memory
    for step in around.bank():
        if step.trajectory not in firsts or step.index < firsts[step.trajectory][0]:
            firsts[step.trajectory] = (step.index, step.step_id, one_line(step.instruction))
    _, ids, texts = zip(*firsts.values(), strict=True) if firsts else ((), (), ())
    return list(ids), HybridIndex(texts, around.embed(texts))
