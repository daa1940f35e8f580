"""Hashing vectors against a plain-loop reference; properties of the space; the trained embedder's edges."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from switchmem.memory.embedder import (
    EmbedderError,
    HashingEmbedder,
    SentenceTransformerEmbedder,
    layout_descriptor,
)

EMBEDDER = HashingEmbedder(dim=128)


def screen(colour=(250, 250, 250), top=(30, 60, 200), size=(90, 160), rows=5):
    picture = Image.new("RGB", size, colour)
    draw = ImageDraw.Draw(picture)
    width, height = size
    draw.rectangle((0, 0, width, height // 8), fill=top)
    for row in range(rows):
        y = height // 5 + row * height // 8
        draw.rectangle((width // 9, y, width * 6 // 9, y + height // 40), fill=(40, 40, 40))
    return picture


def murmur3(data: bytes) -> int:
    """MurmurHash3 x86 32-bit with seed 0, as a signed number, after its public definition."""

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & 0xFFFFFFFF
        return (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF

    h, whole = 0, len(data) // 4 * 4
    for at in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[at : at + 4], "little"))
        h = ((h << 13 | h >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h = (h ^ mixed(int.from_bytes(data[whole:], "little"))) ^ len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


def reference(text: str, dim: int, weight: float) -> np.ndarray:
    """The documented definition of a text's vector, in plain loops; ASCII words only."""

    def bag(part: str) -> list[float]:
        words = re.findall(r"\w+", part.lower())
        vector = [0.0] * dim
        for gram in words + [words[i] + " " + words[i + 1] for i in range(len(words) - 1)]:
            number = murmur3(gram.encode())
            vector[abs(number) % dim] += 1 if number >= 0 else -1
        vector = [math.copysign(math.log(1 + abs(v)), v) for v in vector]
        length = math.sqrt(sum(v * v for v in vector))
        return [v / length for v in vector] if length else vector

    lines = text.strip().split("\n", 1)
    head, rest = bag(lines[0]), bag(lines[1] if len(lines) > 1 else "")
    vector = np.array([weight * a + b for a, b in zip(head, rest, strict=True)])
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("weight", [1.0, 3.0])
@pytest.mark.parametrize(
    "text", ["Open settings", "Open the mail\nInbox\nmail mail mail\nCompose Button", "a\na b a b"]
)
def test_text_vectors_are_what_the_docstring_says(text, weight):
    vector = HashingEmbedder(64, weight).texts([text])[0].numpy()
    np.testing.assert_allclose(vector, reference(text, 64, weight), atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_any_text_has_a_unit_vector_that_does_not_depend_on_its_batch(texts):
    together = EMBEDDER.texts(texts)
    assert together.shape == (len(texts), 128) and together.dtype == torch.float32
    torch.testing.assert_close(together.norm(dim=1), torch.ones(len(texts)), atol=1e-5, rtol=0)
    for text, vector in zip(texts, together, strict=True):
        assert torch.equal(EMBEDDER.texts([text])[0], vector)


def test_pictures_have_unit_vectors_that_do_not_depend_on_their_batch():
    items = [("", screen()), ("Open settings", screen()), ("Open settings", screen(top=(200, 0, 0)))]
    together = EMBEDDER.multimodal(items)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(3), atol=1e-5, rtol=0)
    for item, vector in zip(items, together, strict=True):
        assert torch.equal(EMBEDDER.multimodal([item])[0], vector)


def test_nothing_to_embed_gives_no_rows():
    assert EMBEDDER.texts([]).shape == (0, 128)
    assert EMBEDDER.multimodal([]).shape == (0, 128)


def test_text_without_a_word_is_embedded():
    empty, marks, surrogate = EMBEDDER.texts(["", " ?! \n --", "\ud800"])
    assert torch.equal(empty, marks) and torch.equal(empty, surrogate)
    assert torch.equal(*EMBEDDER.texts(["Open \ud800 mail", "open mail"]))


def test_instruction_is_not_drowned_by_a_long_state():
    embedder = HashingEmbedder()
    state = "\n".join(f"Row number {i} Button" for i in range(80))
    other_state = "\n".join(f"Entry {i} CheckBox" for i in range(80))
    query, same_task, same_screen = embedder.texts(
        [f"Mute the alarm\n{state}", f"Mute the alarm\n{other_state}", f"Delete the oldest photo\n{state}"]
    )
    assert query @ same_task > query @ same_screen


