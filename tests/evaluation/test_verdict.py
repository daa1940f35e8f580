"""The audit's document and its words."""

import json

import numpy as np
import pytest

from switchmem.evaluation.verdict import AuditInput, audit_text, build_audit


def audited(text, image, worth=1.0, choice=None, why_not="no states.", **more):
    text, image = np.asarray(text, dtype=float), np.asarray(image, dtype=float)
    steps = len(text)
    stable = np.sign((image - text).mean(axis=1)).astype(np.int8)
    decisions = {0: np.full(int((stable != 0).sum()), np.nan), 3: stable[stable != 0].astype(float)}
    values = {"trajectories": [f"b/{n // 2}" for n in range(steps)], "costs": {}, "unknown": (), **more}
    data = AuditInput(text, image, stable=stable, decisions=decisions, choice=choice, why_not=why_not, **values)
    document = build_audit(data, worth, replicates=400)
    json.dumps(document, allow_nan=False)
    return document


def sides(steps, share=0.5):
    """Steps on which Image alone succeeds, and steps on which Text alone does."""
    image = np.arange(steps) < share * steps
    return np.repeat(~image[:, None], 4, 1), np.repeat(image[:, None], 4, 1), image


def test_a_clear_preference_that_a_router_uses():
    text, image, better = sides(80)
    found = audited(text, image, choice=better, costs={"prompt tokens with Text": [10.0] * 80}, unknown=["latency"])
    assert found["verdict"]["answer"] == "yes" and found["router"]["answer"] == "yes"
    assert found["counts"] == {"steps": 80, "trajectories": 40, "tied": 0, "text": 40, "image": 40, "samples": 4}
    assert found["best_fixed"] == "text" and found["scores"]["text"]["mean"] == 50.0
    gap = found["oracle_gap"]
    assert gap["measured"]["mean"] == gap["by_halves"]["mean"] == found["router"]["gain"]["mean"] == 50.0
    assert found["wins"]["image"]["mean"] == 0.5 and found["router"]["score"] == 100.0
    assert found["layer_auroc"] == {"0": {"mean": None, "ci95": [None, None]}, "3": {"mean": 1.0, "ci95": [1.0, 1.0]}}
    page = audit_text(found, "mine")
    assert "Yes, it depends on the step which modality helps more: " in page
    lo, hi = found["router"]["gain"]["ci95"]
    assert f"a router gains +50.00 (95 % interval {lo:+.2f} to {hi:+.2f}) points over Text (p = 0.002)" in page
    assert "cost: prompt tokens with Text" in page and "this harvest does not tell: latency" in page


def test_a_preference_that_a_router_does_not_see():
    text, image, _ = sides(400)
    found = audited(text, image, choice=np.zeros(400, dtype=bool))
    assert (found["verdict"]["answer"], found["router"]["answer"]) == ("yes", "too few")
    # by chance it never differs from Text in 200 trajectories: rare gains cannot be ruled out yet
    assert found["router"]["more"]["trajectories"] > 100
    text, image, _ = sides(1000)
    found = audited(text, image, choice=np.zeros(1000, dtype=bool))
    assert (found["verdict"]["answer"], found["router"]["answer"]) == ("yes", "no")
    assert found["verdict"]["text"][-1] == "The preference is there, but this router does not see it coming."


def test_no_preference_names_the_largest_gain_left():
    rng = np.random.default_rng(0)
    same = rng.random((3000, 7)) < 0.8
    found = audited(same, same, choice=np.zeros(3000, dtype=bool))
    assert found["verdict"]["answer"] == "no"
    assert 0 < found["oracle_gap"]["most"] < 1.0
    told = found["verdict"]["text"][0]
    assert told.startswith("No: ") and f"At most {found['oracle_gap']['most']:.2f} points are compatible" in told
    assert found["wins"]["text"]["mean"] is None and "undefined" in audit_text(found, "mine")


def test_too_few_names_how_many_more():
    rng = np.random.default_rng(1)
    text, image = (rng.random((60, 7)) < 0.5 for _ in range(2))
    found = audited(text, image)
    more = found["preference"]["more"]
    told = found["verdict"]["text"][0]
    assert found["verdict"]["answer"] == "too few" and more["trajectories"] > 0
    assert f"about {more['non_tied_steps']} more non-tied steps needed ({more['steps']} steps of " in told
    assert more["steps"] == 2 * more["trajectories"]
    assert found["verdict"]["text"][1] == "What a router could gain is not known: no states."


def test_few_trajectories_ask_for_as_many_as_a_test_needs():
    text, image, _ = sides(8)
    # Text is the best fixed one, and two of the four trajectories prefer Image: six of twelve would tell
    assert audited(text, image)["preference"]["more"]["trajectories"] == 8
    lonely = audited(text, image, trajectories=["b/0"] * 8)
    assert lonely["preference"]["more"] is None
    assert "Record at least 5 more trajectories" in lonely["verdict"]["text"][0]


def test_a_single_sample_cannot_tell():
    found = audited([[1], [0]] * 40, [[0], [1]] * 40)
    assert found["preference"] is None and found["verdict"]["answer"] == "too few"
    assert found["oracle_gap"]["by_halves"] is None and found["oracle_gap"]["most"] is None
    assert "`sampling.seeds`" in audit_text(found, "mine")


@pytest.mark.parametrize("worth, answer", [(1.0, "yes"), (55.0, "yes"), (90.0, "no")])
def test_what_is_worth_having_decides(worth, answer):
    text, image, better = sides(80)
    assert audited(text, image, worth, choice=better)["verdict"]["answer"] == answer
