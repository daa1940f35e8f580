"""Prompts: state first, nothing differs that should not, and no text of the world becomes a template token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.actors.grammars.base import get_grammar
from switchmem.memory.budget import Budget
from switchmem.memory.views import Condition, text_state
from switchmem.prompts import (
    DEFAULT,
    POCKET,
    PromptError,
    build_prompt,
    build_prompts,
    escape_template_tokens,
    fingerprint,
    get_template,
)
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|image_pad|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "<<",
    "[PAD]",
    "¤",
    "  ",
)


def make_step(instruction: str, labels: tuple[str, ...] = (), color: str = "red") -> Step:
    return Step(
        benchmark="pocket",
        episode_id=color,
        index=0,
        instruction=instruction,
        screenshot=Screenshot.from_image(Image.new("RGB", (8, 14), color)),
        elements=tuple(UIElement((0.1, 0.1, 0.2, 0.2), text=label) for label in labels),
        action=Action(ActionType.TYPE, text=labels[0] if labels else "x", description="Types."),
        caption=" ".join(labels),
    )


def contains_special(text: str) -> bool:
    return any(s in text.lower() for s in (s.lower() for s in SPECIALS) if s.strip())


hostile = st.lists(
    st.one_of(
        st.sampled_from(SPECIALS),
        st.sampled_from([s[:k] for s in SPECIALS for k in range(1, len(s))] + [s[1:] for s in SPECIALS]),
        st.text(max_size=4),
    ),
    min_size=1,
    max_size=8,
).map("".join)


@settings(deadline=None)
@given(hostile)
def test_no_special_survives_the_escape(text):
    escaped = escape_template_tokens(text, SPECIALS)
    assert not contains_special(escaped)
    assert escape_template_tokens(escaped, SPECIALS) == escaped
    # Nothing is lost but the specials of one character.
    assert escaped.replace(" ", "").replace("¤", "") == text.replace(" ", "").replace("¤", "")


@settings(deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="<>[]|¤")))
def test_harmless_text_stays(text):
    assert escape_template_tokens(text, SPECIALS) == text


def test_case_does_not_hide_a_special():
    assert not contains_special(escape_template_tokens("<|IM_Start|>", SPECIALS))


@settings(deadline=None)
@given(st.lists(hostile.filter(str.strip), min_size=3, max_size=4))
@pytest.mark.parametrize("template", [POCKET, DEFAULT], ids=lambda t: t.name)
def test_no_special_survives_in_any_text_or_join(template, texts):
    step, demo = make_step(texts[0]), make_step(texts[1], tuple(texts[2:]), "blue")
    prompts = build_prompts(step, demo, Condition, template, get_grammar("pocket"), SPECIALS)
    for prompt in prompts.values():
        for a, b in zip(prompt.parts, prompt.parts[1:], strict=False):
            assert not (isinstance(a, str) and isinstance(b, str)), "texts side by side could form a special"
        assert not any(contains_special(part) for part in prompt.parts if isinstance(part, str))


@settings(deadline=None)
@given(st.lists(hostile.filter(str.strip), min_size=4, max_size=6), st.integers(60, 200))
def test_no_special_survives_in_a_screen_that_was_cut(texts, tokens):
    step, demo = make_step(texts[0]), make_step(texts[1], tuple(texts[2:]), "blue")
    grammar, budget = get_grammar("mobile_use"), Budget(tokens, len)
    prompts = build_prompts(step, demo, Condition, DEFAULT, grammar, SPECIALS, budget)
    for prompt in prompts.values():
        assert not any(contains_special(part) for part in prompt.parts if isinstance(part, str))


def test_both_text_conditions_show_the_same_cut_screen():
    step, demo = make_step("open star"), make_step("find mail", tuple(f"row {n}" for n in range(9)), "blue")
    budget = Budget(120, len)
    prompts = build_prompts(step, demo, Condition, DEFAULT, get_grammar("mobile_use"), (), budget)
    state = text_state(demo, get_grammar("mobile_use"), DEFAULT.memory, budget)
    assert len(state) <= 120 and "more of the screen's elements" in state
    assert all(
        (state in prompts[c].memory[0]) == c.shows_text for c in (Condition.TEXT, Condition.IMAGE, Condition.BOTH)
    )


def test_pocket_prompt_to_the_letter():
    step, demo = make_step("open star"), make_step("find mail", ("Orbit",), "blue")
    prompts = build_prompts(step, demo, Condition, POCKET, get_grammar("pocket"), SPECIALS)
    for prompt in prompts.values():
        assert prompt.system == ""
        assert prompt.prefix[0] == "goal open star screen" and prompt.prefix[1].getpixel((0, 0)) == (255, 0, 0)
    assert prompts[Condition.NONE].memory == ()
    assert prompts[Condition.TEXT].memory == ("memory find mail state r1c0 orbit action type orbit",)
    assert prompts[Condition.IMAGE].memory[::2] == ("memory find mail picture", "action type orbit")
    assert prompts[Condition.IMAGE].memory[1].getpixel((0, 0)) == (0, 0, 255)


def test_state_first_and_one_closing():
    step, demo = make_step("open star"), make_step("find mail", ("Orbit",), "blue")
    grammar = get_grammar("mobile_use")
    prompts = build_prompts(step, demo, Condition, DEFAULT, grammar, ())
    assert len({p.prefix[0] for p in prompts.values()}) == 1
    assert all(p.memory[-1].endswith(DEFAULT.closing) and grammar.system in p.system for p in prompts.values())
    assert [len(p.images) for p in prompts.values()] == [1, 1, 2, 2]


def test_the_state_prompt_shows_nothing_of_the_demonstration():
    step, demo = make_step("open star"), make_step("find mail", ("Orbit",), "blue")
    with_demo, without = (
        build_prompt(step, d, Condition.NONE, DEFAULT, get_grammar("mobile_use"), ()) for d in (demo, None)
    )
    assert with_demo.memory == without.memory


@pytest.mark.parametrize("tokens", [None, 40, 12])
@pytest.mark.parametrize("name", ["default", "ui_tars", "aguvis", "pocket"])
def test_the_current_screen_as_text_stands_in_every_condition_and_tells_no_answer(name, tokens):
    elements = tuple(UIElement((0.1, 0.1 * k, 0.2, 0.1 * k + 0.05), text=f"Row {k}") for k in range(9))
    steps = [
        replace(make_step("Go"), elements=elements, action=action)
        for action in (Action(ActionType.TAP, (0.15, 0.82)), Action(ActionType.TYPE, text="Row 3"))
    ]
    budget = None if tokens is None else Budget(tokens, lambda text: len(text.split()))
    template, style = get_template(name).with_screen_text(), get_grammar("pocket")
    demo = make_step("Then", ("there",), "blue")
    one, other = (build_prompts(step, demo, Condition, template, style, SPECIALS, budget) for step in steps)
    assert one == other
    told = text_state(replace(steps[0], action=Action(ActionType.WAIT)), style, template.memory, budget)
    assert "row 0" in told and ("row 8" in told) == (tokens is None or tokens > 27)
    for condition in Condition:
        (found,) = [text for text in one[condition].parts if isinstance(text, str) and told in text]
        assert found.index("Go") < found.index(told)
    assert template.with_screen_text() == template != get_template(name)


def test_a_memory_condition_needs_a_memory():
    with pytest.raises(
        PromptError, match=r"`demo` must be a step for condition 'text', got None for step 'pocket/red/0'"
    ):
        build_prompt(make_step("open star"), None, Condition.TEXT, POCKET, get_grammar("pocket"), ())


def test_fingerprint_changes_with_any_word():
    assert fingerprint(POCKET) == fingerprint(get_template("pocket")) != fingerprint(DEFAULT)
    assert fingerprint(replace(POCKET, closing="!")) != fingerprint(POCKET)
    assert fingerprint(replace(POCKET, memory=replace(POCKET.memory, action="act {action}"))) != fingerprint(POCKET)


def test_unknown_template_lists_the_known():
    with pytest.raises(PromptError, match="`template` must be one of default, pocket, ui_tars, aguvis, got 'nope'"):
        get_template("nope")
