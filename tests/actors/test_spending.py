"""A batch's time is divided among its steps as if each had been taken alone, pictures and all."""

import pytest
import torch

from switchmem.actors import spending
from switchmem.actors.rows import ImageTable, TokenRow
from switchmem.actors.sampling import Sampling
from switchmem.actors.spending import Spending
from switchmem.memory.views import Condition

NONE, TEXT, IMAGE, BOTH = Condition
CPU = torch.device("cpu")


def row(length, *images):
    """A prompt of so many tokens; its pictures are given as (index, place)."""
    ids = torch.zeros(length, dtype=torch.long)
    return (
        TokenRow(ids, torch.zeros(3, length, dtype=torch.long), *zip(*images, strict=True))
        if images
        else TokenRow(ids, torch.zeros(3, length, dtype=torch.long), (), ())
    )


def test_time_is_divided_by_tokens_and_pictures_count_where_they_are_shown(monkeypatch):
    clock = iter([0.0, 10.0, 12.0, 13.0, 20.0, 23.0, 30.0])
    monkeypatch.setattr(spending, "now", lambda device: next(clock))
    table = ImageTable([torch.zeros(4, 1)] * 3, torch.zeros(3, 3, dtype=torch.long))
    # 0 and 1 are the current screens, 2 is the demonstration's screen of both steps
    rows = [
        {NONE: row(10, (0, 0)), TEXT: row(12, (0, 0)), IMAGE: row(18, (0, 0), (2, 9)), BOTH: row(20, (0, 0), (2, 12))},
        {NONE: row(34, (1, 0)), IMAGE: row(34, (1, 0), (2, 31)), BOTH: row(40, (1, 0), (2, 31))},
    ]
    found = Spending(rows, [8, 30], table, CPU)
    table.seconds.update({0: 1.0, 1: 2.0})
    found.prefixes()  # 10 s: 3 of them for pictures, 7 for 38 tokens
    found.prompts(NONE, [0, 1])  # 2 s for 2 and 4 tokens
    found.prompts(TEXT, [0])  # 1 s
    table.seconds[2] = 1.0
    found.prompts(IMAGE, [0, 1])  # 7 s: 1 for the picture, 6 for 10 and 4 tokens
    found.prompts(BOTH, [0, 1])  # 3 s for 12 and 10 tokens
    found.answers([{TEXT: [[1, 2], [3]], IMAGE: [[4]]}, {IMAGE: [[5, 6, 7]]}])  # 7 s for 7 tokens
    first, second = found.of(0), found.of(1)
    assert first["prefix"] == pytest.approx(1.0 + 7 * 8 / 38) and second["prefix"] == pytest.approx(2.0 + 7 * 30 / 38)
    wanted = {"none": 2 * 2 / 6, "text": 1.0, "image": 1.0 + 6 * 10 / 14, "both": 1.0 + 3 * 12 / 22}
    assert first["prompt"] == pytest.approx(wanted)
    wanted = {"none": 2 * 4 / 6, "image": 1.0 + 6 * 4 / 14, "both": 1.0 + 3 * 10 / 22}
    assert second["prompt"] == pytest.approx(wanted)
    assert first["answer"] == pytest.approx({"text": 3.0, "image": 1.0})
    assert second["answer"] == pytest.approx({"image": 3.0})


def test_without_tokens_there_is_no_time(monkeypatch):
    clock = iter([0.0, 1.0, 2.0])
    monkeypatch.setattr(spending, "now", lambda device: next(clock))
    found = Spending([{NONE: row(3)}], [0], ImageTable([], torch.zeros(0, 3)), CPU)
    found.prefixes()
    found.answers([{}])
    assert found.of(0) == {"prefix": 0.0, "prompt": {}, "answer": {}}


def test_an_actor_tells_what_it_spent(actor, make_questions):
    batch = make_questions(actor, range(3), (TEXT,))
    seen = actor.observe(batch, (NONE, TEXT), (-1,), Sampling(0.0, (0,), 3))
    spent = [one.facts["spent"] for one in seen]
    assert all(s["prefix"] > 0 and set(s["prompt"]) == set(s["answer"]) == {"none", "text"} for s in spent)
    parts = sum(s["prefix"] + sum(s["prompt"].values()) + sum(s["answer"].values()) for s in spent)
    # each picture is shown by the prefix of its step alone, so that nothing counts twice
    assert parts == pytest.approx(sum(one.seconds for one in seen), rel=0.2)


def test_a_memorys_picture_counts_for_image_and_for_both(actor, make_questions):
    batch = make_questions(actor, [0], (TEXT, IMAGE, BOTH))
    table, rows = actor.tokenise(batch)
    (seen,) = actor.observe(batch, (), (-1,), Sampling(0.0, (0,), 3))
    assert seen.facts["spent"]["answer"] == {}
    lengths = {c: len(rows[0][c].images) for c in rows[0]}
    assert lengths[IMAGE] == lengths[BOTH] == 1 + lengths[TEXT]
    prompt = seen.facts["spent"]["prompt"]
    assert min(prompt["image"], prompt["both"]) > 0 and table.seconds == {}
