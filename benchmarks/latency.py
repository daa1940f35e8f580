"""How long a step takes with SwitchMem, over the same step with a fixed Image memory.

    python -m benchmarks.latency [--models hybrid qwen2vl pocket] [--steps 4] [--rounds 5]

Both ways run the same prompts through the same engine in the same process, one step at a time, greedy, thinking off, in
alternating order. Fixed Image prefills the whole Image prompt and decodes. SwitchMem prefills the shared prefix and the
state prompt behind it in one forward, reads the state, runs the router, prefills what is left of the chosen prompt from
the prefix's cache, and decodes. Retrieval and the preparation of prompts and pictures are left out of both; the vision
tower is in both.

``hybrid`` and ``qwen2vl`` are small random copies of Qwen3.5-9B and Qwen2-VL-7B with prompts of real lengths; their
answers are cut after `--answer` tokens, about what an action takes. ``pocket`` is the shipped actor in its world, with
prompts of eighty tokens and answers of five. The router is random, of the real sizes, and chooses Image on half of the
steps. Each round runs both ways on a step right after one another, and a step's ratio is the median of its rounds, so
that a machine that is slower for a while slows both; the ratio is that of the mean times over steps. A second one
counts the process's CPU seconds, which other processes disturb less.

The last line is one JSON object; ``ratio_switchmem_image`` is the first model's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.lookalikes import KINDS, Lengths, build_actor, build_questions
from switchmem.actors.protocol import StepPrompts
from switchmem.actors.spec import ActorSpec
from switchmem.actors.turn import Turn
from switchmem.actors.vlm import VLMActor
from switchmem.benchmarks.pocket import PocketSpec, generate_steps
from switchmem.memory import Bank, HashingEmbedder, top1
from switchmem.memory.views import Condition, query_text
from switchmem.policy import Policy, PolicyCard
from switchmem.router import PairwiseRouter

PAPER = {
    "AITW": 1.407 / (1.407 - 0.128),
    "LearnGUI": 1.848 / (1.848 - 0.190),
    "MobileMiniWoB++": 1.862 / (1.862 - 0.304),
}
"""Seconds per step over those of Image, with Qwen3.5-9B (SwitchMem, its latency table); not measured here."""
PARTS = ("state", "routing", "memory", "decoding")
EMBEDDING = 2048
CAP = 128


@dataclass
class Clock:
    """Wall-clock and CPU seconds of consecutive parts."""

    device: torch.device
    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._last = self._now()

    def _now(self) -> tuple[float, float]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter(), time.process_time()

    def lap(self, part: str) -> None:
        """Count the time since the last lap for a part."""
        now = self._now()
        self.wall[part], self.cpu[part] = now[0] - self._last[0], now[1] - self._last[1]
        self._last = now


@dataclass(frozen=True)
class Case:
    """A model with its steps.

    Args:
        name: of the model.
        actor: the model.
        questions: N steps with their state, Text and Image prompts.
        text, image: ``[N, E]`` embeddings of the steps' candidates.
        answer: the most tokens of an answer.
    """

    name: str
    actor: VLMActor
    questions: Sequence[StepPrompts]
    text: Tensor
    image: Tensor
    answer: int


def lookalike(kind: str, steps: int, answer: int, device: str) -> Case:
    """A random model and questions of real lengths."""
    actor = build_actor(kind)
    actor.model.to(device)
    generator = torch.Generator().manual_seed(0)
    text, image = (F.normalize(torch.randn(steps, EMBEDDING, generator=generator), dim=-1) for _ in range(2))
    return Case(kind, actor, build_questions(Lengths(), steps), text, image, answer)


def pocket(steps: int, device: str) -> Case:
    """The shipped actor, and test steps of its world with their retrieved demonstrations."""
    spec, embedder = ActorSpec(device=device), HashingEmbedder()
    actor, world = spec.load(), PocketSpec(apps=1, test_apps=6)
    demos = {demo.step_id: demo for demo in generate_steps(world, "test_bank")}
    queries = list(generate_steps(world, "test"))
    queries = [queries[n * len(queries) // steps] for n in range(steps)]
    bank = Bank.build(demos.values(), embedder)
    hits = top1(embedder.texts([query_text(q) for q in queries]), bank, [q.trajectory for q in queries])
    pairs = [(query, demos[hit.step_id]) for query, hit in zip(queries, hits, strict=True) if hit is not None]
    wanted = (Condition.TEXT, Condition.IMAGE)
    questions = [StepPrompts(query.step_id, spec.prompts(query, demo, wanted, actor)) for query, demo in pairs]
    generator = torch.Generator().manual_seed(0)
    text, image = (F.normalize(torch.randn(len(pairs), EMBEDDING, generator=generator), dim=-1) for _ in range(2))
    return Case("pocket", actor, questions, text, image, CAP)


def random_policy(case: Case) -> Policy:
    """A router of the real sizes, with the threshold between the steps' middle scores."""
    torch.manual_seed(0)
    layer = case.actor.num_layers - 1
    policy = Policy(PairwiseRouter(case.actor.hidden_size, EMBEDDING), 0.0, PolicyCard("", layer, "", ""))
    states = torch.stack([Turn(case.actor, question).read_state(layer) for question in case.questions])
    _, r = policy.route({"state": states, "text": case.text, "image": case.image})
    return Policy(policy.router, statistics.median(r.tolist()), policy.card)


