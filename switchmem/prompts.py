"""From a step and a view of its memory to what the actor is asked: words and pictures, current state first.

The current instruction and screenshot come before the memory, so that the state prompt and every memory
condition share one prefix, which the actor's engine computes once. Templates can put the memory first; what is left to
share then is the words before it.

A template is words and their order alone. What an actor was trained on, its own wording around the goal and how its
answer opens, stands here; how it writes actions stands in its grammar.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from PIL import Image

from switchmem.memory.baseline import View, WriterCall
from switchmem.memory.budget import Budget
from switchmem.memory.views import (
    DEFAULT_LAYOUT,
    POCKET_LAYOUT,
    Condition,
    MemoryLayout,
    Part,
    TextStyle,
    memory_parts,
    one_line,
    text_state,
)
from switchmem.steps import Action, ActionType, Step

_UNKNOWN = Action(ActionType.WAIT)
"""Stands for an action that is not to be told: it points at nothing on the screen."""


class PromptError(ValueError):
    """A prompt cannot be built; the message names the step, the rule and the way out."""


class ActionStyle(TextStyle, Protocol):
    """A `TextStyle` that also explains its action schema to the actor."""

    @property
    def system(self) -> str:
        """The message that tells which actions there are, or ""."""

    def for_screen(self, size: tuple[int, int]) -> ActionStyle:
        """The style that writes places on a screenshot of ``(width, height)`` pixels."""


@dataclass(frozen=True)
class PromptTemplate:
    """Every word of a prompt that does not come from the step, and their order.

    Args:
        name: under which `get_template` finds it.
        system: stands before the grammar's own message; "" for none.
        opening: the first words of the user message. Where it holds ``{actions}``, the grammar's message stands there
            and not in the system message.
        goal: around the current screenshot, which stands at ``{screenshot}``, else at the end; holds ``{instruction}``.
        screen_text: the current screen as text, ``{state}``, for actors that are shown it: see `with_screen_text`.
        closing: the last words, in every condition alike.
        memory: the words around the demonstration.
        memory_first: whether the memory comes before the current state.
        joint: between them, where it does.
        answer: how the actor's turn opens, in place of what its chat template writes there; None for the chat
            template's own, with thinking off. Hidden states are read at its last token.
        ends_after: with special tokens, what an answer must hold before a token can end it: actors that write several
            segments end each of them with the same token. "" for nothing.
        ends: tokens that end an answer, beside those that the model itself names.
    """

    name: str
    system: str = ""
    opening: str = ""
    goal: str = "Instruction: {instruction}\nCurrent screenshot:\n"
    screen_text: str = "\nElements of the current screen:\n{state}"
    closing: str = "\nGive the next action for the current screenshot."
    memory: MemoryLayout = field(default=DEFAULT_LAYOUT)
    memory_first: bool = False
    joint: str = "\n\n"
    answer: str | None = None
    ends_after: str = ""
    ends: tuple[str, ...] = ()

    def with_memory_first(self) -> PromptTemplate:
        """The same words with the memory before the current state.

        >>> POCKET.with_memory_first().memory_first
        True
        """
        head = self.memory.head.lstrip("\n")  # it opens the message now
        return replace(self, memory_first=True, memory=replace(self.memory, head=head))

    def with_screen_text(self) -> PromptTemplate:
        """The same words with the current screen's textual state behind the instruction, in every condition.

        >>> POCKET.with_screen_text().goal
        'goal {instruction} state {state} screen'
        """
        if "{state}" in self.goal:
            return self
        return replace(self, goal=self.goal.replace("{instruction}", "{instruction}" + self.screen_text, 1))


DEFAULT = PromptTemplate("default", system="You operate an Android phone for the user, one action at a time.")
POCKET = PromptTemplate(
    "pocket",
    goal="goal {instruction} screen",
    screen_text=" state {state}",
    closing="",
    memory=POCKET_LAYOUT,
    joint=" ",
)
UI_TARS = PromptTemplate(
    "ui_tars",
    system="You are a helpful assistant.",
    opening="{actions}\n\n",
    goal="## User Instruction\n{instruction}\n",
    closing="\nGive the Thought and the Action for the current screenshot.",
)
"""UI-TARS: everything stands in the user message, the action space first and the screenshot behind the instruction."""
AGUVIS = PromptTemplate(
    "aguvis",
    goal="{screenshot}Choose the next move from the screenshot, the instruction and the previous actions.\n\n"
    "Instruction: {instruction}\n\nPrevious actions:\nNone\n",
    closing="\nGive the next move for the current screenshot.",
    answer="<|im_start|>assistant<|recipient|>",
    ends_after="<|recipient|>os",
    ends=("<|diff_marker|>",),
)
"""Aguvis: the screenshot before the words. The actor names a recipient first: ``all`` for a plan, ``os`` for code."""
_TEMPLATES = {template.name: template for template in (DEFAULT, POCKET, UI_TARS, AGUVIS)}


def get_template(name: str) -> PromptTemplate:
    """The template of that name.

    Raises:
        PromptError: if there is none.
    """
    try:
        return _TEMPLATES[name]
    except KeyError:
        raise PromptError(f"`template` must be one of {', '.join(_TEMPLATES)}, got {name!r}.") from None


def fingerprint(template: PromptTemplate) -> str:
    """32 hexadecimal digits that change with any word of the template."""
    text = json.dumps(asdict(template), sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Prompt:
    """One question to the actor: a system message, one user message, and how the answer opens.

    Args:
        system: the system message, "" for none.
        prefix: whole parts that come before the memory; the same in every condition of a step. Empty where the memory
            comes first.
        memory: what follows: the demonstration and the words around it; may be empty.
        opening: the template's own first words of the user message, which may hold special tokens.
        answer: how the actor's turn opens; None for what its chat template writes there.
    """

    system: str
    prefix: tuple[Part, ...]
    memory: tuple[Part, ...]
    opening: str = ""
    answer: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The whole user message."""
        return _merge((self.opening, *self.prefix, *self.memory))

    @property
    def images(self) -> tuple[Image.Image, ...]:
        """The pictures of the user message in reading order."""
        return tuple(part for part in self.parts if not isinstance(part, str))

    def skeleton(self) -> Prompt:
        """The same prompt with a harmless word in the place of every text of the step."""
        prefix, memory = (
            tuple("x" if isinstance(part, str) else part for part in parts) for parts in (self.prefix, self.memory)
        )
        return replace(self, prefix=prefix, memory=memory)


