"""What a harvest will compute, keep in memory and take in hours, before anything is downloaded.

    python -m benchmarks.plan --actor qwen3.5-9b --steps 10019 --gpu h100 --devices 8
    python -m benchmarks.plan --check

Operations follow from the actor's configuration and the lengths of prompts and answers. A prompt's tokens take the
accelerator's peak rate times `--utilisation`. An answer's tokens wait for memory: each position of a batch reads all
weights once, the prompts' keys and values once, and the linear-attention states of every answer, at the bandwidth times
`--bandwidth-share`. Preparing pictures and writing records are left out; they run beside it.

`--check` predicts the same for small models on this machine's processor, from its rates measured on the spot, and
compares with harvests that it runs. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers

from benchmarks.lookalikes import KINDS, Lengths, build_actor, build_questions
from benchmarks.shapes import Shapes, count, shapes_of
from switchmem.actors.rows import shared_length
from switchmem.actors.sampling import Sampling
from switchmem.actors.starts import common_start
from switchmem.actors.vlm import StepPrompts, VLMActor, probe_layers
from switchmem.memory.views import Condition


@dataclass(frozen=True)
class Device:
    """What a maker publishes.

    Args:
        flops: operations per second of dense bfloat16 products.
        bandwidth: bytes per second of its memory.
        memory: bytes.
    """

    flops: float
    bandwidth: float
    memory: float


# NVIDIA's data sheets; dense rates, where those print them with sparsity (H100, H200, L40S) halved.
DEVICES = {
    "h100": Device(989e12, 3.35e12, 80e9),  # H100 SXM5 80 GB
    "h200": Device(989e12, 4.8e12, 141e9),  # H200 SXM 141 GB
    "a100": Device(312e12, 2.039e12, 80e9),  # A100 SXM4 80 GB
    "l40s": Device(362e12, 0.864e12, 48e9),  # L40S 48 GB
    "a10": Device(125e12, 0.6e12, 24e9),  # A10 24 GB
    "rtx4090": Device(165e12, 1.008e12, 24e9),  # Ada architecture white paper, with float32 accumulation
}


def _qwen2vl() -> Any:
    vision = dict(depth=32, embed_dim=1280, num_heads=16, hidden_size=3584)
    text = dict(
        hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152064,
    )  # fmt: skip
    return transformers.Qwen2VLConfig(text_config=text, vision_config=vision)


def _qwen25vl() -> Any:
    text = _qwen2vl().text_config.to_dict()
    keep = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    vision = dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, out_hidden_size=3584)
    return transformers.Qwen2_5_VLConfig(
        text_config={name: text[name] for name in keep} | {"vocab_size": 152064}, vision_config=vision
    )


def _qwen3vl() -> Any:
    text = dict(
        hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=151936,
    )  # fmt: skip
    return transformers.Qwen3VLConfig(text_config=text, vision_config=dict(out_hidden_size=4096))


# From the config.json of the published models. The classes' own defaults are the text part of Qwen3.5-9B and the
# vision towers of Qwen3-VL and Qwen3.5.
CONFIGS: dict[str, Callable[[], Any]] = {
    "qwen3.5-9b": lambda: transformers.Qwen3_5Config(vision_config=dict(out_hidden_size=4096)),
    "qwen3-vl-8b": _qwen3vl,
    "qwen2.5-vl-7b": _qwen25vl,
    "ui-tars-7b-sft": _qwen2vl,
    "aguvis-7b-720p": _qwen2vl,
}


def shapes_of_config(config: Any) -> Shapes:
    """Shapes of a model that is never given any weights."""
    with torch.device("meta"):
        return shapes_of(transformers.AutoModelForImageTextToText.from_config(config))


@dataclass(frozen=True)
class Load:
    """The lengths of one step.

    Args:
        prefix: tokens that all prompts share, visual ones included.
        tails: tokens behind it of each prompt: state, and one per sampled condition.
        pictures: visual tokens of each picture.
        samples: answers per condition.
        new: tokens of an answer.
        start: tokens of the prefix that all steps begin with, and that are computed once for all of them.
    """

    prefix: int
    tails: tuple[int, ...]
    pictures: tuple[int, ...]
    samples: int
    new: int
    start: int = 0

    @property
    def answers(self) -> int:
        """Rows of the batch that decodes; the first tail is the state prompt's."""
        return self.samples * (len(self.tails) - 1)


@dataclass(frozen=True)
class Plan:
    """What one step takes.

    Args:
        vision: operations of the vision tower.
        prompts: operations of all tokens of prompts.
        decoding: operations of all tokens of answers.
        read: bytes that all positions of the answers read, weights excluded.
        weights: bytes of all weights, of which every position of a batch reads those of the blocks and of the head.
        kept: bytes of keys, values and states.
        working: bytes of the widest layer's inputs and outputs.
    """

    vision: float
    prompts: float
    decoding: float
    read: float
    weights: float
    kept: float
    working: float

    @property
    def flops(self) -> float:
        """All operations."""
        return self.vision + self.prompts + self.decoding


