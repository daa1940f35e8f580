"""AppAgent as a view of the retrieved step: what the elements of the current screen did when they were used before.

After Zhang et al. (arXiv 2312.13771). A document of an element tells in a sentence or two what it does; it is written
once, from the screens before and after a demonstrated action on it, and found again by the element's name alone. Here
the demonstrations are the bank's. Which transition a document is written from is fixed by the bank's order, so that it
is the same whenever it is first needed; that is when it is written, and its cost is counted as made once for the bank.

Its actions have neither back nor home nor any that starts an app; its grid, which asks for another round, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from switchmem.memory.baseline import Baseline, BaselineError, Charge, Reader, Scene, Showing, View, WriterCall, Written
from switchmem.memory.marks import interactive, tagged
from switchmem.memory.tag_actions import TagReader
from switchmem.memory.telling import direction, tell_action, tell_change, tell_element
from switchmem.memory.views import Part, demonstrated, one_line
from switchmem.memory.writing import Unusable, checked_text
from switchmem.steps import ActionType, Step, UIElement

LONGEST_NAME = 20
"""A label of this many characters or more tells a content, and no element."""
_USES = {ActionType.TAP: "tap", ActionType.LONG_PRESS: "long_press", ActionType.TYPE: "text"}

Index = dict[str, dict[str, list[str]]]
"""Element -> use -> ids of the bank's steps that show it, in the bank's order."""


class Wanted(NamedTuple):
    """A document that is to be shown: the tag of its element (0 off the screen), its use, and the step it is from."""

    tag: int
    use: str
    source: Step


def element_name(step: Step, element: UIElement) -> str:
    """Under which an element is found again: activity, identifier, else kind and size, and a short label.

    Args:
        step: of the screen.
        element: on it.
    """
    label = one_line(element.label)
    label = label if len(label) < LONGEST_NAME else ""
    name = element.resource_id.replace(":", ".").replace("/", "_")
    if not name:
        left, top, right, bottom = element.box
        size = "" if label else f"_{100 * (right - left):.0f}_{100 * (bottom - top):.0f}"
        name = element.kind + size
    return "|".join((one_line(step.activity), name, label))


def use_of(step: Step) -> str | None:
    """How a step uses its element: tap, long_press, text, v_swipe or h_swipe; None where it uses none."""
    if step.action.end is not None:
        return "v_swipe" if direction(step.action) in ("up", "down") else "h_swipe"
    return _USES.get(step.action.type)


def make_index(steps: Iterable[Step]) -> Index:
    """Which steps show which use of which element."""
    index: Index = {}
    for step in steps:
        use, element = use_of(step), demonstrated(step)
        if use is not None and element is not None:
            index.setdefault(element_name(step, element), {}).setdefault(use, []).append(step.step_id)
    return index


@dataclass(frozen=True)
class AppAgent(Baseline):
    """Documents of the current screen's elements, a screenshot with numeric tags, and calls that name a tag.

    Args:
        scope: whose transitions make documents: "bank" takes all that retrieval may give to the step, "trajectory"
            those of the retrieved step's own trajectory.
        documents: the most documents of a prompt, at least 1; those of the lowest tags stay.
        document_tokens: the most tokens that the writer writes, at least 1.
        apart: an element whose centre is nearer than this to an earlier one's has no tag, as a fraction of the screen's
            width, in [0, 1].
        actions: "own" are calls that name a tag; "actor" leaves the actor's own.

    Raises:
        BaselineError: if a setting breaks a rule above.
    """

    name: ClassVar[str] = "app_agent"
    words: ClassVar[dict[str, str]] = {
        "system": "You operate an Android phone for the user, one call at a time. Elements of the screenshot that can "
        "be acted on have numeric tags. The calls are:\n"
        "tap(<tag>)\ntext(<text in quotes>): types into the field that has the focus\nlong_press(<tag>)\n"
        "swipe(<tag>, <up, down, left or right>, <short, medium or long>)\n"
        "Give FINISH in place of a call when the task is complete.",
        "goal": "Task: {instruction}\nLast action: {last}\nCurrent screenshot with tags:\n",
        "none": "none",
        "head": "\nWhat is known of elements:",
        "document": "\nElement {tag}, {use}: {text}",
        "elsewhere": "\nAn element that is not on this screen, {element}, {use}: {text}",
        "closing": "\nAnswer in four lines:\nObservation: what the screen shows\nThought: what is to be done next\n"
        "Action: one call, or FINISH\nSummary: what was done so far",
        "asker": "You write the documentation of an app's elements.",
        "before": "A user did this on an element with the tag 1: {action}\nBefore:\n",
        "after": "\nAfter:\n",
        "ask": "\nTell in one or two sentences what the element does in general. Name neither the tag nor what belongs "
        "to this task alone.",
        "draft": "It was used to {action}; then {change}.",
        "unseen": "what followed was not recorded",
    }

    scope: Literal["bank", "trajectory"] = "bank"
    documents: int = 24
    document_tokens: int = 80
    apart: float = 30 / 1080
    actions: Literal["own", "actor"] = "own"

    def __post_init__(self) -> None:
        for name in ("documents", "document_tokens"):
            if getattr(self, name) < 1:
                raise BaselineError(f"`{self.name}.{name}` must be at least 1, got {getattr(self, name)}.")
        if not 0.0 <= self.apart <= 1.0:
            raise BaselineError(f"`{self.name}.apart` must be in [0, 1], got {self.apart}.")

    def show(self, scene: Scene) -> Showing:
        """One call per document that is not written yet; a broken document is left out."""
        wanted = list(self._wanted(scene))[: self.documents]
        written = (yield [self._call(scene, want) for want in wanted]) if wanted else []
        fallbacks, text = self._told(scene, wanted, written)
        own = self.actions == "own"
        return View(
            memory=(text,) if text else (),
            current=self._current(scene),
            system=self.words["system"] if own else None,
            closing=self.words["closing"] if own else None,
            fallbacks=tuple(fallbacks),
            notes=() if any(want.tag for want in wanted) else ("no_document_on_screen",),
        )

    def reader(self, scene: Scene) -> Reader | None:
        """Reads calls; a tag stands for the middle of its element's box."""
        return TagReader(interactive(scene.step, self.apart)) if self.actions == "own" else None

    # --- which documents ---

    def _wanted(self, scene: Scene) -> Iterator[Wanted]:
        """The documents of the screen's elements in the order of their tags, and that of the retrieved step's own."""
        index, shown = self._index(scene), set()
        for tag, element in interactive(scene.step, self.apart).items():
            name = element_name(scene.step, element)
            if name not in shown:
                shown.add(name)
                yield from self._of_element(scene, index.get(name, {}), tag)
        demo = scene.demo
        use, acted = (None, None) if demo is None else (use_of(demo), demonstrated(demo))
        if demo is not None and use is not None and acted is not None and element_name(demo, acted) not in shown:
            yield Wanted(0, use, demo)

    def _of_element(self, scene: Scene, uses: dict[str, list[str]], tag: int) -> Iterator[Wanted]:
        for use, ids in uses.items():
            usable = scene.surroundings.usable(scene.step, ids)
            first = next((step_id for step_id in ids if step_id in usable), None)
            if first is not None:
                yield Wanted(tag, use, scene.surroundings.demonstration(first))

    def _index(self, scene: Scene) -> Index:
        around = scene.surroundings
        if self.scope == "bank":
            return around.once("app_agent index", lambda: make_index(around.bank()))
        return {} if scene.demo is None else make_index(around.trace(scene.demo))

    # --- their words ---

    def _call(self, scene: Scene, want: Wanted) -> WriterCall:
        step, after = want.source, scene.after(want.source)
        element = demonstrated(step)
        action = tell_action(step)
        marked = {1: element} if element is not None else {}
        parts: list[Part] = [self.words["before"].format(action=action), tagged(step.screenshot.image(), marked)]
        if after is not None:
            parts += [self.words["after"], after.screenshot.image()]
        parts.append(self.words["ask"])
        change = self.words["unseen"] if after is None else tell_change(step, after)
        draft = self.words["draft"].format(action=action.rstrip("."), change=change)
        return WriterCall(tuple(parts), self.document_tokens, draft, self.words["asker"], Charge.OFFLINE)

    def _told(self, scene: Scene, wanted: list[Wanted], written: Iterable[Written]) -> tuple[list[str], str]:
        """The fallbacks, and the text of all whole documents."""
        fallbacks, lines = [], []
        for want, answer in zip(wanted, written, strict=True):
            try:
                text = checked_text(answer.text, 400, scene.is_action)
            except Unusable as error:
                fallbacks.append(f"document: {error.fault.value}")
                continue
            element = tell_element(demonstrated(want.source))
            words = self.words["document" if want.tag else "elsewhere"]
            lines.append(words.format(tag=want.tag, element=element, use=want.use, text=text))
        return fallbacks, self.words["head"] + "".join(lines) if lines else ""

    def _current(self, scene: Scene) -> tuple[Part, ...]:
        step, past = scene.step, scene.surroundings.before(scene.step)
        last = tell_action(past[-1]) if past else self.words["none"]
        goal = self.words["goal"].format(instruction=one_line(step.instruction), last=last)
        return (goal, tagged(step.screenshot.image(), interactive(step, self.apart)))
