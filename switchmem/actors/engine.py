"""One prefill for what the prompts of a step share, copies of its cache for what they do not.

The engine speaks tokens, not words. `PrefixEngine.prefill` computes the shared prefixes of a batch, `extend` runs one
continuation per row from a copy of that cache and reads hidden states, `decode` samples K answers per continuation.

Padding never changes a result. Attention layers mask it. A linear-attention layer folds every token into its state:
left of a whole prompt, where that state is still zero, padding leaves it zero, but inside a prompt it would let the
state decay. Continuations are therefore run in groups of equal length where a model has such layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.modeling_outputs import ModelOutput

from switchmem.actors.architectures import Architecture
from switchmem.actors.batching import FORWARD, PATCHES, alike, consecutive
from switchmem.actors.caches import left_pad, merge_caches, select_rows, stack_caches
from switchmem.actors.decoding import Extension, decode
from switchmem.actors.delta_rule import own_rules
from switchmem.actors.endings import Ending
from switchmem.actors.parting import parting
from switchmem.actors.rows import ImageTable, TokenRow
from switchmem.actors.spending import now
from switchmem.actors.starts import Start


@dataclass(frozen=True)
class Prefixes:
    """The shared prefixes of a batch, computed.

    Args:
        cache: of B rows.
        mask: ``[B, W]`` which cached tokens are no padding.
        lengths: tokens of each prefix.
        images: the batch's pictures.
    """

    cache: Cache
    mask: Tensor
    lengths: tuple[int, ...]
    images: ImageTable


class PrefixEngine:
    """Runs a frozen Qwen-style vision-language model over shared prefixes.

    Args:
        model: of a class that `Architecture` knows.
        ending: what ends an answer.

    Raises:
        ActorError: if the model is of another kind.
    """

    def __init__(self, model: Any, ending: Ending) -> None:
        self._model = model
        self.architecture = Architecture(model)
        self._ending = ending
        self.blocks: nn.ModuleList = self.architecture.blocks
        self.is_recurrent = self.architecture.is_recurrent

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        device: torch.device = next(self._model.parameters()).device
        return device

    def row(self, ids: Sequence[int], images: tuple[int, ...], grids: Tensor) -> TokenRow:
        """A whole prompt with its rotary positions.

        Args:
            ids: the tokens, with one image token per visual token of each picture.
            images: indices into ``grids``, in reading order.
            grids: ``[n, 3]`` of the batch's `ImageTable`.
        """
        tokens = torch.tensor(ids)
        is_image = tokens == self.architecture.image_token
        before = torch.cat([is_image.new_zeros(1), is_image[:-1]])
        starts = tuple((is_image & ~before).nonzero()[:, 0].tolist())
        return TokenRow(tokens, self.architecture.positions(tokens, grids[list(images)]), images, starts)

    def prefill(
        self, rows: Sequence[TokenRow], lengths: Sequence[int], images: ImageTable, start: Start | None = None
    ) -> Prefixes:
        """Compute the first ``lengths[b]`` tokens of every row.

        Args:
            rows: B whole prompts, one per step; any of the step's prompts will do.
            lengths: how many tokens the step's prompts share, of `shared_length`.
            images: the batch's pictures.
            start: what all rows begin with, of `start_cache`; fewer tokens than any of ``lengths``.
        """
        if start is not None:
            return self._prefill_behind(start, rows, lengths, images)
        pieces = [row.cut(0, length) for row, length in zip(rows, lengths, strict=True)]
        caches, masks = [], []
        for part in consecutive([len(piece) for piece in pieces], FORWARD):
            group = pieces[part]
            cache = DynamicCache(config=self.architecture.text_config)
            mask = torch.ones(len(group), 0, dtype=torch.long, device=self.device)
            if any(map(len, group)):
                _, mask = self._forward(group, images, cache, mask)
            caches.append(cache)
            masks.append(mask)
        return Prefixes(*stack_caches(caches, masks), tuple(lengths), images)

    def start_cache(self, piece: TokenRow) -> Cache:
        """The cache of one row of tokens without pictures, for `StartKeeper`."""
        cache = DynamicCache(config=self.architecture.text_config)
        past = torch.ones(1, 0, dtype=torch.long, device=self.device)
        self._forward([piece], ImageTable([], torch.zeros(0, 3, dtype=torch.long)), cache, past)
        return cache

    def _prefill_behind(
        self, start: Start, rows: Sequence[TokenRow], lengths: Sequence[int], images: ImageTable
    ) -> Prefixes:
        """`prefill`, each row from a copy of the start's cache."""
        pieces = [row.cut(len(start), length) for row, length in zip(rows, lengths, strict=True)]
        order: list[int] = []
        caches, masks = [], []
        for members in self._alike(pieces):
            cache = select_rows(start.cache, torch.zeros(len(members), dtype=torch.long))
            past = torch.ones(len(members), len(start), dtype=torch.long, device=self.device)
            _, mask = self._forward([pieces[n] for n in members], images, cache, past)
            order += members
            caches.append(cache)
            masks.append(mask)
        width = max(mask.shape[1] for mask in masks)
        shared = len(start)  # padding stands behind the start
        mask = torch.cat([torch.cat([m[:, :shared], left_pad(m[:, shared:], width - shared, 1)], 1) for m in masks])
        index = torch.tensor(order).argsort()
        cache = select_rows(merge_caches(caches, masks), index)
        return Prefixes(cache, mask[index.to(mask.device)], tuple(lengths), images)

    def _alike(self, pieces: Sequence[TokenRow]) -> list[list[int]]:
        """Pieces inside prompts that run together; of equal length with linear-attention layers."""
        return alike([len(piece) for piece in pieces], 0.0 if self.is_recurrent else 0.05, FORWARD)

    def prefill_reading(
        self, prompt: TokenRow, length: int, images: ImageTable, layers: Sequence[int]
    ) -> tuple[Prefixes, Tensor]:
        """Compute the prefix of one step and read its state prompt, in one forward.

        Args:
            prompt: the whole state prompt.
            length: how many of its tokens the step's prompts share, fewer than all.
            images: the step's pictures.
            layers: L blocks whose states are read, from 0.

        Returns:
            What `prefill` returns, and the states ``[L, D]`` float32 at the prompt's last token.
        """
        cache = DynamicCache(config=self.architecture.text_config)
        mask = torch.ones(1, 0, dtype=torch.long, device=self.device)
        parted = parting(self.blocks, cache, length) if length else nullcontext()
        with parted, self._reading(layers) as states:
            _, mask = self._forward([prompt], images, cache, mask)
        read = torch.stack([states[layer][0] for layer in layers])
        if length == 0:
            return self.prefill([prompt], [0], images), read
        return Prefixes(cache, mask[:, :length], (length,), images), read

    def extend(
        self, prefixes: Prefixes, steps: Sequence[int], prompts: Sequence[TokenRow], layers: Sequence[int]
    ) -> list[Extension]:
        """Run the rest of one prompt per step, each from a copy of the step's cached prefix.

        Args:
            prefixes: what `prefill` returned; it stays as it is.
            steps: which row of ``prefixes`` each prompt continues.
            prompts: the whole prompts; each begins with its step's prefix.
            layers: blocks whose states are read, from 0.

        Returns:
            Every prompt once, in groups of like length; with linear-attention layers, of equal length.
        """
        pieces = [prompt.cut(prefixes.lengths[b], len(prompt)) for b, prompt in zip(steps, prompts, strict=True)]
        extensions = []
        for members in self._alike(pieces):
            group = [pieces[n] for n in members]
            index = torch.tensor([steps[n] for n in members], device=self.device)
            cache = select_rows(prefixes.cache, index)
            with self._reading(layers) as states:
                logits, mask = self._forward(group, prefixes.images, cache, prefixes.mask[index])
            # The last token is text: its three rotary positions are one.
            last = torch.stack([piece.positions[0, -1] for piece in group]).to(self.device)
            read = torch.stack([states[layer] for layer in layers], 1)
            extensions.append(Extension(members, read, logits, cache, mask, last))
        return extensions

    def decode(
        self, extensions: Sequence[Extension], keys: Tensor, temperature: float, max_new_tokens: int
    ) -> list[list[list[int]]]:
        """Sample K answers to each prompt; see `switchmem.actors.decoding.decode`."""
        return decode(self._model, extensions, self._ending, keys, temperature, max_new_tokens)

    def _forward(
        self, pieces: Sequence[TokenRow], images: ImageTable, cache: Cache, past: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run pieces of prompts, padded on the left, behind what the cache holds.

        Returns:
            Logits of the next token ``[R, V]``, and the mask ``[R, past + width]`` of the grown cache.
        """
        width = max(len(piece) for piece in pieces)
        ids = torch.full((len(pieces), width), self._ending.tokens[0])
        positions, mask = torch.zeros(3, len(pieces), width, dtype=torch.long), torch.zeros_like(ids)
        for r, piece in enumerate(pieces):
            start = width - len(piece)
            ids[r, start:], positions[:, r, start:], mask[r, start:] = piece.ids, piece.positions, 1
        mask = torch.cat([past, mask.to(self.device)], 1)
        seen = self._see(images, [image for piece in pieces for image in piece.images])
        with own_rules(self.blocks):
            output = self._model(
                input_ids=ids.to(self.device),
                attention_mask=mask,
                position_ids=positions.to(self.device),
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
                mm_encoder_outputs=self.architecture.together(seen),
            )
        return output.logits[:, -1], mask

    def _see(self, images: ImageTable, wanted: Sequence[int]) -> list[ModelOutput]:
        """What the vision tower made of the wanted pictures, in that order; it runs for new ones alone."""
        new = [image for image in dict.fromkeys(wanted) if image not in images.seen]
        for part in consecutive([int(images.grids[image].prod()) for image in new], PATCHES):
            group, started = new[part], now(self.device)
            pixels = torch.cat([images.pixels[image] for image in group]).to(self.device)
            seen = self.architecture.see(pixels, images.grids[group].to(self.device))
            images.seen.update(zip(group, seen, strict=True))
            seconds = (now(self.device) - started) / len(pixels)
            for image in group:
                images.seconds[image] = seconds * int(images.grids[image].prod())
        return [images.seen[image] for image in wanted]

    @contextmanager
    def _reading(self, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
        """Collect the outputs of blocks at the last token, ``[R, D]`` float32.

        Hooks, because the `hidden_states` of transformers hold the normed state in the place of the final block's.
        """
        states: dict[int, Tensor] = {}

        def reader(layer: int) -> Any:
            def read(_module: nn.Module, _args: Any, output: Any) -> None:
                hidden = output[0] if isinstance(output, tuple) else output
                states[layer] = hidden[:, -1].float().clone()

            return read

        handles = [self.blocks[layer].register_forward_hook(reader(layer)) for layer in layers]
        try:
            yield states
        finally:
            for handle in handles:
                handle.remove()
