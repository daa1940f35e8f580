"""The pocket world: splits, determinism, what each view tells, and what is really illegible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from switchmem.benchmarks.pocket import PocketBenchmark, PocketSpec, fingerprint, generate_steps
from switchmem.benchmarks.pocket.apps import FOLDS, app_names, generator, make_app
from switchmem.benchmarks.pocket.episodes import PARTS, spec_apps
from switchmem.benchmarks.pocket.glyphs import icon
from switchmem.benchmarks.pocket.scenes import HEIGHT, WIDTH, Entry, Scene, app_scene, elements, render
from switchmem.benchmarks.pocket.vocabulary import ICONS, LABELS
from switchmem.steps import Action, ActionType

SMALL = PocketSpec(apps=3, test_apps=2, episodes=3, bank_episodes=6)


@pytest.fixture(scope="module")
def parts() -> dict[str, list]:
    return {part: list(generate_steps(SMALL, part)) for part in PARTS}


def test_names_are_dealt_once():
    folds = [set(app_names(fold)) for fold in FOLDS]
    assert sum(map(len, folds)) == len(set.union(*folds))
    with pytest.raises(ValueError, match="`fold` must be one of actor, preference, test, got 'x'"):
        app_names("x")


def test_parts_share_no_episode_and_no_app_where_they_must_not(parts):
    episodes = {part: {s.trajectory for s in steps} for part, steps in parts.items()}
    assert sum(map(len, episodes.values())) == len(set.union(*episodes.values()))
    apps = {part: {s.instruction.split(" in ")[1] for s in steps} for part, steps in parts.items()}
    assert apps["preference"] == apps["bank"] and apps["test"] == apps["test_bank"]
    assert not apps["preference"] & apps["test"]
    actor = {" ".join(name) for name in app_names("actor")}
    assert not actor & (apps["preference"] | apps["test"])


def test_steps_are_the_same_for_the_same_spec_only(parts):
    again = list(generate_steps(SMALL, "test"))
    assert again == parts["test"]
    assert fingerprint(SMALL) == fingerprint(PocketSpec(apps=3, test_apps=2, episodes=3, bank_episodes=6))
    others = [PocketSpec(seed=1), PocketSpec(world="control"), PocketSpec(goals=3)]
    assert len({fingerprint(s) for s in (SMALL, *others)}) == 4


def test_every_goal_of_a_query_is_demonstrated_in_its_bank(parts):
    for query, bank in (("preference", "bank"), ("test", "test_bank")):
        assert {s.instruction for s in parts[query]} <= {s.instruction for s in parts[bank]}


def test_convention_is_the_apps_own():
    one, two = spec_apps(PocketSpec(seed=0), "test")[:2]
    assert one.conventions != two.conventions
    for screen in one.conventions.values():
        assert len(set(screen.values())) == len(screen)


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_gold_action_scores_one_and_other_entries_zero(seed):
    spec = PocketSpec(seed=seed, apps=1, test_apps=1, episodes=1, bank_episodes=1)
    score = PocketBenchmark().score
    for step in generate_steps(spec, "test"):
        assert score(step.action, step) == 1.0
        assert score(None, step) == 0.0
        assert score(Action(ActionType.HOME), step) == 0.0
        if step.action.type is ActionType.TAP:
            others = [e for e in step.elements if not e.contains(step.action.point)]
            assert others and all(score(Action(ActionType.TAP, e.center), step) == 0.0 for e in others)


def test_views_in_the_mixed_world_hide_what_they_should():
    app = make_app(app_names("test")[0], generator("t"))
    scene = app_scene(app, "main", generator("s"))
    tree = elements(scene, name_icons=False)
    assert {e.label for e in tree if e.kind == "ImageButton"} == {""}
    named = elements(scene, name_icons=True)
    assert all(e.label for e in named)


@given(st.integers(0, 10_000), st.permutations(LABELS), st.booleans())
@settings(max_examples=60, deadline=None)
def test_illegible_words_leave_no_trace_in_the_pixels(seed, labels, dark):
    """Two screens that differ only in their words are the same picture, byte for byte."""
    rng = generator(seed)
    app = make_app(app_names("test")[seed % 20], rng)
    scene = app_scene(app, "item", rng)
    renamed = iter(labels)
    entries = tuple(e if e.is_icon else Entry(next(renamed), e.row, e.column, e.span, e.kind) for e in scene.entries)
    other = Scene(scene.kind, scene.theme, "otter", entries)
    assert np.array_equal(np.asarray(render(scene, legible=False)), np.asarray(render(other, legible=False)))


def test_probe_reads_words_only_where_they_are_legible():
    """A linear probe on the pixels of a row names the word when it is legible, and is at chance when it is not."""
    rng = generator("probe")
    words, pixels = [], {True: [], False: []}
    for n in range(240):
        app = make_app(app_names("actor")[n % 90], rng)
        words.append(str(rng.choice(LABELS[:6])))
        scene = Scene("item", app.theme, "fox", (Entry(words[-1], 3, 0, 4), Entry(str(rng.choice(ICONS)), 5, 0, 4)))
        for legible in (True, False):
            row = np.asarray(render(scene, legible=legible).convert("L"), dtype=float)[100:124, 32:96].ravel() / 255
            pixels[legible].append(abs(row - row[0]))
    accuracy = {
        k: LogisticRegression(max_iter=100).fit(x[:160], words[:160]).score(x[160:], words[160:])
        for k, x in pixels.items()
    }
    assert accuracy[True] > 0.95
    assert accuracy[False] < 0.35  # chance is 1/6


def test_icons_differ_and_pictures_have_the_size_of_the_screen():
    masks = [np.asarray(icon(name)).ravel().astype(float) for name in ICONS]
    nearest = min(np.abs(a - b).mean() for i, a in enumerate(masks) for b in masks[:i])
    assert nearest > 20  # of 255 grey levels, averaged over the icon
    step = next(iter(generate_steps(SMALL, "test")))
    assert step.screenshot.image().size == (WIDTH, HEIGHT)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"world": "x"}, "`world` must be one of mixed, control, got 'x'"),
        ({"apps": 0}, "`apps` must be at least 1, got 0"),
        ({"test_apps": 999}, "`test_apps` must be at most 48"),
    ],
)
def test_spec_is_checked(argument, message):
    with pytest.raises(ValueError, match=message):
        PocketSpec(**argument)


def test_unknown_part():
    with pytest.raises(ValueError, match="`part` must be one of"):
        next(generate_steps(SMALL, "train"))
