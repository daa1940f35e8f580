"""Sampling: exact, and a function of the question alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from switchmem.actors import sampling
from switchmem.actors.sampling import Sampling, SamplingError, choose, gumbel_noise, noise_key
from switchmem.memory.views import Condition

MASK = (1 << 64) - 1


def splitmix64(z: int) -> int:
    """The finaliser on plain integers, written from the published algorithm."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


@settings(deadline=None)
@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 4000), st.integers(0, 5000))
def test_noise_against_plain_integers(key, position, token):
    stream = splitmix64((key + 0x9E3779B97F4A7C15 * (position + 1)) & MASK)
    bits = splitmix64((stream + 0x9E3779B97F4A7C15 * (token + 1)) & MASK) >> 12
    expected = -math.log(-math.log((bits + 0.5) / 2**52))
    row = gumbel_noise(torch.tensor([0, key]), position, token + 1)[1]
    assert row[token].item() == pytest.approx(expected, rel=1e-12)


def keys(count: int, condition: Condition = Condition.TEXT) -> torch.Tensor:
    return torch.tensor([noise_key(f"pocket/e{i // 7}/0", condition, 42 + i % 7) for i in range(count)])


def test_noise_is_gumbel():
    assert kstest(gumbel_noise(keys(50), 3, 400).flatten().numpy(), "gumbel_r").pvalue > 0.01


def test_noise_differs_between_conditions_seeds_positions_and_tokens():
    noise = [gumbel_noise(keys(2000, c), p, 2) for c in (Condition.TEXT, Condition.IMAGE) for p in (0, 1)]
    columns = torch.cat(noise, 1).T
    correlation = torch.corrcoef(columns) - torch.eye(len(columns))
    assert correlation.abs().max() < 5 / math.sqrt(2000)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 3.0])
def test_frequencies_against_softmax(temperature):
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0])
    count = 30_000
    for position in (0, 5):
        drawn = choose(logits.expand(count, -1), temperature, keys(count), position)
        expected = (logits.double() / temperature).softmax(-1) * count
        assert chisquare(torch.bincount(drawn, minlength=6).numpy(), expected.numpy()).pvalue > 0.01


@settings(deadline=None)
@given(st.permutations(range(12)), st.integers(1, 12))
def test_a_row_does_not_know_its_batch(order, size):
    logits, all_keys = torch.randn(12, 50, generator=torch.Generator().manual_seed(0)), keys(12)
    together = choose(logits, 0.7, all_keys, 2)
    part = torch.tensor(order[:size])
    assert torch.equal(choose(logits[part], 0.7, all_keys[part], 2), together[part])


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 3000), st.sampled_from([0.0, 0.05, 1.0, 8.0, 200.0]), st.sampled_from([0.01, 0.7, 5.0]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]), st.integers(0, 1000),
)  # fmt: skip
def test_draws_equal_the_definition(vocab, spread, temperature, dtype, seed):
    """Noise for all tokens, no pruning; flat and peaked logits, several samples of a row, forbidden tokens."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(3, vocab, generator=generator) * spread).to(dtype)
    logits[:, 1::3] = -torch.inf
    rows, position = torch.tensor([2, 0, 0, 1, 2, 2, 0]), seed % 5
    scores = logits[rows].double() / temperature + gumbel_noise(keys(7), position, vocab)
    assert torch.equal(choose(logits, temperature, keys(7), position, rows), scores.argmax(-1))


def test_rows_in_blocks_draw_as_in_one(monkeypatch):
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(3))
    rows = torch.arange(40) % 4
    together = choose(logits, 0.7, keys(40), 1, rows)
    for block in (1, 700):
        monkeypatch.setattr(sampling, "_BLOCK", block)
        assert torch.equal(choose(logits, 0.7, keys(40), 1, rows), together)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_without_a_maximum_are_refused(bad):
    logits = torch.zeros(2, 5)
    logits[1, 3] = bad
    with pytest.raises(SamplingError, match="`logits` must have a finite maximum in every row, got NaN or infinity"):
        choose(logits, 0.7, keys(2), 0)
    with pytest.raises(SamplingError, match="finite maximum"):
        choose(torch.full((1, 5), -torch.inf), 0.7, keys(1), 0)


def test_temperature_zero_takes_the_maximum():
    logits = torch.randn(9, 30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(choose(logits, 0.0, keys(9), 0), logits.argmax(-1))


def test_extreme_hashes_give_finite_noise():
    noise = gumbel_noise(torch.arange(-5, 5), 0, 20_000)
    assert torch.isfinite(noise).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "`temperature` must be >= 0, got -1.0"),
        ({"temperature": math.nan}, "`temperature` must be >= 0, got nan"),
        ({"seeds": ()}, "`seeds` must be one or more different integers"),
        ({"seeds": (1, 1)}, "`seeds` must be one or more different integers"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be >= 1, got 0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(SamplingError, match=message):
        Sampling(**settings)
