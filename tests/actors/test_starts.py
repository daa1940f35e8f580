"""What all prompts begin with is computed once, for every architecture, and changes no state and no answer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from switchmem.actors.batching import SHORT
from switchmem.actors.rows import TokenRow
from switchmem.actors.sampling import Sampling
from switchmem.actors.starts import StartKeeper, common_start
from switchmem.memory.views import Condition

SAMPLING = Sampling(seeds=(42, 43, 44), max_new_tokens=4)
SAMPLED = (Condition.TEXT, Condition.IMAGE)
SYSTEM = " ".join(random.Random(0).choices("star orbit lamp mail river cloud stone leaf bell moon".split(), k=90))


def questions(actor, make_questions, seeds):
    """As an actor with a long system message is asked."""
    return [
        replace(q, prompts={c: replace(p, system=SYSTEM) for c, p in q.prompts.items()})
        for q in make_questions(actor, seeds)
    ]


@pytest.fixture
def ran(actor, monkeypatch):
    """Lengths of the starts that are computed; the shared actor begins without any."""
    lengths = []

    def compute(piece):
        lengths.append(len(piece))
        return actor.engine.start_cache(piece)

    monkeypatch.setattr(actor, "_starts", StartKeeper(compute))
    return lengths


def test_answers_are_those_without_a_start(actor, make_questions, ran):
    batch = questions(actor, make_questions, range(6))
    alone = []
    for question in batch:
        actor._starts = StartKeeper(actor.engine.start_cache)
        alone += actor.observe([question], SAMPLED, (-1,), SAMPLING)
    actor._starts = StartKeeper(lambda piece: ran.append(len(piece)) or actor.engine.start_cache(piece))
    for order in (batch, batch[::-1]):
        parts = [order[:4], order[4:5], order[5:]]
        seen = [o for part in parts for o in actor.observe(part, SAMPLED, (-1,), SAMPLING)]
        assert {o.step_id: o.answers for o in seen} == {o.step_id: o.answers for o in alone}
    assert ran
    assert len({text for o in alone for drawn in o.answers.values() for text in drawn}) > 20


def test_it_is_computed_once(actor, make_questions, ran):
    tokens = []
    hook = actor.engine.blocks[0].register_forward_hook(lambda m, i, o: tokens.append(o.shape[:2].numel()))
    batch = questions(actor, make_questions, (0, 1, 2, 3))
    actor.observe(batch[:2], (), (-1,), SAMPLING)
    tokens.clear()
    actor.observe(batch[2:3], (), (-1,), SAMPLING)
    hook.remove()
    _, (rows,) = actor.tokenise(batch[2:3])
    (start,) = set(ran)
    shared = len(rows[Condition.NONE]) - 5
    assert sum(tokens) == shared - start + sum(len(row) - shared for row in rows.values())


def row(*ids, picture_at=None):
    pictures = () if picture_at is None else (picture_at,)
    tokens = torch.tensor(ids)
    return TokenRow(tokens, torch.arange(len(ids)).expand(3, -1), tuple(range(len(pictures))), pictures)


BASE = list(range(100, 100 + 3 * SHORT))


class Calls:
    def __init__(self):
        self.pieces = []
        self.keeper = StartKeeper(lambda piece: self.pieces.append(piece.ids.tolist()) or object())

    def find(self, *rows, device="cpu", lengths=None):
        found = self.keeper.find(rows, lengths or [len(r) - 1 for r in rows], torch.device(device))
        return None if found is None else len(found)


def test_a_single_prompt_has_nothing_to_share_yet():
    calls = Calls()
    assert calls.find(row(*BASE, 1, 2, 3)) is None and not calls.pieces
    assert calls.find(row(*BASE, 9, 9, 9)) == len(BASE)
    assert calls.find(row(*BASE, 4, 5, 6)) == len(BASE) and calls.pieces == [BASE]


def test_a_start_becomes_shorter_and_never_longer():
    calls = Calls()
    assert calls.find(row(*BASE, 1, 2, 0), row(*BASE, 1, 3, 0)) == len(BASE) + 1
    assert calls.find(row(*BASE, 5, 6, 7)) == len(BASE)
    assert calls.find(row(*BASE, 1, 2, 0), row(*BASE, 1, 3, 0)) == len(BASE)
    assert [len(piece) for piece in calls.pieces] == [len(BASE) + 1, len(BASE)]


def test_another_kind_of_prompt_begins_anew():
    calls, other = Calls(), [n + 1 for n in BASE]
    assert calls.find(row(*BASE, 1, 1), row(*BASE, 2, 3)) == len(BASE)
    assert calls.find(row(*other, 7, 7)) is None
    assert calls.find(row(*other, 8, 8)) == len(other)
    assert calls.find(row(*other, 8, 8), device="meta") is None, "nothing is kept over a move"
    assert calls.find(row(*BASE, 1, 1), row(*BASE, 2, 3), device="meta") == len(BASE)


def test_a_start_ends_before_a_picture_and_before_the_end_of_the_shortest_prefix():
    calls = Calls()
    here = SHORT + 3
    assert calls.find(row(*BASE, 1, picture_at=here), row(*BASE, 1, picture_at=here + 2)) == here
    assert Calls().find(row(*BASE, 1), row(*BASE, 1), lengths=[SHORT + 1, 2 * SHORT]) == SHORT
    assert Calls().find(row(*BASE, 1), row(*BASE, 1), lengths=[SHORT, 2 * SHORT]) is None
    assert Calls().find(row(*BASE, 1), row(*BASE, 1), lengths=[0, 2 * SHORT]) is None


def test_a_start_is_bounded():
    long = list(range(5000))
    assert Calls().find(row(*long), row(*long)) == 2048


def test_common_start():
    rows = [row(*BASE, 1, 2), row(*BASE, 3)]
    assert common_start(rows, [len(BASE) + 1, len(BASE)]) == len(BASE) - 1
    assert common_start(rows[:1], [len(BASE) + 1]) == 0, "one prompt alone has nothing to share"
    assert common_start([row(1, 2, 3), row(1, 2, 4)], [2, 2]) == 0, "too short to be worth it"
