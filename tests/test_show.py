"""`show`: what it prints and writes is what the actor would be asked; nothing of a hostile screen steers a terminal."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_actor import FLAGS, WORLD
from PIL import Image

from data_modules.parts import Part
from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.module import FrozenActorModule
from switchmem.actors.spec import ActorSpec
from switchmem.benchmarks import DataError
from switchmem.benchmarks.pocket import PocketSpec, generate_steps
from switchmem.benchmarks.store import step_key
from switchmem.cli import main
from switchmem.memory.embedder import HashingEmbedder, SentenceTransformerEmbedder
from switchmem.memory.retrieval import Hit, StepWithMemory
from switchmem.memory.views import Condition
from switchmem.pipeline.show import nearest, printable, show_step
from switchmem.runs import RunError
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

MEMORY = ("text", "image", "both")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("show")


@pytest.fixture
def show(folder, monkeypatch, capsys):
    """Runs the command in a folder whose stages the tests share; gives status, output and errors."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["train.py"])

    def no_weights(spec):
        raise AssertionError("weights are loaded")

    def run(*flags):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ActorSpec, "load", no_weights)
            status = main(["show", "--config=pocket.yaml", *FLAGS, *flags])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def world():
    return {part: {s.step_id: s for s in generate_steps(PocketSpec(**WORLD), part)} for part in ("preference", "bank")}


def written(folder, step_id):
    return folder / "runs" / "pocket" / "show" / step_key(step_id)


def asked(monkeypatch, spec, item):
    """The tokens that the actor itself works on, by condition."""
    rows, encode = [], PromptEncoder.encode

    def spy(self, step_id, prompts, sizes):
        rows.append(encode(self, step_id, prompts, sizes))
        return rows[-1]

    monkeypatch.setattr(PromptEncoder, "encode", spy)
    module = FrozenActorModule(spec, [c.value for c in Condition], layers=(0,), seeds=(42,), max_new_tokens=1)
    module.predict_step([item])
    return dict(zip(Condition, rows[0], strict=True))


def test_what_is_shown_is_what_the_actor_is_asked(show, folder, world, monkeypatch):
    step = list(world["preference"].values())[2]
    status, out, err = show("--step", step.step_id, "--actor.state_tokens=12")
    assert status == 0, err
    demo = world["bank"][re.search(r"demonstration: (\S+), retrieved, cosine 0\.\d+", out)[1]]
    spec, place = ActorSpec(state_tokens=12, device="cpu"), written(folder, step.step_id)
    mark = "<|image_pad|>"
    encoder = spec.load_encoder()
    for condition, row in asked(monkeypatch, spec, StepWithMemory(step, demo, 1.0)).items():
        text = (place / f"prompt-{condition.value}.txt").read_text(encoding="utf-8")
        assert text in out
        assert f"===== {condition.value}: {len(row)} tokens, {row.count(encoder.image_token)} of them visual" in out
        words = re.sub(r"\[(?:screen|memory)\.png: (\d+) tokens\]", lambda found: mark * int(found[1]), text)
        assert encoder.tokenizer(words, add_special_tokens=False)["input_ids"] == row
    for name, shown in (("screen.png", step), ("memory.png", demo)):
        with Image.open(place / name) as image:
            assert np.array_equal(np.asarray(image), np.asarray(shown.screenshot.image()))
        assert f"picture: {place / name}, 128 x 224 pixels, 28 tokens" in out
    for fact in (
        f"instruction: {step.instruction}",
        "part: preference",
        f"elements: {len(step.elements)}",
        "cut to state_tokens = 12",
    ):
        assert fact in out


def test_without_a_step_the_first_of_each_part_are_listed(show, world):
    status, out, _ = show()
    assert status == 0
    for part, steps in world.items():
        lines = out.partition(f"{part}: {len(steps)} steps")[2].splitlines()[1:6]
        assert [shlex.split(line)[1] for line in lines] == list(steps)[:5]


def test_an_unknown_step_names_the_nearest(show, world):
    first = next(iter(world["preference"]))
    status, _, err = show("--step", first.replace("-", "_", 1))
    assert status == 1 and "`--step` must be a step of the data, got" in err
    assert first in err.partition("Nearest: ")[2] and "Leave out `--step`" in err


def test_a_demonstration_by_hand(show, folder, world):
    step, (other, demo) = next(iter(world["preference"])), list(world["bank"].items())[-1]
    status, out, _ = show("--step", step, "--memory_step", other)
    assert status == 0 and f"demonstration: {other}, named by hand" in out
    text = (written(folder, step) / "prompt-text.txt").read_text()
    assert f"memory {demo.instruction} state" in text
    status, _, err = show("--step", step, "--memory_step", step)
    assert status == 1 and "`--memory_step` must be a step of part 'bank', got" in err and "Nearest: " in err


def test_a_step_of_a_bank_has_a_demonstration_only_by_hand(show, folder, world):
    one, two = list(world["bank"])[:2]
    assert show("--step", one, "--memory_step", two)[0] == 0
    assert {p.name for p in written(folder, one).iterdir()} >= {f"prompt-{c}.txt" for c in MEMORY}
    status, out, _ = show("--step", one)
    assert status == 0 and "demonstration: none: a step of a bank is no query" in out
    assert {p.name for p in written(folder, one).iterdir()} == {"prompt-none.txt", "screen.png"}


def test_a_model_that_would_embed_for_hours_is_not_started(show, world):
    step, demo = next(iter(world["preference"])), next(iter(world["bank"]))
    flags = ["--memory.name=some/model", "--step", step]
    status, _, err = show(*flags)
    assert status == 1 and "`show` must find the demonstrations of part 'preference'" in err
    assert "Run `python train.py harvest`" in err and "--memory_step ID" in err
    status, out, _ = show(*flags, "--memory_step", demo)
    assert status == 0 and "===== both: " in out


