"""How fast target construction is, against plain ways, against the arithmetic, and what memory it takes.

    python -m benchmarks.harvest [--model hybrid,qwen2vl] [--steps 8] [--repeats 3] [--threads 2] [--clock wall]

Per step: 7 answers of 30 tokens under Text and under Image, and the states of three prompts. Three ways, in turns, in
this one process, in float32 on the CPU:

- per seed: one `generate` per answer, and one forward with hooks per prompt;
- n = 7: one `generate(num_return_sequences=7)` per condition, and the same forwards;
- ours: `VLMActor.observe` of `--steps` steps together, as many as the configs of the benchmarks take, tokenising and
  preparing the pictures included. The words that all steps begin with (the system message) were computed by an earlier
  batch, as in a harvest of thousands of steps; the plain ways compute them each time.

The models are random, so that the 7 answers of a prompt part at their first token: the worst case, as answers share
what they have in common. `sure` is ours with logits times 100, where most stay together. No answer ends early.

The floor is what must be computed, each token once and without padding, at the rate of bare matrix products of those
shapes, with the model's own weights, measured in turns with the ways. On a machine that others use too,
`--threads 1 --clock cpu` counts processor time, which they disturb less. The last line is one JSON object; its ratios
are those of the model where they are lowest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from benchmarks.floor import Work, floor_rows, work_of
from benchmarks.lookalikes import KINDS, Lengths, build_actor, build_questions
from switchmem.actors.sampling import Sampling
from switchmem.actors.vlm import StepPrompts, VLMActor, probe_layers
from switchmem.memory.views import Condition

SAMPLED = (Condition.TEXT, Condition.IMAGE)
WAYS = ("per_seed", "n7", "ours", "sure")
SURE = 100.0


def plain_inputs(actor: VLMActor, question: StepPrompts) -> dict[Condition, dict[str, torch.Tensor]]:
    """What transformers takes for each prompt of a step, nothing shared but the preparation."""
    table, (rows,) = actor.tokenise([question])
    token = actor.encoder.image_token
    inputs = {}
    for condition, row in rows.items():
        ids = row.ids[None]
        inputs[condition] = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": (ids == token).int(),
            "pixel_values": torch.cat([table.pixels[n] for n in row.images]),
            "image_grid_thw": table.grids[list(row.images)],
        }
    return inputs


@contextmanager
def reading(actor: VLMActor) -> Iterator[list[torch.Tensor]]:
    """Collect the states of the probed blocks."""
    states: list[torch.Tensor] = []
    blocks = [actor.engine.blocks[layer] for layer in probe_layers(actor.num_layers)]
    hooks = [block.register_forward_hook(lambda m, i, o: states.append(o[:, -1].clone())) for block in blocks]
    yield states
    for hook in hooks:
        hook.remove()


@torch.no_grad()
def plain(actor: VLMActor, question: StepPrompts, sampling: Sampling, at_once: int) -> None:
    """The states by hooks, the answers by `generate`, ``at_once`` per call."""
    model: Any = actor.model
    new, end = sampling.max_new_tokens, actor.encoder.tokenizer.eos_token_id
    for condition, inputs in plain_inputs(actor, question).items():
        with reading(actor) as states:
            model(**inputs, logits_to_keep=1, use_cache=False)
        assert len(states) == len(probe_layers(actor.num_layers))
        for seed in sampling.seeds[::at_once] if condition in SAMPLED else ():
            torch.manual_seed(seed)
            drawn = model.generate(
                **inputs, do_sample=True, temperature=sampling.temperature, top_k=0, max_new_tokens=new,
                num_return_sequences=at_once, pad_token_id=end, eos_token_id=end,
            )  # fmt: skip
            assert drawn.shape == (at_once, inputs["input_ids"].shape[1] + new)


def ours(actor: VLMActor, questions: Sequence[StepPrompts], sampling: Sampling) -> None:
    """What a harvest does with a batch."""
    seen = actor.observe(questions, SAMPLED, probe_layers(actor.num_layers), sampling)
    counts = {n for observation in seen for drawn in observation.new_tokens.values() for n in drawn}
    assert counts == {sampling.max_new_tokens}, "an answer ended early"


def run(way: str, actors: dict[str, VLMActor], questions: Sequence[StepPrompts], sampling: Sampling, turn: int) -> int:
    """One turn of one way; returns how many steps it took."""
    if way in ("per_seed", "n7"):
        at_once = 1 if way == "per_seed" else len(sampling.seeds)
        plain(actors[way], questions[turn % len(questions)], sampling, at_once)
        return 1
    ours(actors[way], questions, sampling)
    return len(questions)


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """All ways with one model, in turns; prints a table."""
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
    actor = build_actor(kind)
    actors = dict.fromkeys(("per_seed", "n7", "ours"), actor) | {"sure": build_actor(kind, SURE)}
    questions = build_questions(Lengths(), options.steps)
    sampling = Sampling(max_new_tokens=options.new_tokens)
    work = work_of(actor, questions, SAMPLED, sampling)
    for way in ("ours", "sure"):  # first calls allocate, load kernels, and find what all steps begin with
        ours(actors[way], build_questions(Lengths(), 2), Sampling(max_new_tokens=2))
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    floors: list[dict[str, float]] = []
    for turn in range(options.repeats):
        for way in WAYS:
            start = clock()
            steps = run(way, actors, questions, sampling, turn)
            seconds[way].append((clock() - start) / steps)
        floors.append({part.name: part.seconds(clock) / options.steps for part in work})
    median = {way: statistics.median(found) for way, found in seconds.items()}
    floor = {name: statistics.median(found[name] for found in floors) for name in floors[0]}
    peak = {way: peak_megabytes(kind, way, options) for way in WAYS[:3]}
    report(kind, actor, median, work, floor, peak, options)
    return {
        "ratio_per_seed": median["per_seed"] / median["ours"],
        "ratio_n7": median["n7"] / median["ours"],
        "floor_fraction": sum(floor.values()) / median["ours"],
        "ratio_per_seed_sure": median["per_seed"] / median["sure"],
        "ratio_n7_sure": median["n7"] / median["sure"],
        "seconds_per_step": median["ours"],
        "floor_seconds": sum(floor.values()),
        "gflop_per_step": sum(part.flops for part in work) / 1e9 / options.steps,
        **{f"peak_mb_{way}": found for way, found in peak.items()},
    }


def report(
    kind: str,
    actor: VLMActor,
    median: dict[str, float],
    work: Sequence[Work],
    floor: dict[str, float],
    peak: dict[str, float],
    options: argparse.Namespace,
) -> None:
    """Print what one model gave."""
    weights = sum(p.numel() for p in actor.model.parameters()) / 1e6
    table, _ = actor.tokenise(build_questions(Lengths(), 1))
    visual = actor.encoder.visual_tokens(table.grids)[0]
    print(f"{kind}: {weights:.0f} M weights, {visual} visual tokens a screenshot, {options.steps} steps together")
    print(f"{'way':<12}{'s/step':>9}{'times ours':>12}{'MB above the model':>20}")
    for way, found in median.items():
        memory = f"{peak[way]:.0f}" if way in peak else ""
        print(f"{way:<12}{found:>9.2f}{found / median['ours']:>12.2f}{memory:>20}")
    for line in floor_rows(work, floor, options.steps, median["ours"]):
        print(line)
    print()


def peak_megabytes(kind: str, way: str, options: argparse.Namespace) -> float:
    """Peak memory of one turn in a process of its own, above what the loaded model takes."""
    command = [sys.executable, "-m", "benchmarks.harvest", "--model", kind, "--peak", way]
    for name in ("steps", "new_tokens", "threads"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["peak_mb"])


def _status(field: str) -> int:
    """A line of Linux's account of this process, in kB."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def peak(kind: str, way: str, options: argparse.Namespace) -> None:
    """What `peak_megabytes` runs."""
    actor, questions = build_actor(kind), build_questions(Lengths(), options.steps)
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # forget the peak of building the model
    before = _status("VmRSS")
    run(way, {way: actor}, questions, Sampling(max_new_tokens=options.new_tokens), 0)
    print(json.dumps({"peak_mb": (_status("VmHWM") - before) / 1024}))


