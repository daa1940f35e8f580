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
    load_embedder,
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
    names = {SentenceTransformerEmbedder("m", r, dtype=d).name for r in (None, "a") for d in ("auto", "float32")}
    assert len(names) == 4


def test_load_embedder():
    assert isinstance(load_embedder("hashing", dim=32), HashingEmbedder)
    assert isinstance(load_embedder("some/model", "abc"), SentenceTransformerEmbedder)
    with pytest.raises(EmbedderError, match="`revision` must be null"):
        load_embedder("hashing", "abc")


class Recorder:
    """Stands in for a multimodal SentenceTransformer; remembers what it was given."""

    modalities = ["text", "image", "message"]

    def __init__(self, *args, **kwargs):
        self.init, self.seen = (args, kwargs), []

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
    assert embedder._encoder.seen[0][0] == [{"text": "photo.png"}]  # a bare text of this form is opened as a file
    assert embedder._encoder.seen[1][0] == [{"text": "a", "image": picture}, {"image": picture}]
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
    with pytest.raises(EmbedderError, match="`model` must read pictures"):
        embedder.multimodal([("", screen())])


def test_a_model_that_cannot_be_loaded_is_named(monkeypatch):
    sentence_transformers = pytest.importorskip("sentence_transformers")

    def fail(*args, **kwargs):
        raise OSError("no such repository")

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", fail)
    with pytest.raises(EmbedderError, match="`model` must be an embedding model.*'org/none'.*HashingEmbedder"):
        SentenceTransformerEmbedder("org/none").texts(["a"])


def test_trained_embedder_loads_nothing_before_it_is_used():
    embedder = SentenceTransformerEmbedder("org/none")
    assert "_encoder" not in vars(embedder)
    with pytest.raises(EmbedderError, match="`batch_size` must be at least 1"):
        SentenceTransformerEmbedder("org/none", batch_size=0)