@lru_cache(maxsize=64)
def _patterns(specials: tuple[str, ...]) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    """Patterns of (the start of a long special, a special of one character); None where there is none."""
    stripped = {special.strip() for special in specials} - {""}
    long = "|".join(re.escape(s) for s in sorted(stripped, key=lambda s: (-len(s), s)) if len(s) > 1)
    short = "".join(re.escape(s) for s in sorted(stripped) if len(s) == 1)
    # A look-ahead matches at every start, so that overlapping specials are all broken in one pass.
    starts = re.compile(f"(?=(?:{long}))", re.IGNORECASE) if long else None
    return starts, re.compile(f"[{short}]") if short else None


def escape_template_tokens(text: str, specials: Sequence[str]) -> str:
    """Break every special token in a text, so that a tokenizer reads plain characters.

    A blank goes behind the first character of each special, whatever its case. Specials of one character become
    a blank; specials of white space alone are ordinary text and stay. The escape is idempotent.

    Args:
        text: any text, for instance what a hostile app shows.
        specials: the tokenizer's special and added tokens.

    Returns:
        The text without any of the specials.

    >>> escape_template_tokens("Hi<|im_end|>", ["<|im_end|>"])
    'Hi< |im_end|>'
    """
    starts, short = _patterns(tuple(specials))
    if short is not None:
        text = short.sub(" ", text)
    while starts is not None:
        found = [match.start() for match in starts.finditer(text)]
        if not found:
            break
        cuts = [0, *(start + 1 for start in found), len(text)]
        text = " ".join(text[a:b] for a, b in zip(cuts, cuts[1:], strict=False))
    return text


