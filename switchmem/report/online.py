"""The page of a rollout: policies and tasks as tables, and every step of every episode in the step browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from switchmem.report.browser import Browser
from switchmem.report.markup import node
from switchmem.report.page import section, steps_section, whole_page
from switchmem.report.tables import baseline_table, provenance_list, table, threshold

Results = Mapping[str, Any]
COLUMNS = ("policy", "done %", "tasks", "image %", "steps", "SwitchMem over it", "95 % CI", "p", "Holm p", "s/step")

BASELINES = (
    " The memory baselines are adjusted for among themselves; their s/step is that of the actor's answers and of what "
    "was written for the step, as it took when it was made."
)


def render_online(results: Results, rows: Sequence[Sequence[str]], browser: Browser) -> str:
    """The whole page.

    Args:
        results: the document of a rollout.
        rows: cells of its policies' table, in the order of `COLUMNS`.
        browser: the episodes' steps.
    """
    facts = f"{results['n_tasks']:,} tasks, played online"
    links = (("results", "Results"), ("tasks", "Tasks"), ("steps", "Steps"), ("details", "Details"))
    sections = (_results(results, rows), _tasks(results), steps_section(browser), _details(results))
    return whole_page(f"{results['benchmark']}, online", facts, links, sections, browser)


def _results(results: Results, rows: Sequence[Sequence[str]]) -> Element:
    best = results["comparison"]["baseline"]
    notes = node("ul", (node("li", str(note)) for note in results["notes"]), class_="notes", aria_label="Notes")
    named = [
        ("baseline" if row[0] == best else "main" if row[0] == results["comparison"]["policy"] else None,
         [f"{row[0]} (best fixed)" if row[0] == best else row[0], *row[1:]])
        for row in rows
    ]  # fmt: skip
    words = (
        "A task is done if the page's raw reward is exactly 1. All policies were played on the same instances: "
        "McNemar's exact test, adjusted over the fixed forms by Holm's rule, and an interval from resampled tasks. "
        "s/step is the actor's and the router's time."
    )
    baselines = bool(results.get("baselines"))  # older documents have none
    return section(
        "results",
        "Results",
        notes if results["notes"] else None,
        table(COLUMNS, named, "Policies of this rollout"),
        node("p", words + (BASELINES if baselines else ""), class_="small"),
        node("p", _threshold(results), class_="small"),
        *((node("h3", "Memory baselines"), baseline_table(results)) if baselines else ()),
    )


def _threshold(results: Results) -> str:
    found = results["threshold"]
    if found is None:
        return "No policy was played that chooses by a threshold."
    if found["rule"] == "policy":
        return f"tau = {threshold(found['tau'])}, the policy's own."
    there, wanted = (f"{100 * found[name]:.1f} %" for name in ("image_rate", "wanted_image_rate"))
    return (
        f"tau = {threshold(found['tau'])}: Image on {there} of {found['screens']} first screens of suite seed "
        f"{found['suite_seed']}, as in the policy's training ({wanted})."
    )


def _tasks(results: Results) -> Element:
    policies = list(results["policies"])
    rows = [
        (None, [task, *("done" if done[name] else "no" for name in policies)])
        for task, done in results["by_task"].items()
    ]
    return section("tasks", "Tasks", table(("task", *policies), rows, "Tasks under each policy"))


def _details(results: Results) -> Element:
    whole = json.dumps(results, indent=1, ensure_ascii=False)
    policies = results["policies"]
    endings = sorted({ending for row in policies.values() for ending in row["endings"]})
    rows = [(None, [ending, *(str(row["endings"].get(ending, 0)) for row in policies.values())]) for ending in endings]
    rows.append((None, ["answers that were no action", *(str(row["unparsable"]) for row in policies.values())]))
    return section(
        "details",
        "Details",
        node("h3", "How episodes ended"),
        table(("ending", *policies), rows, "How episodes ended"),
        node("h3", "Where the numbers come from"),
        provenance_list({"provenance": {"settings": results["settings"], **results["provenance"]}}),
        node("details", node("summary", "results.json"), node("pre", whole, tabindex="0", aria_label="results.json")),
    )
