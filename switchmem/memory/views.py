"""What of one demonstration the actor is shown: nothing, its screen as text, as a picture, or both.

Between the conditions only the representation of the past observation differs (SwitchMem, section 3.1);
the instruction, the demonstrated action and every word around them come from the same `MemoryLayout`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Protocol

from PIL import Image

from switchmem.memory.budget import Budget, BudgetError, Entry, fit, shortened
from switchmem.steps import Action, ActionType, Step, UIElement

Part = str | Image.Image
"""A piece of a prompt: a text or a picture."""


class Condition(str, Enum):
    """In which form the retrieved demonstration is given."""

    NONE = "none"
    TEXT = "text"
    IMAGE = "image"
    BOTH = "both"

    @property
    def shows_text(self) -> bool:
        """Whether the past screen is given as text."""
        return self in (Condition.TEXT, Condition.BOTH)

    @property
    def shows_image(self) -> bool:
        """Whether the past screen is given as a picture."""
        return self in (Condition.IMAGE, Condition.BOTH)


@dataclass(frozen=True)
class ElementView:
    """What a benchmark's textual state tells of an element, beside its label, its kind and where it is.

    Args:
        box: the whole box is written instead of its middle.
        description: the description follows where the text is the label.
        resource_id: the developer's identifier is written, without the package.
        flags: the state flags are written.
    """

    box: bool = False
    description: bool = True
    resource_id: bool = True
    flags: bool = True


TREE = ElementView()
"""An accessibility tree: text, description, class, identifier and state."""

VIEWS = {
    "aitw": ElementView(box=True, description=False, resource_id=False, flags=False),  # annotations: text, type, box
    "learngui": ElementView(resource_id=False),  # descriptions and functionality
}
"""Benchmarks whose elements are no accessibility tree (SwitchMem, appendix B.1)."""


def element_view(benchmark: str) -> ElementView:
    """What the textual state of a benchmark's steps tells."""
    return VIEWS.get(benchmark, TREE)


def views_as_dict() -> dict[str, Any]:
    """All views as plain JSON values, for fingerprints: a changed view is another prompt."""
    return {name: asdict(view) for name, view in {"": TREE, **VIEWS}.items()}


class TextStyle(Protocol):
    """How an actor writes places, elements and actions. Its grammar supplies this."""

    def point(self, x: float, y: float) -> str:
        """A place; ``x`` and ``y`` are fractions of the screen in [0, 1]."""

    def element(self, element: UIElement, view: ElementView = TREE) -> str:
        """One element of a screen, without a line break; what there is no word for is left out."""

    def action(self, action: Action) -> str:
        """One action as the actor itself would write it."""


@dataclass(frozen=True)
class MemoryLayout:
    """The words around a demonstration.

    Args:
        head: opens the memory; may hold ``{instruction}``.
        state: introduces the textual screen; holds ``{state}``.
        picture: stands right before the demonstration's screenshot.
        action: the demonstrated action; holds ``{action}``.
        description: the sentence that tells the action, ``{description}``; left out where there is none.
        activity, caption: first lines of the textual screen, ``{activity}`` and ``{caption}``; "" leaves them out.
        separator: between two elements of the textual screen.
        more: last line of a textual screen that was cut, ``{count}`` elements short; "" leaves it out.
    """

    head: str = "\nA demonstration: a past step that succeeded.\nInstruction of the demonstration: {instruction}\n"
    state: str = "Screen of the demonstration, as text:\n{state}"
    picture: str = "\nScreenshot of the demonstration:\n"
    action: str = "\nAction taken in the demonstration: {action}"
    description: str = "\nWhat this action does: {description}"
    activity: str = "Activity: {activity}"
    caption: str = "Page: {caption}"
    separator: str = "\n"
    more: str = "... {count} more of the screen's elements"


DEFAULT_LAYOUT = MemoryLayout()
POCKET_LAYOUT = MemoryLayout(
    head="memory {instruction} ",
    state="state {state} ",
    picture="picture",
    action="action {action}",
    description="",
    activity="",
    caption="",
    separator=" ",
    more="",  # its vocabulary has no such words
)


def one_line(text: str) -> str:
    r"""The text with every run of white space as one blank.

    >>> one_line(" Sign\n in ")
    'Sign in'
    """
    return " ".join(text.split())


def text_state(
    step: Step, style: TextStyle, layout: MemoryLayout = DEFAULT_LAYOUT, budget: Budget | None = None
) -> str:
    """The screen of a step as an actor reads it: activity and page where known, then one entry per element.

    Elements keep the recording's order; of those that read the same and have the same box, only the first is written.

    Args:
        step: whose screen.
        style: how the actor writes elements.
        layout: the words around them.
        budget: the most tokens; None for all of the screen. Activity, page and the `demonstrated` element are never
            left out, though their texts may be shortened. Of the others, those without a label go first, then the
            farthest from the demonstrated point, or from the end where there is no point.

    Raises:
        BudgetError: if what may not be left out does not fit.
    """
    entries = [Entry(partial(_head, line, text)) for line, text in _heads(step, layout)]
    entries += _element_entries(step, style)
    if budget is None:
        return layout.separator.join(entry.write(None) for entry in entries)
    try:
        return fit(entries, layout.separator, layout.more, budget)
    except BudgetError as error:
        raise BudgetError(f"Step {step.step_id!r}: {error}") from error


