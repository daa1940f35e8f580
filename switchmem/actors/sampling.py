"""Sampling that depends on nothing but the question: the same answers for any batch, order, rank or resume.

Adding Gumbel noise to ``logits / T`` and taking the maximum draws exactly from ``softmax(logits / T)``. The noise is
a pure function of (step, condition, seed, position, token), computed by a counter-based hash instead of a stateful
generator, so that a whole batch of rows is drawn by a few tensor operations.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import torch
from torch import Tensor

from switchmem.memory.views import Condition

_SIGN = 1 << 63


def _signed(value: int) -> int:
    """An unsigned 64-bit value as torch's int64 holds it."""
    return value - (1 << 64) if value >= _SIGN else value


# splitmix64 (Steele, Lea and Flood, 2014): the increment and the two multipliers of its finaliser.
_GAMMA = _signed(0x9E3779B97F4A7C15)
_MULTIPLY_1 = _signed(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = _signed(0x94D049BB133111EB)


class SamplingError(ValueError):
    """A sampling setting breaks a rule; the message names it."""


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Args:
        temperature: >= 0; 0 takes the most likely token each time.
        seeds: one sample per seed, so K = ``len(seeds)``; not empty, no two alike.
        max_new_tokens: the most tokens of one answer, > 0, the end token included.

    Raises:
        SamplingError: if a rule above is broken.
    """

    temperature: float = 0.7
    seeds: tuple[int, ...] = (42, 43, 44, 45, 46, 47, 48)
    max_new_tokens: int = 128

    def __post_init__(self) -> None:
        if not self.temperature >= 0.0:
            raise SamplingError(f"`temperature` must be >= 0, got {self.temperature!r}. Use 0 for greedy decoding.")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise SamplingError(f"`seeds` must be one or more different integers, got {self.seeds!r}.")
        if self.max_new_tokens < 1:
            raise SamplingError(f"`max_new_tokens` must be >= 1, got {self.max_new_tokens!r}.")


GREEDY = Sampling(temperature=0.0, seeds=(0,))


def noise_key(step_id: str, condition: Condition, seed: int) -> int:
    """The 64-bit key of one sample, as a signed integer.

    >>> noise_key("pocket/a/0", Condition.TEXT, 42) == noise_key("pocket/a/0", Condition.IMAGE, 42)
    False
    """
    text = json.dumps([step_id, condition.value, seed])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Logical shift; torch's own fills with the sign. The mask clears what it filled in."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64 tensors; products wrap around."""
    z = (z ^ _shift_right(z, 30)) * _MULTIPLY_1
    z = (z ^ _shift_right(z, 27)) * _MULTIPLY_2
    return z ^ _shift_right(z, 31)


def gumbel_noise(keys: Tensor, position: int, vocab: int) -> Tensor:
    """Standard Gumbel noise.

    Args:
        keys: ``[S]`` int64, one key of `noise_key` per row.
        position: of the token in the answer, from 0.
        vocab: number of tokens V.

    Returns:
        ``[S, V]`` float64. A row depends on its key, the position and the token alone.
    """
    stream = _mix(keys + _signed(_GAMMA * (position + 1) % (1 << 64)))
    tokens = torch.arange(1, vocab + 1, device=keys.device, dtype=torch.int64) * _GAMMA
    bits = _shift_right(_mix(stream[:, None] + tokens), 12)
    # 52 bits and a half: every value is exact in float64 and strictly between 0 and 1.
    uniform = (bits.double() + 0.5) * 2.0**-52
    return uniform.log_().neg_().log_().neg_()


def choose(logits: Tensor, temperature: float, keys: Tensor, position: int) -> Tensor:
    """Draw one token per row.

    Args:
        logits: ``[S, V]`` of any float type.
        temperature: >= 0; 0 takes the maximum.
        keys: ``[S]`` int64.
        position: of the token in the answer, from 0.

    Returns:
        ``[S]`` int64 tokens.
    """
    if temperature == 0.0:
        return logits.argmax(-1)
    return (logits.double() / temperature + gumbel_noise(keys, position, logits.shape[-1])).argmax(-1)
