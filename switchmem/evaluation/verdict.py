"""The audit of a harvest as one JSON document, and as a page of plain text with a verdict in words.

Scores and gains are in percent and points, shares and AUROCs in [0, 1]; what is not defined is null.

Letters: `N` steps, `K` samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from switchmem.evaluation.audit import SURE, Finding, auroc_interval, ceiling, find, halves_gain
from switchmem.evaluation.statistics import REPLICATES, Floats, Interval, cluster_bootstrap
from switchmem.policy import oracle_scores, routed_scores
from switchmem.preference import utilities


@dataclass(frozen=True, eq=False)
class AuditInput:
    """What an audit reads.

    Args:
        text: [N, K], scores in [0, 1] of the sampled actions under Text memory.
        image: [N, K], under Image memory.
        trajectories: [N].
        stable: [N], +1 where the samples agree on Image, -1 on Text, else 0.
        decisions: block -> held-out decision values of the stable steps, in their order; NaN where undefined.
        choice: [N] bool, where a router chose Image that saw no step of the same trajectory; None where none could be
            trained.
        why_not: why there is no choice.
        costs: name -> [N], what a step cost: "seconds", "prompt tokens, text" and the like.
        unknown: what was not kept about costs, in words.
    """

    text: Floats
    image: Floats
    trajectories: Sequence[str]
    stable: NDArray[np.int8]
    decisions: Mapping[int, Floats]
    choice: NDArray[np.bool_] | None = None
    why_not: str = ""
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    unknown: Sequence[str] = ()


def build_audit(data: AuditInput, worth: float, replicates: int = REPLICATES, seed: int = 0) -> dict[str, Any]:
    """All findings and the verdict.

    The best fixed modality is picked on the same steps, which can only make it harder to beat.

    Args:
        data: of the harvest.
        worth: points of score, > 0, below which a gain is not worth having.
        replicates: of every bootstrap and test.
        seed: of them.

    Returns:
        Plain JSON values.
    """
    pair, groups = utilities(data.text, data.image), data.trajectories
    image_is_best = bool(pair.image.sum() > pair.text.sum())
    best = pair.image if image_is_best else pair.text

    def share(values: Any, of: Sequence[str] = groups, scale: float = 1.0) -> dict[str, Any]:
        column = np.asarray(values, dtype=np.float64) * scale
        return _plain(cluster_bootstrap(column, of, replicates, seed)) if len(column) else _plain(NOTHING)

    kept = pair.non_tied
    of_kept = [t for t, k in zip(groups, kept, strict=True) if k]
    gap = find_gap(data, image_is_best, worth / 100, replicates, seed)
    oracle = {
        "measured": share(oracle_scores(pair.text, pair.image) - best, scale=100.0),
        "by_halves": None if gap is None else _points(gap.gain),
        "most": _most(data, gap, oracle_scores(pair.text, pair.image) - best, replicates, seed),
    }
    router = _router(data, pair.text, pair.image, best, worth / 100, replicates, seed)
    counts = {"steps": len(best), "trajectories": len(set(groups)), **pair.counts, "samples": data.text.shape[1]}
    document = {
        "counts": counts,
        "best_fixed": "image" if image_is_best else "text",
        "worth": worth,
        "scores": {"text": share(pair.text, scale=100.0), "image": share(pair.image, scale=100.0)},
        "non_tied": share(kept),
        "wins": {"text": share(pair.delta[kept] < 0, of_kept), "image": share(pair.delta[kept] > 0, of_kept)},
        "oracle_gap": oracle,
        "stable": {"share": share(data.stable != 0), "text": share(data.stable < 0), "image": share(data.stable > 0)},
        "layer_auroc": _curves(data, replicates, seed),
        "router": router,
        "costs": {name: share(values) for name, values in data.costs.items()},
        "unknown_costs": list(data.unknown),
        "preference": None if gap is None else _finding(gap, counts),
        "bootstrap": {"replicates": replicates, "seed": seed, "unit": "trajectory"},
    }
    document["verdict"] = verdict(document)
    return document


NOTHING = Interval(math.nan, math.nan, math.nan)


def find_gap(data: AuditInput, image_is_best: bool, worth: float, replicates: int, seed: int) -> Finding | None:
    """The gain of choosing by half of the samples; None with a single sample per step."""
    if data.text.shape[1] < 2:
        return None
    return find(halves_gain(data.text, data.image, image_is_best), data.trajectories, worth, replicates, seed)


def _most(data: AuditInput, gap: Finding | None, measured: Floats, replicates: int, seed: int) -> float | None:
    """The most points that knowing every step's true utilities could gain.

    Two bounds hold: that of `ceiling`, and the measured gap, which is too high on average.
    """
    bound = ceiling(data.text, data.image, data.trajectories, replicates, seed)
    if bound is None or gap is None:
        return None
    measured_hi = cluster_bootstrap(measured, data.trajectories, replicates, seed).hi
    return 100.0 * max(min(bound, measured_hi), gap.most)


def _curves(data: AuditInput, replicates: int, seed: int) -> dict[str, Any]:
    rows = data.stable != 0
    groups = [t for t, k in zip(data.trajectories, rows, strict=True) if k]
    return {
        str(layer): _plain(NOTHING)
        if not len(values) or np.isnan(values).any()
        else _plain(auroc_interval(data.stable[rows], values, groups, replicates, seed))
        for layer, values in data.decisions.items()
    }


def _router(
    data: AuditInput, text: Floats, image: Floats, best: Floats, worth: float, replicates: int, seed: int
) -> dict[str, Any]:
    if data.choice is None:
        return {"answer": None, "why_not": data.why_not}
    scores = routed_scores(text, image, data.choice)
    finding = find(scores - best, data.trajectories, worth, replicates, seed)
    counts = {"steps": len(best), "trajectories": len(set(data.trajectories)), "tied": int((text == image).sum())}
    return {
        **_finding(finding, counts),
        "score": 100.0 * float(scores.mean()),
        "image_rate": float(data.choice.mean()),
    }


def _finding(finding: Finding, counts: Mapping[str, int]) -> dict[str, Any]:
    more, per = finding.more_trajectories, 1.0 / counts["trajectories"]
    ratios = {"steps": counts["steps"] * per, "non_tied_steps": (counts["steps"] - counts["tied"]) * per}
    return {
        "answer": finding.answer,
        "gain": _points(finding.gain),
        "p": finding.p,
        "most": 100.0 * finding.most,
        "more": None if more is None else {"trajectories": more, **{k: math.ceil(more * v) for k, v in ratios.items()}},
    }


def _points(interval: Interval) -> dict[str, Any]:
    return _plain(Interval(100.0 * interval.mean, 100.0 * interval.lo, 100.0 * interval.hi))


def _plain(interval: Interval) -> dict[str, Any]:
    mean, lo, hi = (None if math.isnan(v) else v for v in (interval.mean, interval.lo, interval.hi))
    return {"mean": mean, "ci95": [lo, hi]}


# --- in words ---


def verdict(document: Mapping[str, Any]) -> dict[str, Any]:
    """The "answer", one of "yes", "no" and "too few", and its "text", a sentence or more on each question.

    Args:
        document: of `build_audit`.
    """
    found, router = document["preference"], document["router"]
    if found is None:
        told = "Too few samples to tell: with one per step, noise looks like preference. Give `sampling.seeds` several."
        return {"answer": "too few", "text": [told, _of_router(document)]}
    both = [_of_preference(document), _of_router(document)]
    if found["answer"] == "yes" and router["answer"] == "no":
        both.append("The preference is there, but this router does not see it coming.")
    return {"answer": found["answer"], "text": both}


def _of_preference(document: Mapping[str, Any]) -> str:
    found, best = document["preference"], document["best_fixed"].title()
    gained = (
        f"choosing each step's modality by half of its own samples gains {_signed(found['gain'])} points over {best} "
        f"on the other half (p {_p(found['p'])})"
    )
    if found["answer"] == "yes":
        return f"Yes, it depends on the step which modality helps more: {gained}."
    if found["answer"] == "no":
        return (
            f"No: {gained}, which is less than the {document['worth']:g} worth having. At most "
            f"{document['oracle_gap']['most']:.2f} points are compatible with the data, for an oracle that knows every "
            "step's true utilities."
        )
    return f"{_too_few(found)} So far {gained}."


def _of_router(document: Mapping[str, Any]) -> str:
    router, best = document["router"], document["best_fixed"].title()
    if router["answer"] is None:
        return f"What a router could gain is not known: {router['why_not']}"
    gained = f"on trajectories that it did not see, a router gains {_signed(router['gain'])} points over {best}"
    test = f"(p {_p(router['p'])})"
    if router["answer"] == "yes":
        return f"A router can use it: {gained} {test}."
    if router["answer"] == "no":
        return (
            f"A router gains nothing worth having: {gained} {test}; at most {router['most']:.2f} points are compatible "
            "with the data."
        )
    return f"Whether a router gains: {_too_few(router)[0].lower()}{_too_few(router)[1:]} So far {gained} {test}."


def _too_few(found: Mapping[str, Any]) -> str:
    more = found["more"]
    if more is None:
        return (
            "Too few steps to tell: all are of one trajectory, which says nothing about others. Record at least "
            f"{SURE - 1} more trajectories."
        )
    return (
        f"Too few steps to tell: about {more['non_tied_steps']} more non-tied steps needed ({more['steps']} steps "
        f"of {more['trajectories']} trajector{'y' if more['trajectories'] == 1 else 'ies'} like these)."
    )


def audit_text(document: Mapping[str, Any], title: str) -> str:
    """The document as plain text: a table, the costs, the verdict.

    Args:
        document: of `build_audit`.
        title: what was audited.
    """
    lines = [f"{title}: {audit_counts(document)}", f"{'':52}{'value':>9}  95 % interval"]
    lines += [f"  {name:50}{value:>9}  {ends}" for name, value, ends in audit_rows(document)]
    if document["unknown_costs"]:
        lines.append(f"this harvest does not tell: {'; '.join(document['unknown_costs'])}")
    return "\n".join([*lines, "", *document["verdict"]["text"]]) + "\n"


def audit_counts(document: Mapping[str, Any]) -> str:
    """What was audited, in numbers."""
    counts = document["counts"]
    return f"{counts['steps']} steps of {counts['trajectories']} trajectories, {counts['samples']} samples each"


def audit_rows(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The figures as text: name, value, 95 % interval.

    Args:
        document: of `build_audit`.
    """
    counts, gap, router = document["counts"], document["oracle_gap"], document["router"]
    rows: list[tuple[str, Mapping[str, Any] | None, float]] = [
        ("score under Text, %", document["scores"]["text"], 1),
        ("score under Image, %", document["scores"]["image"], 1),
        (f"non-tied steps ({counts['text'] + counts['image']}), % of all", document["non_tied"], 100),
        ("Text wins, % of non-tied", document["wins"]["text"], 100),
        ("Image wins, % of non-tied", document["wins"]["image"], 100),
        ("oracle gap as measured, points (noise inflates it)", gap["measured"], 1),
        ("oracle gap by halves of the samples, points", gap["by_halves"], 1),
        ("stable steps, % of all", document["stable"]["share"], 100),
        ("stable for Text, % of all", document["stable"]["text"], 100),
        ("stable for Image, % of all", document["stable"]["image"], 100),
        *((f"probe AUROC at block {layer}", value, 1) for layer, value in document["layer_auroc"].items()),
        ("router on unseen trajectories, gain in points", router.get("gain"), 1),
        *((f"cost: {name}", value, 1) for name, value in document["costs"].items()),
    ]
    return [(name, *_row(value, scale)) for name, value, scale in rows]


def _row(value: Mapping[str, Any] | None, scale: float) -> tuple[str, str]:
    if value is None or value["mean"] is None:
        return "-", "undefined"
    lo, hi = value["ci95"]
    return f"{scale * value['mean']:.2f}", "undefined" if lo is None else f"[{scale * lo:.2f}, {scale * hi:.2f}]"


def _signed(value: Mapping[str, Any]) -> str:
    lo, hi = value["ci95"]
    ends = "interval undefined" if lo is None else f"95 % interval {lo:+.2f} to {hi:+.2f}"
    return f"{value['mean']:+.2f} ({ends})"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
