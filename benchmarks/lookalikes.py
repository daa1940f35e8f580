"""Random models that are small copies of the actors, and questions as long as real ones, for the benchmarks.

The proportions are those of the real configurations: per width the same multiples for the MLP, the heads of keys and
values, the linear-attention blocks (three of four), the vision tower and the vocabulary's share of the weights. Only
the width and the depth are small. Nothing is downloaded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
)

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.vlm import StepPrompts, VLMActor
from switchmem.memory.views import Condition
from switchmem.prompts import Prompt

KINDS = ("hybrid", "qwen2vl")
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = (
    "{%- for m in messages %}{{ '<|im_start|> ' + m.role + ' ' }}"
    "{%- for c in m.content %}{% if c.type == 'image' %}{{ ' <|vision_start|><|image_pad|><|vision_end|> ' }}"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{{ ' <|im_end|> ' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|> assistant ' }}{% endif %}"
)
VOCAB = 8192


@dataclass(frozen=True)
class Lengths:
    """How long the parts of a question are, in words, each of which is a token.

    The screenshots are as large as AITW's. The textual screen of 600 recorded AITW steps has 640 tokens on average, as
    `mobile_use` writes it.

    Args:
        system: words of the system message and the instruction.
        state: words of the demonstration's textual screen; steps vary by a third around it.
        words: words around a demonstrated screenshot.
        width: pixels of every screenshot.
        height: pixels of every screenshot.
    """

    system: int = 320
    state: int = 640
    words: int = 60
    width: int = 540
    height: int = 1080


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Words w0 to w8163 and the special tokens of the Qwen family; one token per word."""
    words = ["<unk>", *SPECIALS, "user", "system", "assistant"]
    words += [f"w{n}" for n in range(VOCAB - len(words))]
    backend = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
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


def _ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    image, video, start, end = tokenizer.convert_tokens_to_ids(
        ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    )
    return {
        "image_token_id": image,
        "video_token_id": video,
        "vision_start_token_id": start,
        "vision_end_token_id": end,
    }


def hybrid_config(ids: dict[str, int], width: int = 512, depth: int = 8) -> Qwen3_5Config:
    """Qwen3.5-9B at another width: MLP 3, queries 1, keys 1/4, linear keys 1/2 and linear values 1 times the width."""
    text = dict(
        vocab_size=VOCAB, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=depth,
        num_attention_heads=width // 64, num_key_value_heads=width // 256, head_dim=64,
        linear_num_key_heads=width // 64, linear_num_value_heads=width // 32,
        linear_key_head_dim=32, linear_value_head_dim=32,
        rope_parameters=dict(rope_type="default", rope_theta=1e7, mrope_section=[3, 3, 2], mrope_interleaved=True,
                             partial_rotary_factor=0.25),
    )  # fmt: skip
    vision = dict(depth=3, hidden_size=144, intermediate_size=538, num_heads=2, patch_size=16, spatial_merge_size=2,
                  temporal_patch_size=2, out_hidden_size=width, num_position_embeddings=2304)  # fmt: skip
    return Qwen3_5Config(text_config=text, vision_config=vision, **ids)


def qwen2vl_config(ids: dict[str, int], width: int = 512, depth: int = 8) -> Qwen2VLConfig:
    """Qwen2-VL-7B at another width: MLP 5.3 times the width, 1/7 (here 1/8) as many heads for keys as for queries."""
    text = dict(
        vocab_size=VOCAB, hidden_size=width, intermediate_size=width * 37 // 7, num_hidden_layers=depth,
        num_attention_heads=width // 64, num_key_value_heads=width // 512,
        rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[8, 12, 12]),
    )  # fmt: skip
    vision = dict(depth=3, embed_dim=160, hidden_size=width, num_heads=4, patch_size=14, spatial_merge_size=2,
                  temporal_patch_size=2)  # fmt: skip
    return Qwen2VLConfig(text_config=text, vision_config=vision, **ids)


def build_actor(kind: str, sure: float = 1.0) -> VLMActor:
    """A random actor whose answers never end by themselves, so that every way to sample draws as many tokens.

    Args:
        kind: one of `KINDS`.
        sure: factor on the logits; large ones make the K samples agree for longer.
    """
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    ids = _ids(tokenizer)
    pixels = {"shortest_edge": 56 * 56, "longest_edge": 1 << 24}
    model: Any
    if kind == "hybrid":
        model = Qwen3_5ForConditionalGeneration(hybrid_config(ids))
        images = Qwen2VLImageProcessorPil(patch_size=16, merge_size=2, temporal_patch_size=2, size=pixels)
    else:
        model = Qwen2VLForConditionalGeneration(qwen2vl_config(ids))
        images = Qwen2VLImageProcessorPil(patch_size=14, merge_size=2, temporal_patch_size=2, size=pixels)
    end = tokenizer.eos_token_id
    never = torch.tensor([end, ids["image_token_id"], ids["video_token_id"]])

    def forbid(_module: Any, _args: Any, logits: torch.Tensor) -> torch.Tensor:
        logits.mul_(sure)[..., never] = -1e4
        return logits

    model.lm_head.register_forward_hook(forbid)
    return VLMActor(model, PromptEncoder(tokenizer, images, ids["image_token_id"], None))


def build_questions(lengths: Lengths, count: int, seed: int = 0) -> list[StepPrompts]:
    """State, Text and Image prompts of steps, each step with its own words and screenshots."""
    rng, pixels = random.Random(seed), np.random.default_rng(seed)

    def words(number: int) -> str:
        return " ".join(f"w{rng.randrange(8000)}" for _ in range(number))

    def screenshot() -> Image.Image:
        coarse = pixels.integers(0, 255, (lengths.height // 20, lengths.width // 20, 3), dtype=np.uint8)
        return Image.fromarray(coarse).resize((lengths.width, lengths.height), Image.Resampling.NEAREST)

    system, questions = words(lengths.system - 20), []
    for number in range(count):
        prefix = (words(20) + " ", screenshot())
        state = words(round(lengths.state * rng.uniform(2 / 3, 4 / 3)))
        memories: dict[Condition, tuple[Any, ...]] = {
            Condition.NONE: (" " + words(9),),
            Condition.TEXT: (f" {state} {words(9)}",),
            Condition.IMAGE: (f" {words(lengths.words)} ", screenshot(), " " + words(9)),
        }
        prompts = {condition: Prompt(system, prefix, memory) for condition, memory in memories.items()}
        questions.append(StepPrompts(f"benchmark/{number}/0", prompts))
    return questions
