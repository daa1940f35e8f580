"""Chats -> tensors. Layouts equal those of the image processor and of ``get_rope_index``; a test compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from switchmem.benchmarks.pocket.scenes import CELL, COLUMNS, ROWS
from switchmem.pocket_actor.model import IMAGE
from switchmem.pocket_actor.samples import Sample

PATCH = CELL // 2
GRID = (1, 2 * ROWS, 2 * COLUMNS)
"""Patches of a screen: time, rows, columns."""


@dataclass
class Batch:
    """A padded batch of chats.

    Args:
        ids: tokens, int64 [B, T], padded on the right.
        labels: the token to predict at each place, -100 where nothing is learned, int64 [B, T].
        positions: time, row and column of each token, int64 [3, B, T].
        pixels: patches of all pictures in reading order, float32 [P, 3 * 16 * 16].
        images: number of pictures.
    """

    ids: Tensor
    labels: Tensor
    positions: Tensor
    pixels: Tensor
    images: int


def patches(images: np.ndarray) -> np.ndarray:
    """Screens uint8 [n, H, W, 3] -> normalised patches float32 [n * P, 768], neighbours that merge side by side."""
    n = len(images)
    x = (images.astype(np.float32) / 255.0 - 0.5) / 0.5
    x = x.reshape(n, ROWS, 2, PATCH, COLUMNS, 2, PATCH, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
    return x.reshape(n * ROWS * COLUMNS * 4, 3 * PATCH * PATCH)


def rope_positions(is_image: Sequence[bool], height: int = ROWS, width: int = COLUMNS) -> np.ndarray:
    """Time, row and column of each token, int64 [3, T]: a picture counts as many moments as its longer side.

    Args:
        is_image: which tokens belong to a picture.
        height: of a picture, in tokens.
        width: of a picture, in tokens.
    """
    columns: list[np.ndarray] = []
    now = 0
    for pictured, run in groupby(is_image):
        count = len(list(run))
        if pictured:
            rows, cols = np.divmod(np.arange(height * width), width)
            columns.append(np.stack([np.zeros_like(rows), rows, cols]) + now)
            now += max(height, width)
        else:
            columns.append(np.tile(np.arange(count), (3, 1)) + now)
            now += count
    return np.concatenate(columns, axis=1)


def collate(samples: Sequence[Sample], tokenizer: PreTrainedTokenizerFast) -> Batch:
    """Pad chats on the right; attention is causal, so that padding needs no mask."""
    length = max(len(s.words) for s in samples)
    pad = tokenizer.pad_token_id
    ids = torch.full((len(samples), length), pad)
    labels = torch.full((len(samples), length), -100)
    positions = torch.zeros((3, len(samples), length), dtype=torch.long)
    vocabulary = tokenizer.get_vocab()
    for b, sample in enumerate(samples):
        row = torch.tensor([vocabulary[w] for w in sample.words])
        learned = torch.tensor(sample.learned)
        ids[b, : len(row)] = row
        labels[b, : len(row) - 1] = torch.where(learned[1:], row[1:], -100)
        positions[:, b, : len(row)] = torch.from_numpy(rope_positions([word == IMAGE for word in sample.words]))
    images = [image for s in samples for image in s.images]
    return Batch(ids, labels, positions, torch.from_numpy(patches(np.stack(images))), len(images))
