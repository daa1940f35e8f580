"""Actors, steps and tokenizers for the tests of this room; see `tiny_models`."""

from __future__ import annotations

import pytest
from tiny_models import (
    KINDS,
    SPECIALS,
    TEMPLATE,
    build_actor,
    build_questions,
    build_step,
    build_tokenizer,
)
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from switchmem.actors.vlm import VLMActor


@pytest.fixture(scope="session", params=KINDS)
def actor(request) -> VLMActor:
    """An actor of every architecture. Shared: leave it as it is."""
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
