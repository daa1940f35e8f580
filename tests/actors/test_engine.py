"""The shared-prefix engine against plain forwards without any sharing, cache or padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from PIL import Image
from tiny_models import KINDS

from switchmem.actors.caches import left_pad
from switchmem.actors.rows import TokenRow, shared_length
from switchmem.actors.sampling import Sampling, choose, noise_key
from switchmem.actors.starts import StartKeeper
from switchmem.actors.vlm import StepPrompts, VLMActor
from switchmem.memory.views import Condition
from switchmem.prompts import POCKET, Prompt, PromptTemplate

SAMPLING = Sampling(max_new_tokens=4)
ALL = tuple(Condition)
BOTH_ORDERS = pytest.mark.parametrize("template", [POCKET, POCKET.with_memory_first()], ids=["state", "memory"])


def plain_inputs(actor, prompt) -> dict[str, torch.Tensor]:
    """What transformers takes for one whole prompt, nothing shared."""
    pixels, grids, index = actor.encoder.pictures(prompt.images)
    chosen = [index[id(image)] for image in prompt.images]
    tokens = [[int(grids[i].prod()) // 4 for i in chosen]]
    ids = torch.tensor(actor.encoder.encode("x", [prompt], tokens))
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == actor.model.config.image_token_id).int(),
    }
    if chosen:
        inputs |= {"pixel_values": torch.cat([pixels[i] for i in chosen]), "image_grid_thw": grids[chosen]}
    return inputs


@torch.no_grad()
def plain_forward(actor, inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """States ``[L, D]`` of all blocks at the last token, and the next token's logits ``[V]``."""
    states, layers = [], actor.model.model.language_model.layers
    hooks = [layer.register_forward_hook(lambda m, i, o: states.append(o[0, -1])) for layer in layers]
    logits = actor.model(**inputs).logits[0, -1]
    for hook in hooks:
        hook.remove()
    return torch.stack(states), logits


def words(actor, tokens):
    """What the tokens say, but for the mark of unknown words."""
    return " ".join(word for word in actor.encoder.tokenizer.decode(tokens).split() if word != "<unk>")


def plain_answer(actor, prompt, key: int, sampling: Sampling) -> str:
    """One answer, every token from a forward over the whole text so far."""
    inputs, drawn = plain_inputs(actor, prompt), []
    end = actor.encoder.tokenizer.eos_token_id
    for position in range(sampling.max_new_tokens):
        _, logits = plain_forward(actor, inputs)
        token = choose(logits[None], sampling.temperature, torch.tensor([key]), position)
        if token.item() == end:
            break
        drawn.append(token.item())
        inputs["input_ids"] = torch.cat([inputs["input_ids"], token[None]], 1)
        for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            inputs[name] = torch.cat([inputs[name], torch.full((1, 1), value, dtype=inputs[name].dtype)], 1)
    return words(actor, drawn)


@pytest.fixture
def no_image_tokens(actor):
    """A plain forward over an answer that holds image tokens would look for a picture."""
    image = actor.model.config.image_token_id
    hook = actor.model.lm_head.register_forward_hook(lambda m, i, o: o - 1e4 * torch.eye(o.shape[-1])[image])
    yield
    hook.remove()


def expect_plain_states(actor, batch) -> None:
    layers = range(actor.num_layers)
    for question, seen in zip(batch, actor.observe(batch, (), layers, SAMPLING), strict=True):
        for condition, prompt in question.prompts.items():
            state = seen.state if condition is Condition.NONE else seen.shifted[condition]
            expected, _ = plain_forward(actor, plain_inputs(actor, prompt))
            torch.testing.assert_close(state, expected, atol=1e-4, rtol=0)


@BOTH_ORDERS
@pytest.mark.parametrize("size", [1, 3, 8])
def test_states_equal_the_plain_forward(actor, make_questions, size, template):
    batch = make_questions(actor, range(size), template=template)
    lengths = {len(plain_inputs(actor, q.prompts[Condition.TEXT])["input_ids"][0]) for q in batch}
    assert size == 1 or len(lengths) > 1, "the batch must need padding"
    assert [len(q.prompts[Condition.IMAGE].images) for q in batch] == [2] * size
    expect_plain_states(actor, batch)


@BOTH_ORDERS
def test_states_equal_the_plain_forward_behind_a_common_start(actor, make_questions, template, monkeypatch):
    """With a long system message, over batches of several sizes, prefixes of several lengths and a changed message."""
    computed = []

    def compute(piece):
        computed.append(len(piece))
        return actor.engine.start_cache(piece)

    monkeypatch.setattr(actor, "_starts", StartKeeper(compute))
    words = "star orbit lamp mail river cloud stone leaf bell moon".split() * 9
    for seeds, system in (((0, 1, 2, 3), words), ((4,), words), ((5, 6), words[:80]), ((7,), words[:20])):
        expect_plain_states(
            actor,
            [
                replace(q, prompts={c: replace(p, system=" ".join(system)) for c, p in q.prompts.items()})
                for q in make_questions(actor, seeds, template=template)
            ],
        )
    assert max(computed) > 90 and 80 <= min(computed) < 90 and computed == sorted(computed, reverse=True)


