"""Figures against the numbers they show, measured in the drawings."""

import math
import re
from xml.etree.ElementTree import fromstring, tostring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_reader import Page
from report_sample import results_of, routerless_of

from switchmem.report import all_figures, as_file, standalone
from switchmem.report.drawing import Scale, names
from switchmem.report.figures import ablation, context, frontier, latency, layers, policies, wins


@pytest.fixture(scope="module")
def results():
    return results_of(400, targets=("dcoe", "utility", "binary", "basic"))


def found(figure, tag, class_=None):
    elements = [e for e in figure.drawing.iter(tag) if class_ is None or class_ in (e.get("class") or "").split()]
    return [dict(e.attrib, text="".join(e.itertext())) for e in elements]


def points(element):
    return [tuple(map(float, pair.split(","))) for pair in element["points"].split()]


def line_through(pairs):
    """The linear map that two (pixel, value) pairs fix, checked on all others."""
    (p, v), (q, w) = pairs[0], pairs[-1]
    slope = (w - v) / (q - p)
    for pixel, value in pairs:
        assert v + slope * (pixel - p) == pytest.approx(value, abs=1e-2 * abs(w - v))
    return lambda pixel: v + slope * (pixel - p)


def tick_map(figure, axis):
    """Pixel -> value from the ticks of an axis."""
    ticks = [t for t in found(figure, "text", "tick")]
    side = [t for t in ticks if (t["text-anchor"] == "middle") == (axis == "x")]
    offset = 0.0 if axis == "x" else -4.0
    return line_through([(float(t[axis]) + offset, float(t["text"].replace("−", "-"))) for t in side])


def seconds_of(**means):
    rows = {name: {"mean": mean, "median": mean, "p95": 2 * mean, "ratio": None} for name, mean in means.items()}
    return {"measure": "throughput", "rule": "Seconds of throughput.", "router_seconds": 0.001, "policies": rows}


def test_each_question_has_its_figure(results):
    names = [figure.name for figure in all_figures(results)]
    assert names == ["policies", "frontier", "ablation", "win_rates", "layers", "context"]
    assert [f.name for f in all_figures(routerless_of())] == ["policies", "win_rates"]
    assert [f.name for f in all_figures({**results, "latency": seconds_of(text=1.0)})][-1] == "latency"


def test_bars_are_as_long_as_the_scores(results):
    bars = found(policies(results), "rect")
    assert len(bars) == len(results["policies"])
    for bar, (name, row) in zip(bars, results["policies"].items(), strict=True):
        assert name in bar["text"]
        assert float(bar["width"]) == pytest.approx(380 * row["score"] / 100, abs=0.02)
    (dashed,) = found(policies(results), "line", "best")
    best = results["policies"][results["comparison"]["baseline"]]["score"]
    assert float(dashed["x1"]) == pytest.approx(100 + 380 * best / 100, abs=0.02)


def test_wins_divide_the_bar(results):
    text, image = (float(bar["width"]) for bar in found(wins(results), "rect"))
    assert text / (text + image) == pytest.approx(results["win_rates"]["text"], abs=1e-4)
    assert image / (text + image) == pytest.approx(results["win_rates"]["image"], abs=1e-4)


def test_without_a_non_tied_step_nobody_wins(results):
    tied = {**results, "win_rates": {"text": None, "image": None, "non_tied": 0, "tied": 400}}
    assert not found(wins(tied), "rect") and "No step" in wins(tied).drawing.get("aria-label")


def test_the_frontier_is_the_curve_of_the_results(results):
    figure, curve = frontier(results), results["frontier"]
    x, y = tick_map(figure, "x"), tick_map(figure, "y")
    (routed,), (random,) = found(figure, "polyline", "curve"), found(figure, "polyline", "best")
    for drawn, name in ((routed, "score"), (random, "random")):
        read = [(x(a) / 100, y(b) / 100) for a, b in points(drawn)]
        wanted = list(zip(curve["image_rate"], curve[name], strict=True))
        assert len(read) == len(wanted)
        assert max(math.dist(a, b) for a, b in zip(read, wanted, strict=True)) < 0.003
    (star,) = found(figure, "polygon", "star")
    centre = [sum(c) / 10 for c in zip(*points(star), strict=True)]
    assert x(centre[0]) / 100 == pytest.approx(curve["star"]["image_rate"], abs=0.004)
    assert y(centre[1]) / 100 == pytest.approx(curve["star"]["score"], abs=0.004)


def test_intervals_are_where_the_results_say(results):
    figure = ablation(results)
    x = tick_map(figure, "x")
    order = [name for name in ("basic", "binary", "utility", "switchmem") if name in results["comparisons"]]
    for name, drawn in zip(order, found(figure, "line", "interval"), strict=True):
        ends = [x(float(drawn["x1"])), x(float(drawn["x2"]))]
        assert ends == pytest.approx(results["comparisons"][name]["ci95"], abs=0.2)
    middles = [d for d in found(figure, "circle") if "single" not in d["class"]]
    for name, drawn in zip(order, middles, strict=True):
        assert x(float(drawn["cx"])) == pytest.approx(results["comparisons"][name]["diff"], abs=0.2)
    assert len(found(figure, "circle", "single")) == len(results["per_seed"])


def test_contexts_show_delta_and_image_rate(results):
    figure, groups = context(results), results["context"]["groups"]
    x = tick_map(figure, "x")
    for group, drawn in zip(groups.values(), found(figure, "circle"), strict=True):
        assert x(float(drawn["cx"])) == pytest.approx(group["delta"], abs=0.02)
    shown = [t["text"] for t in found(figure, "text", "value")]
    assert shown == [f"{100 * g['image_rate']:.0f} % of {g['steps']}" for g in groups.values()]


