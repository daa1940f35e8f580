"""The page as text: well-formed, complete, self-contained, and the paper's numbers apart from the run's."""

import base64
import hashlib
import json
import math
import re

import pytest
from page_reader import Page
from report_sample import blank, browser_of, matrix_of, results_of, routerless_of, step_of

from switchmem.evaluation import table_rows
from switchmem.report import Browser, render
from switchmem.report.paper import BENCHMARKS, ROWS


@pytest.fixture(scope="module")
def results():
    return results_of()


@pytest.fixture(scope="module")
def text(results):
    return render(results, browser_of())


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def routerless_page():
    matrix, side = matrix_of(40)
    steps = [step_of(k, matrix, side, choice=None, t=None, r=()) for k in range(40)]
    return Page(render(routerless_of(), Browser(steps, {}, [], {}, ["Nothing is at hand."])))


def numbers(value):
    """Every number of a document."""
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def cells(page, label):
    """Rows of the table in a named region, as texts."""
    places = [k for k, e in enumerate(page.elements) if e["attributes"].get("aria-label") == label]
    rows, depth = [], len(page.elements[places[0]]["inside"])
    for element in page.elements[places[0] + 1 :]:
        if len(element["inside"]) <= depth:
            break
        if element["tag"] == "tr":
            rows.append([])
        elif element["tag"] in ("td", "th"):
            rows[-1].append(element["text"])
    return rows


def test_the_page_is_well_formed(page):
    assert page.declaration == "DOCTYPE html" and page.errors == []
    ids = [e["attributes"]["id"] for e in page.elements if "id" in e["attributes"]]
    assert len(ids) == len(set(ids))
    for name in ("results", "figures", "steps", "details"):
        assert page.one("section", id=name)["attributes"]["aria-labelledby"] == f"{name}-title"
        assert page.one("h2", id=f"{name}-title")["text"]
    assert page.one("html")["attributes"]["lang"] == "en"


def test_every_field_has_a_label(page):
    for element in page.elements:
        if element["tag"] in ("input", "select"):
            assert "label" in element["inside"], element
        if element["tag"] == "button":
            assert element["text"].strip()
        if element["tag"] == "svg":
            assert element["attributes"]["role"] == "img" and element["attributes"]["aria-label"]


def test_nothing_points_outside(text, page):
    for element in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset", "background", "style"):
            target = element["attributes"].get(name)
            assert target is None or target.startswith("#"), element
        assert not [name for name in element["attributes"] if name.startswith("on")], element
        assert element["tag"] not in {"link", "base", "iframe", "object", "embed", "form" * 2}
    style = page.one("style")["text"]
    assert "url(" not in style and "@import" not in style
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "only the name of SVG may look like an address"


