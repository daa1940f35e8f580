"""M3A as a view of the retrieved step: the current screen as numbered elements, and what was done so far.

After the multimodal agent of AndroidWorld (Rawles et al., 2024). Its prompt holds the goal, the history, a list of the
screen's elements, the raw screenshot and the same one with numbered boxes; its actions name a number. One more call
after each action summarises what changed. It keeps no memory across tasks; as a baseline of memory it is shown the
retrieved step as text besides (SwitchMem, appendix A.2). The words are this project's own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from switchmem.memory.baseline import Baseline, BaselineError, Charge, Reader, Scene, Showing, View, WriterCall
from switchmem.memory.index_actions import IndexReader
from switchmem.memory.marks import boxed, listed
from switchmem.memory.telling import cut_words, tell_action, tell_change
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Unusable, checked_text
from switchmem.steps import Step, UIElement


@dataclass(frozen=True)
class M3a(Baseline):
    """Numbered elements, a screenshot with numbered boxes, the history in summaries, and the retrieved step as text.

    Args:
        history: past steps of the current trajectory that are told, at least 0.
        summaries: "writer" has a model write what each past step changed, one call per step; "record" tells it by rule,
            without a call.
        summary_tokens: the most tokens of a summary that the writer writes, at least 1.
        summary_words: the most words of it that the actor is shown, at least 1.
        actions: "own" are JSON actions that name an element by its number; "actor" leaves the actor's own.

    Raises:
        BaselineError: if a setting breaks a rule above.
    """

    name: ClassVar[str] = "m3a"
    words: ClassVar[dict[str, str]] = {
        "system": "You operate an Android phone for the user, one action at a time. The elements of the screen have "
        "numbers, and an action names the number of its element. Answer with one of these actions, as JSON:\n"
        '{"action_type": "click", "index": <number>}\n'
        '{"action_type": "long_press", "index": <number>}\n'
        '{"action_type": "input_text", "text": <text>, "index": <number>}\n'
        '{"action_type": "scroll", "direction": <up, down, left or right>, "index": <number, or left out for the whole '
        "screen>}\n"
        '{"action_type": "keyboard_enter"}\n'
        '{"action_type": "navigate_back"}\n'
        '{"action_type": "navigate_home"}\n'
        '{"action_type": "open_app", "app_name": <name>}\n'
        '{"action_type": "wait"}\n'
        '{"action_type": "answer", "text": <text>}\n'
        '{"action_type": "status", "goal_status": <"complete" or "infeasible">}\n'
        "Scrolling down shows what is below. Nothing can be dragged.",
        "goal": "Goal: {instruction}\n\nHistory:\n{history}\n\nCurrent screenshot:\n",
        "boxes": "\nThe same screenshot with numbered boxes:\n",
        "elements": "\nElements of the screen:\n{elements}\n",
        "element": "UI element {index}: {fields}",
        "past": "Step {number}: Action selected: {action}.",
        "summary": " {summary}",
        "start": "You just started, no action has been performed yet.",
        "closing": "\nAnswer in two lines:\nReason: why this action\nAction: the action as JSON",
        "ask": "Goal: {instruction}\nBefore the action:\n",
        "after": "\nAfter the action:\n",
        "acted": "\nAction: {action}\nElements before:\n{before}\nElements after:\n{after}\n"
        "Summarise this step in one line of fewer than 50 words: what was intended, whether it worked, and what is to "
        "be remembered.",
        "asker": "You keep the notes of an agent that operates a phone.",
        "draft": "The screen changed, {change}.",
    }

    history: int = 8
    summaries: Literal["writer", "record"] = "writer"
    summary_tokens: int = 80
    summary_words: int = 50
    actions: Literal["own", "actor"] = "own"

    def __post_init__(self) -> None:
        for name, least in (("history", 0), ("summary_tokens", 1), ("summary_words", 1)):
            if getattr(self, name) < least:
                raise BaselineError(f"`{self.name}.{name}` must be at least {least}, got {getattr(self, name)}.")

    def show(self, scene: Scene) -> Showing:
        """One call per past step; a broken summary falls back to none, and the action alone is told."""
        past = scene.surroundings.before(scene.step)
        past = past[len(past) - min(len(past), self.history) :]
        after = (*past[1:], scene.step) if past else ()
        fallbacks: list[str] = []
        if self.summaries == "writer" and past:
            written = yield [self._call(scene.step, b, a, b is past[-1]) for b, a in zip(past, after, strict=True)]
            summaries = [self._summary(scene, answer.text, fallbacks) for answer in written]
        else:
            summaries = [self._draft(b, a) for b, a in zip(past, after, strict=True)]
        own = self.actions == "own"
        return View(
            memory=scene.as_text(scene.demo) if scene.demo is not None else (),
            current=self._current(scene.step, past, summaries),
            system=self.words["system"] if own else None,
            closing=self.words["closing"] if own else None,
            fallbacks=tuple(fallbacks),
        )

    def reader(self, scene: Scene) -> Reader | None:
        """Reads numbered actions; a number stands for the middle of its element's box."""
        return IndexReader(listed(scene.step)) if self.actions == "own" else None

    def _current(self, step: Step, past: Sequence[Step], summaries: Sequence[str]) -> tuple[Part, ...]:
        lines = []
        for number, (before, summary) in enumerate(zip(past, summaries, strict=True), 1):
            line = self.words["past"].format(number=number, action=tell_action(before).rstrip("."))
            lines.append(line + (self.words["summary"].format(summary=summary) if summary else ""))
        goal = self.words["goal"].format(
            instruction=one_line(step.instruction), history="\n".join(lines) or self.words["start"]
        )
        picture, elements = step.screenshot.image(), listed(step)
        told = self.words["elements"].format(elements=self._list(step))
        return (goal, picture, self.words["boxes"], boxed(picture, elements), told)

    def _list(self, step: Step) -> str:
        return "\n".join(
            self.words["element"].format(index=n, fields=json.dumps(_fields(n, e), ensure_ascii=False))
            for n, e in listed(step).items()
        )

    def _call(self, current: Step, before: Step, after: Step, newest: bool) -> WriterCall:
        """The question about one past step. It belongs to that step: only the newest is still to be paid."""
        acted = self.words["acted"].format(
            action=tell_action(before), before=self._list(before), after=self._list(after)
        )
        parts: tuple[Part, ...] = (
            self.words["ask"].format(instruction=one_line(current.instruction)),
            boxed(before.screenshot.image(), listed(before)),
            self.words["after"],
            boxed(after.screenshot.image(), listed(after)),
            acted,
        )
        charge = Charge.STEP if newest else Charge.EARLIER
        return WriterCall(parts, self.summary_tokens, self._draft(before, after), self.words["asker"], charge)

    def _draft(self, before: Step, after: Step) -> str:
        return self.words["draft"].format(change=tell_change(before, after))

    def _summary(self, scene: Scene, text: str, fallbacks: list[str]) -> str:
        try:
            return cut_words(checked_text(text, is_action=scene.is_action), self.summary_words)
        except Unusable as error:
            fallbacks.append(f"summary: {error.fault.value}")
            return ""


def _fields(index: int, element: UIElement) -> dict[str, Any]:
    """What is told of an element; no place."""
    texts = {
        "text": one_line(element.text),
        "content_description": one_line(element.description),
        "type": one_line(element.kind.rpartition(".")[2]),
    }
    flags = {
        "is_clickable": element.clickable,
        "is_editable": element.editable,
        "is_checked": element.checked,
        "is_scrollable": element.scrollable,
    }
    return {"index": index, **{k: v for k, v in texts.items() if v}, **{k: True for k, v in flags.items() if v}}