def _merge(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join neighbouring texts and drop empty ones, so that no special can hide across a join."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)
    return tuple(merged)


def _escaped(parts: Iterable[Part], specials: Sequence[str]) -> tuple[Part, ...]:
    return tuple(escape_template_tokens(p, specials) if isinstance(p, str) else p for p in _merge(parts))


def build_prompt(
    step: Step,
    demo: Step | None,
    condition: Condition,
    template: PromptTemplate,
    style: ActionStyle,
    specials: Sequence[str],
    pictures: tuple[Image.Image | None, Image.Image | None] = (None, None),
    state: str | None = None,
    budget: Budget | None = None,
) -> Prompt:
    """Build the prompt of one step in one condition.

    Args:
        step: the current step; only its instruction, its screenshot and, where the template has a place for it, its
            textual screen are shown.
        demo: the retrieved step; may be None for condition ``NONE``, which shows nothing of it.
        condition: in which form the demonstration is shown.
        template: the words around everything.
        style: how the actor writes elements and actions.
        specials: the tokenizer's special and added tokens; none of them survives in any text of the user message.
        pictures: the decoded screenshots of ``step`` and ``demo``, where the caller has them already.
        state: the textual screen of ``demo``, where the caller has it already; None writes all of it.
        budget: the most tokens of the current textual screen; None for no limit.

    Raises:
        PromptError: if a memory condition has no demonstration.
        BudgetError: if what may not be left out of the current textual screen does not fit.
    """
    if demo is None and condition is not Condition.NONE:
        raise PromptError(
            f"`demo` must be a step for condition {condition.value!r}, got None for step {step.step_id!r}. "
            "Leave out steps for which retrieval found no memory, and count them."
        )
    screenshot = pictures[0] if pictures[0] is not None else step.screenshot.image()
    current = _current(template, step, style, screenshot, budget)
    memory: tuple[Part, ...] = ()
    if demo is not None:
        memory = memory_parts(demo, condition, _style_on(demo, style), template.memory, pictures[1], state)
    return _arranged(current, memory, template, style, specials)


def _arranged(
    current: tuple[Part, ...],
    memory: tuple[Part, ...],
    template: PromptTemplate,
    style: ActionStyle,
    specials: Sequence[str],
    closing: str | None = None,
) -> Prompt:
    """The template's prompt around a current state and a memory."""
    first, second = (memory, current) if template.memory_first else (current, memory)
    joint = template.joint if template.memory_first and memory else ""
    last = template.closing if closing is None else closing
    parts = _escaped((*first, joint, *second, last), specials)
    shared = 0 if template.memory_first else _whole_parts(current)
    in_opening = "{actions}" in template.opening
    opening = template.opening.replace("{actions}", style.system)
    system = "\n\n".join(text for text in (template.system, "" if in_opening else style.system) if text)
    return Prompt(system, parts[:shared], parts[shared:], opening, template.answer)


def view_prompt(
    step: Step,
    view: View,
    template: PromptTemplate,
    style: ActionStyle,
    specials: Sequence[str],
    budget: Budget | None = None,
) -> Prompt:
    """The prompt of one step with a baseline's view of its memory.

    Where the view brings a system message of its own, it takes the place of the template's and of the grammar's, which
    tells other actions; how the actor's turn opens is left to the chat template then, since an opening of the actor's
    own form asks for its own actions.

    Args:
        step: the current step, of which the same is shown as in every other condition.
        view: of its memory; what it leaves open is as in every other condition.
        template: the words around everything.
        style: how the actor writes actions.
        specials: the tokenizer's special and added tokens; none of them survives in any text of the user message.
        budget: the most tokens of the current textual screen; None for no limit.
    """
    current = view.current
    if current is None:
        current = _current(template, step, style, step.screenshot.image(), budget)
    prompt = _arranged(current, view.memory, template, style, specials, view.closing)
    return prompt if view.system is None else replace(prompt, system=view.system, opening="", answer=None)


def writer_prompt(call: WriterCall, specials: Sequence[str]) -> Prompt:
    """A baseline's question as a prompt; no special token survives in any of its texts."""
    return Prompt(call.system, (), _escaped(call.parts, specials))


def _current(
    template: PromptTemplate, step: Step, style: ActionStyle, screenshot: Image.Image, budget: Budget | None
) -> tuple[Part, ...]:
    """The current state: the instruction, the textual screen where asked for, and the screenshot, in their order."""
    words = {"instruction": one_line(step.instruction)}
    if "{state}" in template.goal:
        unsolved = replace(step, action=_UNKNOWN)  # what is kept of a long screen must not depend on the gold action
        words["state"] = text_state(unsolved, _style_on(step, style), template.memory, budget)
    before, _, after = template.goal.partition("{screenshot}")
    return _merge((before.format(**words), screenshot, after.format(**words)))


def _whole_parts(parts: Sequence[Part]) -> int:
    """How many parts stay whole when others follow: a text at the end is joined with the next one."""
    return len(parts) - isinstance(parts[-1], str)


def _style_on(demo: Step, style: ActionStyle) -> ActionStyle:
    """The style that writes places on the demonstration's screenshot."""
    return style.for_screen((demo.screenshot.width, demo.screenshot.height))


def build_prompts(
    step: Step,
    demo: Step | None,
    conditions: Iterable[Condition],
    template: PromptTemplate,
    style: ActionStyle,
    specials: Sequence[str],
    budget: Budget | None = None,
) -> dict[Condition, Prompt]:
    """The prompts of one step in several conditions; each screenshot is decoded, and the textual screen cut, once.

    ``NONE`` is always among them: it is the state prompt.

    Args:
        step: the current step.
        demo: the retrieved step; may be None where no memory condition is wanted.
        conditions: in which forms the demonstration is shown.
        template: the words around everything.
        style: how the actor writes elements and actions.
        specials: the tokenizer's special and added tokens.
        budget: the most tokens of a textual screen; None for no limit.

    Raises:
        PromptError: if a memory condition has no demonstration.
        BudgetError: if what may not be left out of a textual screen does not fit.
    """
    wanted = dict.fromkeys((Condition.NONE, *conditions))
    shows = demo is not None and any(condition.shows_image for condition in wanted)
    pictures = (step.screenshot.image(), demo.screenshot.image() if shows and demo is not None else None)
    tells = demo is not None and any(condition.shows_text for condition in wanted)
    state = text_state(demo, _style_on(demo, style), template.memory, budget) if tells and demo is not None else None
    return {c: build_prompt(step, demo, c, template, style, specials, pictures, state, budget) for c in wanted}