def _heads(step: Step, layout: MemoryLayout) -> list[tuple[Callable[[str], str], str]]:
    """The lines in front of the elements, each with its text."""
    lines = []
    if layout.activity and step.activity:
        lines.append((lambda text: layout.activity.format(activity=text), one_line(step.activity)))
    if layout.caption and step.caption:
        lines.append((lambda text: layout.caption.format(caption=text), one_line(step.caption)))
    return lines


def _head(line: Callable[[str], str], text: str, most: int | None) -> str:
    return line(shortened(text, most))


def _element_entries(step: Step, style: TextStyle) -> list[Entry]:
    view, target = element_view(step.benchmark), demonstrated(step)
    anchor = step.action.point or (target.center if target is not None else None)
    entries: dict[tuple[Any, str], Entry] = {}
    for number, element in enumerate(step.elements):
        write = partial(_element, element, style, view)
        here = element is target
        rank = None if here else _rank(step, element, number, anchor)
        key = (element.box, write(None))
        if here or key not in entries:  # a copy of an earlier one has its place
            entries[key] = Entry(write, rank, here)
    return list(entries.values())


def _element(element: UIElement, style: TextStyle, view: ElementView, most: int | None) -> str:
    if most is not None:
        element = replace(
            element,
            text=shortened(one_line(element.text), most),
            kind=shortened(one_line(element.kind), most),
            description=shortened(one_line(element.description), most),
            resource_id=shortened(one_line(element.resource_id.rpartition("/")[2]), most),
        )
    return style.element(element, view)


def _rank(step: Step, element: UIElement, number: int, anchor: tuple[float, float] | None) -> tuple[float, ...]:
    """The lower, the earlier an element is left out of a screen that is too long."""
    labelled = bool(element.label.strip())
    if anchor is None:
        return (labelled, -number)
    return (labelled, -_distance(step, element, anchor), -element.area, -number)


def _distance(step: Step, element: UIElement, point: tuple[float, float]) -> float:
    """From a point to the nearest point of an element, in pixels; 0 inside."""
    left, top, right, bottom = element.box
    across = max(left - point[0], 0.0, point[0] - right) * step.screenshot.width
    down = max(top - point[1], 0.0, point[1] - bottom) * step.screenshot.height
    return math.hypot(across, down)


def demonstrated(step: Step) -> UIElement | None:
    """The element on which a step's action is carried out.

    Where the finger touches, it is the smallest box that holds the point, one with a label before one without; where
    none does, as with annotations that leave gaps, the nearest. Text is typed into the first editable element. Other
    actions have none.
    """
    point, elements = step.action.point, step.elements
    if point is None:
        fields = [element for element in elements if element.editable] if step.action.type is ActionType.TYPE else []
        return fields[0] if fields else None
    return min(elements, key=lambda e: (_distance(step, e, point), e.area, not e.label.strip()), default=None)


def state_text(step: Step) -> str:
    """The screen of a step as words alone, the same for every actor: what retrieval embeds.

    Places are left out, because word n-grams of coordinates would only add noise to a similarity of screens.
    """
    lines = [one_line(step.activity), one_line(step.caption)]
    lines += [one_line(f"{element.label} {element.kind}") for element in step.elements]
    return "\n".join(line for line in lines if line)


def query_text(step: Step) -> str:
    """Query and key text of retrieval: the instruction on the first line, then the textual state."""
    return "\n".join(part for part in (one_line(step.instruction), state_text(step)) if part)


def memory_parts(
    demo: Step,
    condition: Condition,
    style: TextStyle,
    layout: MemoryLayout = DEFAULT_LAYOUT,
    picture: Image.Image | None = None,
    state: str | None = None,
) -> tuple[Part, ...]:
    """One demonstration in one condition, texts and pictures in reading order.

    Args:
        demo: the retrieved step.
        condition: in which form its screen is shown; ``NONE`` gives an empty tuple.
        style: how the actor writes elements and actions.
        layout: the words around them.
        picture: the decoded screenshot of ``demo`` where the caller has it already.
        state: its `text_state` where the caller has it already, perhaps cut to a budget.

    Returns:
        Texts and pictures; no two texts follow each other.
    """
    if condition is Condition.NONE:
        return ()
    text = layout.head.format(instruction=one_line(demo.instruction))
    parts: list[Part] = []
    if condition.shows_text:
        text += layout.state.format(state=text_state(demo, style, layout) if state is None else state)
    if condition.shows_image:
        parts += [text + layout.picture, picture if picture is not None else demo.screenshot.image()]
        text = ""
    text += layout.action.format(action=style.action(demo.action))
    if layout.description and demo.action.description:
        text += layout.description.format(description=one_line(demo.action.description))
    parts.append(text)
    return tuple(parts)
