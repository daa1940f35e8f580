"""The plan of a harvest against counts made another way."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks import plan as planning
from benchmarks.floor import floor_rows, work_of
from benchmarks.lookalikes import KINDS, Lengths, build_actor, build_questions
from benchmarks.plan import CONFIGS, Load, plan, seconds
from benchmarks.shapes import shapes_of
from switchmem.actors.sampling import Sampling
from switchmem.memory.views import Condition

SAMPLED = (Condition.TEXT, Condition.IMAGE)
SHORT = Lengths(system=40, state=60, words=9, width=128, height=192)


@pytest.fixture(scope="module", params=KINDS)
def actor(request):
    return build_actor(request.param)


def test_operations_equal_those_of_the_floor(actor):
    sampling = Sampling(max_new_tokens=5)
    questions = build_questions(SHORT, 1)
    work = work_of(actor, questions, SAMPLED, sampling)
    step = plan(shapes_of(actor.model), planning.load_of(actor, questions[0], sampling), 4)
    assert step.flops == pytest.approx(sum(part.flops for part in work), rel=0.01)
    by_name = {part.name: part.flops for part in work}
    vision = sum(flops for name, flops in by_name.items() if name.startswith("vision"))
    assert step.vision == pytest.approx(vision, rel=1e-9)
    lines = list(floor_rows(work, {part.name: 0.5 for part in work}, 1, 10.0))
    assert len(lines) == len(work) + 3 and lines[-2].endswith(f"{0.05 * len(work):.3f}")


def test_products_are_those_that_the_model_runs(actor):
    """Counted by hooks on every linear layer while the actor works, without padding or repetition."""
    sampling = Sampling(max_new_tokens=3)
    (question,) = build_questions(SHORT, 1)
    ran = []
    hooks = [
        module.register_forward_hook(lambda m, i, o: ran.append(2.0 * m.weight.numel() * o[..., 0].numel()))
        for module in actor.model.model.language_model.layers.modules()
        if isinstance(module, torch.nn.Linear)
    ]
    actor.observe([question], SAMPLED, (0,), sampling)
    for hook in hooks:
        hook.remove()
    counted = {
        part.name: part.flops for part in work_of(actor, [question], SAMPLED, sampling) if "weights" in part.name
    }
    head = 2.0 * actor.model.lm_head.weight.numel() * 14 * 2
    planned = sum(flops for name, flops in counted.items() if not name.startswith("vision")) - head
    assert sum(ran) == pytest.approx(planned, rel=1e-9)


def test_what_all_steps_begin_with_is_computed_once_for_all(actor):
    """Of two steps together, as the engine runs them once it knows their start, counted by hooks."""
    lengths = Lengths(system=120, state=60, words=9, width=128, height=192)
    sampling, questions, ran = Sampling(max_new_tokens=3), build_questions(lengths, 2), []
    actor.observe(questions, (), (0,), sampling)
    hooks = [
        module.register_forward_hook(lambda m, i, o: ran.append(2.0 * m.weight.numel() * o[..., 0].numel()))
        for module in actor.model.model.language_model.layers.modules()
        if isinstance(module, torch.nn.Linear)
    ]
    actor.observe(questions, SAMPLED, (0,), sampling)
    for hook in hooks:
        hook.remove()
    start = planning.start_of(actor, questions)
    assert 90 < start < 110
    work = work_of(actor, questions, SAMPLED, sampling)
    head = 2.0 * actor.model.lm_head.weight.numel() * 28 * 2
    counted = sum(p.flops for p in work if "weights" in p.name and not p.name.startswith("vision")) - head
    # more only by what pads texts of different length
    assert counted <= sum(ran) < counted * 1.05
    plans = [
        plan(shapes_of(actor.model), replace(planning.load_of(actor, q, sampling), start=start), 4) for q in questions
    ]
    assert sum(p.flops for p in plans) == pytest.approx(sum(part.flops for part in work), rel=0.01)


def test_memory_of_keys_and_values(actor):
    shapes = shapes_of(actor.model)
    load = Load(prefix=30, tails=(5, 20, 10), pictures=(8, 8), samples=7, new=6)
    layers, _, groups, width = shapes.attention
    mixers, heads, keys, values = shapes.recurrent
    tokens = 30 + 35 + 14 * 6
    expected = 2 * tokens * layers * groups * width * 2 + 4 * 17 * mixers * heads * keys * values
    assert plan(shapes, load, 2).kept == expected


def test_time_falls_with_the_device_and_with_company(actor):
    shapes = shapes_of(actor.model)
    load = Load(300, (10, 200, 150), (100, 100), 7, 20)
    step, device = plan(shapes, load, 2), planning.DEVICES["a100"]
    alone = seconds(shapes, step, load, 1, device, 2)
    assert seconds(shapes, step, load, 8, device, 2) < alone
    twice = planning.Device(2 * device.flops, 2 * device.bandwidth, device.memory)
    assert seconds(shapes, step, load, 1, twice, 2) == pytest.approx(alone / 2)


@pytest.mark.parametrize(("actor_name", "billions"), [("qwen3.5-9b", 9.4), ("ui-tars-7b-sft", 8.3)])
def test_published_models_have_their_published_sizes(actor_name, billions):
    shapes = planning.shapes_of_config(CONFIGS[actor_name]())
    assert shapes.parameters / 1e9 == pytest.approx(billions, abs=0.06)
    assert all(weight.device.type == "meta" for weight in shapes.linears)


def test_the_last_line_is_json(monkeypatch, capsys):
    arguments = "plan --actor qwen2.5-vl-7b --steps 100 --gpu l40s --devices 4 --together 64".split()
    monkeypatch.setattr(sys, "argv", arguments)
    planning.main()
    printed = capsys.readouterr().out.splitlines()
    found = json.loads(printed[-1])
    assert found["hours"] == pytest.approx(found["seconds_per_step"] * 25 / 3600, abs=1e-3)
    assert not found["fits"] and any("lower --together" in line for line in printed)
    assert found["plain_tflop_per_step"] > 8 * found["tflop_per_step"]
