"""The page: results, figures and the step browser in one HTML file that asks for nothing from anywhere.

A content security policy of hashes lets the page's own script and style run and nothing else, whatever a recorded
screen says. Texts reach the page as JSON and are shown by `textContent`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from switchmem.report.browser import Browser
from switchmem.report.figures import all_figures
from switchmem.report.markup import Child, html, node, script_json
from switchmem.report.style import SCRIPT, STYLE
from switchmem.report.tables import (
    baseline_table,
    behaviour_table,
    latency_table,
    paper_table,
    policy_table,
    provenance_list,
    seed_table,
    table,
)

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Args:
        title: what was audited, in numbers.
        verdict: its sentences.
        rows: name, value and interval of each figure, as text.
        notes: what they must be read with.
    """

    title: str
    verdict: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def render(results: Results, browser: Browser, audit: Audit | None = None) -> str:
    """The whole page.

    Args:
        results: of `switchmem.evaluation.read_results`.
        browser: what the step browser shows; without steps that part says so.
        audit: of the run's preference harvest; None where there is none.
    """
    facts = f"{results['n_steps']:,} test steps of {results['n_trajectories']:,} trajectories"
    sections = [_results(results), _figures(results), steps_section(browser), _details(results)]
    links = [("results", "Results"), ("figures", "Figures"), ("steps", "Steps"), ("details", "Details")]
    if audit is not None:
        sections.insert(2, _audit(audit))
        links.insert(2, ("audit", "Audit"))
    return whole_page(str(results["benchmark"]), facts, links, sections, browser)


def whole_page(
    title: str, facts: str, links: Iterable[tuple[str, str]], sections: Iterable[Element], browser: Browser
) -> str:
    """A page of sections, with the step browser's data behind them.

    Args:
        title: of the page.
        facts: a line beside it.
        links: sections by id and name.
        sections: what the page holds, `steps_section` among them.
        browser: what that one shows.
    """
    head = node(
        "head",
        node("meta", charset="utf-8"),
        node("meta", http_equiv="Content-Security-Policy", content=policy()),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("meta", name="color-scheme", content="light dark"),
        node("title", f"switchmem: {title}"),
        node("style", STYLE),
    )
    body = node(
        "body",
        node("a", "Skip to the steps", href="#steps", class_="skip"),
        _header(title, facts, links),
        node("main", sections),
        _help(),
        node("script", script_json(browser.plain()), type="application/json", id="data"),
        node("script", SCRIPT),
        # behind the script, so that the page works while these come in
        _pictures(browser),
    )
    return "<!DOCTYPE html>\n" + html(node("html", head, body, lang="en")) + "\n"


def policy() -> str:
    """The content security policy: the page's own style and script by their hashes, pictures from the page itself."""
    return "; ".join((
        "default-src 'none'",
        "img-src data:",
        f"style-src {_hash(STYLE)}",
        f"script-src {_hash(SCRIPT)}",
        "base-uri 'none'",
        "form-action 'none'",
    ))  # fmt: skip


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _pictures(browser: Browser) -> list[Element]:
    """Base64 texts, each found by its number and decoded only when it is looked at."""
    return [
        node("script", base64.b64encode(picture.data).decode(), type="text/plain", id=f"picture-{n}")
        for n, picture in enumerate(browser.pictures.values())
    ]


def _header(title: str, facts: str, links: Iterable[tuple[str, str]]) -> Element:
    return node(
        "header",
        node("div", node("h1", title), node("p", facts, class_="facts"), class_="name"),
        node("nav", (node("a", text, href=f"#{target}") for target, text in links), aria_label="Sections"),
        node("button", "◐ system", id="theme", type="button", aria_label="Theme: system"),
        node("button", "?", id="open-help", type="button", aria_label="Help and keys"),
    )