def test_of_the_same_instruction_the_more_similar_screen_is_nearer():
    query, near, far = HashingEmbedder().texts(
        [
            "Mute the alarm\nClock\nAlarm 7:00\nTimer",
            "Mute the alarm\nClock\nAlarm 9:30\nTimer",
            "Mute the alarm\nMaps\nHome",
        ]
    )
    assert query @ near > query @ far


def test_chinese_sentences_share_their_characters():
    a, b, c = HashingEmbedder().texts(["打开设置页面", "打开设置", "发送邮件"])
    assert a @ b > 0.5 > a @ c


def test_similar_screens_are_nearer_than_different_ones_at_any_resolution():
    embedder = HashingEmbedder()
    picture, larger = screen(), screen(size=(270, 480))
    dark = screen(colour=(15, 15, 20), top=(60, 60, 60))
    a, b, c = embedder.multimodal([("", picture), ("", larger), ("", dark)])
    assert a @ b > 0.9 > a @ c


def test_text_and_picture_are_both_in_the_joint_vector_and_nearly_orthogonal():
    embedder = HashingEmbedder()
    joint, image = embedder.multimodal([("Open settings", screen()), ("", screen())])
    text = embedder.texts(["Open settings"])[0]
    assert abs(float(text @ image)) < 0.15
    assert float(joint @ text) > 0.6 and float(joint @ image) > 0.6


@pytest.mark.parametrize("grey", [0, 127, 128, 255])
def test_a_blank_screen_has_a_descriptor(grey):
    descriptor = layout_descriptor(Image.new("L", (10, 20), grey))
    assert descriptor.shape == (16 * 24 * 5,) and np.isclose(np.linalg.norm(descriptor), 1.0)


@pytest.mark.parametrize("arguments", [{"dim": 15}, {"instruction_weight": 0.0}, {"instruction_weight": math.nan}])
def test_hashing_embedder_refuses_arguments_out_of_range(arguments):
    with pytest.raises(EmbedderError, match=f"`{next(iter(arguments))}` must be"):
        HashingEmbedder(**arguments)


def test_name_tells_every_option():
    assert len({HashingEmbedder(d, w).name for d in (64, 128) for w in (1.0, 3.0)}) == 4
    options = [
        {}, {"revision": "a"}, {"dtype": "float32"}, {"prompt": "p"}, {"prompt": ""}, {"max_length": 99},
        {"max_pixels": 9999}, {"max_pixels": None},
    ]  # fmt: skip
    names = [SentenceTransformerEmbedder("m", **o).name for o in options]
    assert len(set(names)) == len(options)
    same = [SentenceTransformerEmbedder("m", device=d, batch_size=b).name for d in ("cpu", "auto") for b in (1, 8)]
    assert set(same) == {names[0]}  # they move a vector by rounding alone


def test_name_of_a_local_model_changes_with_its_files_and_not_with_its_place(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder / "1_Pooling").mkdir(parents=True)
        (tmp_path / folder / "model.safetensors").write_bytes(b"weights")
        (tmp_path / folder / "1_Pooling" / "config.json").write_text("{}")
    names = [SentenceTransformerEmbedder(str(tmp_path / folder)).name for folder in ("a", "b")]
    (tmp_path / "b" / "1_Pooling" / "config.json").write_text('{"x": 1}')
    changed = SentenceTransformerEmbedder(str(tmp_path / "b")).name
    assert names[0] == names[1] != changed


class Recorder:
    """Stands in for a multimodal SentenceTransformer; remembers what it was given."""

    modalities = ["text", "image", "message"]
    default_prompt_name, prompts = "all", {"all": "Represent this."}
    max_seq_length = 512

    def __init__(self, *args, **kwargs):
        self.init, self.seen, self.moved = (args, kwargs), [], []

    def to(self, device):
        self.moved.append(device)

    def supports(self, modality):
        return modality in self.modalities

    def get_embedding_dimension(self):
        return 3

    def encode(self, inputs, **options):
        self.seen.append((inputs, options))
        return torch.tensor([[3.0, 4.0, 0.0]] * len(inputs), dtype=torch.bfloat16)


