"""The page's tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from switchmem.evaluation import BASELINE_COLUMNS, CAPTION, baseline_rows, table_rows, written_by
from switchmem.report import paper
from switchmem.report.markup import node

Results = Mapping[str, Any]
UNDEFINED = "undefined"


def table(columns: Sequence[str], rows: Iterable[tuple[str | None, Sequence[str]]], name: str) -> Element:
    """A table that scrolls by itself where the page is narrow.

    Args:
        columns: their headings; the first is that of the rows' names.
        rows: a class or None, and the cells of each.
        name: of the table, for those who do not see it.
    """
    head = node("tr", (node("th", column, scope="col") for column in columns))
    body = [
        node("tr", node("th", cells[0], scope="row"), (node("td", cell) for cell in cells[1:]), class_=class_)
        for class_, cells in rows
    ]
    whole = node("table", node("thead", head), node("tbody", body))
    return node("div", whole, class_="scroll", tabindex="0", role="region", aria_label=name)


def percent(rate: float | None, digits: int = 1) -> str:
    """A rate in [0, 1] as percent."""
    return UNDEFINED if rate is None else f"{100 * rate:.{digits}f}"


def points(value: float | None) -> str:
    """A difference with its sign."""
    return UNDEFINED if value is None else f"{value:+.2f}".replace("-", "−")


def threshold(value: float | str) -> str:
    """A threshold; infinite ones are texts in a results document."""
    return {"inf": "∞", "-inf": "−∞"}[value] if isinstance(value, str) else f"{value:.4f}".replace("-", "−")


def p_value(p: float) -> str:
    """A p-value as papers print it.

    >>> p_value(0.00005), p_value(0.0421)
    ('< .001', '.042')
    """
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _interval(ends: Sequence[float | None]) -> str:
    return UNDEFINED if None in ends else f"[{points(ends[0])}, {points(ends[1])}]"


def policy_table(results: Results) -> Element:
    """Every policy's row, as `test` prints it, and what must be read with it."""
    baseline, main = results["comparison"]["baseline"], results["comparison"]["policy"]
    rows = []
    for row in table_rows(results):
        name, class_ = row["policy"], None
        if name == baseline:
            name, class_ = f"{name} (best fixed)", "baseline"
        elif name == main:
            class_ = "main"
        compared = ["", "", ""]
        if row["diff"] is not None:
            compared = [points(row["diff"]), _interval(row["ci95"]), p_value(row["p"])]
        rows.append((class_, [name, f"{row['score']:.2f}", percent(row["image_rate"]), *compared]))
    columns = ("policy", "score %", "image %", f"points over {baseline}", "95 % CI", "p")
    recovered = results["gap_recovered"]
    gap = f"Oracle gap {results['oracle_gap']:.2f} points" + (
        "" if recovered is None else f", {percent(recovered, 0)} % of it recovered by {main}"
    )
    failures = results["parse_failures"]
    told = (
        ", ".join(f"{count} {name}" for name, count in failures.items()) if isinstance(failures, Mapping) else failures
    )
    seeds = ", ".join(str(seed) for seed in results["seeds"])
    learned = (
        f"Learned policies are means over router seeds {seeds}, trained on {results['n_pref']:,} steps with a "
        "preference."
        if seeds
        else "No router was trained."
    )
    words = (
        f"{gap}. {learned} Intervals resample each {results['bootstrap']['unit']} "
        f"({results['bootstrap']['replicates']:,} times). Unparsable answers, which score 0: {told}."
    )
    return node("div", table(columns, rows, "Policies of this run"), node("p", words, class_="small"))


def paper_table() -> Element:
    """The paper's own numbers, set apart."""
    columns = ("the paper's", *paper.BENCHMARKS)
    words = f"As reported in {paper.SOURCE}; scores in percent. Nothing in this box was measured here."
    return node(
        "aside",
        node("h3", "The paper’s numbers, not this run’s"),
        table(columns, ((None, row) for row in paper.ROWS), "The paper's numbers"),
        node("p", words, class_="small"),
        class_="paper",
    )


def seed_table(results: Results) -> Element:
    """Each trained router."""
    columns = ("policy", "seed", "tau", "score %", "image %", "points", "gap recovered %")
    rows = (
        (
            None,
            [
                row["policy"],
                str(row["seed"]),
                threshold(row["threshold"]),
                f"{row['score']:.2f}",
                percent(row["image_rate"]),
                points(row["diff"]),
                percent(row["gap_recovered"]),
            ],
        )
        for row in results["per_seed"]
    )
    return table(columns, rows, "Each router seed")


def behaviour_table(results: Results) -> Element:
    """How policies route along trajectories."""
    columns = ("policy", "trajectories with both %", "image %", "switches per trajectory", "run length, steps")
    rows = (
        (None, [name, percent(row["both"]), percent(row["image"]), f"{row['switches']:.2f}", f"{row['run']:.2f}"])
        for name, row in results["behaviour"].items()
    )
    return table(columns, rows, "Routing along trajectories")


def latency_table(results: Results) -> Element:
    """Seconds per step."""
    columns = ("policy", "mean, s", "median, s", "95th percentile, s", "over Image")
    rows = (
        (None, [name, *(f"{row[part]:.4g}" for part in ("mean", "median", "p95")), _ratio(row["ratio"])])
        for name, row in results["latency"]["policies"].items()
    )
    return table(columns, rows, "Seconds per step")


def baseline_table(results: Results) -> Element:
    """What the memory baselines scored and cost."""
    rows = ((None, row) for row in baseline_rows(results))
    words = f"{written_by(results)} {CAPTION}"
    return node("div", table(BASELINE_COLUMNS, rows, "Memory baselines"), node("p", words, class_="small"))


def _ratio(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"


def provenance_list(results: Results) -> Element:
    """Machine, code and actor."""
    return node("dl", (child for name, value in _facts(results["provenance"]) for child in _pair(name, value)))


def _pair(name: str, value: str) -> tuple[Element, Element]:
    return node("dt", name), node("dd", value)


def _facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Provenance as name and value, nested ones by dotted name."""
    found: list[tuple[str, str]] = []
    for name, value in provenance.items():
        if isinstance(value, Mapping):
            found += [(f"{name}.{inner}", text) for inner, text in _facts(value)]
        elif isinstance(value, list):
            found.append((name, shlex.join(str(item) for item in value)))
        else:
            found.append((name, "–" if value is None else str(value)))
    return found
