"""The score matrix: what it refuses, its policies against loops, its file read by another library."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from switchmem.evaluation.matrix import MatrixError, Routing, ScoreMatrix, mean_row, reference_rows, routed_row
from switchmem.memory.views import Condition

N = 30
IDS = [f"b/{i // 3}/{i % 3}" for i in range(N)]
TRAJECTORIES = [f"b/{i // 3}" for i in range(N)]


def matrix(seed=0, **changes):
    rng = np.random.default_rng(seed)
    scores = {c.value: rng.integers(0, 2, N).astype(float) for c in Condition} | changes
    return ScoreMatrix(IDS, TRAJECTORIES, {c: s for c, s in scores.items() if s is not None})


def routing(seed=42, target="dcoe", threshold=0.1, order=None, **changes):
    rng = np.random.default_rng(seed)
    r = rng.normal(size=N)
    order = range(N) if order is None else order
    values = {"step_ids": [IDS[i] for i in order], "r": torch.tensor([r[i] for i in order])} | changes
    return Routing(target, seed, threshold, **values)


def test_policies_equal_a_loop():
    table, router = matrix(), routing()
    text, image = table.column("text"), table.column(Condition.IMAGE)
    r = np.random.default_rng(42).normal(size=N)
    chosen = [image[k] if r[k] >= 0.1 else text[k] for k in range(N)]
    row = routed_row(table, router)
    assert row.scores.tolist() == chosen
    assert row.image_rate == sum(r >= 0.1) / N
    assert row.percent == pytest.approx(100 * sum(chosen) / N)
    rows = reference_rows(table, random_rate=0.25)
    assert list(rows) == ["none", "text", "image", "both", "oracle", "random"]
    for name in ("none", "text", "image", "both"):
        assert rows[name].scores.tolist() == table.column(name).tolist()
    assert [rows[n].image_rate for n in ("none", "text", "image", "both")] == [0.0, 0.0, 1.0, 1.0]
    assert rows["oracle"].scores.tolist() == [max(a, b) for a, b in zip(text, image, strict=True)]
    assert rows["oracle"].image_rate == sum(b > a for a, b in zip(text, image, strict=True)) / N
    np.testing.assert_allclose(rows["random"].scores, [0.75 * a + 0.25 * b for a, b in zip(text, image, strict=True)])


def test_seeds_are_averaged_by_step():
    table = matrix()
    rows = [routed_row(table, routing(seed)) for seed in (42, 43, 44)]
    mean = mean_row(rows)
    np.testing.assert_allclose(mean.scores, [np.mean([row.scores[k] for row in rows]) for k in range(N)])
    assert mean.image_rate == pytest.approx(sum(row.image_rate for row in rows) / 3)


def test_router_scores_are_matched_by_id_not_by_place():
    table, order = matrix(), np.random.default_rng(5).permutation(N)
    assert routing(order=order).aligned(table).tolist() == routing().aligned(table).tolist()


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({"none": 0.2, "text": 0.3, "image": 0.3, "both": 0.1}, Condition.TEXT),  # of equal ones the first
        ({"none": 0.2, "text": 0.3, "image": 0.3, "both": 0.4}, Condition.BOTH),
        ({"none": None, "text": 0.1, "image": 0.3, "both": None}, Condition.IMAGE),
    ],
)
def test_best_fixed_condition(scores, best):
    table = matrix(**{name: None if value is None else np.full(N, value) for name, value in scores.items()})
    assert table.best_fixed is best
    assert len(table) == N


@pytest.mark.parametrize(
    ("ids", "trajectories", "scores", "message"),
    [
        ([], [], {"text": [], "image": []}, "at least one step"),
        (["a", "a"], ["t", "t"], {"text": [0, 0], "image": [0, 0]}, r"must not repeat, got \['a'\]"),
        (["a", "b"], ["t"], {"text": [0, 0], "image": [0, 0]}, "`trajectories` must name one per step, 2, got 1"),
        (["a"], ["t"], {"text": [0], "none": [0]}, "must hold text and image, got none for image"),
        (["a"], ["t"], {"text": [0], "image": [0, 1]}, r"`scores` of image must be \[1\], got \[2\]"),
        (["a"], ["t"], {"text": [math.nan], "image": [0]}, r"`scores` of text must lie in \[0, 1\], got nan for a"),
        (["a"], ["t"], {"text": [0], "image": [100.0]}, "got 100.0 for a, and 1 such steps"),
    ],
)
def test_scores_are_checked(ids, trajectories, scores, message):
    with pytest.raises(MatrixError, match=message):
        ScoreMatrix(ids, trajectories, scores)


def test_a_condition_that_was_not_run_is_named():
    with pytest.raises(MatrixError, match=r"\(none, text, image\), got both"):
        matrix(both=None).column("both")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"step_ids": IDS[:-1], "r": np.zeros(N - 1)},
            "must cover the 30 test steps once each, .*1 missing, 0 unknown",
        ),
        ({"step_ids": [*IDS, IDS[0]], "r": np.zeros(N + 1)}, "31 scores of 30 different steps among 31"),
        ({"step_ids": [*IDS[:-1], "other"]}, "1 missing, 1 unknown"),
        ({"r": np.zeros(N - 1)}, "29 scores of 30 different steps"),
        ({"r": np.where(np.arange(N) == 4, np.nan, 0.0)}, "must be finite, got NaN or inf for b/1/1"),
    ],
)
def test_router_scores_cover_every_step_once(changes, message):
    with pytest.raises(MatrixError, match=message):
        routing(**changes).aligned(matrix())


def test_the_file_holds_everything(tmp_path):
    table, routers = matrix(both=None), [routing(42), routing(43, "binary")]
    table.save(tmp_path / "scores.parquet", routers)
    frame = pd.read_parquet(tmp_path / "scores.parquet")
    assert list(frame) == ["step_id", "trajectory", "none", "text", "image", "r_dcoe_42", "r_binary_43"]
    assert frame["step_id"].tolist() == IDS and frame["trajectory"].tolist() == TRAJECTORIES
    np.testing.assert_array_equal(frame["text"], table.column("text"))
    np.testing.assert_array_equal(frame["r_binary_43"], routers[1].aligned(table))
    again = ScoreMatrix.load(tmp_path / "scores.parquet")
    assert again.conditions == table.conditions and again.step_ids == table.step_ids
    np.testing.assert_array_equal(again.column("image"), table.column("image"))
    assert [p.name for p in tmp_path.iterdir()] == ["scores.parquet"]


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "scores.parquet"
    if damage == "cut":
        matrix().save(path)
        path.write_bytes(path.read_bytes()[:-30])
    elif damage == "other":
        pd.DataFrame({"x": [1]}).to_parquet(path)
    with pytest.raises(MatrixError, match=r"must be a whole scores\.parquet"):
        ScoreMatrix.load(path)