def test_the_policy_admits_the_pages_own_script_and_style_alone(page):
    policy = page.one("meta", **{"http-equiv": "Content-Security-Policy"})["attributes"]["content"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and rules["img-src"] == "data:"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    running = [e for e in page.all("script") if "type" not in e["attributes"]]
    for kind, elements in (("script-src", running), ("style-src", page.all("style"))):
        (element,) = elements
        digest = base64.b64encode(hashlib.sha256(element["text"].encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"
    assert "unsafe" not in policy and "http" not in policy
    assert page.elements.index(page.one("meta", **{"http-equiv": "Content-Security-Policy"})) < page.elements.index(
        page.one("style")
    )


def test_every_number_of_the_results_is_in_the_page(results, page):
    shown = json.loads(page.one("pre", **{"aria-label": "results.json"})["text"])
    assert shown == results
    assert len(numbers(results)) > 200


def test_the_policy_table_is_the_evaluations(results, page):
    rows = {row[0].split(" ")[0]: row[1:] for row in cells(page, "Policies of this run")[1:]}
    assert list(rows) == list(results["policies"])
    for wanted in table_rows(results):
        score, image, *compared = rows[wanted["policy"]]
        assert float(score) == pytest.approx(wanted["score"], abs=0.005001)
        assert float(image) == pytest.approx(100 * wanted["image_rate"], abs=0.05001)
        if wanted["diff"] is None:
            assert compared == ["", "", ""]
        else:
            read = [float(n.replace("−", "-")) for n in re.findall(r"[+−][\d.]+", " ".join(compared[:2]))]
            assert read == pytest.approx([wanted["diff"], *wanted["ci95"]], abs=0.005001)
            assert (compared[2] == "< .001") == (wanted["p"] < 0.001)
    best = results["comparison"]["baseline"]
    assert [row[0] for row in cells(page, "Policies of this run")].count(f"{best} (best fixed)") == 1
    assert "4,321" in page.visible and "3 none" in page.visible


def test_seconds_are_tabled_where_they_are_known(results):
    row = {"mean": 1.25, "median": 1.0, "p95": 2.5, "ratio": 1.125}
    latency = {"measure": "throughput", "rule": "", "router_seconds": 0.0, "policies": {"switchmem": row}}
    page = Page(render({**results, "latency": latency}, Browser([], {}, [], {}, [])))
    assert cells(page, "Seconds per step")[1:] == [["switchmem", "1.25", "1", "2.5", "1.125"]]


def test_seeds_and_behaviour_are_tabled(results, page):
    seeds = cells(page, "Each router seed")[1:]
    assert [(row[0], int(row[1])) for row in seeds] == [(r["policy"], r["seed"]) for r in results["per_seed"]]
    for row, wanted in zip(seeds, results["per_seed"], strict=True):
        assert float(row[2].replace("−", "-")) == pytest.approx(wanted["threshold"], abs=5e-5)
        assert float(row[3]) == pytest.approx(wanted["score"], abs=0.005001)
    behaviour = {row[0]: row[1:] for row in cells(page, "Routing along trajectories")[1:]}
    for name, wanted in results["behaviour"].items():
        found = [float(cell) for cell in behaviour[name]]
        exact = [100 * wanted["both"], 100 * wanted["image"], wanted["switches"], wanted["run"]]
        assert found == pytest.approx(exact, abs=0.0501)


def test_the_papers_numbers_stand_apart(page):
    aside = page.one("aside")
    rows = cells(page, "The paper's numbers")
    assert rows[0][1:] == list(BENCHMARKS) and [tuple(row) for row in rows[1:]] == list(ROWS)
    assert "not this run" in aside["text"] and "2610.17928" in aside["text"]
    ours = cells(page, "Policies of this run")
    papers = {n for row in ROWS for n in re.findall(r"\d+\.\d{3}", " ".join(row[1:]))}
    assert "51.420" in papers and not papers & {cell for row in ours for cell in row}
    for figure in page.all("figure"):
        assert not any(n in figure["text"] for n in papers)


def test_what_must_be_read_with_the_numbers_is_there(results, page):
    (note,) = [e for e in page.all("ul") if e["attributes"].get("aria-label") == "Notes"]
    assert note["text"] == "The sample is synthetic." and note["inside"].count("section") == 1
    facts = dict(
        zip(
            [e["text"] for e in page.all("dt")], [e["text"] for e in page.all("dd")], strict=True
        )  # help and provenance
    )
    assert facts["git"] == "0123abc" and facts["packages.torch"] == "2.13.0" and facts["packages.switchmem"] == "–"
    assert facts["command"] == "train.py test --run.name 'two words'"


def test_pictures_are_embedded_once_each():
    browser = browser_of(20)
    page = Page(render(results_of(20), browser))
    held = page.all("script", type="text/plain")
    assert len(held) == len(browser.pictures) == 25
    decoded = [base64.b64decode(e["text"], validate=True) for e in held]
    assert decoded == [picture.data for picture in browser.pictures.values()]
    data = page.data
    for step in data["steps"]:
        assert decoded[step["picture"]] == browser.pictures[step["step_id"]].data
        assert decoded[data["demos"][step["memory_id"]]["picture"]] == browser.pictures[step["memory_id"]].data
    assert data["sizes"] == [[120, 240]] * 25


def test_infinite_thresholds_and_undefined_numbers_are_strict_json():
    matrix, side = matrix_of(4)
    steps = [step_of(k, matrix, side, t=math.nan) for k in range(4)]
    browser = browser_of(4)
    data = Page(render(results_of(4), Browser(steps, browser.demos, browser.routers, {}))).data
    assert data["routers"][1]["threshold"] == "-inf" and data["steps"][0]["t"] is None
    assert data["steps"][0]["picture"] is None


def test_an_actor_without_hidden_states_has_a_page():
    page = routerless_page()
    assert page.errors == [] and "No router was trained" in page.visible
    assert not page.all("select", id="filter-choice") and not page.all("figure", id="figure-ablation")
    assert "Nothing is at hand." in page.one("section", id="steps")["text"]


def test_a_single_trajectory_has_a_page():
    results = results_of(3)
    assert results["comparison"]["ci95"] == [None, None]
    page = Page(render(results, browser_of(3)))
    assert page.errors == [] and "undefined" in page.visible


def test_a_run_without_rows_says_so():
    page = Page(render(results_of(20), Browser([], {}, [], {}, ["There are no rows."])))
    assert page.errors == [] and not page.all("div", id="list") and "There are no rows." in page.visible


def test_the_same_run_gives_the_same_page(results, text):
    assert render(results_of(), browser_of()) == text


def test_unknown_bytes_do_not_matter_to_the_markup():
    browser = browser_of(4)
    whole = Browser(browser.steps, browser.demos, browser.routers, {"sample/0000/0": blank()})
    assert Page(render(results_of(4), whole)).errors == []
