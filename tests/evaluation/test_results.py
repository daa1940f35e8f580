"""The results document: its numbers by hand, strict JSON, the table."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

from switchmem.evaluation import (
    ResultsError,
    Routing,
    ScoreMatrix,
    StepFacts,
    build_results,
    cluster_bootstrap,
    cluster_sign_flip,
    policy_table,
    policy_text,
    read_results,
    routerless_results,
    table_rows,
    write_results,
)

N, SEEDS = 240, (42, 43, 44)
IDS = [f"pocket/{i // 4}/{i % 4}" for i in range(N)]
TRAJECTORIES = [f"pocket/{i // 4}" for i in range(N)]


def study(n=N, targets=("dcoe", "utility", "binary", "basic"), noise=0.6, gap=True):
    """A matrix on which Text and Image each solve their half, and routers that mostly see which."""
    rng = np.random.default_rng(0)
    image_side = rng.random(n) < 0.5
    solved = rng.random(n) < 0.8
    text = (solved & ~image_side) | (rng.random(n) < 0.2)
    image = (solved & image_side) | (rng.random(n) < 0.2)
    both, none = solved & (rng.random(n) < 0.6), rng.random(n) < 0.1
    columns = {"none": none, "text": text, "image": image if gap else text, "both": both & (rng.random(n) < 0.9)}
    matrix = ScoreMatrix(IDS[:n], TRAJECTORIES[:n], {k: v.astype(float) for k, v in columns.items()})
    routings = []
    for level, target in enumerate(targets, 1):
        for seed in SEEDS:
            r = np.where(image_side, 1.0, -1.0) + np.random.default_rng(seed).normal(size=n) * noise * level
            routings.append(Routing(target, seed, 0.1, IDS[:n], r))
    return matrix, routings


def build(matrix, routings, **changes):
    facts = {"benchmark": "pocket", "n_pref": 77, "parse_failures": {"text": 3, "image": 0},
             "probe_auroc": {31: 0.9, 0: math.nan}, "provenance": {"git": "abc"}, "replicates": 2_000}  # fmt: skip
    return build_results(matrix, routings, **(facts | changes))


def test_every_number_by_hand():
    matrix, routings = study()
    results = build(matrix, routings)
    columns = {c: matrix.column(c) for c in ("none", "text", "image", "both")}
    best = max(columns, key=lambda c: columns[c].sum())
    chosen = []
    for routing in routings[:3]:
        chosen.append([columns["image" if r >= 0.1 else "text"][k] for k, r in enumerate(routing.r)])
    per_step = np.mean(chosen, axis=0)
    oracle = np.maximum(columns["text"], columns["image"])
    policies = results["policies"]
    assert set(policies) == {
        "none",
        "text",
        "image",
        "both",
        "oracle",
        "random",
        "utility",
        "binary",
        "basic",
        "switchmem",
    }
    for condition, column in columns.items():
        assert policies[condition]["score"] == pytest.approx(100 * column.mean())
    assert policies["switchmem"]["score"] == pytest.approx(100 * per_step.mean())
    rate = np.mean([np.mean(routing.r >= 0.1) for routing in routings[:3]])
    assert policies["switchmem"]["image_rate"] == pytest.approx(rate)
    assert policies["random"]["image_rate"] == pytest.approx(rate)
    matched = (1 - rate) * columns["text"].mean() + rate * columns["image"].mean()
    assert policies["random"]["score"] == pytest.approx(100 * matched)
    assert policies["oracle"]["score"] == pytest.approx(100 * oracle.mean())
    gap, diff = 100 * (oracle.mean() - columns[best].mean()), 100 * (per_step.mean() - columns[best].mean())
    assert results["oracle_gap"] == pytest.approx(gap)
    assert results["gap_recovered"] == pytest.approx(diff / gap)
    comparison = results["comparison"]
    assert (comparison["baseline"], comparison["policy"]) == (best, "switchmem")
    assert comparison["diff"] == pytest.approx(diff)
    interval = cluster_bootstrap(100 * (per_step - columns[best]), TRAJECTORIES, 2_000)
    assert comparison["ci95"] == pytest.approx([interval.lo, interval.hi])
    assert comparison["p"] == cluster_sign_flip(per_step - columns[best], TRAJECTORIES, 2_000)
    assert comparison["ci95"][0] > 0 and comparison["p"] < 0.01
    assert results["win_rates"]["non_tied"] == int((columns["text"] != columns["image"]).sum())
    assert results["probe_auroc"] == {"0": None, "31": 0.9}


def test_the_document_has_what_is_promised():
    results = build(*study())
    promised = {"benchmark", "n_steps", "n_trajectories", "n_pref", "parse_failures", "policies", "oracle_gap",
                "gap_recovered", "comparison", "win_rates", "probe_auroc", "threshold", "seeds", "per_seed",
                "provenance"}  # fmt: skip
    assert promised <= set(results)
    assert (results["n_steps"], results["n_trajectories"], results["n_pref"]) == (N, N // 4, 77)
    assert results["threshold"] == 0.1 and results["seeds"] == list(SEEDS)
    assert [(row["policy"], row["seed"]) for row in results["per_seed"][:4]] == [
        ("switchmem", 42), ("switchmem", 43), ("switchmem", 44), ("utility", 42)]  # fmt: skip
    rows = [row for row in results["per_seed"] if row["policy"] == "switchmem"]
    assert np.mean([row["score"] for row in rows]) == pytest.approx(results["policies"]["switchmem"]["score"])
    assert np.mean([row["gap_recovered"] for row in rows]) == pytest.approx(results["gap_recovered"])
    assert set(results["comparisons"]) == {"switchmem", "utility", "binary", "basic"}


def test_the_same_inputs_give_the_same_document():
    assert build(*study()) == build(*study())
    assert build(*study())["comparison"] != build(*study(), seed=1)["comparison"]
    matrix, routings = study()
    assert build(matrix, routings[::-1]) == build(matrix, routings)
    assert build(matrix, routings, random_rate=0.5)["policies"]["random"]["image_rate"] == 0.5


def test_one_modality_throughout():
    matrix, routings = study(targets=("dcoe",))
    only = [Routing("dcoe", r.seed, math.inf, r.step_ids, r.r) for r in routings]
    results = build(matrix, only)
    assert results["threshold"] == "inf"
    assert results["policies"]["switchmem"] == results["policies"]["text"]
    assert results["policies"]["switchmem"]["image_rate"] == 0.0
    assert "basic" not in results["policies"]


def test_nothing_to_gain():
    results = build(*study(gap=False))
    assert results["win_rates"] == {"text": None, "image": None, "non_tied": 0, "tied": N}
    assert results["comparison"]["diff"] <= 0 and results["gap_recovered"] is None
    assert "recovered" not in policy_text(results)


def test_a_single_trajectory_is_reported_as_too_little(tmp_path):
    matrix, routings = study(n=4)
    results = build(matrix, routings, notes=["Synthetic world."])
    assert results["comparison"]["ci95"] == [None, None] and results["comparison"]["p"] == 1.0
    assert results["notes"] == [
        "Synthetic world.", "4 steps of 1 trajectories are too few for the differences to mean anything."]  # fmt: skip
    text = policy_text(results)
    assert "undefined" in text and "too few" in text and "Synthetic world." in text
    assert build(*study())["notes"] == []


def test_without_switchmem_the_first_learned_policy_is_compared():
    results = build(*study(targets=("binary", "basic")))
    assert results["comparison"]["policy"] == "binary"
    assert "switchmem" not in results["policies"]


def test_routings_are_checked():
    matrix, routings = study()
    with pytest.raises(ResultsError, match="at least one router and each"):
        build(matrix, [])
    with pytest.raises(ResultsError, match="each \\(target, seed\\) once"):
        build(matrix, [routings[0], routings[0]])


def test_written_results_are_strict_json(tmp_path):
    matrix, routings = study(n=4)
    infinite = [Routing("dcoe", 42, -math.inf, routings[0].step_ids, routings[0].r)]
    provenance = {"run": Path("runs/x").as_posix(), "layers": (0, 31), "seed": np.int64(3)}
    results = build(matrix, infinite, provenance=provenance)
    write_results(results, tmp_path / "results.json")
    text = (tmp_path / "results.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == results == read_results(tmp_path / "results.json")
    assert results["threshold"] == "-inf" and results["provenance"] == {"run": "runs/x", "layers": [0, 31], "seed": 3}


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_a_damaged_document_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(ResultsError, match=r"must be a whole results\.json"):
        read_results(tmp_path / "results.json")


def test_the_table_shows_the_documents_numbers():
    results = build(*study())
    assert isinstance(policy_table(results), Table)
    text = policy_text(results)
    assert "pocket: 240 steps of 60 trajectories" in text
    for name, values in results["policies"].items():
        line = next(line for line in text.splitlines() if line.startswith(f"│ {name} "))
        assert f"{values['score']:.2f}" in line and f"{100 * values['image_rate']:.1f}" in line
    assert f"{results['comparison']['baseline']} (best fixed)" in text
    assert f"{results['comparison']['diff']:+.2f}" in text and "<.001" in text
    assert "\x1b" not in text and "router seeds 42, 43, 44" in text
    rows = table_rows(results)
    assert [row["policy"] for row in rows] == list(results["policies"])
    assert rows[0]["diff"] is None and rows[-2]["ci95"] == results["comparison"]["ci95"]


def test_analyses_are_those_of_the_first_router_of_each_policy():
    matrix, routings = study()
    rng = np.random.default_rng(3)
    density = np.where(rng.random(N) < 0.1, np.nan, rng.random(N) * 900)
    facts = StepFacts([i % 4 for i in range(N)], rng.random(N) < 0.6, density)
    results = json.loads(json.dumps(build(matrix, routings, facts=facts)))
    image = np.asarray(routings[0].r) >= routings[0].threshold
    assert results["behaviour"]["switchmem"]["image"] == pytest.approx(image.mean())
    assert set(results["behaviour"]) == {"switchmem", "utility", "binary", "basic", "oracle"}
    groups = results["context"]["groups"]
    later = [k for k in range(N) if k % 4]
    gap = matrix.column("image") - matrix.column("text")
    assert groups["later"]["steps"] == len(later)
    assert groups["later"]["delta"] == pytest.approx(gap[later].mean())
    assert groups["later"]["image_rate"] == pytest.approx(image[later].mean())
    lower, upper = results["context"]["density_quartiles"]
    assert groups["sparse"]["steps"] == sum(d <= lower for d in density if not math.isnan(d))
    frontier = results["frontier"]
    assert len(frontier["image_rate"]) == 201 and frontier["image_rate"][0] == 0 and frontier["image_rate"][-1] == 1
    assert frontier["threshold"][0] == "inf" and frontier["star"]["image_rate"] == pytest.approx(image.mean())
    by_hand = np.where(image, matrix.column("image"), matrix.column("text")).mean()
    assert frontier["star"]["score"] == pytest.approx(by_hand)
    assert "behaviour" not in build(matrix, routings)


def test_without_a_router_the_oracle_is_compared():
    matrix, _ = study()
    facts = {"benchmark": "pocket", "parse_failures": {"text": 3}, "provenance": {}, "replicates": 500}
    results = json.loads(json.dumps(routerless_results(matrix, **facts)))
    assert set(results["policies"]) == {"none", "text", "image", "both", "random", "oracle"}
    text, image = matrix.column("text"), matrix.column("image")
    best = max(matrix.mean(c) for c in matrix.conditions)
    assert results["comparison"]["policy"] == "oracle"
    assert results["comparison"]["diff"] == pytest.approx(100 * (np.maximum(text, image).mean() - best))
    assert results["policies"]["random"]["score"] == pytest.approx(50 * (text.mean() + image.mean()))
    assert results["seeds"] == [] and "no router" in policy_text(results)
    with pytest.raises(ResultsError, match="at least one router"):
        build(matrix, [])