def test_trained_embedder_wraps_texts_and_renormalises(monkeypatch):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", Recorder)
    embedder = SentenceTransformerEmbedder("org/model", revision="abc", device="cpu", batch_size=4)
    assert embedder.dim == 3 and embedder._encoder.init[1]["revision"] == "abc"
    picture = screen()
    texts, pairs = embedder.texts(["photo.png"]), embedder.multimodal([("a", picture), ("", picture)])
    assert {options["prompt"] for _, options in embedder._encoder.seen} == {"Represent this."}  # alike for both
    assert embedder._encoder.seen[0][0] == [{"text": "photo.png"}]  # a bare text of this form is opened as a file
    assert embedder._encoder.seen[1][0] == [{"text": "a", "image": picture}, {"image": picture}]
    assert list(embedder._encoder.seen[1][0][0]) == ["image", "text"]  # in which order they are shown
    assert texts.dtype == pairs.dtype == torch.float32
    torch.testing.assert_close(pairs, torch.tensor([[0.6, 0.8, 0.0]] * 2), atol=1e-3, rtol=0)
    assert embedder.texts([]).shape == (0, 3)


def test_a_real_text_model_embeds_texts_and_refuses_pictures(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "open": 1, "settings": 2, "mail": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    static = modules.StaticEmbedding(tokenizer, embedding_dim=8)
    sentence_transformers.SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "model"))
    embedder = SentenceTransformerEmbedder(str(tmp_path / "model"), device="cpu")
    vectors = embedder.texts(["open settings", "open settings", "mail"])
    assert vectors.shape == (3, embedder.dim) == (3, 8)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert embedder.cut(["open " * 9999]) == [False]  # a bag of words has no limit
    with pytest.raises(EmbedderError, match="`model` must read pictures"):
        embedder.multimodal([("", screen())])


@pytest.fixture
def recorder(monkeypatch):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", Recorder)


def test_own_instruction_and_limits_reach_the_model(recorder):
    embedder = SentenceTransformerEmbedder("m", device="cpu", prompt="Find it.", max_length=77, max_pixels=5000)
    embedder.multimodal([("a", screen(size=(90, 160))), ("", screen(size=(20, 40)))])
    embedder.texts(["a"])
    (pairs, first), (_, second) = embedder._encoder.seen
    assert first["prompt"] == second["prompt"] == "Find it." and embedder._encoder.max_seq_length == 77
    sizes = [item["image"].size for item in pairs]
    assert sizes[1] == (20, 40) and sizes[0][0] * sizes[0][1] <= 5000
    assert sizes[0][0] / sizes[0][1] == pytest.approx(90 / 160, rel=0.03)
    assert SentenceTransformerEmbedder("m", prompt="")._prompt() == ""  # none at all, though the model has one


def test_auto_follows_the_rank_and_a_given_device_stays(recorder):
    auto, given = SentenceTransformerEmbedder("m"), SentenceTransformerEmbedder("m", device="cpu")
    for embedder in (auto, given):
        embedder.place(torch.device("cuda", 3))
        assert embedder.dim == 3
        embedder.place(torch.device("cuda", 3))
        embedder.place(torch.device("cuda", 1))
    assert auto._encoder.init[1]["device"] == "cuda:3" and auto._encoder.moved == [torch.device("cuda", 1)]
    assert given._encoder.init[1]["device"] == "cpu" and not given._encoder.moved
    assert SentenceTransformerEmbedder("m")._encoder.init[1]["device"] is None  # outside a trainer the library chooses


