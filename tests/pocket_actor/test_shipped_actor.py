"""The shipped pocket actor on apps that it never saw, through the same code as any actor."""

from __future__ import annotations

from collections import defaultdict

import pytest

from switchmem.actors.sampling import Sampling
from switchmem.actors.spec import ActorSpec
from switchmem.actors.vlm import StepPrompts
from switchmem.benchmarks.pocket import PocketBenchmark, PocketSpec, generate_steps
from switchmem.benchmarks.pocket.vocabulary import SCREENS
from switchmem.memory.embedder import HashingEmbedder
from switchmem.memory.views import Condition, query_text
from switchmem.prompts import build_prompts


@pytest.fixture(scope="module")
def rates() -> dict[tuple[Condition, str], float]:
    """Greedy success by condition and kind of target, on steps of the test part that need a demonstration."""
    spec = PocketSpec(test_apps=16, episodes=6)
    steps = [s for s in generate_steps(spec, "test") if s.activity.split()[-1] in SCREENS]
    bank = list(generate_steps(spec, "test_bank"))
    embedder = HashingEmbedder(1024)
    queries, keys = (embedder.texts([query_text(s) for s in part]) for part in (steps, bank))
    nearest = (queries @ keys.T).argmax(1).tolist()
    actor_spec = ActorSpec(model="pocket")
    actor, grammar, template = actor_spec.load(), actor_spec.load_grammar(), actor_spec.load_template()
    score = PocketBenchmark().score
    right: dict[tuple[Condition, str], list[float]] = defaultdict(list)
    for first in range(0, len(steps), 32):
        chunk = steps[first : first + 32]
        prompts = [
            StepPrompts(s.step_id, build_prompts(s, bank[j], Condition, template, grammar, actor.specials))
            for s, j in zip(chunk, nearest[first:], strict=False)
        ]
        seen = actor.observe(prompts, list(Condition), [3], Sampling(0.0, (0,), 16))
        for step, observation in zip(chunk, seen, strict=True):
            target = min((e for e in step.elements if e.contains(step.action.point)), key=lambda e: e.area)
            kind = "label" if target.label else "icon"
            for condition in Condition:
                parsed = grammar.parse(observation.answers[condition][0], (128, 224))
                right[condition, kind].append(score(parsed.action, step))
    return {key: sum(values) / len(values) for key, values in right.items()}


def test_each_view_solves_what_it_shows(rates):
    assert rates[Condition.IMAGE, "icon"] >= 0.80
    assert rates[Condition.TEXT, "label"] >= 0.80


def test_each_view_fails_on_what_it_hides(rates):
    assert rates[Condition.TEXT, "icon"] <= 0.45
    assert rates[Condition.IMAGE, "label"] <= 0.55


def test_without_memory_the_actor_can_only_guess(rates):
    none = {kind: rates[Condition.NONE, kind] for kind in ("icon", "label")}
    for condition in (Condition.TEXT, Condition.IMAGE):
        mean = (rates[condition, "icon"] + rates[condition, "label"]) / 2
        assert sum(none.values()) / 2 < mean - 0.2


def test_two_views_at_once_are_no_oracle(rates):
    """Taught to take the text beside a picture for an earlier screen, the actor follows the picture."""
    assert rates[Condition.BOTH, "icon"] >= 0.80
    assert rates[Condition.BOTH, "label"] <= 0.55
