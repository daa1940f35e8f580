"""The actor: frozen, honest about what it cannot do, loadable from a folder."""

from __future__ import annotations

import shutil

import pytest
import torch

from switchmem.actors.sampling import GREEDY, Sampling
from switchmem.actors.spec import ActorSpec, ActorSpecError
from switchmem.actors.vlm import ActorError, StepPrompts, VLMActor, hash_parameters, probe_layers
from switchmem.memory.views import VIEWS, Condition, ElementView
from switchmem.prompts import Prompt, PromptError


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_actor):
    """A saved actor, laid out like the shipped one."""
    path, actor = tmp_path_factory.mktemp("actor"), make_actor(False)
    actor.model.save_pretrained(path)
    actor.encoder.tokenizer.save_pretrained(path)
    actor.encoder.image_processor.save_pretrained(path)
    return path


def test_the_parameters_stay(actor, make_questions):
    before = actor.parameters_hash()
    actor.observe(make_questions(actor, range(2)), (Condition.TEXT,), (-1,), Sampling(max_new_tokens=3))
    assert actor.parameters_hash() == before
    assert not any(p.requires_grad for p in actor.model.parameters()) and not actor.model.training


def test_the_hash_sees_one_bit(make_actor):
    actor = make_actor(False)
    before = actor.parameters_hash()
    with torch.no_grad():
        actor.model.lm_head.weight[-1, -1] += 1e-6
    assert actor.parameters_hash() != before == hash_parameters(make_actor(False).model)


def test_observation(actor, make_questions):
    batch = make_questions(actor, range(2), (Condition.TEXT, Condition.IMAGE))
    for seen in actor.observe(batch, (Condition.TEXT,), probe_layers(actor.num_layers), Sampling(max_new_tokens=3)):
        shape = (len(probe_layers(actor.num_layers)), actor.hidden_size)
        assert seen.state.shape == shape and seen.state.dtype == torch.float32 and not seen.state.requires_grad
        assert set(seen.shifted) == {Condition.TEXT, Condition.IMAGE}
        assert set(seen.answers) == {Condition.TEXT} and len(seen.answers[Condition.TEXT]) == 7
        assert seen.seconds > 0


def test_the_final_block_is_read_before_the_norm(actor, make_questions):
    (seen,) = actor.observe(make_questions(actor, [0]), (), (-2, -1), GREEDY)
    (same,) = actor.observe(make_questions(actor, [0]), (), (actor.num_layers - 2, actor.num_layers - 1), GREEDY)
    assert torch.equal(seen.state, same.state)
    normed = actor.model.model.language_model.norm(seen.state)
    assert not torch.allclose(normed, seen.state, atol=0.1)


def test_steps_without_memory_give_a_state_alone(actor, make_questions):
    (with_memory,) = make_questions(actor, [0])
    without = StepPrompts("pocket/x/0", {Condition.NONE: with_memory.prompts[Condition.NONE]})
    conditions = (Condition.NONE, Condition.TEXT)
    seen = actor.observe([without, with_memory], conditions, (-1,), GREEDY)
    assert seen[0].shifted == {} and set(seen[0].answers) == {Condition.NONE}
    assert set(seen[1].answers) == set(conditions)
    torch.testing.assert_close(seen[0].state, seen[1].state, atol=1e-4, rtol=0)


def test_an_empty_batch_is_an_empty_answer(actor):
    assert actor.observe([], (Condition.TEXT,), (-1,), GREEDY) == []


def test_the_state_prompt_is_required(actor, make_questions):
    (question,) = make_questions(actor, [0])
    prompts = {Condition.TEXT: question.prompts[Condition.TEXT]}
    with pytest.raises(PromptError, match=r"must have the state prompt \(condition 'none'\), got text"):
        actor.observe([StepPrompts("pocket/x/0", prompts)], (), (-1,), GREEDY)


def test_training_mode_is_refused(make_actor, make_questions):
    actor = make_actor(False)
    actor.model.train()
    with pytest.raises(ActorError, match="must be in evaluation mode"):
        actor.observe(make_questions(actor, [0]), (), (-1,), GREEDY)


@pytest.mark.parametrize(
    ("depth", "layers"), [(32, (0, 8, 16, 23, 31)), (28, (0, 7, 14, 20, 27)), (2, (0, 1)), (1, (0,))]
)
def test_probe_layers(depth, layers):
    assert probe_layers(depth) == layers


