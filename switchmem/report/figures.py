"""One figure for each question that a results document answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, tostring

from switchmem.report.drawing import (
    Estimate,
    Scale,
    axis_x,
    axis_y,
    bar,
    dot,
    forest,
    label,
    line,
    names,
    path,
    short,
    star,
    svg,
)
from switchmem.report.markup import html, node
from switchmem.report.style import PLAIN_MARKS, STYLE

Results = Mapping[str, Any]
LEARNED = ("basic", "binary", "utility", "switchmem")


@dataclass(frozen=True)
class Figure:
    """A figure.

    Args:
        name: one word, of files and logs.
        title: what it shows.
        caption: how to read it.
        drawing: its SVG.
    """

    name: str
    title: str
    caption: str
    drawing: Element


def all_figures(results: Results) -> list[Figure]:
    """The figures for which the document has numbers."""
    found = (
        policies(results),
        frontier(results),
        ablation(results),
        wins(results),
        layers(results),
        context(results),
        latency(results),
    )
    return [figure for figure in found if figure is not None]


def standalone(figure: Figure) -> str:
    """A figure as an HTML page of its own."""
    head = node("head", node("meta", charset="utf-8"), node("title", figure.title), node("style", STYLE))
    body = node("body", node("figure", node("figcaption", node("strong", figure.title)), figure.drawing))
    return "<!DOCTYPE html>\n" + html(node("html", head, body, lang="en"))


def as_file(figure: Figure) -> str:
    """A figure as an SVG file for papers and documents: light, on white, with all that it needs inside."""
    _, _, width, height = str(figure.drawing.get("viewBox")).split()
    ground = node("rect", width=width, height=height, fill="#ffffff")
    whole = node("svg", node("style", PLAIN_MARKS), ground, list(figure.drawing))
    size = {"width": width, "height": height, "font-family": "system-ui, sans-serif"}
    whole.attrib.update({**figure.drawing.attrib, **size})
    return tostring(whole, encoding="unicode", xml_declaration=False) + "\n"


def kind(policy: str) -> str:
    """The class that colours a policy."""
    return f"of-{policy}" if policy in ("none", "text", "image", "both", "oracle", "switchmem") else "of-other"


def policies(results: Results) -> Figure:
    """Scores of all policies, with the gap that a router can close."""
    rows, baseline = results["policies"], results["comparison"]["baseline"]
    left, right, top, pitch = 100.0, 480.0, 14.0, 26.0
    bottom = top + pitch * len(rows)
    scale = Scale(0.0, 100.0, left, right)
    fixed = scale(rows[baseline]["score"])
    bars: list[Element] = []
    words: list[Element] = []
    for k, (name, row) in enumerate(rows.items()):
        y, end = top + pitch * k, scale(row["score"])
        bars.append(bar(scale(0.0), end, y + 4, pitch - 8, kind(name), f"{name}: {row['score']:.2f} %"))
        words += [
            label(name, left - 12, y + 17, "end"),
            label(f"{row['score']:.2f}", end + 6, y + 17, "start", "value"),
        ]
    marks = [*bars, line((fixed, top), (fixed, bottom), "best"), *words]
    told = "Scores: " + "; ".join(f"{name} {row['score']:.2f} %" for name, row in rows.items())
    recovered = results["gap_recovered"]
    share = "" if recovered is None else f"; {results['comparison']['policy']} recovers {100 * recovered:.0f} % of it"
    return Figure(
        "policies",
        "Fixed, learned and oracle",
        f"Dashed: the best fixed condition, {baseline}. From there to the oracle are {results['oracle_gap']:.2f} "
        f"points{share}.",
        svg(560, bottom + 44, told, axis_x(scale, top, bottom, "score, %"), marks),
    )


def wins(results: Results) -> Figure:
    """How the non-tied steps fall."""
    rates = results["win_rates"]
    text, image = rates["text"], rates["image"]
    caption = f"{rates['non_tied']} steps on which the two forms score differently; {rates['tied']} are tied."
    scale = Scale(0.0, 1.0, 20.0, 540.0)
    if text is None or image is None:
        drawing = svg(560, 60, "No step is won by either form.", label("No step is won by either form.", 20, 35))
        return Figure("win_rates", "Which form wins, step by step", caption, drawing)
    parts = (("Text", text, 0.0, text, "of-text"), ("Image", image, text, text + image, "of-image"))
    marks: list[Element] = []
    for name, share, start, end, class_ in parts:
        told, first = f"{name} wins {100 * share:.1f} %", name == "Text"
        marks.append(bar(scale(start), scale(end), 34, 30, class_, told))
        marks.append(label(told, 20 if first else 540, 24, "start" if first else "end"))
    marks.append(line((scale(0.5), 30), (scale(0.5), 68), "zero"))
    return Figure("win_rates", "Which form wins, step by step", caption, svg(560, 90, caption, marks))


def ablation(results: Results) -> Figure | None:
    """Learned policies against the best fixed condition."""
    if not results["per_seed"]:
        return None
    compared, baseline = results["comparisons"], results["comparison"]["baseline"]
    rows = []
    for name in (n for n in (*LEARNED, *(c for c in compared if c not in LEARNED)) if n in compared):
        found = compared[name]
        singles = tuple(row["diff"] for row in results["per_seed"] if row["policy"] == name)
        rows.append(Estimate(name, found["diff"], found["ci95"], kind(name), f"{found['diff']:+.2f}", singles))
    return Figure(
        "ablation",
        "What the router is trained on",
        f"Points over {baseline} with 95 % intervals from resampled trajectories; small dots are single seeds.",
        forest(rows, f"points over {baseline}", lambda row: _told(row, "points"), "points"),
    )


def context(results: Results) -> Figure | None:
    """Preference by context."""
    if "context" not in results:
        return None
    rows = []
    for name, group in results["context"]["groups"].items():
        if group["delta"] is not None:
            right = f"{100 * group['image_rate']:.0f} % of {group['steps']}"
            rows.append(Estimate(name, group["delta"], group["ci95"], _side(group["delta"]), right))
    if not rows:
        return None
    lower, upper = results["context"]["density_quartiles"]
    bounds = "" if lower is None else f" Sparse: density up to {lower:.3g}; dense: from {upper:.3g} on."
    return Figure(
        "context",
        "Where the preference shifts",
        "Mean Delta (score under Image minus score under Text) with 95 % intervals, and how often "
        f"{results['comparison']['policy']} chooses Image there.{bounds}",
        forest(rows, "Text better  ←  mean Delta  →  Image better", lambda r: _told(r, "Delta"), "Image chosen"),
    )


def _side(delta: float) -> str:
    return "of-image" if delta > 0 else "of-text" if delta < 0 else "of-other"


def _told(row: Estimate, unit: str) -> str:
    lo, hi = row.ends
    interval = "undefined" if lo is None or hi is None else f"{lo:+.3g} to {hi:+.3g}"
    return f"{row.name}: {row.value:+.3g} {unit}, interval {interval}"


def layers(results: Results) -> Figure | None:
    """How early the preference can be read."""
    found = {int(layer): value for layer, value in results["probe_auroc"].items() if value is not None}
    if not found:
        return None
    blocks = sorted(found)
    across = Scale.around(blocks, 60, 540) if len(blocks) > 1 else Scale(blocks[0] - 1, blocks[0] + 1, 60, 540)
    up = Scale(min([0.4, *found.values()]), 1.0, 220, 34)
    points = [(across(block), up(found[block])) for block in blocks]
    marks = [dot(x, y, "of-switchmem", f"block {b}: {found[b]:.3f}") for b, (x, y) in zip(blocks, points, strict=True)]
    values = [label(f"{found[b]:.3f}", x, y - 9, "middle", "value") for b, (x, y) in zip(blocks, points, strict=True)]
    told = "AUROC by block: " + "; ".join(f"{block} {found[block]:.3f}" for block in blocks)
    axes = axis_x(across, 34, 220, "decoder block", blocks) + axis_y(up, 60, 540, "AUROC")
    chance = line((60, up(0.5)), (540, up(0.5)), "best")
    return Figure(
        "layers",
        "Where in the actor the preference shows",
        "A probe of the shift of each block on training steps with a stable preference; folds keep trajectories whole. "
        "Dashed: chance.",
        svg(560, 264, told, axes, chance, path(points, "curve"), marks, values),
    )


def frontier(results: Results) -> Figure | None:
    """What a budget of pictures buys."""
    if "frontier" not in results:
        return None
    curve = results["frontier"]
    rate, score, chance, at = curve["image_rate"], curve["score"], curve["random"], curve["star"]
    across = Scale(0.0, 100.0, 60, 540)
    up = Scale.around([100 * v for v in (*score, *chance, at["score"])], 260, 34)
    routed = [(across(100 * x), up(100 * y)) for x, y in zip(rate, score, strict=True)]
    random = [(across(100 * x), up(100 * y)) for x, y in zip(rate, chance, strict=True)]
    told = f"{curve['policy']} as deployed: {100 * at['score']:.2f} % with Image on {100 * at['image_rate']:.1f} %"
    axes = axis_x(across, 34, 260, "Image rate, % of steps") + axis_y(up, 60, 540, "score, %")
    mark = star(across(100 * at["image_rate"]), up(100 * at["score"]), told)
    return Figure(
        "frontier",
        "What a budget of pictures buys",
        f"{told} (star). The curve moves the threshold; dashed: Image at random at the same rate, exact.",
        svg(560, 304, told, axes, path(random, "best"), path(routed, "curve"), mark),
    )


def latency(results: Results) -> Figure | None:
    """Score against mean seconds per step; of the policies whose time is known."""
    told_of = results.get("latency", {})  # older documents have none
    found = {name: row["mean"] for name, row in told_of.get("policies", {}).items()}
    seconds = {name: value for name, value in found.items() if name in results["policies"]}
    if not seconds:
        return None
    scores = {name: results["policies"][name]["score"] for name in seconds}
    across, up = Scale.around(seconds.values(), 60, 540, floor=0.0), Scale.around(scores.values(), 260, 34)
    places = {name: (across(value), up(scores[name])) for name, value in seconds.items()}
    marks = [
        dot(*places[name], kind(name), f"{name}: {scores[name]:.2f} % in {value:.3f} s", 5.0)
        for name, value in seconds.items()
    ]
    told = "Latency: " + "; ".join(f"{name} {short(round(value, 3))} s" for name, value in seconds.items())
    axes = axis_x(across, 34, 260, "seconds per step") + axis_y(up, 60, 540, "score, %")
    return Figure(
        "latency",
        "What a step costs",
        f"Mean seconds per step, greedy. {told_of['rule']}",
        svg(560, 304, told, axes, names(list(places.items()), 560, 262), marks),
    )
