"""From a prompt's words and pictures to the tokens and patches of one actor.

Text of the outside world reaches the tokenizer only after `escape_template_tokens`, and the encoder checks the
result: the special tokens of a prompt are exactly those that the chat template put there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from switchmem.prompts import Prompt, PromptError, escape_template_tokens


def _unknown_mark(tokenizer: Any) -> str | None:
    """What stands for a word that the vocabulary lacks; None where every text can be spelled."""
    mark: str | None = getattr(tokenizer.backend_tokenizer.model, "unk_token", None)
    return mark


def _special_tokens(tokenizer: Any) -> dict[int, str]:
    """Ids and words of all special and added tokens, except white space and the mark for unknown words."""
    words = {index: token.content for index, token in tokenizer.added_tokens_decoder.items()}
    words |= {int(tokenizer.convert_tokens_to_ids(word)): word for word in tokenizer.all_special_tokens}
    unknown = _unknown_mark(tokenizer)
    return {index: word for index, word in words.items() if word.strip() and word != unknown}


def _sendable(text: str) -> str:
    """The text with a question mark for each lone surrogate, which pages and models write and no tokenizer reads."""
    return text.encode("utf-8", "replace").decode()


class Pixels(Sequence[Tensor]):
    """Patches of pictures, made when they are asked for: those of a batch of screenshots would fill the memory.

    Args:
        images: RGB pictures.
        prepare: gives the patches ``[patches, values]`` of one.
    """

    def __init__(self, images: Sequence[Image.Image], prepare: Callable[[Image.Image], Tensor]) -> None:
        self._images, self._prepare = images, prepare

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: Any) -> Any:
        return self._prepare(self._images[index])


class PromptEncoder:
    """Tokenises prompts and prepares pictures.

    Args:
        tokenizer: with a chat template.
        image_processor: of the Qwen2-VL family: patches and grids.
        image_token: id of the token that stands for a piece of a picture.
        max_prompt_tokens: the most tokens of a prompt, visual ones included; None for no limit.
    """

    def __init__(self, tokenizer: Any, image_processor: Any, image_token: int, max_prompt_tokens: int | None) -> None:
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.image_token = image_token
        self._max_prompt_tokens = max_prompt_tokens
        self._specials = _special_tokens(tokenizer)
        self._expected: dict[tuple[str, str, str | None, str], list[int]] = {}
        self._grids: dict[tuple[int, int], Tensor] = {}

    @cached_property
    def specials(self) -> tuple[str, ...]:
        """The words that `build_prompt` has to escape."""
        return tuple(sorted(self._specials.values()))

    def tokens(self, text: str) -> tuple[int, ...]:
        """The tokens of a text of the project's own, special ones as such."""
        return tuple(self.tokenizer(_sendable(text), add_special_tokens=False)["input_ids"])

    def text(self, tokens: Sequence[int]) -> str:
        """Tokens of an answer as text.

        Special tokens stay, because some grammars write places with them. The mark for unknown words goes: it says that
        something was there, and an agent that took it for text would type its name.
        """
        mark = _unknown_mark(self.tokenizer)
        unknown = None if mark is None else self.tokenizer.convert_tokens_to_ids(mark)
        text: str = self.tokenizer.decode([token for token in tokens if token != unknown], skip_special_tokens=False)
        return text

    def count(self, text: str) -> int:
        """Number of tokens of a text of the outside world, escaped as in a prompt."""
        return len(self.tokens(escape_template_tokens(text, self.specials)))

    def render(self, prompt: Prompt) -> str:
        """The chat template's text for a prompt, with how the answer opens; its last token is the last of the input.

        Thinking is off: templates differ in whether it is on by default, so that it is always passed.
        """
        content = [{"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in prompt.parts]
        messages = [{"role": "system", "content": [{"type": "text", "text": prompt.system}]}] if prompt.system else []
        messages.append({"role": "user", "content": content})
        text: str = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=prompt.answer is None, enable_thinking=False
        )
        return _sendable(text + (prompt.answer or ""))

    def encode(self, step_id: str, prompts: Iterable[Prompt], sizes: Sequence[Sequence[int]]) -> list[list[int]]:
        """Tokenise the prompts of one step.

        Args:
            step_id: for messages.
            prompts: any number.
            sizes: per prompt and picture the number of visual tokens.

        Returns:
            Per prompt its tokens, each picture as its run of image tokens.

        Raises:
            PromptError: if a text holds a special token after all, or a prompt is too long.
        """
        prompts = list(prompts)
        texts = [self.render(prompt) for prompt in prompts]
        encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        rows = []
        for prompt, ids, runs in zip(prompts, encoded, sizes, strict=True):
            if [token for token in ids if token in self._specials] != self._skeleton(prompt):
                raise PromptError(
                    f"A text of step {step_id!r} holds a special token of the tokenizer, got "
                    f"{[self._specials[t] for t in ids if t in self._specials]}. Build prompts with "
                    "`build_prompt(..., specials=actor.specials)`."
                )
            rows.append(self._expand(step_id, ids, runs))
        return rows

    def _skeleton(self, prompt: Prompt) -> list[int]:
        """The special tokens of the same prompt with harmless texts, in order."""
        shape = "".join("t" if isinstance(part, str) else "i" for part in prompt.parts)
        key = (prompt.system, prompt.opening, prompt.answer, shape)
        if key not in self._expected:
            ids = self.tokenizer(self.render(prompt.skeleton()), add_special_tokens=False)["input_ids"]
            self._expected[key] = [token for token in ids if token in self._specials]
        return self._expected[key]

    def _expand(self, step_id: str, ids: Sequence[int], runs: Sequence[int]) -> list[int]:
        remaining, row = iter(runs), []
        for token in ids:
            row += [token] * next(remaining) if token == self.image_token else [token]
        limit = self._max_prompt_tokens
        if limit is not None and len(row) > limit:
            raise PromptError(
                f"A prompt must have at most {limit} tokens (`max_prompt_tokens`), got {len(row)} for step "
                f"{step_id!r}, {sum(runs)} of them visual. Raise the limit, or lower `max_pixels`."
            )
        return row

    def pictures(self, images: Iterable[Image.Image]) -> tuple[Pixels, Tensor, dict[int, int]]:
        """Prepare pictures for the vision tower; equal ones once.

        Args:
            images: RGB pictures, in any number.

        Returns:
            Patches ``[patches, values]`` per different picture, made when they are asked for; grids ``[n, 3]`` int64;
            and where each given picture is found, by its ``id()``.
        """
        index: dict[int, int] = {}
        by_content: dict[tuple[tuple[int, int], bytes], int] = {}
        unique: list[Image.Image] = []
        for image in images:
            if id(image) in index:
                continue
            key = (image.size, hashlib.blake2b(image.tobytes(), digest_size=16).digest())
            if key not in by_content:
                by_content[key] = len(unique)
                unique.append(image)
            index[id(image)] = by_content[key]
        grids = [self._grid(image) for image in unique]
        return (
            Pixels(unique, self._patches),
            torch.stack(grids) if grids else torch.zeros(0, 3, dtype=torch.long),
            index,
        )

    def _grid(self, image: Image.Image) -> Tensor:
        """``[3]`` int64 frames, rows and columns of patches, which follow from a picture's size alone."""
        if image.size not in self._grids:
            self._patches(image)
        return self._grids[image.size]

    def _patches(self, image: Image.Image) -> Tensor:
        """``[patches, values]`` of a picture.

        Raises:
            PromptError: if pictures of one size give different grids.
        """
        output = self.image_processor([image], return_tensors="pt")
        (grid,) = output["image_grid_thw"]
        if not torch.equal(self._grids.setdefault(image.size, grid), grid):
            raise PromptError(
                f"`image_processor` must cut pictures of one size alike, got {grid.tolist()} and "
                f"{self._grids[image.size].tolist()} patches for {image.size}. Use one of the Qwen2-VL family."
            )
        patches: Tensor = output["pixel_values"]
        return patches

    def visual_tokens(self, grids: Tensor) -> list[int]:
        """Numbers of visual tokens of pictures, from the grids ``[n, 3]`` that `pictures` gives."""
        sizes: list[int] = (grids.prod(-1) // self.image_processor.merge_size**2).tolist()
        return sizes
