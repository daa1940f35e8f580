"""What of one demonstration the actor is shown: nothing, its screen as text, as a picture, or both.

Between the conditions only the representation of the past observation differs (SwitchMem, section 3.1);
the instruction, the demonstrated action and every word around them come from the same `MemoryLayout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from PIL import Image

from switchmem.steps import Action, Step, UIElement

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


class TextStyle(Protocol):
    """How an actor writes places, elements and actions. Its grammar supplies this."""

    def point(self, x: float, y: float) -> str:
        """A place; ``x`` and ``y`` are fractions of the screen in [0, 1]."""

    def element(self, element: UIElement) -> str:
        """One element of a screen, without a line break."""

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
    """

    head: str = "\nA demonstration: a past step that succeeded.\nInstruction of the demonstration: {instruction}\n"
    state: str = "Screen of the demonstration, as text:\n{state}"
    picture: str = "\nScreenshot of the demonstration:\n"
    action: str = "\nAction taken in the demonstration: {action}"
    description: str = "\nWhat this action does: {description}"
    activity: str = "Activity: {activity}"
    caption: str = "Page: {caption}"
    separator: str = "\n"


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
)


def one_line(text: str) -> str:
    r"""The text with every run of white space as one blank.

    >>> one_line(" Sign\n in ")
    'Sign in'
    """
    return " ".join(text.split())


def text_state(step: Step, style: TextStyle, layout: MemoryLayout = DEFAULT_LAYOUT) -> str:
    """The screen of a step as an actor reads it: activity and page where known, then one entry per element."""
    entries: list[str] = []
    if layout.activity and step.activity:
        entries.append(layout.activity.format(activity=one_line(step.activity)))
    if layout.caption and step.caption:
        entries.append(layout.caption.format(caption=one_line(step.caption)))
    entries.extend(style.element(element) for element in step.elements)
    return layout.separator.join(entries)


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
) -> tuple[Part, ...]:
    """One demonstration in one condition, texts and pictures in reading order.

    Args:
        demo: the retrieved step.
        condition: in which form its screen is shown; ``NONE`` gives an empty tuple.
        style: how the actor writes elements and actions.
        layout: the words around them.
        picture: the decoded screenshot of ``demo`` where the caller has it already.

    Returns:
        Texts and pictures; no two texts follow each other.
    """
    if condition is Condition.NONE:
        return ()
    text = layout.head.format(instruction=one_line(demo.instruction))
    parts: list[Part] = []
    if condition.shows_text:
        text += layout.state.format(state=text_state(demo, style, layout))
    if condition.shows_image:
        parts += [text + layout.picture, picture if picture is not None else demo.screenshot.image()]
        text = ""
    text += layout.action.format(action=style.action(demo.action))
    if layout.description and demo.action.description:
        text += layout.description.format(description=one_line(demo.action.description))
    parts.append(text)
    return tuple(parts)
