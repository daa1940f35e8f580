"""One actor under a baseline of memory: the writer's rounds, then one greedy answer per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from switchmem.actors.protocol import Actor
from switchmem.actors.spec import ActorSpec
from switchmem.actors.writer import Answer, answer_greedily
from switchmem.memory.baseline import Baseline, Scene, Spent, Surroundings, View, Writer, run_rounds
from switchmem.memory.budget import Budget
from switchmem.prompts import view_prompt
from switchmem.steps import Step


@dataclass(frozen=True)
class Shown:
    """One step under a baseline: what the actor was shown, what it answered, and what was written for it."""

    view: View
    answer: Answer
    spent: Spent


def make_scene(spec: ActorSpec, actor: Actor, step: Step, demo: Step | None, surroundings: Surroundings) -> Scene:
    """What a baseline may see of a step, in the actor's own words."""
    budget = None if spec.state_tokens is None else Budget(spec.state_tokens, actor.count)
    grammar, size = spec.load_grammar(), (step.screenshot.width, step.screenshot.height)

    def is_action(text: str) -> bool:
        return grammar.parse(text, size).action is not None

    return Scene(step, demo, grammar, surroundings, spec.load_template().memory, budget, is_action)


def show_and_ask(
    spec: ActorSpec, actor: Actor, baseline: Baseline, writer: Writer, scenes: Sequence[Scene], max_new_tokens: int
) -> list[Shown]:
    """Let a baseline write and show what it does, and the actor answer, for several steps side by side.

    Args:
        spec: the actor's.
        actor: the same, loaded.
        baseline: makes the views.
        writer: answers its calls.
        scenes: of the steps.
        max_new_tokens: the most tokens of an answer.

    Raises:
        PromptError: if a prompt is too long for the actor or the writer.
        BudgetError: if what may not be left out of a textual screen does not fit.
    """
    rounds = run_rounds([baseline.show(scene) for scene in scenes], writer)
    pairs = [(scene, view) for scene, (view, _) in zip(scenes, rounds, strict=True)]
    answers = ask_on(spec, actor, pairs, max_new_tokens)
    return [Shown(view, answer, spent) for (view, spent), answer in zip(rounds, answers, strict=True)]


def ask_on(spec: ActorSpec, actor: Actor, pairs: Sequence[tuple[Scene, View]], max_new_tokens: int) -> list[Answer]:
    """The actor's greedy answers on views.

    Args:
        spec: the actor's.
        actor: the same, loaded.
        pairs: a step's scene and what is shown of it.
        max_new_tokens: the most tokens of an answer.

    Raises:
        PromptError: if a prompt is too long for the actor.
        BudgetError: if what may not be left out of a textual screen does not fit.
    """
    template, grammar = spec.load_template(), spec.load_grammar()
    prompts = [
        (scene.step.step_id, view_prompt(scene.step, view, template, grammar, actor.specials, scene.budget))
        for scene, view in pairs
    ]
    return answer_greedily(actor, prompts, max_new_tokens)
