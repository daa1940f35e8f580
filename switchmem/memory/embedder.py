"""Vectors of texts and screenshots, in one space, for retrieval and for the router.

Two embedders: `HashingEmbedder` needs no weights and no download, `SentenceTransformerEmbedder` runs
a trained multimodal model (the paper's is Qwen3-VL-Embedding-2B). Both return unit vectors, so that a
dot product is a cosine in [-1, 1].
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize
from torch import Tensor

# Chinese and Japanese are written without blanks, so each of their characters counts as a word.
_WORD = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"
Floats = NDArray[np.floating[Any]]

_COLUMNS, _ROWS, _CELL = 16, 24, 4  # the layout grid, and pixels per cell edge; phones are taller than wide


class EmbedderError(ValueError):
    """An embedder cannot do what was asked; the message names the rule and the way out."""


class Embedder(ABC):
    """Texts and screenshots to unit vectors of one space.

    Attributes:
        name: identifies the embedder, its revision and every option that changes a vector; caches are keyed by it.
    """

    name: str

    @property
    @abstractmethod
    def dim(self) -> int:
        """E, the length of a vector."""

    @abstractmethod
    def texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts.

        Args:
            texts: ``B`` texts.

        Returns:
            ``[B, E]`` float32, each row of length 1.
        """

    @abstractmethod
    def multimodal(self, items: Sequence[tuple[str, Image.Image]]) -> Tensor:
        """Embed screenshots, each with the text that goes with it.

        Args:
            items: ``B`` pairs; an empty text embeds the picture alone.

        Returns:
            ``[B, E]`` float32, each row of length 1.
        """


