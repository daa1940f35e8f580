"""Vectors of texts and screenshots, in one space, for retrieval and for the router.

Two embedders: `HashingEmbedder` needs no weights and no download, `SentenceTransformerEmbedder` runs
a trained multimodal model (the paper's is Qwen3-VL-Embedding-2B). Both return unit vectors, so that a
dot product is a cosine in [-1, 1].
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
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
UNLIMITED = 1 << 24
"""Tokenizers without a limit of their own have one of astronomical size."""
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

    def place(self, device: torch.device) -> None:  # noqa: B027  (most embedders have nothing to move)
        """Run on a device from now on, unless the embedder was told which one; each rank calls this with its own."""

    def cut(self, texts: Sequence[str]) -> list[bool]:
        """For each of ``B`` texts whether it is longer than the embedder reads, so that its end does not count."""
        return [False] * len(texts)

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

    Queries, keys and memories are embedded alike, with one instruction: all of them are states of a phone. For
    Qwen3-VL-Embedding an instruction becomes the system message, and without one its own "Represent the user's input."
    stands there.

    Args:
        model: hub id or folder. Text-only models work for retrieval, but not for Image memories.
        revision: commit or tag on the hub; give one for results that can be reproduced.
        device: "auto" (that of the rank, where a trainer runs; else the accelerator if there is one), or a torch
            device, which must exist.
        batch_size: items per forward pass, at least 1.
        dtype: "auto" (as stored), "float32" or "bfloat16".
        prompt: the instruction; None takes the model's own.
        max_length: tokens of a text that are read, instruction included, at least 16; None takes the model's own limit.
        max_pixels: larger screenshots are scaled down to this many pixels, at least 1024, before the model's own
            preparation; None leaves them. The default is the limit of Qwen3-VL-Embedding's authors.

    Raises:
        EmbedderError: if an argument is out of range; when loading, if the model cannot be had; when embedding
            pictures with a text-only model.
    """

    def __init__(
        self,
        model: str = "Qwen/Qwen3-VL-Embedding-2B",
        revision: str | None = None,
        device: str = "auto",
        batch_size: int = 8,
        dtype: str = "auto",
        prompt: str | None = None,
        max_length: int | None = None,
        max_pixels: int | None = 1_843_200,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("max_length", max_length, 16),
            ("max_pixels", max_pixels, 1024),
        ):
            if value is not None and value < least:
                raise EmbedderError(f"`{name}` must be at least {least}, got {value}.")
        if dtype not in ("auto", "float32", "bfloat16"):
            raise EmbedderError(f"`dtype` must be auto, float32 or bfloat16, got {dtype!r}.")
        self.model, self.revision, self.device = model, revision, device
        self.batch_size, self.dtype, self.prompt = batch_size, dtype, prompt
        self.max_length, self.max_pixels = max_length, max_pixels
        self._placed: torch.device | None = None
        # Device and batch size are left out: they move vectors by rounding alone.
        origin = f"{model}@{revision or 'latest'}" if not Path(model).is_dir() else f"folder:{_hash_files(Path(model))}"
        self.name = f"sentence-transformers:{origin}:{dtype}:{max_length}:{max_pixels}:{json.dumps(prompt)}"

    @cached_property
    def _encoder(self) -> Any:
        from sentence_transformers import SentenceTransformer  # seconds to import, and only needed here

        placed = None if self._placed is None else str(self._placed)
        device = placed if self.device == "auto" else self.device
        try:
            encoder = SentenceTransformer(
                self.model, revision=self.revision, device=device, model_kwargs={"dtype": self.dtype}
            )
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            raise EmbedderError(
                f"`model` must be an embedding model on the hub or a folder, got {self.model!r} at revision "
                f"{self.revision!r} for device {self.device!r}: {error}. Check the name and the network, "
                "install torchvision if the model's processor asks for it, or take the one that needs no download: "
                "`--memory hashing.yaml`."
            ) from error
        if self.max_length is not None:
            encoder.max_seq_length = self.max_length
        return encoder

    def place(self, device: torch.device) -> None:
        """Run on a device from now on, where `device` is "auto"."""
        if self.device == "auto" and device != self._placed:
            self._placed = device
            if "_encoder" in vars(self):
                self._encoder.to(device)

    @property
    def dim(self) -> int:
        """E, the length of a vector."""
        return int(self._encoder.get_embedding_dimension())

    def texts(self, texts: Sequence[str]) -> Tensor:
        """``[B, E]`` float32 of ``B`` texts; what `cut` tells of is left out at the end."""
        return self._encode(self._as_inputs(texts))

    def cut(self, texts: Sequence[str]) -> list[bool]:
        """For each of ``B`` texts whether it has more tokens than the model reads."""
        limit = self._encoder.max_seq_length
        if not texts or limit is None or not limit < UNLIMITED:
            return [False] * len(texts)
        whole = {"text": {"truncation": False}}
        features = self._encoder.preprocess(self._as_inputs(texts), prompt=self._prompt(), processing_kwargs=whole)
        return [int(length) > limit for length in features["attention_mask"].sum(dim=1)]

    def multimodal(self, items: Sequence[tuple[str, Image.Image]]) -> Tensor:
        """``[B, E]`` float32 of ``B`` screenshots with their texts; an empty text embeds the picture alone."""
        if not self._encoder.supports("image"):
            raise EmbedderError(
                f"`model` must read pictures to embed Image memories, got {self.model!r}, which reads "
                f"{self._encoder.modalities}. Use a multimodal embedder such as Qwen/Qwen3-VL-Embedding-2B."
            )
        scaled = [(text, _at_most(image, self.max_pixels)) for text, image in items]
        try:  # the picture first, as Qwen's own code has it
            return self._encode([{"image": image, **({"text": text} if text else {})} for text, image in scaled])
        except ValueError as error:  # a picture's tokens cannot be cut, as a text's can
            raise EmbedderError(
                f"`max_length` must leave room for a screenshot with its text, got {self._encoder.max_seq_length} "
                f"tokens, and the model's processor says: {error} Raise it, or lower `max_pixels`."
            ) from error

    def _as_inputs(self, texts: Sequence[str]) -> list[Any]:
        # As dictionaries for multimodal models, which would open a bare text that ends like "photo.png" as a file.
        return [{"text": text} for text in texts] if self._encoder.supports("image") else list(texts)

    def _prompt(self) -> str | None:
        """The instruction, or the model's own default, which `encode` would look up itself."""
        default = self._encoder.default_prompt_name
        return self.prompt if self.prompt is not None or default is None else self._encoder.prompts.get(default)

    def _encode(self, inputs: Sequence[Any]) -> Tensor:
        if not inputs:
            return torch.zeros(0, self.dim)
        vectors = self._encoder.encode(
            inputs,
            prompt=self._prompt(),
            batch_size=self.batch_size,
            convert_to_tensor=True,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        # Half-precision models return rows whose length is 1 only to three digits.
        return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu()


def _at_most(image: Image.Image, pixels: int | None) -> Image.Image:
    """The picture, scaled down where it has more pixels."""
    if pixels is None or image.width * image.height <= pixels:
        return image
    scale = math.sqrt(pixels / (image.width * image.height))
    size = max(1, int(image.width * scale)), max(1, int(image.height * scale))
    return image.convert("RGB").resize(size, Image.Resampling.BICUBIC)


def _hash_files(folder: Path) -> str:
    """32 hexadecimal digits of the names and bytes of all files below a folder."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
