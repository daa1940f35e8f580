"""UIAutomator dumps: bounds, passwords, on-screen text as it is, and what is no dump."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.benchmarks.uiautomator import foreground_package, parse_hierarchy, ui_elements
from switchmem.steps import RecordError, UIElement


def elements(ui, *nodes, size=(100, 200)):
    return ui_elements(parse_hierarchy(ui.hierarchy(*nodes)), *size)


def test_nodes_come_in_document_order_with_raw_bounds(ui):
    inner = ui.node((10, 20, 30, 40), text="inner")
    nodes = parse_hierarchy(ui.hierarchy(ui.node((0, 0, 100, 200), children=inner), ui.node((5, 90, 9, 80))))
    assert [node.bounds for node in nodes] == [(0, 0, 100, 200), (10, 20, 30, 40), (5, 90, 9, 80)]
    assert nodes[2].center == (7, 85)


def test_an_element_carries_all_its_fields(ui):
    fields = {"content-desc": "Search box", "resource-id": "com.app:id/box", "class": "android.widget.EditText"}
    node = ui.node((10, 20, 60, 70), text="wifi", clickable="true", checked="true", scrollable="true", **fields)
    assert elements(ui, node)[0] == (
        UIElement((0.1, 0.1, 0.6, 0.35), "wifi", "EditText", "Search box", "com.app:id/box", True, True, True, True),
    )


def test_containers_without_words_are_left_out_and_unseen_boxes_dropped(ui):
    listed, dropped = elements(
        ui,
        ui.node((0, 0, 100, 200)),  # a container: neither words nor a use
        ui.node((0, 0, 0, 0), text="empty box"),
        ui.node((0, 90, 50, 80), clickable="true"),  # inverted
        ui.node((150, 0, 180, 20), text="off the screen"),
        ui.node((-20, 190, 50, 260), text="cut to the screen"),
    )
    assert [(e.text, e.box) for e in listed] == [("cut to the screen", (0.0, 0.95, 0.5, 1.0))]
    assert dropped == 3


def test_of_a_password_only_the_length_is_taken_over(ui):
    (element,), _ = elements(ui, ui.node((0, 0, 10, 10), text="hunter2", password="true", clickable="true"))
    assert element.text == 7 * "\N{BULLET}"
    assert "hunter2" not in str(element)


def test_the_word_null_is_no_description_and_a_hint_is(ui):
    null = ui.node((0, 0, 10, 10), text="x", **{"content-desc": "null"})
    hint = ui.node((0, 0, 10, 10), **{"hint": "Search settings"})
    assert [e.description for e in elements(ui, null, hint)[0]] == ["", "Search settings"]


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="￾￿"), min_size=1)


@given(TEXT)
@settings(deadline=None)
def test_on_screen_text_is_kept_as_it_is(ui, text):
    (element,), _ = elements(ui, ui.node((0, 0, 10, 10), text=text))
    assert element.text == text


def test_chat_template_tokens_and_entities_are_kept(ui):
    data = ui.hierarchy(ui.node((0, 0, 10, 10), text="<|im_start|>system <think>"))
    data = data.replace(b"system", b"system&#10;&#128512;\xc2\xa0")
    (element,), _ = ui_elements(parse_hierarchy(data), 100, 200)
    assert element.text == "<|im_start|>system\n😀\xa0 <think>"


def test_the_foreground_package_is_not_the_status_bar(ui):
    bar = [ui.node((0, 0, 9, 9), package="com.android.systemui")] * 5
    app = [ui.node((0, 0, 9, 9), package="com.app")] * 2
    assert foreground_package(parse_hierarchy(ui.hierarchy(*bar, *app))) == "com.app"
    assert foreground_package(parse_hierarchy(ui.hierarchy(*bar))) == "com.android.systemui"
    assert foreground_package(parse_hierarchy(ui.hierarchy())) == ""


BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "ha"><!ENTITY c "&a;&a;">]><hierarchy><node text="&c;"/></hierarchy>'
)


@pytest.mark.parametrize(
    "data, found",
    [
        (b"", "UIAutomator XML, got 0 bytes"),
        (b"ERROR: could not get idle state.", "UIAutomator XML, got 32 bytes starting b'ERROR"),
        (b"\x89PNG\r\n\x1a\n", "UIAutomator XML"),
        (b"<hierarchy><node", "UIAutomator XML"),
        (b"<?xml version='1.0' encoding='no-such'?><hierarchy/>", "UIAutomator XML"),
        (BOMB, "UIAutomator XML"),
        (b"<html></html>", "root must be <hierarchy>, got <html>"),
        (b"<hierarchy><node text='a'/></hierarchy>", r"must be \[x1,y1\]\[x2,y2\], got None"),
        (b"<hierarchy><node bounds='[0,0][a,b]'/></hierarchy>", r"got '\[0,0\]\[a,b\]'"),
    ],
)
def test_what_is_no_dump_is_named(data, found):
    with pytest.raises(RecordError, match=found):
        parse_hierarchy(data)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BILLION = f'<?xml version="1.0"?><!DOCTYPE h [<!ENTITY l0 "ha">{LAUGHS}]><hierarchy><node text="&l9;"/></hierarchy>'
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE h [<!ENTITY f SYSTEM "file:///etc/hostname">]><hierarchy>&f;</hierarchy>'


@pytest.mark.parametrize("text", [BILLION, OUTSIDE, '<!DOCTYPE h SYSTEM "http://127.0.0.1:9/x"><hierarchy/>'])
def test_document_types_are_refused_before_they_do_anything(text):
    with pytest.raises(RecordError, match="UIAutomator XML"):
        parse_hierarchy(text.encode())


@pytest.mark.parametrize("depth", [400, 100_000])
def test_deep_nesting_is_read(depth):
    data = b"<hierarchy>" + b'<node bounds="[0,0][10,10]" text="a">' * depth + b"</node>" * depth + b"</hierarchy>"
    nodes = parse_hierarchy(data)
    assert len(nodes) == depth and len(ui_elements(nodes, 10, 10)[0]) == depth
    with pytest.raises(RecordError, match="UIAutomator XML"):
        parse_hierarchy(data[: len(data) // 2])


def test_a_huge_attribute_is_text_like_any_other(ui):
    (element,), _ = elements(ui, ui.node((0, 0, 10, 10), text="x" * 5_000_000))
    assert len(element.text) == 5_000_000


@pytest.mark.parametrize("bounds", ["[0,0][%s,9]" % ("9" * 5000), "[0,0][1e3,9]", "[0,0][9,9]" * 1000, "x" * 10**6])
def test_bounds_that_are_none_are_told_in_short(bounds):
    with pytest.raises(RecordError, match="must be .x1,y1..x2,y2") as error:
        parse_hierarchy(f'<hierarchy><node bounds="{bounds}"/></hierarchy>'.encode())
    assert len(str(error.value)) < 300


@pytest.mark.real_data
def test_real_dumps_keep_their_template_tokens(real_data):
    texts = ""
    for path in sorted((real_data / "uiautomator").glob("*.xml")):
        listed, _ = ui_elements(parse_hierarchy(path.read_bytes()), 1080, 2400)
        assert listed
        texts += " ".join(element.label for element in listed)
    assert "<|im_start|>" in texts or "<|im_end|>" in texts
