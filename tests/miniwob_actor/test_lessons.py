"""The web actor is taught the prompts that it is asked, on instances that no study uses, with words exchanged alike."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.spec import ActorSpec
from switchmem.envs.miniwob.demonstrators.recording import STUDY_SEEDS, small, typed_at_once, unstudied_seeds
from switchmem.envs.miniwob.tasks import TASKS, instance_seed
from switchmem.memory.views import Condition
from switchmem.miniwob_actor.collect import TRAINING_SEED
from switchmem.miniwob_actor.model import build_tokenizer, frequent_words
from switchmem.miniwob_actor.optimizers import Optimizers
from switchmem.miniwob_actor.samples import (
    GRAMMAR,
    STATE_TOKENS,
    TEMPLATE,
    Lessons,
    Sample,
    answer_of,
    collate,
    exchange,
    move,
)
from switchmem.miniwob_actor.train import held_out, texts_of
from switchmem.pocket_actor.model import build_config, build_image_processor
from switchmem.prompts import build_prompts
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Alan", "Niklaus", "Donald", "Frances", "Tony", "Jean")


def make_step(episode: int, index: int = 0, action: Action | None = None) -> Step:
    name = NAMES[episode]
    return Step(
        benchmark="miniwob",
        episode_id=f"enter-text-{episode}",
        index=index,
        instruction=f'Enter "{name}" into the text field.',
        screenshot=Screenshot.from_image(Image.new("RGB", (1080, 2180), (episode * 20, 90, 30))),
        elements=(
            UIElement((0.1, 0.1, 0.5, 0.15), kind="EditText", editable=True, resource_id="tt"),
            UIElement((0.1, 0.2, 0.5, 0.25), text=f"Not {name}", kind="TextView"),
            UIElement((0.1, 0.3, 0.5, 0.35), text="Submit", kind="Button", clickable=True),
        ),
        action=action or Action(ActionType.TYPE, (0.3, 0.125), text=name),
        category="enter-text",
    )


STEPS = [small(make_step(episode)) for episode in range(10)]


@pytest.fixture(scope="module")
def encoder() -> PromptEncoder:
    tokenizer = build_tokenizer(frequent_words(texts_of(STEPS)))
    return PromptEncoder(tokenizer, build_image_processor(), build_config(tokenizer).image_token_id, None)


@pytest.fixture(scope="module")
def lessons(encoder) -> Lessons:
    _, grid, _ = encoder.pictures([STEPS[0].screenshot.image()])
    return Lessons(STEPS, encoder, *encoder.visual_tokens(grid))


def check_questions(sample: Sample, told: str, encoder: PromptEncoder) -> list[str]:
    """Learned is all behind each question's first token; returns the places."""
    pairs = re.findall(r"find (.*?) (x\d+ y\d+)(?= find|$)", told)
    wanted = [token for pair in pairs for token in encoder.tokens(" ".join(["find", *pair]))[2:]]
    assert [token for token, is_learned in zip(sample.ids, sample.learned, strict=True) if is_learned] == wanted
    return [place for _, place in pairs]


@pytest.mark.parametrize("condition", list(Condition))
def test_a_sample_is_the_actors_own_prompt_and_the_gold_answer(encoder, lessons, condition):
    step, demo = STEPS[2], STEPS[5]
    sample = lessons.sample(step, demo, condition)
    prompt = build_prompts(step, demo, [condition], TEMPLATE, GRAMMAR, encoder.specials)[condition]
    _, grids, _ = encoder.pictures(prompt.images)
    sizes = [encoder.visual_tokens(grids)[0]] * len(prompt.images)
    (asked,) = encoder.encode(step.step_id, [prompt], [sizes])
    assert sample.ids[: -sum(sample.learned)] == asked
    told = encoder.tokenizer.decode(sample.ids[-sum(sample.learned) :], skip_special_tokens=True)
    assert GRAMMAR.parse(told, (1080, 2180)).action.text == "Edsger"
    assert sample.ids[-1] == encoder.tokenizer.eos_token_id
    shown = [STEPS[2].step_id] + [STEPS[5].step_id] * condition.shows_image
    assert list(sample.pictures) == shown and len(prompt.images) == len(shown)


def test_learned_places_are_those_before_each_word_of_the_answer(encoder, lessons):
    samples = [lessons.sample(STEPS[0], None, Condition.NONE), lessons.sample(STEPS[1], STEPS[3], Condition.TEXT)]
    batch = collate(samples, encoder.tokenizer.pad_token_id, encoder.image_token)
    for row, sample in enumerate(samples):
        places = torch.nonzero(batch.labels[row] != -100).flatten().tolist()
        assert [batch.labels[row, place].item() for place in places] == sample.ids[-sum(sample.learned) :]
        assert places == list(range(len(sample.ids) - sum(sample.learned) - 1, len(sample.ids) - 1))


