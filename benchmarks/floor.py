"""What must be computed for a step, and how long bare matrix products of those shapes take on this machine.

Each prompt token is counted once where prompts share it, those that all steps begin with not at all, padding never,
causal attention by the pairs that see each other, and linear attention in its recurrent form, which takes the fewest
operations. Norms, rotations, activations, copies and the sampling count as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.shapes import shapes_of
from switchmem.actors.rows import shared_length
from switchmem.actors.sampling import Sampling
from switchmem.actors.starts import common_start
from switchmem.actors.vlm import StepPrompts, VLMActor
from switchmem.memory.views import Condition


@dataclass
class Work:
    """One kind of work.

    Args:
        name: for the table.
        flops: operations in all.
        sample: runs bare products of its shapes once.
        sample_flops: operations of ``sample``.
    """

    name: str
    flops: float
    sample: Callable[[], Any]
    sample_flops: float

    @torch.no_grad()
    def seconds(self, clock: Callable[[], float]) -> float:
        """At the rate that this machine has now; the faster of two tries."""
        tries = []
        for _ in range(2):
            start = clock()
            self.sample()
            tries.append(clock() - start)
        return min(tries) / self.sample_flops * self.flops


def _linear(name: str, weights: Sequence[torch.Tensor], rows: int, passes: float = 1) -> Work:
    """Rows of inputs through weights; every pass reads all of them anew."""
    inputs = {w.shape[1]: torch.randn(rows, w.shape[1]) for w in weights}
    flops = 2.0 * rows * sum(w.numel() for w in weights)
    return Work(name, flops * passes, lambda: [inputs[w.shape[1]] @ w.T for w in weights], flops)


def _attention(name: str, pairs: float, heads: int, rows: int, past: int, width: int) -> Work:
    """Queries times keys and scores times values, for pairs of tokens in all layers and heads."""
    query, keys, scores = (torch.randn(heads, *s) for s in ((rows, width), (past, width), (rows, past)))
    sample = 4.0 * heads * rows * past * width
    return Work(name, 4.0 * pairs * width, lambda: (query @ keys.transpose(1, 2), scores @ keys), sample)


def work_of(
    actor: VLMActor, questions: Sequence[StepPrompts], sampled: Sequence[Condition], sampling: Sampling
) -> list[Work]:
    """All work of a batch of steps with K answers of ``max_new_tokens`` each."""
    shapes = shapes_of(actor.model)
    table, prompts = actor.tokenise(questions)
    shared = [shared_length(list(rows.values())) for rows in prompts]
    # What all steps begin with is computed once for a whole harvest, and so as good as never for a step.
    start = common_start([rows[Condition.NONE] for rows in prompts], shared)
    behind = [
        (prefix, len(row) - prefix) for prefix, rows in zip(shared, prompts, strict=True) for row in rows.values()
    ]
    lengths = [len(row) for rows in prompts for condition, row in rows.items() if condition in sampled]
    samples, new = len(sampling.seeds), sampling.max_new_tokens
    patches = [int(grid.prod()) for grid in table.grids]
    merge = actor.encoder.image_processor.merge_size**2
    work = [
        _linear("vision, weights", shapes.vision, sum(patches)),
        _linear("vision, merger", shapes.merger, sum(patches) // merge),
        _linear("prefixes, weights", shapes.linears, sum(shared) - start * len(shared)),
        *_passes("continuations, weights", shapes.linears, [tail for _, tail in behind]),
        _linear("decoding, weights", [*shapes.linears, shapes.head], samples * len(lengths), new - 1),
        _linear("first tokens, head", [shapes.head], len(behind)),
    ]
    layers, heads, groups, width = shapes.attention
    pairs = sum(p * (p + 1) / 2 for p in shared) - len(shared) * start * (start + 1) / 2
    pairs += sum(t * p + t * (t + 1) / 2 for p, t in behind)
    past = sum(lengths) // len(lengths)
    work.append(_attention("prompts, attention", layers * heads * pairs, heads, 128, past, width))
    pairs = samples * sum((new - 1) * length + (new - 1) * new / 2 for length in lengths)
    rows = samples * heads // groups
    work.append(_attention("decoding, attention", layers * heads * pairs, groups * len(lengths), rows, past, width))
    layers, heads, width = shapes.seeing
    pairs = sum(n * n for n in patches)
    work.append(_attention("vision, attention", layers * heads * pairs, heads, 128, patches[0], width))
    layers, heads, keys, values = shapes.recurrent
    if layers:
        tokens = (
            sum(shared) - start * len(shared) + sum(tail for _, tail in behind) + samples * len(lengths) * (new - 1)
        )
        work.append(_recurrent("linear attention", tokens * layers, heads, keys, values))
    return work


def _recurrent(name: str, tokens: int, heads: int, keys: int, values: int) -> Work:
    """Read, correct and read again a state of every head: three products of its size per token."""
    block, state = torch.randn(heads, 64, keys), torch.randn(heads, keys, values)
    flops = 2.0 * heads * keys * values
    return Work(name, 3 * flops * tokens, lambda: block @ state, flops * 64)


def _passes(name: str, weights: Sequence[torch.Tensor], lengths: Sequence[int]) -> Iterator[Work]:
    """Short continuations, those of the state prompts, and long ones have rates of their own."""
    for label, chosen in (("short", [n for n in lengths if n < 64]), ("long", [n for n in lengths if n >= 64])):
        if chosen:
            work = _linear(f"{name}, {label}", weights, sum(chosen) // len(chosen))
            work.flops = 2.0 * sum(chosen) * sum(w.numel() for w in weights)
            yield work


def floor_rows(work: Sequence[Work], floor: dict[str, float], steps: int, seconds: float) -> Iterator[str]:
    """Lines of a table: operations, rate and time per step of each kind of work, and their share of the time taken."""
    yield f"{'must be computed':<32}{'GFLOP':>9}{'GFLOP/s':>9}{'s/step':>9}{'share':>8}"
    for part in work:
        flops, needed = part.flops / steps / 1e9, floor[part.name]
        yield f"{part.name:<32}{flops:>9.2f}{flops / needed:>9.1f}{needed:>9.3f}{needed / seconds:>8.3f}"
    total = sum(floor.values())
    flops = sum(part.flops for part in work) / steps / 1e9
    yield f"{'all':<32}{flops:>9.2f}{flops / total:>9.1f}{total:>9.3f}{total / seconds:>8.3f}"
    yield f"{'norms, copies, sampling, rest':<32}{'':>9}{'':>9}{seconds - total:>9.3f}{1 - total / seconds:>8.3f}"