def plan(shapes: Shapes, load: Load, bytes_per_number: int) -> Plan:
    """Count what one step takes."""
    layers, heads, groups, width = shapes.attention
    mixers, states, keys, values = shapes.recurrent
    tokens, numbers = load.prefix - load.start + sum(load.tails), count(shapes.linears)
    pairs = load.prefix * (load.prefix + 1) / 2 + sum(t * load.prefix + t * (t + 1) / 2 for t in load.tails)
    pairs -= load.start * (load.start + 1) / 2
    recurrent, positions = 6.0 * mixers * states * keys * values, load.new - 1
    prompts = (2.0 * numbers + recurrent) * tokens + 4.0 * layers * heads * width * pairs
    prompts += 2.0 * shapes.head.numel() * len(load.tails)
    lengths = sum(load.prefix + tail for tail in load.tails[1:])
    seen = load.samples * positions * lengths + load.answers * positions * load.new / 2
    decoding = (2.0 * (numbers + shapes.head.numel()) + recurrent) * load.answers * positions
    decoding += 4.0 * layers * heads * width * seen
    patches = [shapes.merge * picture for picture in load.pictures]
    depth, seeing, narrow = shapes.seeing
    vision = 2.0 * count(shapes.vision) * sum(patches) + 2.0 * count(shapes.merger) * sum(load.pictures)
    vision += 4.0 * depth * seeing * narrow * sum(n * n for n in patches)
    token = 2 * layers * groups * width * bytes_per_number
    state = 4 * mixers * states * keys * values  # float32 in every model
    answer_bytes = 2 * state + load.new * token / 2  # read and written; read
    return Plan(
        vision=vision,
        prompts=prompts,
        decoding=decoding,
        read=positions * ((load.prefix + sum(load.tails[1:])) * token + load.answers * answer_bytes),
        weights=float(shapes.parameters * bytes_per_number),
        kept=float((tokens + load.answers * load.new) * token + (len(load.tails) + load.answers) * state),
        working=float(tokens * (3 * shapes.widest + 6 * shapes.width) * bytes_per_number),
    )


def seconds(shapes: Shapes, step: Plan, load: Load, together: int, device: Device, bytes_per_number: int) -> float:
    """Of one step, of which so many run together, at the rates of the device."""
    positions = load.new - 1
    weights = (count(shapes.linears) + shapes.head.numel()) * bytes_per_number
    waiting = (positions * weights / together + step.read) / device.bandwidth
    return (step.vision + step.prompts) / device.flops + max(waiting, step.decoding / device.flops)


def show(options: argparse.Namespace) -> dict[str, Any]:
    """Predict for an accelerator."""
    shapes = shapes_of_config(
        transformers.AutoConfig.from_pretrained(options.config) if options.config else CONFIGS[options.actor]()
    )
    visual, tail = options.visual_tokens, options.tail_tokens
    load = Load(
        options.prefix_tokens + visual,
        (tail, options.state_tokens + tail, visual + options.image_words + tail),
        (visual, visual),
        options.samples,
        options.new_tokens,
        min(options.start_tokens, options.prefix_tokens),
    )
    step, published = plan(shapes, load, 2), DEVICES[options.gpu]
    real = Device(
        published.flops * options.utilisation, published.bandwidth * options.bandwidth_share, published.memory
    )
    taken = seconds(shapes, step, load, options.together, real, 2)
    memory = step.weights + options.together * (step.kept + step.working)
    plain = plain_flops(shapes, load)
    hours = taken * options.steps / options.devices / 3600
    name = options.config or options.actor
    print(f"{name}: {shapes.parameters / 1e9:.2f} G weights; {options.steps} steps on {options.devices} {options.gpu}")
    print(f"{'':<28}{'TFLOP/step':>12}")
    for part in ("vision", "prompts", "decoding", "flops"):
        print(f"{part.replace('flops', 'all'):<28}{getattr(step, part) / 1e12:>12.2f}")
    print(f"{'one generate per seed':<28}{plain / 1e12:>12.2f}")
    print(f"all steps: {step.flops * options.steps / 1e18:.3f} EFLOP")
    print(
        f"memory: {step.weights / 1e9:.1f} GB of weights, {memory / 1e9:.1f} GB with {options.together} steps together"
    )
    if memory > published.memory:
        print(f"  that is more than the {published.memory / 1e9:.0f} GB of a {options.gpu}; lower --together")
    print(f"time: {taken:.3f} s per step and device, {hours:.2f} hours")
    return {
        "actor": name,
        "gpu": options.gpu,
        "tflop_per_step": round(step.flops / 1e12, 3),
        "eflop": round(step.flops * options.steps / 1e18, 5),
        "plain_tflop_per_step": round(plain / 1e12, 3),
        "memory_gb": round(memory / 1e9, 2),
        "fits": memory <= published.memory,
        "seconds_per_step": round(taken, 4),
        "hours": round(hours, 3),
    }