class HashingEmbedder(Embedder):
    r"""A deterministic embedder without weights.

    **Text.** Word 1-grams and 2-grams, hashed with a sign into E buckets by scikit-learn's ``HashingVectorizer``; a
    bucket's count x becomes ``sign(x) log(1 + |x|)``. The first line, where the instruction stands, and the rest, the
    state, are scaled to length 1 on their own and then added with weights ``instruction_weight`` and 1, since a long
    state would drown the instruction otherwise. At the default 3, the cosine of two texts is about 0.9 times that of
    their instructions plus 0.1 times that of their states: of demonstrations with the same instruction, the one on the
    most similar screen is nearest.

    **Image.** Colour and edge strength of a 16 x 24 grid over the screen, through a fixed random projection to E.

    Text and image together are the sum of both, scaled to length 1. A text's cosine with a picture is about 0.

    Args:
        dim: E, length of a vector, at least 16.
        instruction_weight: weight of the first line relative to the lines below it, > 0.

    Raises:
        EmbedderError: if an argument is out of range.

    Example:
        >>> embedder = HashingEmbedder(dim=256)
        >>> a, b, c = embedder.texts(["Open settings\nHome", "open Settings\nMail", "Send a mail\nHome"])
        >>> bool(a @ b > a @ c)
        True
    """

    def __init__(self, dim: int = 1024, instruction_weight: float = 3.0) -> None:
        if dim < 16:
            raise EmbedderError(f"`dim` must be at least 16, got {dim}. Fewer buckets mix up most words.")
        if not (instruction_weight > 0 and math.isfinite(instruction_weight)):
            raise EmbedderError(
                f"`instruction_weight` must be a number > 0, got {instruction_weight}. 3.0 is the default."
            )
        self._dim = dim
        self.instruction_weight = instruction_weight
        self.name = f"hashing-v2-{dim}-{instruction_weight:g}"

    @property
    def dim(self) -> int:
        """E, the length of a vector."""
        return self._dim

    def texts(self, texts: Sequence[str]) -> Tensor:
        """``[B, E]`` float32 of ``B`` texts."""
        return self._stack(self._text_rows(texts))

    def multimodal(self, items: Sequence[tuple[str, Image.Image]]) -> Tensor:
        """``[B, E]`` float32 of ``B`` screenshots with their texts; an empty text embeds the picture alone."""
        rows = []
        for (text, image), words in zip(items, self._text_rows([text for text, _ in items]), strict=True):
            row = _unit(layout_descriptor(image) @ self._projection)
            rows.append(_unit(row + words) if text else row)
        return self._stack(rows)

    def _stack(self, rows: Sequence[Floats] | Floats) -> Tensor:
        # Row by row in float64, then rounded once: a vector does not depend on the batch it came in.
        return torch.from_numpy(np.array(rows, dtype=np.float32).reshape(len(rows), self._dim))

    def _text_rows(self, texts: Sequence[str]) -> Floats:
        if not texts:  # which scikit-learn refuses
            return np.zeros((0, self._dim))
        heads, _, rests = zip(*(text.strip().partition("\n") for text in texts), strict=True)
        rows = normalize(self.instruction_weight * self._bags(heads) + self._bags(rests)).toarray()
        rows[~rows.any(axis=1), 0] = 1.0  # no word at all: the first bucket keeps the length at 1
        return rows

    def _bags(self, texts: Sequence[str]) -> Any:
        """Sparse ``[B, E]``, each row of length 1, or 0 where there is no word."""
        counts = self._vectorizer.transform(texts)
        counts.data = np.sign(counts.data) * np.log1p(np.abs(counts.data))
        return normalize(counts)

    @cached_property
    def _vectorizer(self) -> HashingVectorizer:
        return HashingVectorizer(
            n_features=self._dim, preprocessor=str.casefold, token_pattern=_WORD, ngram_range=(1, 2), norm=None
        )

    @cached_property
    def _projection(self) -> Floats:
        """Random signs ``[F, E]`` from a hash, which is the same on every platform and version."""
        n = _COLUMNS * _ROWS * 5
        width = -(-self._dim // 8)
        bits = np.frombuffer(hashlib.shake_256(b"switchmem layout projection").digest(n * width), dtype=np.uint8)
        return np.unpackbits(bits.reshape(n, width), axis=1)[:, : self._dim] * 2.0 - 1.0


def _unit(vector: Floats) -> Floats:
    return vector / np.linalg.norm(vector)


def layout_descriptor(image: Image.Image) -> Floats:
    """Where which colours and how many edges are on a screen, independent of its resolution.

    Args:
        image: a picture of any size.

    Returns:
        ``[F]`` with F = 16 x 24 x 5: the mean red, green and blue of each cell in [-0.5, 0.5], then the mean horizontal
        and vertical edge strength of each cell, both groups scaled to length 1. Never all zero.
    """
    size = (_COLUMNS * _CELL, _ROWS * _CELL)
    pixels = np.asarray(image.convert("RGB").resize(size, Image.Resampling.BOX), dtype=np.float64) / 255.0
    grey = pixels.mean(axis=2)
    across = np.abs(np.diff(grey, axis=1, append=grey[:, -1:]))
    down = np.abs(np.diff(grey, axis=0, append=grey[-1:, :]))
    layers = np.dstack([pixels - 0.5, across, down])
    cells = layers.reshape(_ROWS, _CELL, _COLUMNS, _CELL, 5).mean(axis=(1, 3))
    colours, edges = cells[..., :3].ravel(), cells[..., 3:].ravel()
    return np.concatenate([_unit(colours), _unit(edges) if edges.any() else edges])


class SentenceTransformerEmbedder(Embedder):
    """A trained embedder through sentence-transformers; loaded when it is first used.

    Args:
        model: hub id or folder. Text-only models work for retrieval, but not for Image memories.
        revision: commit or tag on the hub; give one for results that can be reproduced.
        device: "auto" (the accelerator if there is one), or a torch device, which must exist.
        batch_size: items per forward pass, at least 1.
        dtype: "auto" (as stored), "float32" or "bfloat16".

    Raises:
        EmbedderError: when loading, if the model cannot be had; when embedding pictures with a text-only model.
    """

    def __init__(
        self,
        model: str = "Qwen/Qwen3-VL-Embedding-2B",
        revision: str | None = None,
        device: str = "auto",
        batch_size: int = 8,
        dtype: str = "auto",
    ) -> None:
        if batch_size < 1:
            raise EmbedderError(f"`batch_size` must be at least 1, got {batch_size}.")
        self.model, self.revision, self.device = model, revision, device
        self.batch_size, self.dtype = batch_size, dtype
        self.name = f"sentence-transformers:{model}@{revision or 'latest'}:{dtype}"

    @cached_property
    def _encoder(self) -> Any:
        from sentence_transformers import SentenceTransformer  # seconds to import, and only needed here

        try:
            return SentenceTransformer(
                self.model,
                revision=self.revision,
                device=None if self.device == "auto" else self.device,
                model_kwargs={"dtype": self.dtype},
            )
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            raise EmbedderError(
                f"`model` must be an embedding model on the hub or a folder, got {self.model!r} at revision "
                f"{self.revision!r} for device {self.device!r}: {error}. Check the name and the network, "
                "install torchvision if the model's processor asks for it, or use HashingEmbedder, which has none."
            ) from error

    @property
    def dim(self) -> int:
        """E, the length of a vector."""
        return int(self._encoder.get_embedding_dimension())

    def texts(self, texts: Sequence[str]) -> Tensor:
        """``[B, E]`` float32 of ``B`` texts."""
        # As dictionaries for multimodal models, which would open a bare text that ends like "photo.png" as a file.
        return self._encode([{"text": text} for text in texts] if self._encoder.supports("image") else list(texts))

    def multimodal(self, items: Sequence[tuple[str, Image.Image]]) -> Tensor:
        """``[B, E]`` float32 of ``B`` screenshots with their texts; an empty text embeds the picture alone."""
        if not self._encoder.supports("image"):
            raise EmbedderError(
                f"`model` must read pictures to embed Image memories, got {self.model!r}, which reads "
                f"{self._encoder.modalities}. Use a multimodal embedder such as Qwen/Qwen3-VL-Embedding-2B."
            )
        return self._encode([{"text": text, "image": image} if text else {"image": image} for text, image in items])

    def _encode(self, inputs: Sequence[str | dict[str, Any]]) -> Tensor:
        if not inputs:
            return torch.zeros(0, self.dim)
        vectors = self._encoder.encode(
            inputs,
            batch_size=self.batch_size,
            convert_to_tensor=True,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        # Half-precision models return rows whose length is 1 only to three digits.
        return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu()


def load_embedder(
    name: str = "hashing",
    revision: str | None = None,
    dim: int = 1024,
    device: str = "auto",
    batch_size: int = 8,
) -> Embedder:
    """An embedder by name.

    Args:
        name: "hashing", or a sentence-transformers model by hub id or folder.
        revision: commit or tag on the hub; None for "hashing".
        dim: E of "hashing"; models bring their own.
        device: of a model, as in `SentenceTransformerEmbedder`.
        batch_size: of a model.

    Raises:
        EmbedderError: if an argument is out of range, or a revision is given for "hashing".

    Example:
        >>> load_embedder("hashing", dim=64).dim
        64
    """
    if name != "hashing":
        return SentenceTransformerEmbedder(name, revision, device, batch_size)
    if revision is not None:
        raise EmbedderError(f"`revision` must be null for the hashing embedder, got {revision!r}. It has no weights.")
    return HashingEmbedder(dim)