def test_a_context_without_a_step_is_left_out(results):
    nothing = {"steps": 0, "delta": None, "ci95": [None, None], "image_rate": None}
    groups = {**results["context"]["groups"], "function": nothing}
    figure = context({**results, "context": {**results["context"], "groups": groups}})
    assert len(found(figure, "circle")) == len(groups) - 1
    assert context({**results, "context": {"density_quartiles": [None, None], "groups": {"dense": nothing}}}) is None


def test_layers_show_every_defined_auroc(results):
    figure = layers({**results, "probe_auroc": {"31": 0.9, "0": 0.35, "8": None}})
    x, y = tick_map(figure, "x"), tick_map(figure, "y")
    read = [(x(float(d["cx"])), y(float(d["cy"]))) for d in found(figure, "circle")]
    assert [v for pair in read for v in pair] == pytest.approx([0, 0.35, 31, 0.9], abs=0.2)
    assert [pair[1] for pair in read] == pytest.approx([0.35, 0.9], abs=0.01)
    assert layers({**results, "probe_auroc": {"0": None}}) is None
    assert len(found(layers({**results, "probe_auroc": {"3": 0.7}}), "circle")) == 1


def test_latency_shows_the_measured_policies_alone(results):
    figure = latency({**results, "latency": seconds_of(text=1.25, image=1.5, switchmem=1.75, unknown=9.0)})
    x, y = tick_map(figure, "x"), tick_map(figure, "y")
    dots = found(figure, "circle")
    assert len(dots) == 3
    for drawn, (name, seconds) in zip(dots, {"text": 1.25, "image": 1.5, "switchmem": 1.75}.items(), strict=True):
        assert x(float(drawn["cx"])) == pytest.approx(seconds, abs=0.02)
        assert y(float(drawn["cy"])) == pytest.approx(results["policies"][name]["score"], abs=0.5)
    assert "throughput" in figure.caption
    assert latency(results) is None
    assert latency({**results, "latency": {"measure": "unknown", "rule": "", "policies": {}}}) is None


def test_drawings_are_well_formed_and_say_what_they_show(results):
    for figure in all_figures({**results, "latency": seconds_of(text=1.25, image=1.5)}):
        whole = tostring(figure.drawing, encoding="unicode")
        assert fromstring(whole) is not None and not re.search(r"\b(nan|inf)\b", whole)
        assert figure.caption and figure.title and len(figure.drawing.get("aria-label")) > 20
        width, height = map(float, figure.drawing.get("viewBox").split()[2:])
        for text in figure.drawing.iter("text"):
            assert 0 <= float(text.get("x")) <= width and 0 <= float(text.get("y")) <= height
        page = Page(standalone(figure))
        assert page.errors == [] and page.one("svg") and page.all("title")[0]["text"] == figure.title


def test_a_figure_in_a_file_stands_alone(results):
    for figure in all_figures(results):
        whole = fromstring(as_file(figure))
        assert whole.tag == "{http://www.w3.org/2000/svg}svg" and float(whole.get("width")) == 560
        texts = ["".join(e.itertext()) for e in whole.iter("{http://www.w3.org/2000/svg}text")]
        assert texts == ["".join(e.itertext()) for e in figure.drawing.iter("text")]
        (style,) = whole.iter("{http://www.w3.org/2000/svg}style")
        assert "var(" not in style.text and "light-dark" not in style.text
        for element in whole.iter():  # every class has its rule
            for name in (element.get("class") or "").split():
                assert f".{name}" in style.text, name


NUMBERS = st.one_of(st.integers(-(10**9), 10**9).map(lambda n: n / 1000), st.just(0.1 + 0.2), st.just(0.3))


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.sampled_from([None, 0.0]))
def test_a_scale_holds_its_values_and_has_ticks(values, floor):
    scale = Scale.around(values, 100.0, 500.0, floor)
    for value in [*values, *([] if floor is None else [floor])]:
        assert 99.9 <= scale(value) <= 500.1
    ticks = scale.ticks()
    assert ticks == sorted(set(ticks)) and all(99.9 <= scale(tick) <= 500.1 for tick in ticks)
    assert 2 <= len(ticks) <= 8


def boxes_of(elements):
    """Left, top, right and bottom of each name."""
    for element in elements:
        if element.tag == "text":
            x, y, width = float(element.get("x")), float(element.get("y")) - 4, 7.2 * len(element.text)
            left = x if element.get("text-anchor") == "start" else x - width
            yield element.text, (left, y - 7, left + width, y + 7)


def cover(one, other):
    return min(one[2], other[2]) - max(one[0], other[0]) > 0.1 and min(one[3], other[3]) - max(one[1], other[1]) > 0.1


places = st.tuples(st.floats(60, 540), st.floats(34, 260))


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=9), places, min_size=1, max_size=9))
def test_names_stay_inside(points):
    found = dict(boxes_of(names(list(points.items()), 560, 270)))
    assert set(found) == set(points)
    for left, top, right, bottom in found.values():
        assert left >= -0.1 and top >= -0.1 and right <= 560.1 and bottom <= 270.1


def test_names_of_close_dots_do_not_cover_each_other():
    close = {"basic": (445, 70), "binary": (468, 70), "utility": (474, 71), "switchmem": (465, 72)}
    points = close | {"image": (518, 143), "both": (549, 144), "random": (447, 154), "text": (369, 165)}
    found = dict(boxes_of(names(list(points.items()), 560, 262)))
    for one, box in found.items():
        assert not any(cover(box, other) for name, other in found.items() if name != one), one
        assert not any(cover(box, (x - 5, y - 5, x + 5, y + 5)) for x, y in points.values()), one