def test_loading_a_folder(folder, make_actor, make_questions):
    loaded, original = ActorSpec(model=str(folder), device="cpu").load(), make_actor(False)
    assert isinstance(loaded, VLMActor) and loaded.parameters_hash() == original.parameters_hash()
    assert type(loaded.encoder.image_processor).__name__ == "Qwen2VLImageProcessorPil"
    assert loaded.specials == original.specials
    assert loaded.encoder.tokenizer.tokenize("tap r3c2 <|im_end|>") == ["tap", "r3c2", "<|im_end|>"]
    batch = make_questions(original, range(2))
    for a, b in zip(*(x.observe(batch, (Condition.BOTH,), (-1,), GREEDY) for x in (loaded, original)), strict=True):
        assert a.answers == b.answers and torch.allclose(a.state, b.state, atol=1e-5)


def test_max_pixels_caps_the_visual_tokens(folder, make_questions):
    actor = ActorSpec(model=str(folder), device="cpu", max_pixels=32 * 64).load()
    images = make_questions(actor, [0])[0].prompts[Condition.NONE].images
    assert int(actor.encoder.pictures(images)[1].prod()) <= 8


def test_fingerprint(folder, tmp_path):
    spec = ActorSpec(model=str(folder))
    assert spec.fingerprint() == ActorSpec(model=str(folder), device="cpu").fingerprint()
    others = [
        ActorSpec(model=str(folder), **{k: v})
        for k, v in (("dtype", "bfloat16"), ("template", "default"), ("max_pixels", 9), ("state_tokens", 9))
    ]
    assert len({s.fingerprint() for s in [spec, *others]}) == 5
    before = spec.fingerprint()
    config = folder / "generation_config.json"
    text = config.read_text()
    config.write_text(text + " ")
    assert spec.fingerprint() != before
    config.write_text(text)
    assert spec.fingerprint() == before
    assert (
        ActorSpec(model="Qwen/Qwen3.5-9B", revision="a").fingerprint()
        != ActorSpec(model="Qwen/Qwen3.5-9B", revision="b").fingerprint()
    )


def test_a_changed_word_of_the_grammar_is_another_actor(folder, monkeypatch):
    spec = ActorSpec(model=str(folder), grammar="mobile_use")
    before, grammar = spec.fingerprint(), type(spec.load_grammar())
    words = spec.load_grammar().system
    monkeypatch.setattr(grammar, "system", words)
    assert spec.fingerprint() == before
    monkeypatch.setattr(grammar, "system", words + " Be quick.")
    assert spec.fingerprint() != before


def test_a_changed_view_is_another_actor(folder, monkeypatch):
    before = ActorSpec(model=str(folder)).fingerprint()
    monkeypatch.setitem(VIEWS, "aitw", ElementView())
    assert ActorSpec(model=str(folder)).fingerprint() != before


def test_the_encoder_alone_needs_no_weights(folder, tmp_path, make_actor, make_questions):
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    encoder, actor = ActorSpec(model=str(bare), max_prompt_tokens=99).load_encoder(), make_actor(False)
    (question,) = make_questions(actor, [0])
    prompts = question.prompts
    for prompt in prompts.values():
        _, grids, index = encoder.pictures(prompt.images)
        runs = [encoder.visual_tokens(grids)[index[id(image)]] for image in prompt.images]
        assert encoder.encode("s", [prompt], [runs]) == actor.encoder.encode("s", [prompt], [runs])
    with pytest.raises(PromptError, match="at most 99 tokens"):
        encoder.encode("s", [Prompt("", ("star " * 100,), ())], [[]])


def test_missing_files_and_bad_values(tmp_path):
    with pytest.raises(ActorSpecError, match="`state_tokens` must be at least 1 or null, got 0"):
        ActorSpec(state_tokens=0)
    for call in (ActorSpec.load, ActorSpec.fingerprint):
        with pytest.raises(ActorSpecError, match="`model` must be a folder with config.json.*without config.json"):
            call(ActorSpec(model=str(tmp_path)))
    with pytest.raises(ActorSpecError, match="`dtype` must be one of float32, bfloat16, float16, got 'int8'"):
        ActorSpec(dtype="int8")
