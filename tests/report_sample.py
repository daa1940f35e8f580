"""Results and a step browser without a run: a study of any size whose numbers the evaluation itself computes."""

import numpy as np
from PIL import Image

from switchmem.evaluation import Routing, ScoreMatrix, StepFacts, build_results, routerless_results
from switchmem.report import Browser, Demo, Picture, Router, ShownStep, shrunk
from switchmem.steps import Screenshot

CONDITIONS = ("none", "text", "image", "both")
PROVENANCE = {
    "time": "2026-01-02T03:04:05+0000",
    "command": ["train.py", "test", "--run.name", "two words"],
    "git": "0123abc",
    "packages": {"torch": "2.13.0", "switchmem": None},
    "actor": {"grammar": "pocket", "template": "pocket"},
    "cores": 2,
}


def matrix_of(n):
    """Scores of `n` steps of n / 4 trajectories, and which of them Image suits."""
    rng = np.random.default_rng(0)
    side = rng.random(n) < 0.5
    solved = rng.random(n) < 0.9
    columns = {
        "none": rng.random(n) < 0.2,
        "text": solved & (~side | (rng.random(n) < 0.3)),
        "image": solved & (side | (rng.random(n) < 0.4)),
        "both": rng.random(n) < 0.7,
    }
    ids = [f"sample/{k // 4:04d}/{k % 4}" for k in range(n)]
    matrix = ScoreMatrix(ids, [i.rpartition("/")[0] for i in ids], {c: v.astype(float) for c, v in columns.items()})
    return matrix, side


def results_of(n=200, targets=("dcoe", "utility"), seeds=(0, 1), **changes):
    """A results document."""
    matrix, side = matrix_of(n)
    routings = [
        Routing(target, seed, 0.25, matrix.step_ids, side * 2.0 - 1 + np.random.default_rng(seed).normal(size=n))
        for target in targets
        for seed in seeds
    ]
    facts = StepFacts(np.arange(n) % 4, np.arange(n) % 3 > 0, np.linspace(1.0, 9.0, n))
    arguments = {
        "benchmark": "sample",
        "n_pref": 4321,
        "parse_failures": {"none": 3, "text": 0, "image": 1, "both": 0},
        "probe_auroc": {0: 0.61, 8: 0.72, 31: 0.83},
        "provenance": PROVENANCE,
        "notes": ["The sample is synthetic."],
        "facts": facts,
        "replicates": 200,
    }
    return build_results(matrix, routings, **(arguments | changes))


def routerless_of(n=40):
    """A results document of an actor without hidden states."""
    matrix, _ = matrix_of(n)
    return routerless_results(matrix, benchmark="sample", parse_failures=2, provenance=PROVENANCE, replicates=200)


def picture(shade=90, size=(120, 240)):
    """A plain picture."""
    return shrunk(Screenshot.from_image(Image.new("RGB", size, (shade, 120, 160))))


def tap(x=0.25, y=0.75):
    """A tap as plain values."""
    return {"type": "tap", "point": [x, y], "end": None, "text": None, "description": ""}


SWIPE = {"type": "swipe", "point": [0.5, 0.8], "end": [0.5, 0.2], "text": None, "description": ""}
TYPED = {"type": "type", "point": None, "end": None, "text": "two  words", "description": ""}


def step_of(k, matrix, side, **changes):
    """Step number `k`; every fifth choice is wrong, and every seventh step has an answer that cannot be parsed."""
    step_id = matrix.step_ids[k]
    action = (tap(0.1 + 0.8 * (k % 10) / 10, 0.5), SWIPE, TYPED)[k % 3]
    actions = {c: (None if c == "none" and k % 7 == 0 else tap(0.3, 0.4)) for c in CONDITIONS}
    values = {
        "step_id": step_id,
        "trajectory": step_id.rpartition("/")[0],
        "index": k % 4,
        "category": ("mail", "maps")[k // 4 % 2],
        "action_type": action["type"],
        "groups": (("sparse", "dense")[k % 2], "initial" if k % 4 == 0 else "later"),
        "memory_id": f"sample/demo/{k % 5}",
        "cosine": 0.5,
        "scores": {c: float(matrix.column(c)[k]) for c in CONDITIONS},
        "answers": {c: f"answer {c} {k}" for c in CONDITIONS},
        "actions": actions,
        "reasons": {c: None if action else "no_action" for c, action in actions.items()},
        "r": (1.5 if side[k] == (k % 5 > 0) else -1.5, 0.0),
        "t": 2.0 if side[k] else -2.0,
        "choice": "image" if side[k] == (k % 5 > 0) else "text",
        "instruction": f"Do task {k} of the sample",
        "gold": action,
    }
    return ShownStep(**(values | changes))


def browser_of(n=200, pictures=True, **changes):
    """A step browser of `n` steps with five demonstrations; `changes` are made to every step."""
    matrix, side = matrix_of(n)
    steps = [step_of(k, matrix, side, **changes) for k in range(n)]
    demos = {
        f"sample/demo/{k}": Demo(f"sample/demo/{k}", f"Do the thing {k}", tap(0.5, 0.5), f"remembered words {k}")
        for k in range(5)
    }
    shown = {i: picture() for i in (*(step.step_id for step in steps), *demos)} if pictures is True else {}
    return Browser(steps, demos, [Router("switchmem", 0, 0.25), Router("utility", 0, float("-inf"))], shown)


def blank(size=200):
    """A picture's worth of bytes."""
    return Picture(b"\0" * size, 10, 20)