def with_switchmem(case: Case, n: int, policy: Policy) -> tuple[Clock, Condition]:
    """One step as the agent takes it."""
    turn = Turn(case.actor, case.questions[n])
    clock = Clock(turn.device)
    state = turn.read_state(policy.card.layer)
    clock.lap("state")
    batch = {"state": state[None], "text": case.text[n : n + 1], "image": case.image[n : n + 1]}
    (condition,), _ = policy.route(batch)
    clock.lap("routing")
    extension = turn.open(condition)
    clock.lap("memory")
    turn.answer(extension, case.answer)
    clock.lap("decoding")
    return clock, condition


def with_fixed_image(case: Case, n: int) -> tuple[Clock, int]:
    """One step with the Image prompt as a whole; also the number of tokens that were drawn."""
    turn = Turn(case.actor, case.questions[n])
    clock = Clock(turn.device)
    extension = turn.open(Condition.IMAGE)
    clock.lap("memory")
    _, drawn = turn.answer(extension, case.answer)
    clock.lap("decoding")
    return clock, drawn


def prefix_alone(case: Case, n: int) -> Clock:
    """The shared prefix without the state prompt behind it."""
    turn = Turn(case.actor, case.questions[n])
    clock = Clock(turn.device)
    turn.run_prefix()
    clock.lap("state")
    return clock


Rounds = list[dict[str, float]]
"""Seconds by part, of each round of a step."""


@dataclass(frozen=True)
class Times:
    """Seconds of all steps, by one clock.

    Args:
        prefix, switchmem, image: rounds of each of N steps.
        chosen: the condition of each step.
    """

    prefix: list[Rounds]
    switchmem: list[Rounds]
    image: list[Rounds]
    chosen: list[Condition]

    def ratio(self, condition: Condition | None = None) -> float:
        """SwitchMem over fixed Image; of all steps, or of those where a condition was chosen."""
        steps = [n for n, chosen in enumerate(self.chosen) if condition in (None, chosen)]
        theirs = {n: statistics.median(sum(one.values()) for one in self.image[n]) for n in steps}
        ours = {n: theirs[n] * _paired(self.switchmem[n], self.image[n]) for n in steps}
        return sum(ours.values()) / sum(theirs.values()) if steps else float("nan")

    def mean(self, way: list[Rounds], part: str) -> float:
        """Milliseconds of a part, over steps."""
        return 1e3 * statistics.mean(statistics.median(one.get(part, 0.0) for one in rounds) for rounds in way)

    def suffix(self) -> float:
        """Milliseconds by which the state prompt prolongs the prefix that is run in any case, over steps."""
        longer = [
            statistics.median(ours["state"] - theirs["state"] for ours, theirs in zip(*rounds, strict=True))
            for rounds in zip(self.switchmem, self.prefix, strict=True)
        ]
        return 1e3 * statistics.mean(longer)


def _paired(ours: Rounds, theirs: Rounds) -> float:
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(sum(one.values()) / sum(other.values()) for one, other in pairs)


