"""The text state of a page, against the boxes that the page itself measures and the reader of recorded dumps."""

import pytest
from hostile_pages import write

from switchmem.envs.base import PhoneAction, PhoneActionType
from switchmem.envs.miniwob.env import MiniWobEnv

pytestmark = pytest.mark.browser

CONTROLS = """
<div id="all" style="position:absolute;top:40px;left:4px;width:180px;background:#fff">
<button id="b" aria-label="Send it">S</button> <a id="a" href="#">More</a> <h3 id="h">Title</h3>
<input id="t" value="typed" placeholder="Name" style="width:60px">
<input id="p" type="password" value="secret" style="width:60px">
<input id="c" type="checkbox" checked> <input id="r" type="radio">
<textarea id="m" style="width:90px;height:20px">two\nlines</textarea>
<select id="s"><option>one</option><option selected>two</option></select> <img id="i" alt="A cat" width="9" height="9">
<span id="k">Tap me</span> <span style="visibility:hidden">unseen</span> <span style="display:none">gone</span>
<button id="d" disabled>No</button>
<div id="box" style="height:30px;overflow:auto"><div style="height:20px">first</div>
<div style="height:20px">second</div><div style="height:20px">third</div></div></div>
"""
EXPECTED = {
    # id: kind, text, description, flags
    "b": ("Button", "Send it", "", "clickable"),
    "a": ("View", "More", "", "clickable"),
    "h": ("TextView", "Title", "", ""),
    "t": ("EditText", "typed", "Name", "clickable editable"),
    "p": ("EditText", 6 * "\N{BULLET}", "", "clickable editable"),
    "c": ("CheckBox", "", "", "clickable checked"),
    "r": ("RadioButton", "", "", "clickable"),
    "m": ("EditText", "two\nlines", "", "clickable editable scrollable"),
    "s": ("Spinner", "two", "", "clickable"),
    "i": ("Image", "", "A cat", ""),
    "d": ("Button", "No", "", ""),
    "box": ("View", "", "", "scrollable"),
}
FLAGS = ("clickable", "editable", "checked", "scrollable")


@pytest.fixture(scope="module")
def screen_and_boxes(browser, tmp_path_factory):
    root = tmp_path_factory.mktemp("pages")
    start = f"""document.body.insertAdjacentHTML('beforeend', `{CONTROLS}`); document.getElementById('go').remove();
      document.getElementById('k').addEventListener('click', () => {{}})"""
    write(root, "controls")
    env = MiniWobEnv(browser, root, patience=60)
    env.reset(seed=1, options={"task": "controls"})
    env.evaluate(start)
    screen, *_ = env.step(PhoneAction(PhoneActionType.WAIT))
    again, *_ = env.step(PhoneAction(PhoneActionType.WAIT))
    boxes = env.evaluate(
        "Object.fromEntries([...document.querySelectorAll('[id]')].map(e => [e.id, e.getBoundingClientRect()])"
        ".map(([id, b]) => [id, [b.left, b.top, b.right, b.bottom]]))"
    )
    env.close()
    return screen, again, boxes


def test_every_control_is_what_android_calls_it(screen_and_boxes):
    screen, again, boxes = screen_and_boxes
    found = {e.resource_id: e for e in screen.elements if e.resource_id in EXPECTED}
    told = {
        name: (e.kind, e.text, e.description, " ".join(f for f in FLAGS if getattr(e, f))) for name, e in found.items()
    }
    assert told == EXPECTED
    for name, element in found.items():
        expected = [v / side for v, side in zip(boxes[name], (216, 436, 216, 436), strict=True)]
        assert element.box == pytest.approx(expected, abs=0.6 / 1080)
    assert again.elements == screen.elements


def test_words_that_cannot_be_seen_are_not_listed_and_half_seen_ones_are_cut(screen_and_boxes):
    screen, _, boxes = screen_and_boxes
    words = {e.text: e for e in screen.elements}
    assert not {"unseen", "gone", "third", "secret"} & set(words)
    assert words["second"].box[3] <= boxes["box"][3] / 436 + 1e-3
    assert {"first", "second", "Tap me"} <= set(words)


def test_elements_come_in_the_order_of_the_document(screen_and_boxes):
    screen, _, boxes = screen_and_boxes
    ids = [e.resource_id for e in screen.elements if e.resource_id in EXPECTED]
    assert ids == [name for name in boxes if name in EXPECTED]
