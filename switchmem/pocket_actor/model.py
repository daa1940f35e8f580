"""The pocket actor before training: a word-level tokenizer and a small Qwen3.5-architecture model.

Two choices make a model of this size learn on two cores: one token per word, place and label, so that nothing
has to be spelled; and an initialisation scaled to the width (the default, 0.02, learns nothing at 128 wide).
"""

from __future__ import annotations

import string

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast, Qwen3_5Config, Qwen3_5ForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from switchmem.actors.grammars.pocket import COLUMNS, ROWS
from switchmem.benchmarks.pocket.scenes import CELL, HEIGHT, WIDTH
from switchmem.benchmarks.pocket.vocabulary import (
    ADJECTIVES,
    BLANK,
    ICONS,
    LABELS,
    MANNERS,
    NOUNS,
    OBJECTS,
    SYSTEM_WORDS,
    UNLABELLED,
    VERBS,
)

PAD, UNKNOWN, IMAGE, VIDEO = "<|endoftext|>", "<|unknown|>", "<|image_pad|>", "<|video_pad|>"
START, END, VISION_START, VISION_END = "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"
THINK, THOUGHT = "<think>", "</think>"
SPECIALS = (PAD, UNKNOWN, START, END, VISION_START, VISION_END, IMAGE, VIDEO, THINK, THOUGHT)

PLACES = tuple(f"r{row}c{column}" for row in range(ROWS) for column in range(COLUMNS))
SYMBOLS = (*ICONS, *LABELS, *NOUNS, *SYSTEM_WORDS, UNLABELLED, BLANK)
"""What a cell of a screen can show."""

_TEMPLATE_WORDS = "system user assistant goal screen memory state picture action in ;"
_ACTION_WORDS = "tap hold swipe drag type open back home enter wait impossible"
_READING_WORDS = "at find past"

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for item in message.content %}"
    "{% if item.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ item.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per known word; other words are spelled in characters."""
    words = dict.fromkeys(
        [*SPECIALS, *PLACES, *SYMBOLS, *ADJECTIVES, *OBJECTS, *VERBS, *MANNERS]
        + _TEMPLATE_WORDS.split()
        + _ACTION_WORDS.split()
        + _READING_WORDS.split()
    )
    letters = [c for c in string.printable if not c.isspace() and not c.isupper()]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*words, *letters, *(f"##{c}" for c in letters)]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return as_chat_tokenizer(tokenizer)


def as_chat_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """A tokenizer whose vocabulary holds `SPECIALS`, with these marked and the chat template around them."""
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIALS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[t for t in SPECIALS if t not in (PAD, UNKNOWN, END)],
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def build_image_processor() -> Qwen2VLImageProcessorPil:
    """Patches of 16 pixels, merged two by two: one token per 32-pixel cell; other sizes are scaled to about as many."""
    pixels = WIDTH * HEIGHT
    return Qwen2VLImageProcessorPil(
        patch_size=CELL // 2,
        merge_size=2,
        temporal_patch_size=1,
        size={"shortest_edge": pixels, "longest_edge": pixels},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )


def build_config(
    tokenizer: PreTrainedTokenizerFast, width: int = 128, layers: int = 4, *, linear: int = 0
) -> Qwen3_5Config:
    """A Qwen3.5 of ``layers`` blocks, ``width`` = D wide, and a vision tower of two blocks.

    Half of a head turns with the position, as a quarter does in the large models: the still half is what finds
    a symbol wherever it stands. The first ``linear`` blocks have linear attention, the others full attention.
    """
    token = tokenizer.get_vocab().__getitem__
    heads = width // 32
    head = 64
    return Qwen3_5Config(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": head,
            "linear_num_key_heads": heads,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "layer_types": ["linear_attention"] * linear + ["full_attention"] * (layers - linear),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
                "partial_rotary_factor": 0.5,
            },
            "tie_word_embeddings": False,
            "pad_token_id": token(PAD),
            "eos_token_id": token(END),
        },
        vision_config={
            "depth": 2,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "patch_size": CELL // 2,
            "spatial_merge_size": 2,
            "temporal_patch_size": 1,
            "out_hidden_size": width,
            "num_position_embeddings": 256,
        },
        image_token_id=token(IMAGE),
        video_token_id=token(VIDEO),
        vision_start_token_id=token(VISION_START),
        vision_end_token_id=token(VISION_END),
        tie_word_embeddings=False,
    )


def embedding_table(model: Qwen3_5ForConditionalGeneration) -> nn.Parameter:
    """The token embeddings, [V, D]."""
    return model.get_parameter("model.language_model.embed_tokens.weight")


def build_model(config: Qwen3_5Config, seed: int, head: float = 1.0) -> Qwen3_5ForConditionalGeneration:
    """The untrained model: matrices of std 1 / sqrt(D), embeddings of std 0.5, the head ``head`` times these."""
    torch.manual_seed(seed)
    model = Qwen3_5ForConditionalGeneration(config)
    width = config.get_text_config().hidden_size
    with torch.no_grad():
        for name, parameter in model.model.language_model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name:
                parameter.normal_(0, width**-0.5)
        table = embedding_table(model)
        table.normal_(0, 0.5)
        model.lm_head.weight.copy_(head * table)
        tower = model.get_submodule("model.visual.merger")
        linear = [m for m in tower.modules() if isinstance(m, nn.Linear)][-1]
        linear.weight.normal_(0, 0.05)
    return model
