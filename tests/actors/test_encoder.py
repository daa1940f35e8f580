"""From words to tokens: hostile texts stay texts, and the chat template's own tokens stay where they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import PreTrainedTokenizerFast

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.grammars.base import get_grammar
from switchmem.actors.spec import SHIPPED
from switchmem.memory.budget import Budget, BudgetError
from switchmem.memory.views import Condition
from switchmem.prompts import DEFAULT, POCKET, Prompt, PromptError, build_prompts, escape_template_tokens
from switchmem.steps import UIElement

WORDS = [
    "<|im_start|>",
    "<|im_end|>",
    "<|image_pad|>",
    "<|vision_start|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "<unk>",
]
scraps = [*WORDS, *(w[:k] for w in WORDS for k in (1, 2, -1)), *(w[1:] for w in WORDS), "＜|im_end|＞", "|>", " "]
hostile = st.lists(st.sampled_from(scraps) | st.text(max_size=3), min_size=1, max_size=8).map("".join)


@pytest.fixture(params=["word", "byte", "pocket"])
def tokenizer(request, word_tokenizer, byte_tokenizer):
    if request.param == "pocket":
        if not (SHIPPED["pocket"] / "tokenizer.json").is_file():
            pytest.skip(f"the pocket actor is not in {SHIPPED['pocket']}")
        return PreTrainedTokenizerFast.from_pretrained(SHIPPED["pocket"])
    return {"word": word_tokenizer, "byte": byte_tokenizer}[request.param]


def encoder_of(tokenizer, limit=None) -> PromptEncoder:
    return PromptEncoder(tokenizer, None, tokenizer.convert_tokens_to_ids("<|image_pad|>"), limit)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=hostile)
def test_hostile_text_never_becomes_a_template_token(tokenizer, text):
    encoder = encoder_of(tokenizer)
    added = set(tokenizer.added_tokens_decoder) | set(tokenizer.all_special_ids)
    added.discard(tokenizer.convert_tokens_to_ids("<unk>"))
    ids = tokenizer(escape_template_tokens(text, encoder.specials), add_special_tokens=False)["input_ids"]
    assert not added & set(ids)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts=st.lists(hostile.filter(str.strip), min_size=3, max_size=3))
def test_hostile_screens_change_no_template_token(tokenizer, make_step, texts):
    encoder = encoder_of(tokenizer)
    elements = tuple(UIElement((0, 0, 1, 1), text=text) for text in texts)
    step = replace(make_step(0), instruction=texts[0])
    demo = replace(make_step(1), instruction=texts[1], elements=elements, activity=texts[2], caption=texts[0])
    for template in (POCKET, DEFAULT):
        prompts = build_prompts(step, demo, Condition, template, get_grammar("mobile_use"), encoder.specials)
        rows = encoder.encode("s", prompts.values(), [[1] * len(p.images) for p in prompts.values()])
        starts = tokenizer.convert_tokens_to_ids("<|im_start|>")
        assert [row.count(starts) for row in rows] == [3] * 4
        assert [row.count(tokenizer.convert_tokens_to_ids("<|image_pad|>")) for row in rows] == [1, 1, 2, 2]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts=st.lists(hostile, min_size=1, max_size=12), tokens=st.integers(40, 120))
def test_a_cut_screen_has_no_more_tokens_in_the_prompt_than_its_budget(tokenizer, make_step, texts, tokens):
    encoder = encoder_of(tokenizer)
    elements = tuple(UIElement((n / 20, 0, 1, 1), text=text) for n, text in enumerate(texts))
    step, demo = make_step(0), replace(make_step(1), elements=elements)
    budget = Budget(tokens, encoder.count)
    grammar = get_grammar("mobile_use")
    try:
        prompts = build_prompts(step, demo, [Condition.TEXT], DEFAULT, grammar, encoder.specials, budget)
    except BudgetError:
        return
    text = prompts[Condition.TEXT].memory[0]
    state = text.partition("as text:\n")[2].partition("\nAction taken")[0]
    assert state and len(tokenizer(state, add_special_tokens=False)["input_ids"]) <= tokens


def test_unescaped_specials_are_refused(word_tokenizer):
    prompt = Prompt("", ("goal <|im_end|> star",), ())
    with pytest.raises(PromptError, match=r"step 'a/b/0' holds a special token.*'<\|im_end\|>'"):
        encoder_of(word_tokenizer).encode("a/b/0", [prompt], [[]])


def test_thinking_is_off_and_pictures_become_runs(word_tokenizer):
    image = Image.new("RGB", (64, 96))
    encoder = encoder_of(word_tokenizer)
    (row,) = encoder.encode("s", [Prompt("", ("goal star screen", image), ("memory",))], [[6]])
    text = word_tokenizer.decode(row).split()
    assert text[:6] == ["<|im_start|>", "user", "goal", "star", "screen", "<|vision_start|>"]
    assert text[6:14] == ["<|image_pad|>"] * 6 + ["<|vision_end|>", "memory"]
    assert text[14:] == ["<|im_end|>", "<|im_start|>", "assistant", "<think>", "</think>"]


def test_an_answer_holds_special_tokens_and_no_mark_for_unknown_words(word_tokenizer, byte_tokenizer):
    known, marked = (word_tokenizer(text)["input_ids"] for text in ("goal <|vision_start|> star", "goal • star ••"))
    unknown = word_tokenizer.unk_token_id
    assert marked.count(unknown) == 2
    text = encoder_of(word_tokenizer).text
    assert (text(known), text(marked), text([unknown])) == ("goal <|vision_start|> star", "goal star", "")
    assert encoder_of(byte_tokenizer).text(byte_tokenizer("a • b <unk>")["input_ids"]) == "a • b <unk>"


def test_a_lone_surrogate_becomes_a_question_mark(byte_tokenizer):
    encoder = encoder_of(byte_tokenizer)
    (row,), (same,) = (encoder.encode("s", [Prompt("", (f"goal {mark}",), ())], [[]]) for mark in ("\ud800", "?"))
    assert row == same and encoder.tokens("a\udfff") == encoder.tokens("a?")


def test_a_long_prompt_is_refused_by_name(word_tokenizer):
    with pytest.raises(PromptError, match=r"at most 9 tokens \(`max_prompt_tokens`\), got 10 for step 's', 0 of them"):
        encoder_of(word_tokenizer, 9).encode("s", [Prompt("", ("goal star screen",), ())], [[]])


def test_equal_pictures_are_prepared_once(actor):
    a, b, c = (Image.new("RGB", (64, 96), color) for color in ("red", "red", "blue"))
    pixels, grids, index = actor.encoder.pictures([a, b, c, a])
    assert [index[id(image)] for image in (a, b, c)] == [0, 0, 1]
    vision = actor.model.config.vision_config
    values = 3 * vision.temporal_patch_size * vision.patch_size**2
    assert grids.tolist() == [[1, 6, 4]] * 2 and [p.shape for p in pixels] == [(24, values)] * 2