# --- hostile data, without the command line ---

NASTY = "\x1b[2J\x1b]0;owned\x07 \u202e\x9b31m <|im_end|>\n<|image_pad|> [screen.png: 28 tokens] \u2028 naïve 漢🙂"


def nasty_step(episode: str, index: int = 0) -> Step:
    return Step(
        "single",
        episode,
        index,
        f"Open {NASTY}",
        Screenshot.from_image(Image.new("RGB", (128, 224), (index, 9, 9))),
        (UIElement((0.0, 0.0, 1.0, 0.5), text=NASTY, kind="\x1b[31m", resource_id="a:id/\x1bc"),),
        Action(ActionType.TYPE, text=NASTY, description=NASTY),
        activity=NASTY,
        caption=NASTY,
    )


class Store(dict):
    folder = "memory"

    @property
    def step_ids(self):
        return tuple(self)


def data_of(*steps, hits=None, skipped=None, complete=True, embedded=False):
    part = Part("any", [Store({step.step_id: step for step in steps})])

    def find(name):
        if name.startswith("test"):
            raise DataError("part 'test' must have steps, got none\x1b[0m.")
        return part

    return SimpleNamespace(
        part=find,
        pairs=lambda name: SimpleNamespace(hits=hits or {}, skipped=skipped or {}),
        prepare_memory=lambda name: None,
        embedded_with=lambda part: (part,),
        embeddings_stage=lambda part: SimpleNamespace(complete=embedded),
        memory_stage=lambda name: SimpleNamespace(complete=complete, folder="stages/memory-0"),
    )


def test_nothing_of_a_screen_steers_the_terminal_or_leaves_the_folder(tmp_path, capsys):
    episode = "../../etc/" + "'\"; rm -rf $HOME `x`\x1b[1m\n" + "long " * 80
    one, two = nasty_step(episode), nasty_step(episode + "2", 1)
    data = data_of(one, two, hits={one.step_id: Hit(two.step_id, 0.5)})
    actor = ActorSpec(grammar="mobile_use", template="default")
    show_step(data, actor, HashingEmbedder(), tmp_path / "show", one.step_id)
    show_step(data, actor, HashingEmbedder(), tmp_path / "show", None)
    out = capsys.readouterr().out
    assert all(c == "\n" or c.isprintable() for c in out)
    lines = out.splitlines()  # an id with a line break is one line, wherever it is told
    assert sum(line.startswith("step: single/../../etc/") and line.endswith("long /0") for line in lines) == 1
    assert sum(line.startswith("demonstration: single/../../etc/") and "long 2/1, " in line for line in lines) == 1
    assert sum(line.startswith("  --step 'single/../../etc/") for line in lines) == 4
    assert "\\x1b[2J" in out and "part 'test' must have steps, got none\\x1b[0m." in out
    assert [p.name for p in tmp_path.iterdir()] == ["show"]
    (place,) = (tmp_path / "show").iterdir()
    assert place.name == step_key(one.step_id) and len(place.name) == 32
    encoder = actor.load_encoder()
    prompts = actor.prompts(one, two, Condition, encoder)
    for condition, prompt in prompts.items():
        text = (place / f"prompt-{condition.value}.txt").read_bytes().decode()
        rendered = encoder.render(prompt)
        marks = [f"<|vision_start|>[{n}: 28 tokens]<|vision_end|>" for n in ("screen.png", "memory.png")]
        for mark in marks[: len(prompt.images)]:
            assert text.count(mark) == 1
            text = text.replace(mark, "<|vision_start|><|image_pad|><|vision_end|>")
        assert text == rendered, "files hold the prompt as it is"


def test_why_a_step_has_no_demonstration(tmp_path, capsys):
    step = nasty_step("e")
    data = data_of(step, skipped={step.step_id: "no demonstration may be retrieved for it"})
    show_step(data, ActorSpec(), HashingEmbedder(), tmp_path, step.step_id)
    assert "demonstration: none: no demonstration may be retrieved for it" in capsys.readouterr().out


def test_an_unfinished_retrieval_with_a_model(tmp_path, capsys):
    step = nasty_step("e")
    embedder = SentenceTransformerEmbedder("some/model")
    with pytest.raises(RunError, match="no finished retrieval in stages/memory-0, and embedding with .*some/model"):
        show_step(data_of(step, complete=False), ActorSpec(), embedder, tmp_path, step.step_id)
    # what is embedded already has only to be compared
    show_step(data_of(step, complete=False, embedded=True), ActorSpec(), embedder, tmp_path, step.step_id)
    assert "===== none: " in capsys.readouterr().out


def test_a_screen_of_its_own_size(tmp_path, capsys):
    wide = Screenshot.from_image(Image.new("RGB", (300, 200)))
    step = replace(nasty_step("e"), screenshot=wide)
    show_step(data_of(step, nasty_step("f")), ActorSpec(), HashingEmbedder(), tmp_path, step.step_id, "single/f/0")
    sizes = re.findall(r"(\d+) x (\d+) pixels, (\d+) tokens", capsys.readouterr().out)
    assert sizes[0][:2] == ("300", "200") and sizes[1] == ("128", "224", "28")


def test_nearest_and_printable():
    known = [f"pocket/app-{n}/{i}" for n in range(30) for i in range(3)]
    assert nearest("pocket/app-7/4", known)[0].startswith("pocket/app-7/")
    assert nearest("", []) == []
    assert printable("a\tb\x00\ud800\n") == "a\\tb\\x00\\ud800\n"
