"""Caches whose rows share tokens, against a forward over every row's whole text without any cache."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import DynamicCache

from switchmem.actors.caches import Owners, _partial, left_pad, merge_caches, reorder_rows, select_rows, sharing


@torch.no_grad()
def run(actor, ids, cache=None, past=None, mask=None):
    """Logits ``[N, V]`` behind the last token; positions go on from ``past``."""
    past = torch.zeros(len(ids), dtype=torch.long) if past is None else past
    positions = past[:, None] + torch.arange(ids.shape[1])
    out = actor.model(
        input_ids=ids,
        cache=cache,
        position_ids=positions.expand(3, -1, -1),
        attention_mask=mask,
        use_cache=cache is not None,
    )
    return out.logits[:, -1]


def tokens(*shape):
    return torch.randint(9, 40, shape)


def prefix_cache(actor, ids):
    cache = DynamicCache(config=actor.model.config.get_text_config())
    run(actor, ids, cache)
    return cache


def test_a_row_of_a_shared_cache_equals_its_whole_text(actor):
    prefix, more = tokens(2, 6), tokens(3, 4)
    rows = torch.tensor([1, 0, 1])
    cache = prefix_cache(actor, prefix)
    whole = torch.cat([prefix[rows], more], 1)
    past = torch.full((3,), 6)
    for _ in range(2):  # a second one is as good as the first: the original was left alone
        chosen = select_rows(cache, rows)
        torch.testing.assert_close(run(actor, more, chosen, past), run(actor, whole), atol=2e-5, rtol=0)
    again = select_rows(chosen, torch.tensor([2, 2, 0]))  # of a cache that itself shares
    last = tokens(3, 2)
    expected = run(actor, torch.cat([whole[[2, 2, 0]], last], 1))
    torch.testing.assert_close(run(actor, last, again, torch.full((3,), 10)), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_part_and_end_equal_their_whole_texts(actor, seed):
    """Two groups of prompts of unlike lengths; rows then repeat, end and change their order at random."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    prefix = tokens(2, 6)
    cache = prefix_cache(actor, prefix)
    texts, caches, masks = [], [], []
    for steps, length in (([0, 1, 0], 5), ([1, 0], 3)):
        more = tokens(len(steps), length)
        chosen = select_rows(cache, torch.tensor(steps))
        run(actor, more, chosen, torch.full((len(steps),), 6))
        caches.append(chosen)
        masks.append(torch.ones(len(steps), 6 + length, dtype=torch.long))
        texts += [torch.cat([prefix[b], row]) for b, row in zip(steps, more, strict=True)]
    merged = merge_caches(caches, masks)
    assert all(layer.keys is None for c in caches for layer in c.layers if hasattr(layer, "owners"))
    config = actor.model.config.get_text_config()
    before = config._attn_implementation
    with sharing(config, merged):
        for _ in range(4):
            rows = [rng.randrange(len(texts)) for _ in range(rng.randint(1, 8))]
            reorder_rows(merged, torch.tensor(rows))
            new = tokens(len(rows), 1)
            past = torch.tensor([len(texts[r]) for r in rows])
            texts = [torch.cat([texts[r], token]) for r, token in zip(rows, new, strict=True)]
            got = run(actor, new, merged, past)
            with_plain_attention(config, before, texts, got, actor)
    assert config._attn_implementation == before


def with_plain_attention(config, name, texts, got, actor):
    shared, config._attn_implementation = config._attn_implementation, name
    for text, logits in zip(texts, got, strict=True):
        torch.testing.assert_close(logits, run(actor, text[None])[0], atol=5e-5, rtol=0)
    config._attn_implementation = shared


def test_padding_of_a_level_weighs_nothing():
    query, keys, values = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    highest, mass, weighted = _partial(query, keys, values, mask)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask[:, None, None], scale=1.0
    )
    torch.testing.assert_close(weighted / mass, expected)
    nothing = _partial(query, keys, values, torch.zeros(2, 5, dtype=torch.bool))
    assert (nothing[0].exp() == 0).all() and all(torch.isfinite(x).all() for x in nothing)


def test_owners_pack_and_unpack():
    owners = Owners(torch.tensor([2, 0, 2, 2]), 3, None, torch.device("cpu"))
    query = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 2, 3, 5)
    packed = owners.pack(query)
    assert packed.shape == (3, 2, 9, 5)
    assert packed[2, 0, :, 0].tolist() == [0, 0, 0, 2, 2, 2, 3, 3, 3] and packed[0, 1, :3, 0].tolist() == [1, 1, 1]
    assert torch.equal(owners.unpack(packed, 3), query)
    assert owners.spread(torch.tensor([5, 6, 7])).tolist() == [7, 5, 7, 7]
    assert owners.select(torch.tensor([1, 3])).rows.tolist() == [0, 2]


def test_the_attention_function_is_put_back_after_an_error(actor):
    config = actor.model.config.get_text_config()
    before = config._attn_implementation
    cache = select_rows(prefix_cache(actor, tokens(1, 3)), torch.tensor([0]))
    with pytest.raises(RuntimeError, match="stop"), sharing(config, cache):
        assert config._attn_implementation != before
        raise RuntimeError("stop")
    assert config._attn_implementation == before
    assert not any(layer.hands_itself for layer in cache.layers if hasattr(layer, "owners"))


def test_left_pad():
    assert left_pad(torch.ones(1, 2), 4, 1).tolist() == [[0, 0, 1, 1]]
    x = torch.ones(2, 2)
    assert left_pad(x, 2, 1) is x
