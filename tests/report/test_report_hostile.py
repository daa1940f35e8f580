"""Whatever a screen, an answer or a note says, it stays text."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from page_reader import Page
from report_sample import browser_of, matrix_of, results_of, step_of

from switchmem.report import Browser, Demo, render
from switchmem.report.markup import html, node, script_json

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\u2028\u2029\x00\x0b\ufffe\ud800",
    "]]></style><style>*{display:none}",
    '" onload="alert(1)',
    "&lt;b&gt; &amp;#60;",
    "\u202ereversed",
    "${alert(1)} `${1}`",
)
CLOSE = st.text(alphabet="<>/!-&;\"'scriptSCRIPT\u2028 ", max_size=40)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40), CLOSE)
PLAIN = st.one_of(TEXTS, st.integers(), st.booleans(), st.none())
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8)
RESULTS = results_of(8)


def skeleton(page):
    """Tags and the names of their attributes, in order."""
    return [(e["tag"], tuple(e["attributes"])) for e in page.elements]


def page_with(text):
    matrix, side = matrix_of(8)
    changes = {
        "instruction": text,
        "memory_id": text,
        "missing": text,
        "answers": {"text": text, "image": text},
        "reasons": {"text": text, "image": None},
        "gold": {"type": "type", "point": None, "end": None, "text": text, "description": text},
    }
    steps = [step_of(k, matrix, side, category=text, action_type=text, groups=(text,), **changes) for k in range(8)]
    demos = {text: Demo(text, text, None, text, text)}
    results = {**RESULTS, "benchmark": text, "notes": [text], "provenance": {"actor": {text: text}, "git": text}}
    return render(results, Browser(steps, demos, browser_of(8).routers, {}, [text])), changes


@settings(max_examples=40, deadline=None)
@given(TEXTS)
def test_a_text_never_becomes_markup(text):
    # where a text is empty, the page has no filter for it: compared with a text that is as empty
    innocent, _ = page_with("innocent" if text else "")
    written, changes = page_with(text)
    page = Page(written.encode("utf-8", "replace").decode())
    assert page.errors == []
    assert skeleton(page) == skeleton(Page(innocent))
    (data,) = [e["text"] for e in page.all("script", id="data")]
    step = json.loads(data)["steps"][0]
    assert step["instruction"] == text and step["answers"] == changes["answers"] and step["gold"] == changes["gold"]
    assert json.loads(data)["demos"][text]["text"] == text


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_script_json_is_json_that_a_script_element_can_hold(value):
    text = script_json(value)
    assert json.loads(text) == value
    assert text.isascii() and not set(text) & set("<>&\u2028\u2029\n\r")


@given(TEXTS, TEXTS)
def test_markup_gives_back_what_it_was_given(text, other):
    written = html(node("p", text, node("b", other, title=text), other)).encode("utf-8", "replace").decode()
    page = Page(written)
    plain = [t.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n") for t in (text, other)]
    assert [e["tag"] for e in page.elements] == ["p", "b"] and page.errors == []
    assert page.one("p")["text"].replace("\r\n", "\n").replace("\r", "\n") == plain[0] + plain[1] + plain[1]