def measure(case: Case, rounds: int) -> tuple[Times, Times, dict[str, Any]]:
    """Interleave all ways over all steps; wall-clock times, CPU times, and tokens."""
    policy, count = random_policy(case), len(case.questions)
    ways: dict[str, Callable[[int], Any]] = {
        "prefix": lambda n: (prefix_alone(case, n), None),
        "switchmem": lambda n: with_switchmem(case, n, policy),
        "image": lambda n: with_fixed_image(case, n),
    }
    for way in ways.values():  # warm-up
        way(0)
    clocks: dict[str, list[list[Clock]]] = {name: [[] for _ in range(count)] for name in ways}
    facts: dict[str, list[Any]] = {name: [None] * count for name in ways}
    for round_ in range(rounds):
        for n in range(count):
            for name in list(ways)[:: 1 if (round_ + n) % 2 == 0 else -1]:
                clock, facts[name][n] = ways[name](n)
                clocks[name][n].append(clock)
    chosen: list[Condition] = facts["switchmem"]
    wall = Times(*([[clock.wall for clock in step] for step in clocks[name]] for name in ways), chosen)
    cpu = Times(*([[clock.cpu for clock in step] for step in clocks[name]] for name in ways), chosen)
    turn = Turn(case.actor, case.questions[0])
    lengths = {condition.value: turn.length(condition) for condition in case.questions[0].prompts}
    return wall, cpu, {**lengths, "shared": turn.shared, "answer": statistics.mean(facts["image"])}


def report(case: Case, rounds: int) -> dict[str, Any]:
    """Measure a model, print its table, and return its numbers."""
    wall, cpu, tokens = measure(case, rounds)
    images = sum(chosen is Condition.IMAGE for chosen in wall.chosen)

    print(f"\n{case.name}: {len(wall.chosen)} steps, {rounds} rounds, Image chosen on {images}")
    print("  tokens of the first step: " + ", ".join(f"{name} {value:g}" for name, value in tokens.items()))
    print(f"  mean ms per step {''.join(f'{part:>10}' for part in (*PARTS, 'sum'))}")
    for name, way in (("fixed image", wall.image), ("switchmem", wall.switchmem)):
        values = [wall.mean(way, part) for part in PARTS]
        print(f"  {name:<16} {''.join(f'{value:10.1f}' for value in (*values, sum(values)))}")
    image_ms = sum(wall.mean(wall.image, part) for part in PARTS)
    probe, router = wall.suffix(), wall.mean(wall.switchmem, "routing")
    print(
        f"  the state prompt behind the prefix adds {probe:.1f} ms, the router {router:.2f} ms: "
        f"{100 * (probe + router) / image_ms:.1f} % of fixed Image"
    )
    ratios = {
        "ratio": wall.ratio(),
        "ratio_image_chosen": wall.ratio(Condition.IMAGE),
        "ratio_text_chosen": wall.ratio(Condition.TEXT),
        "ratio_cpu": cpu.ratio(),
        "ratio_cpu_image_chosen": cpu.ratio(Condition.IMAGE),
        "ratio_cpu_text_chosen": cpu.ratio(Condition.TEXT),
    }
    print("  " + ", ".join(f"{name} {value:.3f}" for name, value in ratios.items()))
    numbers = {**ratios, "image_ms": image_ms, "state_suffix_ms": probe, "router_ms": router}
    return {name: round(value, 4) for name, value in numbers.items()} | {"image_rate": images / len(wall.chosen)}


def main() -> None:
    """Measure the models and print the ratios."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=(*KINDS, "pocket"), default=[*KINDS, "pocket"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answer", type=int, default=40, help=f"tokens of a random model's answer, at most {CAP}")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    answer = min(options.answer, CAP)
    models: dict[str, dict[str, Any]] = {}
    for name in options.models:
        if name == "pocket":
            case = pocket(4 * options.steps, options.device)
        else:
            case = lookalike(name, options.steps, answer, options.device)
        models[name] = report(case, options.rounds)
    paper = {name: round(ratio, 3) for name, ratio in PAPER.items()}
    print("\nthe paper's own ratios, on its GPU: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in paper.items()))
    first = models[options.models[0]]
    summary = {"ratio_switchmem_image": first["ratio"], "device": options.device, "answer_tokens": answer}
    print(json.dumps({**summary, "models": models, "paper": paper}))


if __name__ == "__main__":
    main()