def test_any_number_of_pictures_anywhere(actor):
    """None, several before and behind where the prompts part, and the same one again."""
    sizes = ((64, 96), (96, 64), (64, 64), (40, 90))
    a, b, c, d = (Image.effect_noise(size, 90).convert("RGB") for size in sizes)
    two = ("goal", a, "screen", b)
    prompts = [
        {Condition.NONE: ("goal star",), Condition.TEXT: ("goal star", "memory mail lamp")},
        {Condition.NONE: two, Condition.IMAGE: (*two, "memory", c, "lamp", d, "tap")},
        {Condition.NONE: (a, "screen"), Condition.BOTH: (a, "screen", a, "memory", b)},
        {Condition.NONE: ("star", a), Condition.IMAGE: ("star", b, "memory", a)},
    ]
    batch = [
        StepPrompts(f"pocket/{n}/0", {c: Prompt("user", (), parts) for c, parts in shown.items()})
        for n, shown in enumerate(prompts)
    ]
    expect_plain_states(actor, batch)


def test_states_at_batch_1_3_and_left_padded_agree(actor, make_questions):
    batch = make_questions(actor, (3, 0, 5))
    together = actor.observe(batch, (), (0, -1), SAMPLING)
    for question, seen in zip(batch, together, strict=True):
        (alone,) = actor.observe([question], (), (0, -1), SAMPLING)
        torch.testing.assert_close(seen.state, alone.state, atol=1e-4, rtol=0)
        for condition in ALL[1:]:
            torch.testing.assert_close(seen.shifted[condition], alone.shifted[condition], atol=1e-4, rtol=0)


def test_padding_by_transformers_agrees_too(actor, make_questions):
    """A third way: one padded batch of whole prompts through the model itself."""
    batch = make_questions(actor, (3, 0, 5), (Condition.TEXT,))
    rows = [plain_inputs(actor, q.prompts[Condition.TEXT]) for q in batch]
    width = max(row["input_ids"].shape[1] for row in rows)
    padded = {name: torch.cat([left_pad(r[name], width, 1) for r in rows]) for name in list(rows[0])[:3]}
    padded |= {name: torch.cat([r[name] for r in rows]) for name in ("pixel_values", "image_grid_thw")}
    states = []
    hook = actor.model.model.language_model.layers[-1].register_forward_hook(lambda m, i, o: states.append(o[:, -1]))
    with torch.no_grad():
        actor.model(**padded)
    hook.remove()
    for seen, state in zip(actor.observe(batch, (), (-1,), SAMPLING), states[0], strict=True):
        torch.testing.assert_close(seen.shifted[Condition.TEXT][0], state, atol=1e-4, rtol=0)


def test_answers_equal_sampling_from_plain_forwards(actor, make_questions, no_image_tokens):
    batch = make_questions(actor, range(2))
    sampling = Sampling(temperature=0.7, seeds=(42, 43, 44), max_new_tokens=4)
    for question, seen in zip(batch, actor.observe(batch, ALL, (-1,), sampling), strict=True):
        for condition in ALL:
            keys = [noise_key(question.step_id, condition, seed) for seed in sampling.seeds]
            expected = [plain_answer(actor, question.prompts[condition], key, sampling) for key in keys]
            assert seen.answers[condition] == expected


def test_greedy_equals_generate(actor, make_questions, no_image_tokens):
    batch, sampling = make_questions(actor, range(2)), Sampling(temperature=0.0, seeds=(0,), max_new_tokens=8)
    for question, seen in zip(batch, actor.observe(batch, ALL, (-1,), sampling), strict=True):
        for condition in ALL:
            inputs = plain_inputs(actor, question.prompts[condition])
            end = actor.encoder.tokenizer.eos_token_id
            out = actor.model.generate(**inputs, do_sample=False, max_new_tokens=8, eos_token_id=end, pad_token_id=end)
            new = out[0, inputs["input_ids"].shape[1] :]
            assert seen.answers[condition] == [words(actor, new[new != end])]
            assert seen.new_tokens[condition] == [len(new)]


def test_answers_do_not_depend_on_batch_or_order(actor, make_questions):
    batch = make_questions(actor, range(8))
    conditions = (Condition.TEXT, Condition.IMAGE)
    together = {seen.step_id: seen.answers for seen in actor.observe(batch, conditions, (-1,), SAMPLING)}
    for size, order in ((1, batch), (8, batch[::-1]), (3, batch[2:] + batch[:2])):
        for start in range(0, 8, size):
            for seen in actor.observe(order[start : start + size], conditions, (-1,), SAMPLING):
                assert seen.answers == together[seen.step_id]
    assert len({answer for answers in together.values() for a in answers.values() for answer in a}) > 50


