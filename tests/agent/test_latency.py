"""The benchmark of latency counts what it says: ratios by their definition, and every way over the same steps."""

import json
import math
import sys

import pytest

from benchmarks import latency
from benchmarks.latency import Times
from switchmem.memory.views import Condition

TEXT, IMAGE = Condition.TEXT, Condition.IMAGE


def rounds(*seconds):
    """Rounds of a step whose parts add up to these."""
    return [{"state": second / 4, "decoding": second * 3 / 4} for second in seconds]


def test_ratios_are_those_of_mean_times():
    ours, theirs = [rounds(1.1, 1.1, 1.1), rounds(3.0, 3.0, 3.0)], [rounds(1.0, 1.0, 1.0), rounds(4.0, 4.0, 4.0)]
    times = Times(ours, ours, theirs, [IMAGE, TEXT])
    assert times.ratio() == pytest.approx((1.1 + 3.0) / (1.0 + 4.0))
    assert times.ratio(IMAGE) == pytest.approx(1.1) and times.ratio(TEXT) == pytest.approx(0.75)
    assert math.isnan(times.ratio(Condition.BOTH))
    assert times.mean(ours, "decoding") == pytest.approx(1e3 * 0.75 * (1.1 + 3.0) / 2)


def test_a_slow_while_slows_both():
    """One round takes thrice as long, another is disturbed on one side alone: neither moves the ratio."""
    ours, theirs = [rounds(1.1, 3.3, 1.1, 9.9, 1.1)], [rounds(1.0, 3.0, 1.0, 1.0, 1.0)]
    assert Times(ours, ours, theirs, [IMAGE]).ratio() == pytest.approx(1.1)


def test_the_suffix_is_what_the_state_prompt_adds():
    prefix, ours = [rounds(4.0, 8.0)], [rounds(4.4, 8.8)]
    assert Times(prefix, ours, ours, [IMAGE]).suffix() == pytest.approx(1e3 * (0.1 + 0.2) / 2)


def test_the_pocket_actor_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["latency", "--models", "pocket", "--steps", "1", "--rounds", "2"])
    latency.main()
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    numbers = summary["models"]["pocket"]
    assert summary["ratio_switchmem_image"] == numbers["ratio"] > 0
    assert numbers["image_rate"] == 0.5 and numbers["image_ms"] > 0 and numbers["router_ms"] > 0
    assert summary["paper"] == {"AITW": 1.1, "LearnGUI": 1.115, "MobileMiniWoB++": 1.195}
