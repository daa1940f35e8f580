"""From folders, the hub's cache and adapters to actors: pinned, checked, and told as they are."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import KINDS, build_actor, build_model, build_questions, build_tokenizer, save_actor
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen3Config, Qwen3ForCausalLM

from switchmem.actors.loading import Origin
from switchmem.actors.sampling import GREEDY
from switchmem.actors.spec import ActorSpec, ActorSpecError
from switchmem.actors.vlm import ActorError, VLMActor
from switchmem.memory.views import Condition

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A saved actor of every architecture, laid out like those at the hub."""
    root = tmp_path_factory.mktemp("actors")
    for kind in KINDS:
        save_actor(build_actor(kind), root / kind)
    return root


@pytest.fixture
def folder(folders, tmp_path):
    """A copy of one, to be changed."""
    return shutil.copytree(folders / "qwen2_vl", tmp_path / "model")


def spec_of(path, **changes) -> ActorSpec:
    return ActorSpec(model=str(path), device="cpu", **changes)


def equal(a: VLMActor, b: VLMActor) -> bool:
    questions = build_questions(a, range(2), (Condition.IMAGE,))
    seen = (actor.observe(questions, (Condition.IMAGE,), (0, -1), GREEDY) for actor in (a, b))
    return all(
        torch.allclose(x.state, y.state, atol=1e-5) and x.answers == y.answers for x, y in zip(*seen, strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_comes_back_from_its_files(folders, kind):
    loaded = spec_of(folders / kind).load()
    assert equal(loaded, build_actor(kind))
    facts = loaded.facts()
    assert facts["model"] == str(folders / kind) and facts["model_commit"] is None
    assert facts["class"] == type(build_model(build_tokenizer(), kind)).__name__
    assert facts["dtypes"] == ["float32"] and facts["attention"] == facts["vision_attention"] == "sdpa"
    assert facts["image_processor"] == "Qwen2VLImageProcessorPil" and facts["pixels"] == [1024, 6144]
    assert ("linear_attention" in facts) == (kind == "hybrid")
    json.dumps(facts)


def test_what_was_asked_for_is_what_is_used(folders):
    facts = spec_of(folders / "qwen3_vl", dtype="bfloat16", attention="eager").load().facts()
    assert facts["dtypes"] == ["bfloat16"] and facts["attention"] == facts["vision_attention"] == "eager"
    facts = spec_of(folders / "hybrid").load().facts()
    assert facts["linear_attention"] == {name: None for name in ("fla", "causal_conv1d")}, "plain torch on this machine"


@pytest.mark.parametrize(
    ("limits", "pixels"),
    [
        ({}, [1024, 6144]),
        ({"max_pixels": 800}, [800, 800]),
        ({"min_pixels": 9000}, [9000, 9000]),
        ({"min_pixels": 2000, "max_pixels": 3000}, [2000, 3000]),
    ],
)
def test_limits_of_pixels(folders, limits, pixels):
    size = spec_of(folders / "qwen2_vl", **limits).load_encoder().image_processor.size
    assert [size["shortest_edge"], size["longest_edge"]] == pixels


def test_files_of_older_releases(folder):
    """As Qwen2-VL was first saved: limits by other names, a vocabulary with merges, a file for the template."""
    text = json.loads((folder / "preprocessor_config.json").read_text())
    del text["size"]
    text |= {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12845056}
    (folder / "preprocessor_config.json").write_text(json.dumps(text))
    template = (folder / "chat_template.jinja").read_text()
    for name in ("tokenizer.json", "chat_template.jinja", "tokenizer_config.json"):
        (folder / name).unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|im_end|>": 3}))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    encoder = spec_of(folder).load_encoder()
    assert encoder.image_processor.size["shortest_edge"] == 3136
    assert encoder.image_processor.size["longest_edge"] == 12845056
    assert encoder.tokenizer.chat_template == template and encoder.tokens("ab") == (2,)
    (folder / "chat_template.json").unlink()
    with pytest.raises(ActorSpecError, match="`model` must have a chat template .* got none in"):
        spec_of(folder).load_encoder()


def test_pickled_weights_are_not_read(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        spec_of(folder).load()


def test_code_of_a_repository_is_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForImageTextToText": "mine.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text("open('was_run', 'w')\nclass C: pass\nclass M: pass\n")
    with pytest.raises(ValueError, match="trust_remote_code|model type"):
        spec_of(folder).load()


# --- the hub ---

HUB = """
import json, logging, sys
from switchmem.actors.spec import ActorSpec

for revision in (None, "main", sys.argv[1]):
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logging.getLogger("switchmem").addHandler(handler)
    actor = ActorSpec(model="someone/tiny", revision=revision, device="cpu").load()
    logging.getLogger("switchmem").removeHandler(handler)
    print(json.dumps([revision, actor.facts(), actor.parameters_hash(), records]))
"""


def test_a_hub_model_tells_its_commit(folders, tmp_path, project):
    """From the cache, without a network: laid out as the hub's client does."""
    repository = tmp_path / "hub" / "models--someone--tiny"
    shutil.copytree(folders / "qwen2_vl", repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", HUB, COMMIT]
    run = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=180)
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
    assert [line[0] for line in lines] == [None, "main", COMMIT]
    for revision, facts, parameters, warned in lines:
        assert (facts["model"], facts["model_revision"], facts["model_commit"]) == ("someone/tiny", revision, COMMIT)
        assert parameters == build_actor("qwen2_vl").parameters_hash()
        moving = f"`revision` of the hub model 'someone/tiny' is {revision!r}: its weights may change under this name"
        expected = [] if revision == COMMIT else [f"{moving}; it is commit {COMMIT} now. Set `revision` to a commit."]
        assert warned == expected


def test_a_hub_that_tells_nothing(monkeypatch, caplog):
    monkeypatch.setattr("switchmem.actors.loading.resolve_revision", lambda name, revision: revision)
    with caplog.at_level(logging.WARNING):
        origin = Origin.of("someone/tiny", None, "v1")
    assert origin == Origin("someone/tiny", "v1", None) and origin.options == {"revision": "v1"}
    assert "which commit it is, the hub does not tell" in caplog.text


# --- adapters ---


@pytest.fixture
def make_adapter(tmp_path):
    peft = pytest.importorskip("peft", reason="PEFT is an extra: pip install switchmem[adapters]")

    def make(folder, seed=0, target_modules=("q_proj", "v_proj", "up_proj")):
        """A LoRA with random weights in both of its matrices: its folder, and the model with it unmerged."""
        torch.manual_seed(seed)
        config = peft.LoraConfig(r=4, target_modules=list(target_modules), init_lora_weights=False)
        adapted = peft.get_peft_model(spec_of(folder).load().model, config)
        path = tmp_path / f"adapter-{seed}"
        adapted.save_pretrained(path)
        return path, adapted.eval()

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_is_merged(folders, make_adapter, kind):
    """Against the same prompt through PEFT's own forward, where base and adapter stay apart."""
    path, adapted = make_adapter(folders / kind)
    actor = spec_of(folders / kind, adapter=str(path)).load()
    assert not [name for name, _ in actor.model.named_parameters() if "lora" in name]
    assert not any(p.requires_grad for p in actor.model.parameters())
    (question,) = build_questions(actor, [0], (Condition.IMAGE,))
    prompt = question.prompts[Condition.IMAGE]
    pixels, grids, _ = actor.encoder.pictures(prompt.images)
    ids = torch.tensor(actor.encoder.encode("s", [prompt], [actor.encoder.visual_tokens(grids)]))
    states = []
    blocks = adapted.base_model.model.model.language_model.layers
    hook = blocks[-1].register_forward_hook(lambda m, i, o: states.append(o[0, -1]))
    with torch.no_grad():
        adapted(
            input_ids=ids, mm_token_type_ids=(ids == actor.model.config.image_token_id).int(),
            pixel_values=torch.cat(list(pixels)), image_grid_thw=grids,
        )  # fmt: skip
    hook.remove()
    (seen,) = actor.observe([question], (), (-1,), GREEDY)
    torch.testing.assert_close(seen.shifted[Condition.IMAGE][0], states[0], atol=1e-4, rtol=0)
    (bare,) = spec_of(folders / kind).load().observe([question], (), (-1,), GREEDY)
    assert (bare.shifted[Condition.IMAGE] - seen.shifted[Condition.IMAGE]).abs().max() > 0.1
    assert actor.facts()["adapter"] == str(path)


def test_an_adapters_files_count(folders, make_adapter):
    first, second = (make_adapter(folders / "full", seed)[0] for seed in (0, 1))
    bare, one, other = (spec_of(folders / "full", adapter=a and str(a)).fingerprint() for a in (None, first, second))
    assert len({bare, one, other}) == 3
    weights = load_file(first / "adapter_model.safetensors")
    save_file({name: w + 1e-6 for name, w in weights.items()}, first / "adapter_model.safetensors")
    assert spec_of(folders / "full", adapter=str(first)).fingerprint() != one
    pinned = [spec_of(folders / "full", adapter="a/b", adapter_revision=r).fingerprint() for r in ("x", "y")]
    assert pinned[0] != pinned[1]


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl"])
def test_an_adapter_by_the_names_of_older_releases(folders, make_adapter, kind):
    path, _ = make_adapter(folders / kind, target_modules=["q_proj", "qkv"])
    spec = spec_of(folders / kind, adapter=str(path))
    expected = spec.load().parameters_hash()
    names = (("base_model.model.model.language_model.", "base_model.model.model."), ("model.model.vis", "model.vis"))
    weights = load_file(path / "adapter_model.safetensors")
    renamed = {name.replace(*names[0]).replace(*names[1]): weight for name, weight in weights.items()}
    assert not weights.keys() & renamed.keys()
    save_file(renamed, path / "adapter_model.safetensors")
    assert spec.load().parameters_hash() == expected != spec_of(folders / kind).load().parameters_hash()


@pytest.mark.parametrize("settings", [{}, {"target_modules": ["linear_attn.out_proj"]}])
def test_an_adapter_of_another_model_is_refused(folders, make_adapter, settings):
    path, _ = make_adapter(folders / "hybrid", **settings)
    with pytest.raises(ActorSpecError, match=r"`adapter` must fit the model, got one of .* PEFT found: "):
        spec_of(folders / "qwen2_vl", adapter=str(path)).load()


def test_an_adapter_with_half_of_its_weights_is_refused(folders, make_adapter):
    path, _ = make_adapter(folders / "full")
    weights = load_file(path / "adapter_model.safetensors")
    save_file(dict(list(weights.items())[::2]), path / "adapter_model.safetensors")
    with pytest.raises(ActorSpecError, match="`adapter` must fit the model"):
        spec_of(folders / "full", adapter=str(path)).load()


def test_adapters_that_cannot_be_used(folders, make_adapter, tmp_path, monkeypatch):
    path, _ = make_adapter(folders / "full")
    spec = spec_of(folders / "full", adapter=str(path))
    config = json.loads((path / "adapter_config.json").read_text())
    kept = {key: config[key] for key in ("base_model_name_or_path", "task_type")}
    prompts = shutil.copytree(path, tmp_path / "prompts")
    changed = json.dumps({**kept, "peft_type": "PROMPT_TUNING", "num_virtual_tokens": 2})
    (prompts / "adapter_config.json").write_text(changed)
    with pytest.raises(ActorSpecError, match="weights can be merged, such as LoRA, got PROMPT_TUNING"):
        replace(spec, adapter=str(prompts)).load()
    pickled = shutil.copytree(path, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with pytest.raises(ActorSpecError, match="weights in adapter_model.safetensors, got none"):
        replace(spec, adapter=str(pickled)).load()
    (tmp_path / "empty").mkdir()
    for call in (ActorSpec.load, ActorSpec.fingerprint):
        with pytest.raises(ActorSpecError, match="`adapter` must be a folder with adapter_config.json .* got .*empty"):
            call(replace(spec, adapter=str(tmp_path / "empty")))
        with pytest.raises(ActorSpecError, match="`adapter` must be a folder or a hub id .* got './nowhere/x'"):
            call(replace(spec, adapter="./nowhere/x"))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ActorSpecError, match=r"`adapter` needs PEFT. Run `pip install switchmem\[adapters\]`"):
        spec.load()


# --- what is refused ---


def test_bad_values():
    for name in ("min_pixels", "max_pixels", "max_prompt_tokens", "state_tokens"):
        with pytest.raises(ActorSpecError, match=f"`{name}` must be at least 1 or null, got 0"):
            ActorSpec(**{name: 0})
    with pytest.raises(ActorSpecError, match="`min_pixels` must be at most `max_pixels`, got 9 and 8"):
        ActorSpec(min_pixels=9, max_pixels=8)
    for call in (ActorSpec.load, ActorSpec.fingerprint):
        with pytest.raises(ActorSpecError, match="`model` must be a folder or a hub id .* got '/no/where'"):
            call(ActorSpec(model="/no/where"))


def test_models_of_another_kind_are_refused():
    encoder = build_actor().encoder
    text = Qwen3ForCausalLM(Qwen3Config(hidden_size=16, intermediate_size=16, num_hidden_layers=1, vocab_size=99,
                                        num_attention_heads=1, num_key_value_heads=1))  # fmt: skip
    with pytest.raises(ActorError, match="got Qwen3ForCausalLM without language_model, visual, get_rope_index"):
        VLMActor(text, encoder)
    config = Qwen2VLConfig.from_dict(build_model(build_tokenizer(), "qwen2_vl").config.to_dict())
    config.text_config.layer_types = ["full_attention", "sliding_attention"] * 2
    config.text_config.sliding_window = 8
    with pytest.raises(ActorError, match="full or linear attention alone, got full_attention, sliding_attention"):
        VLMActor(Qwen2VLForConditionalGeneration(config), encoder)


@pytest.mark.parametrize("kind", ["qwen2_5_vl"])
def test_an_actor_that_is_not_frozen_is_refused(kind):
    actor = build_actor(kind)
    questions = build_questions(actor, [0], ())
    actor.model.model.visual.train()
    with pytest.raises(
        ActorError, match=r"evaluation mode, got training mode in \d+ of its modules, such as 'model.vis"
    ):
        actor.observe(questions, (), (-1,), GREEDY)
    actor.model.eval()
    actor.model.lm_head.requires_grad_(True)
    with pytest.raises(ActorError, match="must be frozen, got gradients for 1 parameters, such as 'lm_head.weight'"):
        actor.observe(questions, (), (-1,), GREEDY)


def test_a_template_of_another_family_is_refused(folders, tmp_path):
    path = shutil.copytree(folders / "qwen2_vl", tmp_path / "plain")
    text = (path / "tokenizer.json").read_text().replace("<|diff_marker|>", "<|another|>")
    (path / "tokenizer.json").write_text(text)
    config = (path / "tokenizer_config.json").read_text().replace("<|diff_marker|>", "<|another|>")
    (path / "tokenizer_config.json").write_text(config)
    with pytest.raises(ActorError, match="end an answer of template 'aguvis', got no <|diff_marker|>"):
        spec_of(path, template="aguvis", grammar="aguvis").load()
