"""The web actor before training: a tokenizer of the words that its demonstrations hold, and a small Qwen3.5.

The architecture is the pocket actor's; words are told by case, since fields want a name as it is written, and words
that the vocabulary lacks are spelled in characters.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from switchmem.actors.grammars.miniwob import COLUMNS, ROWS
from switchmem.pocket_actor.model import SPECIALS, UNKNOWN, as_chat_tokenizer

_PLACES = (*(f"x{column}" for column in range(COLUMNS)), *(f"y{row}" for row in range(ROWS)))
_TEMPLATE_WORDS = "system user assistant goal screen memory state picture action".split()
_ACTION_WORDS = "tap hold swipe drag type open back home enter wait done impossible checked find".split()
_LEAST = 4
"""How often a word must occur to be one token."""
_SPLIT = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])


def frequent_words(texts: Iterable[str]) -> list[str]:
    """The words of the texts that occur often enough, the most frequent first, equal ones by alphabet."""
    counts = Counter(word for text in texts for word, _ in _SPLIT.pre_tokenize_str(text))
    often = [(-count, word) for word, count in counts.items() if count >= _LEAST]
    return [word for _, word in sorted(often)]


def build_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token per known word, place and mark; other words are spelled in characters."""
    letters = [c for c in string.printable if not c.isspace()]
    known = [*SPECIALS, *_PLACES, *_TEMPLATE_WORDS, *_ACTION_WORDS, *words, *letters, *(f"##{c}" for c in letters)]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(known))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.pre_tokenizer = _SPLIT
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return as_chat_tokenizer(tokenizer)