def test_questions_are_answered_with_the_place_of_what_they_ask(lessons, encoder):
    for number in range(20):
        sample = lessons.draw_reading(np.random.default_rng(number))
        start = sample.learned.index(True)
        told = encoder.tokenizer.decode(sample.ids[start - 3 :], skip_special_tokens=True)
        places = re.findall(r"x\d+ y\d+", told)
        assert places and set(places) <= {GRAMMAR.point(*e.center) for e in STEPS[0].elements}
        assert ("Submit x16 y35" in told) == ("x16 y35" in places) and "EditText" not in told
        assert check_questions(sample, told, encoder) == places


def test_words_are_exchanged_alike_in_instruction_screen_and_text():
    changed = exchange(STEPS[0], {"Ada": "Kurt", "Enter": "Bring"})
    assert changed.instruction == 'Bring "Kurt" into the text field.'
    assert [e.text for e in changed.elements] == ["", "Not Kurt", "Submit"] and changed.action.text == "Kurt"
    assert exchange(STEPS[0], {"Ad": "x"}) == STEPS[0], "whole words only"


def test_drawn_words_that_change_are_looked_up_and_those_of_the_task_stay(lessons, encoder):
    texts = set()
    for number in range(60):
        sample = lessons.draw(np.random.default_rng(number), Condition.NONE)
        chat = encoder.tokenizer.decode(sample.ids)
        chat, _, _ = chat.rpartition("<|im_end|>")  # questions follow
        typed = chat.split()[-1]
        assert chat.count(typed) == 3 and "Submit" in chat and "Enter" in chat, chat
        texts.add(typed)
    assert len(texts) > len(NAMES), "some words are new"


def listed(action: Action, *rows: tuple[str, bool], instruction: str = "Select Ada and click Submit.") -> Step:
    elements = tuple(
        UIElement((0.1, n / 10, 0.5, n / 10 + 0.05), text=text, kind="CheckBox", checked=checked)
        for n, (text, checked) in enumerate(rows)
    )
    return replace(STEPS[0], instruction=instruction, elements=elements, action=action)


def test_a_label_that_the_instruction_names_moves_with_its_action():
    tap = Action(ActionType.TAP, (0.3, 0.025))
    step = listed(tap, ("Ada", False), ("Grace", False), ("Alan", True), ("", False))
    moved = move(np.random.default_rng(0), step)
    assert [e.text for e in moved.elements] == ["Grace", "Ada", "Alan", ""], "the only other one without a mark"
    assert moved.action.point == step.elements[1].center and [e.box for e in moved.elements] == [
        e.box for e in step.elements
    ]
    assert answer_of(moved).startswith("tap Ada")
    assert move(np.random.default_rng(0), replace(step, instruction="Select the 1st one.")) == replace(
        step, instruction="Select the 1st one."
    )
    alone = listed(tap, ("Ada", False), ("Grace", True))
    assert move(np.random.default_rng(0), alone) == alone


def mails(action: Action, instruction: str) -> Step:
    """Two mails below a search field: sender, subject, and a bin and a star without words on the right of each."""

    def text(left: float, top: float, words: str) -> UIElement:
        return UIElement((left, top, left + 0.2, top + 0.02), text=words, kind="TextView")

    rows = [text(0.02, 0.06, "Search"), UIElement((0.3, 0.06, 0.9, 0.08), kind="EditText", editable=True)]
    for top, who, what in ((0.2, "Ada", "Bernoulli numbers"), (0.3, "Grace", "Compilers")):
        rows += [text(0.02, top, who), text(0.02, top + 0.03, what)]
        rows += [UIElement((left, top, left + 0.05, top + 0.02), kind="Image") for left in (0.8, 0.9)]
    return replace(STEPS[0], instruction=instruction, elements=tuple(rows), action=action)


def test_what_has_no_words_is_called_by_what_it_stands_beside():
    star = Action(ActionType.TAP, (0.925, 0.31))
    step = mails(star, "Find the email by Grace and click the star icon.")
    assert answer_of(step) == f"tap Grace Image {GRAMMAR.point(0.925, 0.31)}"
    assert answer_of(replace(step, instruction="Click the last star.")) == f"tap Image {GRAMMAR.point(0.925, 0.31)}"
    typed = replace(step, action=Action(ActionType.TYPE, (0.6, 0.07), text="Ada"))
    assert answer_of(typed) == f"type Search EditText {GRAMMAR.point(0.6, 0.07)} Ada"
    swiped = replace(step, action=Action(ActionType.SWIPE, (0.925, 0.31), end=(0.925, 0.1)))
    assert answer_of(swiped).startswith("swipe Image x")