def section(name: str, title: str, *children: Child | Sequence[Child]) -> Element:
    """A section with its heading."""
    heading = node("h2", title, id=f"{name}-title")
    return node("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def _results(results: Results) -> Element:
    notes = node("ul", (node("li", str(note)) for note in results["notes"]), class_="notes", aria_label="Notes")
    ours = node("div", node("h3", "This run"), notes if results["notes"] else None, policy_table(results))
    return section("results", "Results", node("div", ours, paper_table(), class_="beside"))


def _figures(results: Results) -> Element:
    shown = [
        node("figure", node("figcaption", node("strong", f.title), " ", f.caption), f.drawing, id=f"figure-{f.name}")
        for f in all_figures(results)
    ]
    return section("figures", "Figures", node("div", shown, class_="gallery"))


def _audit(audit: Audit) -> Element:
    return section(
        "audit",
        "Audit",
        *(node("p", sentence) for sentence in audit.verdict),
        node("ul", (node("li", note) for note in audit.notes), class_="notes", aria_label="Notes of the audit"),
        table((audit.title, "value", "95 % interval"), [(None, row) for row in audit.rows], "Audit"),
    )


def _details(results: Results) -> Element:
    whole = json.dumps(results, indent=1, ensure_ascii=False)
    has_baselines = bool(results.get("baselines"))  # older documents have none
    has_seconds = bool(results.get("latency", {}).get("policies"))
    return section(
        "details",
        "Details",
        *((node("h3", "Each router seed"), seed_table(results)) if results["per_seed"] else ()),
        *((node("h3", "Routing along trajectories"), behaviour_table(results)) if "behaviour" in results else ()),
        *((node("h3", "Memory baselines"), baseline_table(results)) if has_baselines else ()),
        *((node("h3", "Seconds per step"), latency_table(results)) if has_seconds else ()),
        node("h3", "Where the numbers come from"),
        provenance_list(results),
        node("details", node("summary", "results.json"), node("pre", whole, tabindex="0", aria_label="results.json")),
    )


def steps_section(browser: Browser) -> Element:
    """The step browser."""
    notes = node("ul", (node("li", note) for note in browser.notes), class_="notes", aria_label="What is shown")
    if not browser.steps:
        return section("steps", "Steps", notes)
    lists = node(
        "div",
        node("p", id="count", aria_live="polite"),
        node("div", id="list", role="listbox", tabindex="0", aria_label="Steps"),
        class_="side",
    )
    return section(
        "steps",
        "Steps",
        notes if browser.notes else None,
        node("noscript", node("p", "The step browser needs JavaScript.")),
        _filters(browser),
        node("div", lists, node("article", id="detail", aria_label="The chosen step"), class_="browser"),
    )


def _filters(browser: Browser) -> Element:
    groups = list(dict.fromkeys(name for step in browser.steps for name in step.groups))
    categories = sorted({step.category for step in browser.steps if step.category})
    types = sorted({step.action_type for step in browser.steps})
    agreement = {
        "differ": "Text and Image differ",
        "text": "Text scores higher",
        "image": "Image scores higher",
        "tied": "tied",
    }
    judged = {} if browser.online else {"wrong": "wrong choice", "right": "right choice"}
    choices = {**judged, "text": "chose Text", "image": "chose Image"}
    return node(
        "form",
        node("label", "Search", node("input", type="search", id="search", autocomplete="off", spellcheck="false")),
        None if browser.online else _select("agreement", "Scores", agreement),
        _select("choice", "Router", choices) if browser.routers else None,
        _select("group", "Episode" if browser.online else "Context", {name: name for name in groups}),
        _select("category", "Task" if browser.online else "Category", {name: name for name in categories})
        if categories
        else None,
        _select("type", "Action", {name: name for name in types}),
        node("label", node("input", type="checkbox", id="unparsable"), "an answer unparsable", class_="check"),
        node("button", "Clear", type="reset", id="clear"),
        id="filters",
        role="search",
        aria_label="Filter steps",
    )


def _select(name: str, title: str, options: Mapping[str, str]) -> Element:
    shown = [node("option", "all", value="")] + [node("option", text, value=key) for key, text in options.items()]
    return node("label", title, node("select", shown, id=f"filter-{name}"))


KEYS = (
    ("j or ↓", "next step"),
    ("k or ↑", "previous step"),
    ("Home, End", "first and last step of the list"),
    ("/", "search"),
    ("Esc", "leave the search, close this"),
    ("?", "this help"),
)


def _help() -> Element:
    keys = node("dl", (child for key, what in KEYS for child in (node("dt", node("kbd", key)), node("dd", what))))
    marks = (
        "On the screens, a ring marks the recorded action and letters mark answers: N without a memory, T with the "
        "text memory, I with the image memory, B with both. Arrows go from where the finger touches to where it lifts."
    )
    numbers = (
        "r is the router's score and tau its frozen threshold: Image is chosen where r is at least tau. t is what the "
        "actor's own shift says of the step; t > 0 favours Image. No policy knows t beforehand."
    )
    return node(
        "dialog",
        node("h2", "Help", id="help-title"),
        keys,
        node("p", "Arrow keys work while the list has the focus."),
        node("p", marks),
        node("p", numbers),
        node("button", "Close", type="button", id="close-help"),
        id="help",
        aria_labelledby="help-title",
    )
