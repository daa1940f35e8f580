"""Tokenised prompts and the pictures that stand in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor
from transformers.modeling_outputs import ModelOutput


@dataclass
class ImageTable:
    """The different pictures of a batch; the vision tower encodes each once, when it is first needed.

    Args:
        pixels: per picture ``[patches, values]``, as the image processor makes them; they may be made on access.
        grids: ``[n, 3]`` int64: frames, rows and columns of patches of each picture.
        seen: what the vision tower made of them so far, by index; see `Architecture.see`.
        seconds: what that took, by index.
    """

    pixels: Sequence[Tensor]
    grids: Tensor
    seen: dict[int, ModelOutput] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


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
