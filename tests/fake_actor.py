"""An actor without weights that behaves as the method expects: some steps gain from Text memory, others from Image.

It gives the recorded action with a probability that depends on the step and on the memory's form, and its states show
which form helps. Running the file with the project on PYTHONPATH is running the command line with this actor.
"""

import hashlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from switchmem.actors.grammars.pocket import PocketGrammar
from switchmem.actors.spec import ActorSpec
from switchmem.actors.vlm import Observation
from switchmem.benchmarks.pocket import PocketSpec, generate_steps
from switchmem.memory.views import Condition

WIDTH, DEPTH = 24, 4
WORLD = {"apps": 2, "test_apps": 2, "goals": 2, "episodes": 3, "bank_episodes": 2}
SECONDS = {Condition.NONE: 0.125, Condition.TEXT: 0.5, Condition.IMAGE: 2.0, Condition.BOTH: 2.5}
"""What the rest of each prompt is said to take, behind a quarter of a second of prefix."""
FLAGS = [f"--data.init_args.{name}={value}" for name, value in WORLD.items()]


def lot(*key):
    """A number in [0, 1) for each key."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=6).digest(), "big") / 2**48


def recorded_actions(steps):
    """What the fake should answer, by step id."""
    return {step.step_id: PocketGrammar().action(step.action) for step in steps}


def pocket_steps():
    spec = PocketSpec(**WORLD)
    return [step for part in ("preference", "test") for step in generate_steps(spec, part)]


class FakeActor:
    specials = ("<|im_start|>", "<|im_end|>")
    num_layers, hidden_size = DEPTH, WIDTH

    def __init__(self, answers):
        self.model, self.answers = nn.Linear(2, 2).requires_grad_(False).eval(), answers

    def facts(self):
        return {"class": "FakeActor", "dtypes": ["float32"]}

    def parameters_hash(self):
        return "fake"

    def count(self, text):
        return len(text.split())

    def observe(self, batch, conditions, layers, sampling):
        return [self._observe(question, conditions, layers, sampling) for question in batch]

    def _observe(self, question, conditions, layers, sampling):
        step_id = question.step_id
        image_helps = lot("kind", step_id) < 0.5
        states = {c: self._state(step_id, c, image_helps, layers) for c in question.prompts}
        shares = {
            Condition.NONE: 0.1,
            Condition.TEXT: 0.2 if image_helps else 0.9,
            Condition.IMAGE: 0.9 if image_helps else 0.2,
            Condition.BOTH: 0.6,
        }
        answers = {
            condition: [
                self.answers.get(step_id, "???") if lot(step_id, condition.value, seed) < shares[condition] else "???"
                for seed in sampling.seeds
            ]
            for condition in conditions
        }
        shifted = {c: s for c, s in states.items() if c is not Condition.NONE}
        spent = {
            "prefix": 0.25,
            "prompt": {c.value: SECONDS[c] for c in question.prompts},
            "answer": {c.value: 0.125 for c in conditions},
        }
        return Observation(step_id, states[Condition.NONE], shifted, answers, {}, 0.0, facts={"spent": spent})

    @staticmethod
    def _state(step_id, condition, image_helps, layers):
        noise = torch.Generator().manual_seed(int(lot(step_id, condition.value) * 2**31))
        state = 0.3 * torch.randn(len(layers), WIDTH, generator=noise)
        state[:, 0] += 1.0 if image_helps else -1.0
        if condition is Condition.IMAGE:
            state[:, 1] += 2.0 if image_helps else -2.0
        return state


def install(monkeypatch, folder, answers):
    """Make `ActorSpec.load` give the fake, which lies in `folder`.

    Returns:
        A list that grows with every load.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(f'{{"answers": {len(answers)}}}')
    loads = []

    def load(spec, *_, **__):
        loads.append(spec)
        return FakeActor(answers)

    monkeypatch.setattr(ActorSpec, "load", load)
    return loads


if __name__ == "__main__":
    from switchmem.cli import main

    install(pytest.MonkeyPatch(), Path("fake"), recorded_actions(pocket_steps()))
    sys.exit(main([*sys.argv[1:], "--actor.model=fake", *FLAGS]))