def test_an_icon_moves_with_the_name_beside_it():
    step = mails(Action(ActionType.TAP, (0.925, 0.31)), "Find the email by Grace and click the star icon.")
    moved = move(np.random.default_rng(0), step)
    assert moved.action.point == pytest.approx((0.925, 0.21)), "the other mail's star, not its bin"
    assert [e.text for e in moved.elements if e.text] == [
        *("Search", "Grace", "Bernoulli numbers", "Ada", "Compilers")
    ], "nothing but the senders changed places"
    assert answer_of(moved) == f"tap Grace Image {GRAMMAR.point(0.925, 0.21)}"


def test_a_tap_and_a_text_are_one_step():
    tap, text = Action(ActionType.TAP, (0.3, 0.12)), Action(ActionType.TYPE, text="Ada")
    press = Action(ActionType.TAP, (0.3, 0.32))
    merged = typed_at_once(
        [make_step(0, n, action) for n, action in enumerate([tap, text, press, Action(ActionType.BACK)])]
    )
    assert [s.action for s in merged] == [
        Action(ActionType.TYPE, (0.3, 0.12), text="Ada"),
        press,
        Action(ActionType.BACK),
    ]
    assert [s.index for s in merged] == [0, 1, 2]


def test_no_instance_of_a_study_is_learned_from():
    for task in TASKS:
        seeds = unstudied_seeds(TRAINING_SEED, task, range(16))
        assert len(set(seeds)) >= 15 and not {instance_seed(suite, task) for suite in STUDY_SEEDS} & set(seeds)


def test_a_suite_of_the_study_is_refused():
    with pytest.raises(ValueError, match="none of the study's own seeds"):
        unstudied_seeds(42, "click-test", range(2))


@pytest.mark.parametrize("level", [0, 2, 6])
def test_lists_ask_for_places_that_they_told(lessons, encoder, level):
    lengths = set()
    for number in range(20):
        sample = lessons.draw_list(np.random.default_rng(number), level)
        told, _, asked = encoder.tokenizer.decode(sample.ids).partition("screen")
        asked = asked.strip()
        places = check_questions(sample, asked, encoder)
        assert places and not sample.pictures and all(place in told for place in places)
        lengths.add(len(re.findall(r"x\d+ y\d+", told)))
    assert min(lengths) >= 2 and max(lengths) <= 5 + 3 * level


def test_an_acting_chat_goes_on_with_questions(lessons, encoder):
    sample = lessons.draw(np.random.default_rng(0), Condition.NONE)
    answer, _, questions = encoder.tokenizer.decode(sample.ids).rpartition("<|im_end|>")
    assert "type" in answer and questions.split()[0] == "find"
    assert sum(sample.learned) > 4


def test_long_screens_are_cut_as_the_actor_cuts_them(encoder, lessons):
    rows = tuple(
        UIElement((0.1, n / 100, 0.5, (n + 1) / 100), text=f"row {n} Ada Grace Alan", kind="TextView")
        for n in range(60)
    )
    long = replace(STEPS[4], elements=(*STEPS[4].elements, *rows))
    spec = ActorSpec("miniwob", grammar="miniwob", template="pocket", screen_text=True, state_tokens=STATE_TOKENS)
    prompt = spec.prompts(long, long, [Condition.TEXT], encoder)[Condition.TEXT]
    _, grids, _ = encoder.pictures(prompt.images)
    (asked,) = encoder.encode("long", [prompt], [encoder.visual_tokens(grids)])
    sample = lessons.sample(long, long, Condition.TEXT)
    assert sample.ids[: -sum(sample.learned)] == asked and "row 59" not in encoder.tokenizer.decode(asked)


def test_both_optimizers_share_the_model_and_come_back():
    model = torch.nn.Module()
    model.inner = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16))
    model.head = torch.nn.Linear(16, 4)
    inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))

    def update(optimizers: Optimizers) -> None:
        optimizers.set_share(0.5)
        model.head(model.inner(inputs)).square().mean().backward()
        optimizers.step()

    def values() -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in model.parameters()]

    optimizers = Optimizers(model, model.inner, 0.02, 1e-3)
    before = values()
    update(optimizers)
    kept, state = values(), copy.deepcopy(optimizers.state_dict())
    assert all(not torch.equal(a, b) for a, b in zip(before, kept, strict=True)), "each parameter has its optimizer"
    update(optimizers)
    wanted = values()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), kept, strict=True):
            parameter.copy_(value)
    again = Optimizers(model, model.inner, 0.02, 1e-3)
    again.load_state_dict(state)
    update(again)
    assert all(torch.equal(a, b) for a, b in zip(wanted, values(), strict=True))


def test_whole_episodes_are_held_out():
    steps = [replace(step, index=index) for step in STEPS for index in range(2)]
    learned, asked = held_out(steps)
    assert {s.episode_id for s in asked} == {"enter-text-7"}
    assert not {s.episode_id for s in learned} & {s.episode_id for s in asked} and len(learned) + len(asked) == 20
