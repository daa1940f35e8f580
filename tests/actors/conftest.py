"""Tiny random Qwen3.5 actors with a small word tokenizer, built here so that no test depends on shipped weights."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
)

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.grammars.base import get_grammar
from switchmem.actors.vlm import StepPrompts, VLMActor
from switchmem.memory.views import Condition
from switchmem.prompts import POCKET, build_prompts
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

SPECIALS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<think>", "</think>"]
WORDS = (
    "user system assistant goal screen memory state action picture tap hold swipe drag type back home enter open wait "
    "done impossible unlabelled ; star orbit lamp mail river cloud stone leaf bell moon"
).split()
TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- for c in m.content %}{% if c.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    places = [f"r{r}c{c}" for r in range(7) for c in range(4)]
    vocab = {word: i for i, word in enumerate(["<unk>", *SPECIALS, *WORDS, *places])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        additional_special_tokens=SPECIALS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast, hybrid: bool, seed: int = 0) -> Qwen3_5ForConditionalGeneration:
    torch.manual_seed(seed)
    ids = dict(zip(SPECIALS, tokenizer.convert_tokens_to_ids(SPECIALS), strict=True))
    layers = ["linear_attention", "full_attention"] * 2 if hybrid else ["full_attention"] * 3
    config = Qwen3_5Config(
        text_config=dict(
            vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=len(layers),
            num_attention_heads=2, num_key_value_heads=1, head_dim=24, layer_types=layers,
            linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 4, 4],
                                 mrope_interleaved=True, partial_rotary_factor=1.0),
        ),
        vision_config=dict(depth=2, hidden_size=32, intermediate_size=64, num_heads=2, patch_size=16,
                           spatial_merge_size=2, temporal_patch_size=1, out_hidden_size=48, num_position_embeddings=16),
        image_token_id=ids["<|image_pad|>"], video_token_id=len(tokenizer) + 1,
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
    )  # fmt: skip
    model = Qwen3_5ForConditionalGeneration(config).eval()
    with torch.no_grad():  # larger weights than the default, so that differences cannot hide below the tolerance
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return model


def build_actor(hybrid: bool, max_prompt_tokens: int | None = None) -> VLMActor:
    tokenizer = build_tokenizer()
    images = Qwen2VLImageProcessorPil(
        patch_size=16, merge_size=2, temporal_patch_size=1, size={"shortest_edge": 32 * 32, "longest_edge": 64 * 96}
    )
    model = build_model(tokenizer, hybrid)
    return VLMActor(model, PromptEncoder(tokenizer, images, model.config.image_token_id, max_prompt_tokens))


def build_step(seed: int, episode: str = "e", width: int = 64, height: int = 96) -> Step:
    rng = random.Random(seed)
    words = "star orbit lamp mail river cloud stone leaf bell moon".split()
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    elements = []
    for _ in range(rng.randint(1, 6)):
        x, y = rng.uniform(0, 0.8), rng.uniform(0, 0.8)
        label = rng.choice([*words, ""])
        elements.append(UIElement((x, y, x + 0.2, y + 0.1), text=label, kind="Button", clickable=True))
    return Step(
        benchmark="pocket",
        episode_id=f"{episode}{seed}",
        index=seed % 3,
        instruction=" ".join(rng.choices(words, k=rng.randint(1, 4))),
        screenshot=Screenshot.from_image(Image.fromarray(pixels)),
        elements=tuple(elements),
        action=Action(ActionType.TAP, (rng.random(), rng.random()), description="Taps it."),
    )


def build_questions(actor: VLMActor, seeds, conditions=tuple(Condition)) -> list[StepPrompts]:
    grammar, questions = get_grammar("pocket"), []
    for seed in seeds:
        step, demo = build_step(seed), build_step(1000 + seed, "d")
        prompts = build_prompts(step, demo, conditions, POCKET, grammar, actor.specials)
        questions.append(StepPrompts(step.step_id, prompts))
    return questions


@pytest.fixture(scope="session", params=[False, True], ids=["full", "hybrid"])
def actor(request) -> VLMActor:
    """An actor of attention layers alone, and one with linear-attention layers. Shared: leave it as it is."""
    return build_actor(request.param)


@pytest.fixture(scope="session")
def make_actor():
    return build_actor


@pytest.fixture(scope="session")
def make_step():
    return build_step


@pytest.fixture(scope="session")
def make_questions():
    return build_questions


@pytest.fixture(scope="session")
def word_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@pytest.fixture(scope="session")
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE with NFC, like Qwen's, with special tokens and added ones that are not special."""
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(["the screen of a phone <|im_ start|> tool_call"] * 20, trainer)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", additional_special_tokens=SPECIALS[:5]
    )
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    tokenizer.chat_template = TEMPLATE
    return tokenizer