def plain_flops(shapes: Shapes, load: Load) -> float:
    """Operations of one `generate` per answer and one forward per prompt, nothing shared."""
    whole = [Load(load.prefix + t, (0,), load.pictures[: max(1, n)], 1, load.new) for n, t in enumerate(load.tails)]
    total = 0.0
    for number, prompt in enumerate(whole):
        alone = plan(shapes, prompt, 2)
        total += (alone.vision + alone.prompts) * (1 if number == 0 else 1 + load.samples)
    return total + plan(shapes, load, 2).decoding


# --- the check ---


def load_of(actor: VLMActor, question: StepPrompts, sampling: Sampling) -> Load:
    """The real lengths of a step."""
    table, (rows,) = actor.tokenise([question])
    prefix = shared_length(list(rows.values()))
    pictures = actor.encoder.visual_tokens(table.grids)
    tails = tuple(len(rows[c]) - prefix for c in (Condition.NONE, Condition.TEXT, Condition.IMAGE))
    return Load(prefix, tails, tuple(pictures), len(sampling.seeds), sampling.max_new_tokens)


def start_of(actor: VLMActor, questions: Sequence[StepPrompts]) -> int:
    """How many tokens all steps begin with."""
    _, rows = actor.tokenise(questions)
    lengths = [shared_length(list(prompts.values())) for prompts in rows]
    return common_start([prompts[Condition.NONE] for prompts in rows], lengths)


def measured_device(clock: Callable[[], float]) -> Device:
    """This machine's processor: the rate of a large product and of reading a large matrix once."""
    left, right, vector = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.randn(8192)
    large = torch.randn(8192, 8192)

    def fastest(work: Callable[[], Any]) -> float:
        tries = []
        for _ in range(5):
            start = clock()
            work()
            tries.append(clock() - start)
        return min(tries)

    return Device(2 * 1024**3 / fastest(lambda: left @ right), large.numel() * 4 / fastest(lambda: large @ vector), 0.0)


def check(options: argparse.Namespace) -> dict[str, Any]:
    """Predict harvests on this machine, run them, and compare."""
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
    results: dict[str, float] = {}
    print(f"{'model and lengths':<44}{'predicted s':>12}{'measured s':>12}{'ratio':>8}")
    for kind in KINDS:
        actor = build_actor(kind)
        shapes = shapes_of(actor.model)
        for label, lengths, new in (
            ("short", Lengths(160, 300, 30, 360, 720), 12),
            ("long", Lengths(), 30),
            ("talkative", Lengths(160, 300, 30, 360, 720), 80),
        ):
            sampling = Sampling(max_new_tokens=new)
            questions = build_questions(lengths, options.together)
            start = start_of(actor, questions)
            loads = [replace(load_of(actor, question, sampling), start=start) for question in questions]
            actor.observe(questions, (), (0,), Sampling(max_new_tokens=1))  # as after the first batch of a harvest
            taken, rates = [], []
            for _ in range(options.repeats):
                found = measured_device(clock)
                rates.append(Device(found.flops * options.utilisation, found.bandwidth, 0.0))
                start = clock()
                actor.observe(questions, (Condition.TEXT, Condition.IMAGE), probe_layers(actor.num_layers), sampling)
                taken.append((clock() - start) / len(questions))
            predicted = sorted(
                sum(seconds(shapes, plan(shapes, load, 4), load, len(loads), rate, 4) for load in loads) / len(loads)
                for rate in rates
            )[len(rates) // 2]
            measured = sorted(taken)[len(taken) // 2]
            results[f"{kind}_{label}"] = round(predicted / measured, 3)
            print(f"{f'{kind}, {label}':<44}{predicted:>12.3f}{measured:>12.3f}{predicted / measured:>8.2f}")
    return {"predicted_over_measured": results, "utilisation": options.utilisation, "together": options.together}


def main() -> None:
    """Predict, or check predictions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actor", choices=tuple(CONFIGS), default="qwen3.5-9b")
    parser.add_argument("--config", help="a folder with config.json, instead of a known actor")
    parser.add_argument("--steps", type=int, default=10_019)
    parser.add_argument("--gpu", choices=tuple(DEVICES), default="h100")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--prefix-tokens", type=int, default=1000, help="system message and instruction")
    parser.add_argument("--start-tokens", type=int, default=900, help="those of them that all steps share")
    parser.add_argument("--visual-tokens", type=int, default=980, help="of a screenshot")
    parser.add_argument("--state-tokens", type=int, default=800, help="of a demonstration's textual screen")
    parser.add_argument("--image-words", type=int, default=60, help="around a demonstrated screenshot")
    parser.add_argument("--tail-tokens", type=int, default=20, help="behind the memory")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--together", type=int, default=8, help="steps in a batch")
    parser.add_argument("--utilisation", type=float, default=0.5, help="share of the peak rate that products reach")
    parser.add_argument("--bandwidth-share", type=float, default=0.6)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--repeats", type=int, default=3, help="of --check")
    parser.add_argument("--threads", type=int, default=2, help="of --check")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of --check")
    options = parser.parse_args()
    print(json.dumps(check(options) if options.check else show(options)))


if __name__ == "__main__":
    main()