@pytest.fixture(scope="module")
def tiny_text_model(tmp_path_factory):
    """A random Qwen3 text model, with last-token pooling, as the text members of Qwen's embedding family have."""
    pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

    folder = tmp_path_factory.mktemp("tiny")
    words = {word: n for n, word in enumerate(["[PAD]", "[UNK]", *"abcdefghij", "open", "mail", "find", "it"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", padding_side="left", model_max_length=40
    ).save_pretrained(folder / "base")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=64, pad_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    Qwen3Model(config).save_pretrained(folder / "base")
    transformer = Transformer(str(folder / "base"))
    pooling = modules.Pooling(transformer.get_embedding_dimension(), "lasttoken")
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save(str(folder / "model"))
    return folder / "model"


def test_a_causal_model_embeds_alike_in_any_batch_and_heeds_its_instruction(tiny_text_model):
    embedder = SentenceTransformerEmbedder(str(tiny_text_model), device="cpu", batch_size=2)
    texts = ["open mail", "a b c d e f g", "j", "open"]
    vectors = embedder.texts(texts)
    assert vectors.shape == (4, 16) == (4, embedder.dim)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(4))
    for text, vector in zip(texts, vectors, strict=True):
        torch.testing.assert_close(embedder.texts([text])[0], vector, atol=1e-5, rtol=0)
    instructed = SentenceTransformerEmbedder(str(tiny_text_model), device="cpu", prompt="find it ").texts(texts)
    assert not torch.allclose(instructed, vectors, atol=1e-3)
    spelt_out = embedder.texts(["find it " + text for text in texts])
    torch.testing.assert_close(instructed, spelt_out, atol=1e-5, rtol=0)


def test_texts_that_the_model_cuts_are_known(tiny_text_model):
    embedder = SentenceTransformerEmbedder(str(tiny_text_model), device="cpu")
    exact, longer = " ".join("abcdefghij" * 4), " ".join("abcdefghij" * 4 + "c")
    assert embedder.cut(["a", exact, longer]) == [False, False, True]
    assert torch.allclose(*embedder.texts([exact, longer]), atol=1e-6)  # so the rest really does not count
    short = SentenceTransformerEmbedder(str(tiny_text_model), device="cpu", max_length=16, prompt="find it ")
    texts = [" ".join("abcdefghij" + "a" * n) for n in (4, 5)]  # two more tokens are the instruction's
    assert short.cut(texts) == [False, True]
    other = " ".join("abcdefghij" + "aaaa" + "bcd")
    assert torch.allclose(*short.texts([texts[0], other]), atol=1e-6)
    assert embedder.cut([]) == [] and HashingEmbedder().cut(["a", "b"]) == [False, False]


TEMPLATE = (
    "{% if messages[0].role != 'system' %}<|im_start|>system a b<|im_end|>{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }} "
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>{% endfor %}<|im_start|>assistant "
)
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


@pytest.fixture(scope="module")
def tiny_vision_model(tmp_path_factory):
    """A random Qwen3-VL model with last-token pooling and a chat template, as Qwen3-VL-Embedding is."""
    pytest.importorskip("torchvision", reason="Qwen3-VL's processor needs torchvision")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLModel,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )  # fmt: skip

    folder = tmp_path_factory.mktemp("vision")
    known = ["[PAD]", "[UNK]", *SPECIAL, "system", "user", "assistant", *"abcdefghij", "open", "mail"]
    words = {word: n for n, word in enumerate(known)}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]", additional_special_tokens=list(SPECIAL),
        padding_side="right", model_max_length=64,
    )  # fmt: skip
    for name in ("image", "video"):
        setattr(tokenizer, f"{name}_token", f"<|{name}_pad|>")
        setattr(tokenizer, f"{name}_token_id", words[f"<|{name}_pad|>"])
    for name in ("start", "end"):
        setattr(tokenizer, f"vision_{name}_token", f"<|vision_{name}|>")
        setattr(tokenizer, f"vision_{name}_token_id", words[f"<|vision_{name}|>"])
    size = {"shortest_edge": 32 * 32, "longest_edge": 16 * 32 * 32}
    images = Qwen2VLImageProcessor(patch_size=16, merge_size=2, size=size)
    processor = Qwen3VLProcessor(images, tokenizer, Qwen3VLVideoProcessor(patch_size=16), chat_template=TEMPLATE)
    processor.save_pretrained(folder / "base")
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    text = {
        "vocab_size": len(words), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rope_parameters": rope,
        "initializer_range": 0.3, "pad_token_id": 0,
    }  # fmt: skip
    vision = {
        "depth": 3, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 32, "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1, 2], "initializer_range": 0.3,
    }  # fmt: skip
    ids = {f"{name}_token_id": words[f"<|{name}_pad|>"] for name in ("image", "video")}
    ids |= {f"vision_{name}_token_id": words[f"<|vision_{name}|>"] for name in ("start", "end")}
    torch.manual_seed(0)
    Qwen3VLModel(Qwen3VLConfig(text_config=text, vision_config=vision, **ids)).save_pretrained(folder / "base")
    transformer = Transformer(str(folder / "base"))
    pooling = modules.Pooling(transformer.get_embedding_dimension(), "lasttoken")
    SentenceTransformer(modules=[transformer, pooling], device="cpu").save(str(folder / "model"))
    return str(folder / "model")


