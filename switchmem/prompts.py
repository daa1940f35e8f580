"""From a step and a view of its memory to what the actor is asked: words and pictures, current state first.

The current instruction and screenshot come before the memory, so that the state prompt and every memory
condition share one prefix, which the actor's engine computes once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Protocol

from PIL import Image

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
from switchmem.steps import Step


class PromptError(ValueError):
    """A prompt cannot be built; the message names the step, the rule and the way out."""


class ActionStyle(TextStyle, Protocol):
    """A `TextStyle` that also explains its action schema to the actor."""

    @property
    def system(self) -> str:
        """The system message that tells which actions there are, or ""."""


@dataclass(frozen=True)
class PromptTemplate:
    """Every word of a prompt that does not come from the step.

    Args:
        name: under which `get_template` finds it.
        system: stands before the grammar's own system message; "" for none.
        goal: before the current screenshot; holds ``{instruction}``.
        closing: the last words, after the memory and in every condition alike.
        memory: the words around the demonstration.
    """

    name: str
    system: str = ""
    goal: str = "Instruction: {instruction}\nCurrent screenshot:\n"
    closing: str = "\nGive the next action for the current screenshot."
    memory: MemoryLayout = field(default=DEFAULT_LAYOUT)


DEFAULT = PromptTemplate("default", system="You operate an Android phone for the user, one action at a time.")
POCKET = PromptTemplate("pocket", goal="goal {instruction} screen", closing="", memory=POCKET_LAYOUT)
_TEMPLATES = {template.name: template for template in (DEFAULT, POCKET)}


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
    """One question to the actor: a system message and one user message.

    Args:
        system: the system message, "" for none.
        prefix: instruction and current screenshot; the same in every condition of a step.
        memory: the demonstration and the closing words; may be empty.
    """

    system: str
    prefix: tuple[Part, ...]
    memory: tuple[Part, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The whole user message."""
        return self.prefix + self.memory

    @property
    def images(self) -> tuple[Image.Image, ...]:
        """The pictures of the user message in reading order."""
        return tuple(part for part in self.parts if not isinstance(part, str))


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
) -> Prompt:
    """Build the prompt of one step in one condition.

    Args:
        step: the current step; only its instruction and screenshot are shown.
        demo: the retrieved step; may be None for condition ``NONE``, which shows nothing of it.
        condition: in which form the demonstration is shown.
        template: the words around everything.
        style: how the actor writes elements and actions.
        specials: the tokenizer's special and added tokens; none of them survives in any text of the user message.
        pictures: the decoded screenshots of ``step`` and ``demo``, where the caller has them already.
        state: the textual screen of ``demo``, where the caller has it already; None writes all of it.

    Raises:
        PromptError: if a memory condition has no demonstration.
    """
    if demo is None and condition is not Condition.NONE:
        raise PromptError(
            f"`demo` must be a step for condition {condition.value!r}, got None for step {step.step_id!r}. "
            "Leave out steps for which retrieval found no memory, and count them."
        )
    screenshot = pictures[0] if pictures[0] is not None else step.screenshot.image()
    # The prefix ends with the screenshot: the vision tokens keep its text and the memory's apart.
    prefix = (template.goal.format(instruction=one_line(step.instruction)), screenshot)
    memory = () if demo is None else memory_parts(demo, condition, style, template.memory, pictures[1], state)
    system = "\n\n".join(text for text in (template.system, style.system) if text)
    return Prompt(system, _escaped(prefix, specials), _escaped((*memory, template.closing), specials))


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
        budget: the most tokens of its textual screen; None for no limit.

    Raises:
        PromptError: if a memory condition has no demonstration.
        BudgetError: if what may not be left out of the textual screen does not fit.
    """
    wanted = dict.fromkeys((Condition.NONE, *conditions))
    shows = demo is not None and any(condition.shows_image for condition in wanted)
    pictures = (step.screenshot.image(), demo.screenshot.image() if shows and demo is not None else None)
    tells = demo is not None and any(condition.shows_text for condition in wanted)
    state = text_state(demo, style, template.memory, budget) if tells and demo is not None else None
    return {c: build_prompt(step, demo, c, template, style, specials, pictures, state) for c in wanted}
