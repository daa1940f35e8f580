"""Batches by tokens, and what happens when memory runs out."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from switchmem.actors import engine
from switchmem.actors.batching import (
    SHORT,
    Batcher,
    StepSize,
    alike,
    consecutive,
    is_out_of_memory,
    padded_tokens,
    split,
)
from switchmem.actors.protocol import ActorError
from switchmem.actors.sampling import Sampling
from switchmem.actors.spec import ActorSpec, ActorSpecError
from switchmem.memory.views import Condition

SAMPLED = (Condition.TEXT, Condition.IMAGE)
SAMPLING = Sampling(seeds=(42, 43, 44), max_new_tokens=3)

sizes = st.builds(
    lambda prefix, text, image, drawn: StepSize(
        "s", prefix, {"none": 5} | {k: v for k, v in (("text", text), ("image", image)) if v}, drawn
    ),
    st.integers(0, 90), st.integers(0, 90), st.integers(0, 90), st.integers(0, 40),
)  # fmt: skip


def step(name: str, prefix: int, **tails: int) -> StepSize:
    return StepSize(name, prefix, tails, 10)


def test_padded_tokens_by_hand():
    steps = [step("a", 10, none=2, text=7), step("b", 12, none=3), step("c", 4, none=1, text=9)]
    assert steps[0].tokens == 29
    assert padded_tokens(steps) == 3 * 12 + 3 * 3 + 2 * 9 + 30


@given(st.lists(sizes, max_size=12), st.integers(1, 600))
def test_every_step_is_in_one_group_and_groups_fit(steps, limit):
    groups = split(steps, limit)
    assert sorted(n for group in groups for n in group) == list(range(len(steps)))
    for group in groups:
        assert len(group) == 1 or padded_tokens([steps[n] for n in group]) <= limit
    longest = [max(steps[n].tokens for n in group) for group in groups]
    assert longest == sorted(longest, reverse=True)


@given(st.lists(sizes, max_size=6))
def test_without_a_limit_there_is_one_group(steps):
    assert split(steps, None) == ([list(range(len(steps)))] if steps else [])


@given(st.lists(st.integers(1, 200), max_size=20), st.sampled_from([0.0, 0.05, 0.5]), st.sampled_from([150, 9999]))
def test_groups_of_like_length_waste_little(lengths, waste, most):
    groups = alike(lengths, waste, most)
    assert sorted(n for group in groups for n in group) == list(range(len(lengths)))
    for group in groups:
        chosen = [lengths[n] for n in group]
        assert group == sorted(group)
        short = waste > 0 and max(chosen) < SHORT
        assert short or max(chosen) * len(chosen) <= (1 + waste) * sum(chosen) + 1e-6
        assert len(group) == 1 or max(chosen) * len(group) <= most
    if waste == 0.0 and most == 9999:
        assert len(groups) == len(set(lengths)), "equal lengths run together"


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 120))
@example([2, 0], 1)
def test_runs_are_in_order_and_fit(lengths, most):
    runs = consecutive(lengths, most)
    assert [n for run in runs for n in range(len(lengths))[run]] == list(range(len(lengths)))
    for run in runs:
        filled = [length for length in lengths[run] if length]
        assert len(filled) == 1 or sum(filled) <= most
        assert filled or not any(lengths), "no run without tokens"


class Memory:
    """Work that fails above so many steps at a time."""

    def __init__(self, room: int, error: BaseException) -> None:
        self.room, self.error, self.tried = room, error, []

    def __call__(self, group: list[int]) -> list[str]:
        self.tried.append(len(group))
        if len(group) > self.room:
            raise self.error
        return [f"result {n}" for n in group]


CPU = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), CPU, MemoryError()], ids=repr)
@pytest.mark.parametrize("room", [1, 3])
def test_a_batch_that_does_not_fit_is_halved(error, room, caplog):
    batcher, work = Batcher(), Memory(room, error)
    steps = [step(str(n), 50 + n, none=3, text=20) for n in range(8)]
    with caplog.at_level(logging.WARNING):
        assert batcher.run(steps, work) == [f"result {n}" for n in range(8)]
    failed = [size for size in work.tried if size > room]
    assert failed[0] == 8 and all(a > b for a, b in zip(failed, failed[1:], strict=False)), "each size fails once"
    assert batcher.failures == dict.fromkeys(failed, 1)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(failed) and said[0].startswith("Memory ran out with 8 steps together")
    work.tried.clear()
    batcher.run(steps, work)  # what was learned is kept
    assert max(work.tried) <= room and len(batcher.failures) == len(failed)


def test_results_of_finished_groups_are_kept():
    steps = [step(str(n), 100 if n < 2 else 10, none=1) for n in range(6)]
    done: list[int] = []

    def work(group):
        if len(group) > 2 and 5 in group:
            raise CPU
        done.extend(group)
        return group

    assert Batcher(230).run(steps, work) == list(range(6))
    assert sorted(done) == list(range(6)), "nothing is done twice"


def test_a_step_that_does_not_fit_alone_is_named():
    steps = [step("pocket/a/0", 5, none=1), step("pocket/b/7", 50, none=2, text=30)]
    with pytest.raises(ActorError, match=r"got 'pocket/b/7' with 82 prompt tokens and 10 .* CUDA out of memory. Lower"):
        Batcher().run(steps, Memory(0, torch.OutOfMemoryError("CUDA out of memory.\nmore")))


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shapes"):
        Batcher().run([step("a", 1, none=1)], Memory(0, RuntimeError("shapes do not match")))
    assert not is_out_of_memory(ValueError("x"))


def test_the_real_error_of_the_cpu_is_known():
    with pytest.raises(RuntimeError) as found:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(found.value)


def test_answers_and_states_are_the_same_under_any_budget(actor, make_questions):
    batch = make_questions(actor, range(4))
    together = actor.observe(batch, SAMPLED, (0, -1), SAMPLING)
    largest = max(len(row) for _, rows in [actor.tokenise(batch)] for prompts in rows for row in prompts.values())
    for limit in (1, 6 * largest):
        actor.batcher.limit = limit
        parts = actor.observe(batch, SAMPLED, (0, -1), SAMPLING)
        actor.batcher.limit = None
        assert [p.step_id for p in parts] == [q.step_id for q in batch]
        for part, whole in zip(parts, together, strict=True):
            assert part.answers == whole.answers and part.prompt_tokens == whole.prompt_tokens
            torch.testing.assert_close(part.state, whole.state, atol=1e-4, rtol=0)


def test_forwards_of_one_prompt_or_picture_each_change_nothing(actor, make_questions, monkeypatch):
    batch = make_questions(actor, range(3))
    together = actor.observe(batch, SAMPLED, (0, -1), SAMPLING)
    widths = []
    monkeypatch.setattr(engine, "FORWARD", 1)
    monkeypatch.setattr(engine, "PATCHES", 1)
    hook = actor.engine.blocks[0].register_forward_hook(lambda m, i, o: widths.append(tuple(o.shape[:2])))
    alone = actor.observe(batch, SAMPLED, (0, -1), SAMPLING)
    hook.remove()
    assert {rows for rows, width in widths if width > 1} == {1}
    for one, other in zip(alone, together, strict=True):
        assert one.answers == other.answers
        for condition in SAMPLED:
            torch.testing.assert_close(one.shifted[condition], other.shifted[condition], atol=1e-4, rtol=0)


@pytest.mark.parametrize("where", ["prefill", "extend", "decode"])
def test_an_actor_out_of_memory_answers_as_ever(make_actor, make_questions, monkeypatch, where):
    actor = make_actor("hybrid")
    batch = make_questions(actor, range(5))
    expected = [seen.answers for seen in actor.observe(batch, SAMPLED, (-1,), SAMPLING)]
    real, calls, room = getattr(actor.engine, where), [], 2 if where != "decode" else 4

    def tight(first, *rest):
        if where == "decode":
            steps = sum(len(extension.rows) for extension in first)
        else:
            steps = len(rest[0] if where == "extend" else first)
        calls.append(steps)
        if steps > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(first, *rest)

    monkeypatch.setattr(actor.engine, where, tight)
    assert [seen.answers for seen in actor.observe(batch, SAMPLED, (-1,), SAMPLING)] == expected
    assert calls[0] > room and actor.batcher.failures[5] == 1
    config = actor.model.config.get_text_config()
    assert config._attn_implementation == "sdpa"


def test_the_budget_is_a_setting_that_changes_no_answer(monkeypatch):
    assert ActorSpec(max_batch_tokens=9000).fingerprint() == ActorSpec().fingerprint()
    assert replace(ActorSpec(), max_batch_tokens=9000).load().batcher.limit == 9000
    with pytest.raises(ActorSpecError, match="`max_batch_tokens` must be at least 1 or null, got 0"):
        ActorSpec(max_batch_tokens=0)
