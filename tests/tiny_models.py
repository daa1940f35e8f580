"""Tiny random actors of every architecture, built from its real config class, so that no test needs shipped weights."""

from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.grammars.base import get_grammar
from switchmem.actors.vlm import StepPrompts, VLMActor
from switchmem.memory.views import Condition
from switchmem.prompts import POCKET, build_prompts
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

SPECIALS = [
    "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<think>", "</think>",
    "<|recipient|>", "<|diff_marker|>", "<|box_start|>", "<|box_end|>",
]  # fmt: skip
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
KINDS = ("full", "hybrid", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Qwen3.5 with attention alone and with linear attention, Qwen2-VL, Qwen2.5-VL, Qwen3-VL."""
PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14}
FRAMES = {"full": 1, "hybrid": 1}


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


def build_model(tokenizer: PreTrainedTokenizerFast, kind: str, seed: int = 0) -> torch.nn.Module:
    """Widths of text and vision differ, there are fewer key heads than heads, and every special feature is on."""
    ids = dict(zip(SPECIALS, tokenizer.convert_tokens_to_ids(SPECIALS), strict=True))
    text = dict(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 4, 4]),
    )  # fmt: skip
    vision = dict(depth=2, num_heads=2, patch_size=PATCH.get(kind, 16), spatial_merge_size=2,
                  temporal_patch_size=FRAMES.get(kind, 2))  # fmt: skip
    if kind in ("full", "hybrid"):
        layers = ["linear_attention", "full_attention"] * 2 if kind == "hybrid" else ["full_attention"] * 3
        text |= dict(num_hidden_layers=len(layers), layer_types=layers, head_dim=24, linear_num_key_heads=2,
                     linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16)  # fmt: skip
        text["rope_parameters"] |= dict(mrope_interleaved=True, partial_rotary_factor=1.0)
        vision |= dict(hidden_size=32, intermediate_size=64, out_hidden_size=48, num_position_embeddings=16)
        config_class, model_class = Qwen3_5Config, Qwen3_5ForConditionalGeneration
    elif kind == "qwen3_vl":
        text |= dict(head_dim=24)
        text["rope_parameters"] |= dict(mrope_interleaved=True)
        vision |= dict(depth=3, hidden_size=32, intermediate_size=64, out_hidden_size=48, num_position_embeddings=16,
                       deepstack_visual_indexes=[0, 1])  # fmt: skip
        config_class, model_class = Qwen3VLConfig, Qwen3VLForConditionalGeneration
    elif kind == "qwen2_5_vl":
        vision |= dict(depth=3, hidden_size=32, intermediate_size=64, out_hidden_size=48, window_size=56,
                       fullatt_block_indexes=[1])  # fmt: skip
        config_class, model_class = Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
    else:
        vision |= dict(embed_dim=32, hidden_size=48)
        config_class, model_class = Qwen2VLConfig, Qwen2VLForConditionalGeneration
    torch.manual_seed(seed)
    config = config_class(
        text_config=text, vision_config=vision, image_token_id=ids["<|image_pad|>"],
        video_token_id=len(tokenizer) + 1, vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )  # fmt: skip
    model = model_class(config).eval()
    with torch.no_grad():  # larger weights than the default, so that differences cannot hide below the tolerance
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return model


def build_images(kind: str) -> Qwen2VLImageProcessorPil:
    return Qwen2VLImageProcessorPil(
        patch_size=PATCH.get(kind, 16), merge_size=2, temporal_patch_size=FRAMES.get(kind, 2),
        size={"shortest_edge": 32 * 32, "longest_edge": 64 * 96},
    )  # fmt: skip


def build_actor(kind: str | bool = "full", max_prompt_tokens: int | None = None) -> VLMActor:
    """An actor of one of `KINDS`; True stands for hybrid and False for full."""
    kind = {True: "hybrid", False: "full"}.get(kind, kind)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, kind)
    encoder = PromptEncoder(tokenizer, build_images(kind), model.config.image_token_id, max_prompt_tokens)
    return VLMActor(model, encoder)


def save_actor(actor: VLMActor, path) -> None:
    """Write an actor as it would lie at the hub."""
    actor.model.save_pretrained(path)
    actor.encoder.tokenizer.save_pretrained(path)
    actor.encoder.image_processor.save_pretrained(path)


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


def build_questions(actor: VLMActor, seeds, conditions=tuple(Condition), template=POCKET) -> list[StepPrompts]:
    """Steps of several sizes, so that several pictures of several grids stand in one batch."""
    grammar, questions = get_grammar("pocket"), []
    for seed in seeds:
        step, demo = build_step(seed), build_step(1000 + seed, "d", *((64, 96), (96, 64))[seed % 2])
        prompts = build_prompts(step, demo, conditions, template, grammar, actor.specials)
        questions.append(StepPrompts(step.step_id, prompts))
    return questions
