"""One prefill for what the prompts of a step share, copies of its cache for what they do not.

The engine speaks tokens, not words. `PrefixEngine.prefill` computes the shared prefixes of a batch, `extend` runs one
continuation per row from a copy of that cache and reads hidden states, `decode` samples K answers per continuation.

Padding never changes a result. Attention layers mask it. A linear-attention layer folds every token into its state:
left of a whole prompt, where that state is still zero, padding leaves it zero, but inside a prompt it would let the
state decay. Continuations are therefore run in groups of equal length where a model has such layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPooling

from switchmem.actors.caches import left_pad, merge_caches, select_rows
from switchmem.actors.sampling import choose


@dataclass
class ImageTable:
    """The different pictures of a batch; the vision tower encodes each once, when it is first needed.

    Args:
        pixels: per picture ``[patches, values]``, as the image processor makes them.
        grids: ``[n, 3]`` int64: frames, rows and columns of patches of each picture.
        features: what the vision tower made of them so far, by index.
    """

    pixels: list[Tensor]
    grids: Tensor
    features: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenRow:
    """A tokenised prompt or a piece of one.

    Args:
        ids: ``[W]`` int64; every picture stands as its run of image tokens.
        positions: ``[3, W]`` int64 rotary positions in the whole prompt.
        images: indices into the batch's `ImageTable`, in reading order.
        starts: where the run of each picture begins, in ``ids``.
    """

    ids: Tensor
    positions: Tensor
    images: tuple[int, ...]
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, start: int, end: int) -> TokenRow:
        """Tokens ``start`` to ``end``; neither lies inside a picture."""
        inside = [n for n, first in enumerate(self.starts) if start <= first < end]
        images, starts = tuple(self.images[n] for n in inside), tuple(self.starts[n] - start for n in inside)
        return TokenRow(self.ids[start:end], self.positions[:, start:end], images, starts)


def shared_length(rows: Sequence[TokenRow]) -> int:
    """How many leading tokens all rows share, pictures included; one token of each row at least is left over."""
    first, limit = rows[0], min(len(row) for row in rows) - 1
    for row in rows[1:]:
        differing = (first.ids[:limit] != row.ids[:limit]).nonzero()
        limit = int(differing[0]) if len(differing) else limit
        # Image tokens look alike; what differs there is the picture.
        pairs = zip(first.images, row.images, first.starts, strict=False)
        limit = next((min(limit, start) for a, b, start in pairs if a != b), limit)
    return limit


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


@dataclass
class Extension:
    """Prompts that ran up to their last input token.

    Args:
        rows: R indices: which of the prompts given to `PrefixEngine.extend`.
        states: ``[R, L, D]`` float32 outputs of the probed blocks at the last input token.
        logits: ``[R, V]`` of the next token.
        cache: of the whole prompts.
        mask: ``[R, W]`` which cached tokens are no padding.
        positions: ``[R]`` rotary position of the last token.
    """

    rows: list[int]
    states: Tensor
    logits: Tensor
    cache: Cache
    mask: Tensor
    positions: Tensor


class PrefixEngine:
    """Runs a frozen Qwen-style vision-language model over shared prefixes.

    Args:
        model: ``model.model`` has a ``language_model`` with ``layers``, and a ``get_rope_index``.
        end_tokens: the tokens that end an answer, one or more.
    """

    def __init__(self, model: Any, end_tokens: Sequence[int]) -> None:
        self._model = model
        self._text_config = model.config.get_text_config()
        self._image_token = int(model.config.image_token_id)
        self._end_tokens = torch.tensor(sorted(end_tokens))
        self.blocks: nn.ModuleList = model.model.language_model.layers
        self.is_recurrent = "linear_attention" in (getattr(self._text_config, "layer_types", None) or ())

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
        is_image = tokens == self._image_token
        before = torch.cat([is_image.new_zeros(1), is_image[:-1]])
        starts = tuple((is_image & ~before).nonzero()[:, 0].tolist())
        positions, _ = self._model.model.get_rope_index(
            tokens[None],
            mm_token_type_ids=is_image.int()[None],
            image_grid_thw=grids[list(images)] if images else None,
        )
        return TokenRow(tokens, positions[:, 0], images, starts)

    def prefill(self, rows: Sequence[TokenRow], lengths: Sequence[int], images: ImageTable) -> Prefixes:
        """Compute the first ``lengths[b]`` tokens of every row in one forward.

        Args:
            rows: B whole prompts, one per step; any of the step's prompts will do.
            lengths: how many tokens the step's prompts share, of `shared_length`.
            images: the batch's pictures.
        """
        cache = DynamicCache(config=self._text_config)
        pieces = [row.cut(0, length) for row, length in zip(rows, lengths, strict=True)]
        mask = torch.ones(len(rows), 0, dtype=torch.long, device=self.device)
        if max(lengths) > 0:
            _, mask = self._forward(pieces, images, cache, mask)
        return Prefixes(cache, mask, tuple(lengths), images)

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
            Every prompt once: in one group, or with linear-attention layers in one group per length.
        """
        pieces = [prompt.cut(prefixes.lengths[b], len(prompt)) for b, prompt in zip(steps, prompts, strict=True)]
        groups: dict[int, list[int]] = defaultdict(list)
        for n, piece in enumerate(pieces):
            groups[len(piece) if self.is_recurrent else 0].append(n)
        extensions = []
        for members in groups.values():
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
        """Sample K answers to each prompt.

        Samples that have drawn the same tokens so far share one row of the batch and part where they part: an actor
        that is sure of itself gives K answers at nearly the cost of one. A row ends with its end token. The caches
        of the extensions are used up.

        Args:
            extensions: R prompts in all.
            keys: ``[R, K]`` int64 noise keys, rows in the order of the extensions.
            temperature: >= 0.
            max_new_tokens: the most tokens of one answer.

        Returns:
            R lists of K answers as tokens, each with its end token where one was drawn.
        """
        branches = _Branches(self._model, extensions)
        rows, samples = keys.shape
        keys, ends = keys.flatten().to(self.device), self._end_tokens.to(self.device)
        alive = torch.arange(rows * samples, device=self.device)
        branch = alive // samples
        answers: list[list[int]] = [[] for _ in range(rows * samples)]
        for position in range(max_new_tokens):
            tokens = choose(branches.logits[branch], temperature, keys[alive], position)
            for sample, token in zip(alive.tolist(), tokens.tolist(), strict=True):
                answers[sample].append(token)
            going = ~torch.isin(tokens, ends)
            alive, branch, tokens = alive[going], branch[going], tokens[going]
            if len(alive) == 0 or position + 1 == max_new_tokens:
                break
            branch = branches.grow(branch, tokens)
        return [answers[r * samples : (r + 1) * samples] for r in range(rows)]

    def _forward(
        self, pieces: Sequence[TokenRow], images: ImageTable, cache: Cache, past: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run pieces of prompts, padded on the left, behind what the cache holds.

        Returns:
            Logits of the next token ``[R, V]``, and the mask ``[R, past + width]`` of the grown cache.
        """
        width = max(len(piece) for piece in pieces)
        ids = torch.full((len(pieces), width), int(self._end_tokens[0]))
        positions, mask = torch.zeros(3, len(pieces), width, dtype=torch.long), torch.zeros_like(ids)
        for r, piece in enumerate(pieces):
            start = width - len(piece)
            ids[r, start:], positions[:, r, start:], mask[r, start:] = piece.ids, piece.positions, 1
        mask = torch.cat([past, mask.to(self.device)], 1)
        features: Any = self._encode(images, [image for piece in pieces for image in piece.images])
        seen = {"image": BaseModelOutputWithPooling(pooler_output=features)} if features else None
        output = self._model(
            input_ids=ids.to(self.device),
            attention_mask=mask,
            position_ids=positions.to(self.device),
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
            mm_encoder_outputs=seen,
        )
        return output.logits[:, -1], mask

    def _encode(self, images: ImageTable, wanted: Sequence[int]) -> tuple[Tensor, ...]:
        """Visual tokens of the wanted pictures, ``[tokens, D]`` each, in that order."""
        new = [image for image in dict.fromkeys(wanted) if image not in images.features]
        if new:
            pixels = torch.cat([images.pixels[image] for image in new]).to(self.device)
            output = self._model.get_image_features(pixels, images.grids[new].to(self.device), return_dict=True)
            images.features.update(zip(new, output.pooler_output, strict=True))
        return tuple(images.features[image] for image in wanted)

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


class _Branches:
    """The different answers so far: one row of the batch for each."""

    def __init__(self, model: Any, extensions: Sequence[Extension]) -> None:
        width = max(e.mask.shape[1] for e in extensions)
        self._model = model
        self._cache = merge_caches([e.cache for e in extensions])
        self._mask = torch.cat([left_pad(e.mask, width, 1) for e in extensions])
        self._positions = torch.cat([e.positions for e in extensions])
        self.logits = torch.cat([e.logits for e in extensions])

    def grow(self, branch: Tensor, tokens: Tensor) -> Tensor:
        """Feed every different (branch, token) once.

        Args:
            branch: ``[S]`` int64, the row of each living sample.
            tokens: ``[S]`` int64, what it has drawn.

        Returns:
            ``[S]`` int64, the new row of each sample.
        """
        vocab = self.logits.shape[-1]
        pairs, rows = torch.unique(branch * vocab + tokens, return_inverse=True)
        parents, new = pairs // vocab, pairs % vocab
        if len(parents) != len(self._positions) or bool((parents[1:] == parents[:-1]).any()):
            self._cache = select_rows(self._cache, parents)
            self._mask, self._positions = self._mask[parents], self._positions[parents]
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(parents), 1)], 1)
        self._positions = self._positions + 1
        output = self._model(
            input_ids=new[:, None],
            attention_mask=self._mask,
            position_ids=self._positions[None, :, None].expand(3, -1, 1),
            cache=self._cache,
            use_cache=True,
        )
        self.logits = output.logits[:, -1]
        return rows