def test_an_answer_stops_at_the_end_token_and_the_others_go_on(make_actor, make_questions):
    actor = make_actor(False)
    end = actor.encoder.tokenizer.eos_token_id
    with torch.no_grad():  # the end token as likely as all others together
        actor.model.lm_head.weight.mul_(0.01)
    push = 3.0 * torch.eye(len(actor.encoder.tokenizer))[end]
    push[actor.encoder.tokenizer.unk_token_id] = -1e4  # no text: words could not be counted
    actor.model.lm_head.register_forward_hook(lambda m, i, o: o + push)
    (seen,) = actor.observe(
        make_questions(actor, [0]), (Condition.TEXT,), (-1,), Sampling(seeds=tuple(range(64)), max_new_tokens=4)
    )
    counts = seen.new_tokens[Condition.TEXT]
    assert set(counts) > {1, 2} and max(counts) <= 4
    for answer, count in zip(seen.answers[Condition.TEXT], counts, strict=True):
        assert "<|im_end|>" not in answer and len(answer.split()) in (count, count - 1)


@pytest.mark.parametrize("kind", KINDS)
@BOTH_ORDERS
def test_the_prefix_runs_once_and_every_picture_is_encoded_once(make_actor, make_questions, kind, template):
    actor = make_actor(kind)
    batch = make_questions(actor, (0, 1), template=template)
    batch += make_questions(actor, (0,), template=template)  # a repeated step has equal pictures
    tokens, patches = [], []
    actor.model.model.language_model.layers[0].register_forward_hook(lambda m, i, o: tokens.append(o.shape[:2].numel()))
    actor.model.model.visual.register_forward_pre_hook(lambda m, i: patches.append(len(i[0])))
    actor.observe(batch[:1], (), (-1,), SAMPLING)
    whole = {c: plain_inputs(actor, p)["input_ids"].shape[1] for c, p in batch[0].prompts.items()}
    # The turn's end and the generation prefix follow the state; "<|im_start|> user" comes before it and the memory.
    shared = 2 if template.memory_first else whole[Condition.NONE] - 5
    assert sum(tokens) == shared + sum(length - shared for length in whole.values())
    assert sum(patches) == 2 * 24, "two pictures of 64 x 96 pixels"
    patches.clear()
    actor.observe(batch, (), (-1,), SAMPLING)
    assert sum(patches) == 4 * 24


def scripted(actor, words) -> None:
    """Make the actor say these words, whatever it is asked. The prefill's own prediction is drawn by nobody."""
    ids = iter(actor.encoder.tokenizer.convert_tokens_to_ids(["star", *words]))
    actor.model.lm_head.register_forward_hook(lambda m, i, o: o + 1e4 * torch.eye(o.shape[-1])[next(ids)])


ASSISTANT = "<|im_start|> assistant <|recipient|>"
PLAN = "user tap <|diff_marker|> <|recipient|> open star"


@pytest.mark.parametrize(
    ("lead", "said", "kept"),
    [
        ("", f"{PLAN} <|im_end|> moon", PLAN),
        ("", "user <|im_end|> <|recipient|> open <|diff_marker|> moon", "user <|im_end|> <|recipient|> open"),
        (ASSISTANT, "open star <|im_end|> moon", "open star"),
        (ASSISTANT, "open <|diff_marker|> moon", "open"),
        (ASSISTANT, "user open <|im_end|> moon", "user open <|im_end|> moon"),
    ],
)
def test_an_answer_of_segments_ends_with_the_one_that_counts(make_actor, lead, said, kept):
    base = make_actor("full")
    template = PromptTemplate("t", answer=lead or None, ends_after="<|recipient|> open", ends=("<|diff_marker|>",))
    actor = VLMActor(base.model, base.encoder, template)
    scripted(actor, said.split())
    prompts = {Condition.NONE: Prompt("", ("goal star",), (), answer=template.answer)}
    sampling = Sampling(temperature=0.0, seeds=(0,), max_new_tokens=len(said.split()))
    (seen,) = actor.observe([StepPrompts("a/b/0", prompts)], (Condition.NONE,), (-1,), sampling)
    assert seen.answers[Condition.NONE] == [kept]


def test_shared_length_stops_where_pictures_differ():
    def row(ids, images, starts):
        ids = torch.tensor(ids)
        return TokenRow(ids, torch.zeros(3, len(ids)), images, starts)

    a, b = row([1, 5, 5, 2, 9, 8], (0,), (1,)), row([1, 5, 5, 2, 9, 7, 6], (0,), (1,))
    other = row([1, 5, 5, 2, 9, 8], (1,), (1,))
    assert shared_length([a, b]) == 5 and shared_length([a, a]) == 5 and shared_length([a]) == 5
    assert shared_length([a, other]) == 1 and shared_length([a, b, other]) == 1
    piece = b.cut(1, 5)
    assert piece.ids.tolist() == [5, 5, 2, 9] and piece.images == (0,) and piece.starts == (0,)
    assert b.cut(3, 5).images == ()
