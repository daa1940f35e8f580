"""RAG-GUI as a view of the retrieved step: only a guideline that was judged relevant reaches the actor.

After Xu et al., EMNLP 2025 (arXiv 2509.24183): an adapter reads a tutorial with the task, the screen and the past
actions, says whether it is relevant, and writes a short guideline for the step. Here the tutorial is the retrieved
demonstration, told as a procedure, and the adapter is a model that was not trained for it, which that paper found to be
the weaker way (27.5 against 35.3 of a trained 7B adapter on AndroidWorld).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from switchmem.memory.baseline import Baseline, BaselineError, Scene, Showing, View, WriterCall
from switchmem.memory.telling import tell_action, tell_screen
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Fault, Unusable, read_fields
from switchmem.steps import Step


@dataclass(frozen=True)
class RagGui(Baseline):
    """The retrieved step's trajectory as a procedure; a model turns it into a guideline for the current step.

    Args:
        window: steps of the demonstration's trajectory before and after the retrieved one, at least 0.
        history: past actions of the current trajectory that the writer is told, at least 0.
        guideline_tokens: the most tokens that the writer writes, at least 1.
        guideline_characters: the most characters of a guideline that the actor is shown, at least 1.

    Raises:
        BaselineError: if a setting breaks a rule above.
    """

    name: ClassVar[str] = "rag_gui"
    words: ClassVar[dict[str, str]] = {
        "system": "You advise an agent that operates a phone.",
        "task": "Task: {instruction}\nPast actions: {history}\nCurrent screenshot:\n",
        "procedure": "\nA tutorial for another task.\nTask of the tutorial: {instruction}\n{steps}\n",
        "marked": "{number}. {action} (on a screen with: {screen}) <- closest to the current screen",
        "step": "{number}. {action}",
        "ask": "Does the tutorial help with the next action on the current screen? Answer in two lines and nothing "
        "else:\nRelevant: yes or no\nGuideline: one to three sentences on what to do next, or none",
        "guideline": "\nA guideline from a similar task: {guideline}",
        "draft": "Relevant: yes\nGuideline: In a similar task the next action was: {action}.",
    }

    window: int = 2
    history: int = 4
    guideline_tokens: int = 96
    guideline_characters: int = 600

    def __post_init__(self) -> None:
        for name, least in (("window", 0), ("history", 0), ("guideline_tokens", 1), ("guideline_characters", 1)):
            if getattr(self, name) < least:
                raise BaselineError(f"`{self.name}.{name}` must be at least {least}, got {getattr(self, name)}.")

    def show(self, scene: Scene) -> Showing:
        """One call. Irrelevant, and what a broken answer falls back to, is no memory at all."""
        if scene.demo is None:
            return View()
        (written,) = yield [self._call(scene, scene.demo)]
        try:
            guideline = self.read(written.text)
        except Unusable as error:
            return View(fallbacks=(f"guideline: {error.fault.value}",))
        if guideline is None:
            return View(notes=("irrelevant",))
        return View(memory=(self.words["guideline"].format(guideline=guideline),))

    def read(self, text: str) -> str | None:
        """The guideline of an answer; None where it was judged irrelevant.

        Raises:
            Unusable: if the answer is empty, refuses, or does not say whether the tutorial is relevant.
        """
        try:
            found = read_fields(text, ("Relevant", "Guideline"), self.guideline_characters)
        except Unusable as error:
            # "no" needs no guideline
            if error.fault is Fault.MALFORMED and _verdict(read_fields(text, ("Relevant",))["Relevant"]) is False:
                return None
            raise
        if not _verdict(found["Relevant"]):
            return None
        if found["Guideline"].strip(" .").lower() in ("none", "n/a"):
            raise Unusable(Fault.EMPTY)
        return found["Guideline"]

    def _call(self, scene: Scene, demo: Step) -> WriterCall:
        before = scene.surroundings.before(scene.step)
        past = [tell_action(step) for step in before[len(before) - min(len(before), self.history) :]]
        task = self.words["task"].format(
            instruction=one_line(scene.step.instruction), history="; ".join(past) if past else "none"
        )
        tutorial = self.words["procedure"].format(
            instruction=one_line(demo.instruction), steps=self._procedure(demo, scene.surroundings.trace(demo))
        )
        parts: tuple[Part, ...] = (task, scene.step.screenshot.image(), tutorial + self.words["ask"])
        draft = self.words["draft"].format(action=tell_action(demo).rstrip("."))
        return WriterCall(parts, self.guideline_tokens, draft, self.words["system"])

    def _procedure(self, demo: Step, trace: Sequence[Step]) -> str:
        near = [step for step in trace if abs(step.index - demo.index) <= self.window] or [demo]
        lines = []
        for number, step in enumerate(near, 1):
            words = self.words["marked" if step.index == demo.index else "step"]
            lines.append(words.format(number=number, action=tell_action(step), screen=tell_screen(step)))
        return "\n".join(lines)


def _verdict(word: str) -> bool:
    """Whether a verdict says yes.

    Raises:
        Unusable: if it is neither yes nor no.
    """
    start = word.strip(" *_`\"'.").lower()
    if start.startswith(("yes", "true", "relevant")):
        return True
    if start.startswith(("no", "false", "irrelevant")):
        return False
    raise Unusable(Fault.MALFORMED)