def test_a_vision_model_embeds_texts_and_screenshots_alike_in_any_batch(tiny_vision_model):
    embedder = SentenceTransformerEmbedder(tiny_vision_model, device="cpu", batch_size=2)
    other = screen(top=(200, 0, 0))
    items = [("open mail", screen()), ("", screen()), ("open mail", other), ("a b c", screen())]
    texts, pairs = embedder.texts(["open mail", "a b c d e", "open"]), embedder.multimodal(items)
    assert texts.shape == (3, 32) and pairs.shape == (4, 32) and embedder.dim == 32
    for item, vector in zip(items, pairs, strict=True):
        torch.testing.assert_close(embedder.multimodal([item])[0], vector, atol=1e-5, rtol=0)
    torch.testing.assert_close(embedder.texts(["open"])[0], texts[2], atol=1e-5, rtol=0)
    assert not any(torch.allclose(pairs[0], row, atol=1e-3) for row in (*pairs[1:], texts[0]))


def test_a_vision_models_instruction_is_its_system_message(tiny_vision_model):
    """Without one, the template's own stands there; the picture comes before the text."""
    as_default = SentenceTransformerEmbedder(tiny_vision_model, device="cpu", prompt="a b")
    embedder = SentenceTransformerEmbedder(tiny_vision_model, device="cpu")
    torch.testing.assert_close(as_default.texts(["open mail"]), embedder.texts(["open mail"]))
    other = SentenceTransformerEmbedder(tiny_vision_model, device="cpu", prompt="c d")
    assert not torch.allclose(other.texts(["open mail"]), embedder.texts(["open mail"]), atol=1e-3)
    shown = [{"image": screen(), "text": "open mail"}]
    ids = other._encoder.preprocess(shown, prompt="c d")["input_ids"][0].tolist()
    words = other._encoder.tokenizer.convert_ids_to_tokens(ids)
    assert words[:5] == ["<|im_start|>", "system", "c", "d", "<|im_end|>"] and "a" not in words
    assert words.index("<|vision_end|>") < words.index("open")


def test_a_vision_model_counts_cut_texts_and_refuses_pictures_without_room(tiny_vision_model):
    embedder = SentenceTransformerEmbedder(tiny_vision_model, device="cpu")
    longer = " ".join("a" * 70)
    assert embedder.cut(["a", longer]) == [False, True]
    torch.testing.assert_close(embedder.texts([longer]), embedder.texts([longer + " b"]))
    short = SentenceTransformerEmbedder(tiny_vision_model, device="cpu", max_length=16)
    with pytest.raises(EmbedderError, match="`max_length` must leave room for a screenshot with its text, got 16"):
        short.multimodal([("a", screen())])


def test_a_model_that_cannot_be_loaded_is_named(monkeypatch):
    sentence_transformers = pytest.importorskip("sentence_transformers")

    def fail(*args, **kwargs):
        raise OSError("no such repository")

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", fail)
    with pytest.raises(EmbedderError, match="`model` must be an embedding model.*'org/none'.*--memory hashing.yaml"):
        SentenceTransformerEmbedder("org/none").texts(["a"])


def test_trained_embedder_loads_nothing_before_it_is_used():
    embedder = SentenceTransformerEmbedder("org/none")
    assert "_encoder" not in vars(embedder)


@pytest.mark.parametrize(
    ("argument", "value", "rule"),
    [
        ("batch_size", 0, "at least 1"),
        ("max_length", 15, "at least 16"),
        ("max_pixels", 1023, "at least 1024"),
        ("dtype", "float16", "auto, float32 or bfloat16"),
    ],
)
def test_trained_embedder_refuses_arguments_out_of_range(argument, value, rule):
    with pytest.raises(EmbedderError, match=f"`{argument}` must be {rule}, got '?{value}"):
        SentenceTransformerEmbedder("org/none", **{argument: value})
