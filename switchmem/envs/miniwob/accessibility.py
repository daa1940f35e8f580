"""The text state: Chromium's accessibility tree as Android's UIAutomator would dump it.

Each node of the tree becomes a node of a dump, with the class names that Chromium itself gives on Android, and the dump
is read by the reader of recorded ones (`switchmem.benchmarks.uiautomator`). So there is one schema and one rule on what
is worth listing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from switchmem.benchmarks.uiautomator import Node, ui_elements
from switchmem.envs.miniwob.geometry import PAGE_HEIGHT, PAGE_WIDTH, SCALE, Geometry
from switchmem.steps import UIElement

STYLES = ("overflow-x", "overflow-y", "visibility", "position")
Box = tuple[float, float, float, float]
_PAGE: Box = (0.0, 0.0, float(PAGE_WIDTH), float(PAGE_HEIGHT))

# Android classes by role, as Chromium's accessibility layer on Android names them; other roles are plain views.
_CLASSES = {
    "button": "android.widget.Button",
    "checkbox": "android.widget.CheckBox",
    "combobox": "android.widget.Spinner",
    "dialog": "android.app.Dialog",
    "heading": "android.widget.TextView",
    "image": "android.widget.Image",
    "img": "android.widget.Image",
    "list": "android.widget.ListView",
    "listbox": "android.widget.ListView",
    "option": "android.widget.CheckedTextView",
    "progressbar": "android.widget.ProgressBar",
    "radio": "android.widget.RadioButton",
    "searchbox": "android.widget.EditText",
    "slider": "android.widget.SeekBar",
    "spinbutton": "android.widget.EditText",
    "StaticText": "android.widget.TextView",
    "switch": "android.widget.Switch",
    "tablist": "android.widget.TabWidget",
    "textbox": "android.widget.EditText",
    "table": "android.widget.GridView",
    "Date": "android.widget.Spinner",
    "InputTime": "android.widget.Spinner",
    "RootWebArea": "android.webkit.WebView",
}
_CLICKABLE = frozenset(
    {
        "button",
        "checkbox",
        "combobox",
        "link",
        "menuitem",
        "option",
        "radio",
        "searchbox",
        "slider",
        "spinbutton",
        "switch",
    }
    | {"tab", "textbox", "Date", "InputTime"}
)
# Roles whose words are those of what is inside them, which is listed on its own.
_NAMED_INSIDE = frozenset({"RootWebArea", "InlineTextBox"})
# Roles that speak for all that is in them, so that their insides would say it twice.
_WHOLE = frozenset(
    {"button", "link", "option", "menuitem", "tab", "heading", "textbox", "searchbox", "combobox", "radio"}
    | {"checkbox", "Date", "InputTime", "spinbutton", "StaticText"}
)


def elements_of(
    nodes: Sequence[Mapping[str, Any]], snapshot: Mapping[str, Any], geometry: Geometry
) -> tuple[UIElement, ...]:
    """A page's elements in the tree's order: those that have words or can be acted on, and lie on the screen.

    Args:
        nodes: of `Accessibility.getFullAXTree`.
        snapshot: of `DOMSnapshot.captureSnapshot` with `STYLES`.
        geometry: of the screenshot in which their boxes lie.
    """
    layout = _Layout(snapshot)
    dumped = [node for ax in _walk(nodes) if (node := _dump(ax, layout, geometry)) is not None]
    return ui_elements(dumped, *geometry.size)[0]


def _walk(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    by_id = {node["nodeId"]: node for node in nodes}
    stack = [node for node in nodes if "parentId" not in node][::-1]
    while stack:
        node = stack.pop()
        if not node["ignored"]:
            yield node
        if node["ignored"] or _role(node) not in _WHOLE:
            stack += [by_id[child] for child in reversed(node.get("childIds", ())) if child in by_id]


def _role(ax: Mapping[str, Any]) -> str:
    return str(ax.get("role", {}).get("value", ""))


def _dump(ax: Mapping[str, Any], layout: _Layout, geometry: Geometry) -> Node | None:
    document_node = layout.index.get(ax.get("backendDOMNodeId", -1))
    box = layout.visible_box(document_node) if document_node is not None else None
    if document_node is None or box is None:
        return None
    role = _role(ax)
    properties = {p["name"]: p["value"].get("value") for p in ax.get("properties", ())}
    editable = role in {"textbox", "searchbox", "spinbutton"}
    name, value = (str(ax.get(key, {}).get("value", "")) for key in ("name", "value"))
    shows_value = editable or role in {"combobox", "Date", "InputTime", "slider", "progressbar"}
    if role in _NAMED_INSIDE:
        name = ""
    text, description = (value, name) if shows_value else (name, "")
    if role in {"image", "img"} and not shows_value:
        text, description = "", name
    clickable = role in _CLICKABLE or layout.is_clickable(document_node)
    flags = {
        "clickable": clickable and not properties.get("disabled"),
        "checked": any(properties.get(name) in (True, "true") for name in ("checked", "selected", "pressed")),
        "scrollable": layout.scrolls(document_node),
        "password": layout.is_password(document_node),
    }
    left, top, right, bottom = (round(v * SCALE) for v in box)
    return Node(
        (left, top + geometry.top, right, bottom + geometry.top),
        {
            "class": _CLASSES.get(role, "android.view.View"),
            "text": text if editable else " ".join(text.split()),
            "content-desc": " ".join(description.split()),
            "resource-id": layout.attribute(document_node, "id"),
            **{flag: "true" if is_set else "false" for flag, is_set in flags.items()},
        },
    )


class _Layout:
    """Boxes and styles of a document's nodes, by the browser's own node numbers.

    Attributes:
        index: place of a node in the snapshot, by its number.
    """

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        document = snapshot["documents"][0]
        self._strings: Sequence[str] = snapshot["strings"]
        self._nodes = document["nodes"]
        self._scroll = (document.get("scrollOffsetX", 0), document.get("scrollOffsetY", 0))
        self.index: dict[int, int] = {number: place for place, number in enumerate(self._nodes["backendNodeId"])}
        layout = document["layout"]
        self._row = {node: row for row, node in reversed(list(enumerate(layout["nodeIndex"])))}
        self._boxes, self._styles = layout["bounds"], layout["styles"]
        self._held, self._shown = layout["scrollRects"], layout["clientRects"]
        # The page's frame listens to every click, to draw it for a human demonstrator; the app's pages do not.
        whole = {"BODY", "HTML", "#document"}
        self._clickable = frozenset(
            node
            for node in self._nodes["isClickable"]["index"]
            if self._strings[self._nodes["nodeName"][node]] not in whole
        )
        self._clips: dict[int, Box] = {}

    def is_clickable(self, node: int) -> bool:
        return node in self._clickable

    def attribute(self, node: int, name: str) -> str:
        pairs = self._nodes["attributes"][node]
        named = {self._strings[key]: self._strings[value] for key, value in zip(pairs[::2], pairs[1::2], strict=True)}
        return named.get(name, "")

    def is_password(self, node: int) -> bool:
        return self.attribute(node, "type") == "password"

    def _style(self, node: int, name: str) -> str:
        styles = self._styles[self._row[node]]
        return self._strings[styles[STYLES.index(name)]] if styles else ""

    def _box(self, node: int) -> Box:
        x, y, width, height = self._boxes[self._row[node]]
        x, y = x - self._scroll[0], y - self._scroll[1]
        return (x, y, x + width, y + height)

    def scrolls(self, node: int) -> bool:
        """Whether a finger scrolls this element: its style lets it, and it holds more than it shows."""
        row = self._row.get(node)
        if row is None or not {"auto", "scroll"} & {self._style(node, "overflow-x"), self._style(node, "overflow-y")}:
            return False
        held, shown = self._held[row], self._shown[row]
        return len(held) == len(shown) == 4 and (held[2] > shown[2] + 1 or held[3] > shown[3] + 1)

    def visible_box(self, node: int) -> Box | None:
        """What of a node's box can be seen, in CSS pixels of the screen; None for nothing."""
        if node not in self._row or self._style(node, "visibility") == "hidden":
            return None
        return _cut(self._box(node), self._clip(self._nodes["parentIndex"][node]))

    def _clip(self, node: int) -> Box:
        """The part of the screen in which an element's children can be seen."""
        if node < 0:
            return _PAGE
        if node not in self._clips:
            outer = self._clip(self._nodes["parentIndex"][node])
            clips = node in self._row and self._style(node, "overflow-y") not in {"", "visible"}
            self._clips[node] = (_cut(self._box(node), outer) or (0.0, 0.0, 0.0, 0.0)) if clips else outer
        return self._clips[node]


def _cut(box: Box, clip: Box) -> Box | None:
    left, top, right, bottom = (max(box[0], clip[0]), max(box[1], clip[1]), min(box[2], clip[2]), min(box[3], clip[3]))
    return (left, top, right, bottom) if left < right and top < bottom else None