def profile(kind: str, options: argparse.Namespace) -> None:
    """Print the operations that take the most time of ours."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    actor, questions = build_actor(kind), build_questions(Lengths(), options.steps)
    sampling = Sampling(max_new_tokens=options.new_tokens)
    ours(actor, questions[:1], Sampling(max_new_tokens=2))
    with torch_profile(activities=[ProfilerActivity.CPU]) as found:
        ours(actor, questions, sampling)
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=40))


def main() -> None:
    """Measure each model and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=",".join(KINDS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--profile", action="store_true", help="where the time of ours goes, instead")
    parser.add_argument("--peak", choices=WAYS, help="one turn of one way and its peak memory, instead")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    kinds = options.model.split(",")
    if options.peak or options.profile:
        for kind in kinds:
            peak(kind, options.peak, options) if options.peak else profile(kind, options)
        return
    found = {kind: measure(kind, options) for kind in kinds}
    summary: dict[str, Any] = {
        name: round(min(values[name] for values in found.values()), 3)
        for name in ("ratio_per_seed", "ratio_n7", "floor_fraction")
    }
    summary |= {"threads": options.threads, "clock": options.clock, "steps": options.steps, "repeats": options.repeats}
    summary |= {kind: {name: round(value, 3) for name, value in values.items()} for kind, values in found.items()}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
