"""What the pocket actor is taught equals, token for token and pixel for pixel, what it is asked in use."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.grammars.pocket import PocketGrammar
from switchmem.benchmarks.pocket.apps import generator
from switchmem.benchmarks.pocket.scenes import elements, render
from switchmem.benchmarks.pocket.vocabulary import SCREENS, UNLABELLED
from switchmem.memory.views import Condition
from switchmem.pocket_actor.batches import GRID, collate, patches
from switchmem.pocket_actor.model import IMAGE, build_config, build_image_processor, build_model, build_tokenizer
from switchmem.pocket_actor.samples import acting, answer_words, draw_pair, reading
from switchmem.pocket_actor.train import cell_labels
from switchmem.prompts import POCKET, build_prompt
from switchmem.steps import Screenshot, Step

GRAMMAR = PocketGrammar()


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def as_step(frame, instruction: str, *, control: bool, demonstration: bool) -> Step:
    return Step(
        "pocket",
        "episode",
        0,
        instruction,
        Screenshot.from_image(render(frame.scene, legible=control or not demonstration)),
        elements(frame.scene, name_icons=control),
        frame.action,
    )


@pytest.mark.parametrize("condition", list(Condition))
def test_taught_prompts_are_the_actors_own(tokenizer, condition):
    encoder = PromptEncoder(tokenizer, build_image_processor(), tokenizer.convert_tokens_to_ids(IMAGE), None)
    for n in range(25):
        rng = generator("prompt", n)
        pair = draw_pair(rng, system=0.3, control=0.3)
        sample = acting(pair, condition, rng, turns=3)
        now = as_step(pair.current, pair.instruction, control=pair.control, demonstration=False)
        then = as_step(pair.memory, pair.memory_instruction, control=pair.control, demonstration=True)
        prompt = build_prompt(now, then, condition, POCKET, GRAMMAR, encoder.specials)
        sizes = [[28] * len(prompt.images)]
        asked = encoder.encode("step", [prompt], sizes)[0]
        assert tokenizer.convert_tokens_to_ids(sample.words)[: len(asked)] == asked
        assert not any(sample.learned[: len(asked)])
        assert sample.words[len(asked) :][: len(answer_words(pair.current))] == answer_words(pair.current)
        pixels, grids, index = encoder.pictures(prompt.images)
        assert grids.tolist() == [list(GRID)] * len(grids)
        shown = torch.cat([pixels[index[id(image)]] for image in prompt.images])
        assert torch.equal(shown, torch.from_numpy(patches(np.stack(sample.images))))


def test_every_word_is_one_token(tokenizer):
    vocabulary = tokenizer.get_vocab()
    for n in range(50):
        rng = generator("words", n)
        for sample in (acting(draw_pair(rng), Condition.BOTH, rng, 4), reading(draw_pair(rng), Condition.TEXT, rng)):
            assert all(word in vocabulary for word in sample.words)


def test_positions_are_those_of_the_model(tokenizer):
    model = build_model(build_config(tokenizer), seed=0)
    rng = generator("positions")
    batch = collate([acting(draw_pair(rng), c, rng, 3) for c in Condition], tokenizer)
    kinds = (batch.ids == model.config.image_token_id).int()
    mask = (batch.ids != tokenizer.pad_token_id).int()
    expected, _ = model.model.get_rope_index(
        batch.ids, mm_token_type_ids=kinds, image_grid_thw=torch.tensor([GRID] * batch.images), attention_mask=mask
    )
    assert torch.equal(expected[:, mask.bool()], batch.positions[:, mask.bool()])


def test_labels_are_the_next_words(tokenizer):
    rng = generator("labels")
    sample = acting(draw_pair(rng), Condition.TEXT, rng, 2)
    batch = collate([sample], tokenizer)
    for place, label in enumerate(batch.labels[0].tolist()):
        if label != -100:
            assert sample.learned[place + 1] and label == tokenizer.convert_tokens_to_ids(sample.words[place + 1])
    assert (batch.labels != -100).sum() == sum(sample.learned)


@pytest.mark.parametrize("condition", [Condition.TEXT, Condition.IMAGE])
def test_reading_answers_are_true(condition):
    for n in range(20):
        rng = generator("reading", n)
        pair = draw_pair(rng, control=0.0)
        sample = reading(pair, condition, rng)
        words = sample.words
        for k, learned in enumerate(sample.learned):
            if not learned:
                continue
            kind, what, answer = words[k - 2], words[k - 1], words[k]
            scene = pair.memory.scene if kind == "past" else pair.current.scene
            if kind == "find":
                assert GRAMMAR.point(*scene.find(what).center) == answer
                continue
            entry = next(e for e in scene.entries if GRAMMAR.point(*e.center) == what)
            hidden = kind == "past" and entry.is_icon != condition.shows_image
            assert answer == (UNLABELLED if hidden else entry.symbol)


def test_further_turns_demonstrate_other_entries():
    for n in range(20):
        rng = generator("turns", n)
        pair = draw_pair(rng, system=0.0)
        words = " ".join(acting(pair, Condition.BOTH, rng, turns=4).words)
        assert words.count("assistant") == 4
        assert pair.current.scene.kind in SCREENS


def test_cell_labels_cover_entries():
    for n in range(20):
        pair = draw_pair(generator("cells", n), system=0.5)
        for legible in (True, False):
            shows, places = cell_labels(pair.current.scene, legible=legible)
            for e in pair.current.scene.entries:
                place = GRAMMAR.point(*e.center)
                cells = [i for i in range(e.row * 4 + e.column, e.row * 4 + e.column + e.span)]
                assert {shows[i] for i in cells} == {e.symbol if legible or e.is_icon else UNLABELLED}
                assert {places[i] for i in cells} == {place}
