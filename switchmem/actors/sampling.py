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


# Tokens of the vocabulary that are looked at in one go: what fits into a core's cache, and what fills a GPU.
_BLOCK, _DEVICE_BLOCK = 1 << 16, 1 << 24
# Covers the rounding of float32 in a bound: a few units in the seventh digit, times exponents of up to 88.
_MARGIN = 1.0 + 1e-4


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


def _shift_right(z: Tensor, bits: int, out: Tensor) -> Tensor:
    """Logical shift; torch's own fills with the sign. The mask clears what it filled in."""
    return torch.bitwise_right_shift(z, bits, out=out).bitwise_and_((1 << (64 - bits)) - 1)


def _mix(z: Tensor, scratch: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64 tensors, in place; products wrap around."""
    z.bitwise_xor_(_shift_right(z, 30, scratch)).mul_(_MULTIPLY_1)
    z.bitwise_xor_(_shift_right(z, 27, scratch)).mul_(_MULTIPLY_2)
    return z.bitwise_xor_(_shift_right(z, 31, scratch))


def _streams(keys: Tensor, position: int) -> Tensor:
    """``[S]`` int64: where in the sequence of the generator a position of a sample begins."""
    return _mix(keys + _signed(_GAMMA * (position + 1) % (1 << 64)), torch.empty_like(keys))


def _gumbel(streams: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise of tokens, float64; the shapes are broadcast."""
    hashed = streams + (tokens + 1) * _GAMMA
    bits = _shift_right(_mix(hashed, torch.empty_like(hashed)), 12, torch.empty_like(hashed))
    # 52 bits and a half: every value is exact in float64 and strictly between 0 and 1.
    return ((bits.double() + 0.5) * 2.0**-52).log_().neg_().log_().neg_()


def gumbel_noise(keys: Tensor, position: int, vocab: int) -> Tensor:
    """Standard Gumbel noise.

    Args:
        keys: ``[S]`` int64, one key of `noise_key` per row.
        position: of the token in the answer, from 0.
        vocab: number of tokens V.

    Returns:
        ``[S, V]`` float64. A row depends on its key, the position and the token alone.
    """
    return _gumbel(_streams(keys, position)[:, None], torch.arange(vocab, device=keys.device))


def choose(logits: Tensor, temperature: float, keys: Tensor, position: int, rows: Tensor | None = None) -> Tensor:
    """Draw one token per sample: the one whose ``logits / temperature + gumbel_noise`` is highest.

    The noise is computed for those tokens alone that can win. With ``u`` the uniform number behind the noise of a token
    and ``p`` its probability, divided by that of the likeliest token, the highest score is the lowest ``-log(u) / p``.
    As ``-log(u) >= 1 - u``, a token whose ``(1 - u) / p`` is above the ``-log(u) / p`` of another one cannot have it.
    ``(1 - u) / p`` takes no logarithm, and what it leaves are a few tokens of each row.

    Args:
        logits: ``[R, V]`` of any float type.
        temperature: >= 0; 0 takes the maximum.
        keys: ``[S]`` int64, of the samples.
        position: of the token in the answer, from 0.
        rows: ``[S]`` int64, which row of the logits each sample draws from; None if S = R and they are in order.

    Returns:
        ``[S]`` int64 tokens.

    Raises:
        SamplingError: if a row of logits has no finite maximum.
    """
    rows = torch.arange(len(keys), device=logits.device) if rows is None else rows
    if temperature == 0.0:
        return logits.argmax(-1)[rows]
    vocab = logits.shape[-1]
    exact = logits if logits.dtype == torch.float64 else logits.float()
    rarity = (exact.amax(-1, keepdim=True) - exact).div_(temperature).exp_()  # 1 / p
    streams = _streams(keys, position)
    size = max(1, (_BLOCK if keys.device.type == "cpu" else _DEVICE_BLOCK) // vocab)
    # Written over for every block: fresh memory would cost more than the arithmetic.
    steps = torch.arange(1, vocab + 1, device=keys.device) * _GAMMA
    hashes, scratch = (keys.new_empty(min(size, len(keys)), vocab) for _ in range(2))
    drawn = []
    for row, stream in zip(rows.split(size), streams.split(size), strict=True):
        hashed = torch.add(stream[:, None], steps, out=hashes[: len(row)])
        spare = scratch[: len(row)]
        bits = _shift_right(_mix(hashed, spare).bitwise_not_(), 12, spare)
        times = bits.to(rarity.dtype).add_(0.5).mul_(2.0**-52).mul_(rarity[row])  # (1 - u) / p
        drawn.append(_first(times, rarity, logits, temperature, row, stream))
    tokens = torch.cat(drawn)
    if bool((tokens == vocab).any()):
        raise SamplingError("`logits` must have a finite maximum in every row, got NaN or infinity. Check the weights.")
    return tokens


def _first(times: Tensor, rarity: Tensor, logits: Tensor, temperature: float, rows: Tensor, streams: Tensor) -> Tensor:
    """The winners of a block of samples, of those tokens that can win; V where there is none."""
    likely = times.argmin(-1)
    bound = (-_gumbel(streams, likely)).exp().to(times.dtype) * rarity[rows, likely]  # -log(u) / p
    samples, tokens = (times <= _MARGIN * bound[:, None]).nonzero(as_tuple=True)
    scores = logits[rows[samples], tokens].double() / temperature + _gumbel(streams[samples], tokens)
    best = scores.new_full(rows.shape, -torch.inf).scatter_reduce_(0, samples, scores, "amax")
    winners = scores == best[samples]
    drawn = torch.full_like(rows, logits.shape[-1])
    return drawn.scatter_reduce_(0, samples[winners], tokens[winners], "amin")
