"""UIAutomator dumps: the XML of a screen's accessibility hierarchy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from switchmem.benchmarks.untrusted import shorten
from switchmem.steps import RecordError, UIElement

_BOUNDS = re.compile(r"\[(-?\d{1,9}),(-?\d{1,9})\]\[(-?\d{1,9}),(-?\d{1,9})\]")
_SYSTEM_UI = "com.android.systemui"
BULLET = "\N{BULLET}"
"""What stands for each character of a password."""
_INTERACTIVE = ("clickable", "long-clickable", "scrollable", "checkable")


@dataclass(frozen=True, slots=True)
class Node:
    """One node as the dump lists it.

    Args:
        bounds: ``(left, top, right, bottom)`` in pixels, as dumped: it can be empty, inverted or off the screen.
        attributes: all other attributes, as text.
    """

    bounds: tuple[int, int, int, int]
    attributes: Mapping[str, str]

    @property
    def center(self) -> tuple[int, int]:
        """Middle in whole pixels, rounded down."""
        left, top, right, bottom = self.bounds
        return ((left + right) // 2, (top + bottom) // 2)

    def is_set(self, flag: str) -> bool:
        """Whether a state flag such as "clickable" is true."""
        return self.attributes.get(flag) == "true"


def parse_hierarchy(data: bytes) -> tuple[Node, ...]:
    """All nodes of a dump in document order.

    Args:
        data: the bytes of the XML file. Entities and document types are refused, as the file is not trusted.

    Raises:
        RecordError: if the bytes are not XML, not a hierarchy, or a node has no proper bounds.
    """
    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise RecordError(
            f"the hierarchy must be UIAutomator XML, got {len(data)} bytes starting {data[:20]!r}: {error}."
        ) from error
    if root.tag != "hierarchy":
        raise RecordError(
            f"the hierarchy's root must be <hierarchy>, got <{root.tag[:80]}>. Dump it with `uiautomator dump`."
        )
    nodes = []
    for element in root.iter("node"):
        match = _BOUNDS.fullmatch(element.get("bounds", ""))
        if match is None:
            raise RecordError(f"a node's `bounds` must be [x1,y1][x2,y2], got {shorten(element.get('bounds'))}.")
        left, top, right, bottom = map(int, match.groups())
        nodes.append(Node((left, top, right, bottom), dict(element.attrib)))
    return tuple(nodes)


def _is_worth_listing(node: Node) -> bool:
    named = any(node.attributes.get(name) for name in ("text", "content-desc", "hint"))
    return named or any(node.is_set(flag) for flag in _INTERACTIVE)


def _element(node: Node, width: int, height: int) -> UIElement | None:
    left, top, right, bottom = node.bounds
    left, right = max(left, 0), min(right, width)
    top, bottom = max(top, 0), min(bottom, height)
    if left >= right or top >= bottom:
        return None
    attributes = node.attributes
    text, description = attributes.get("text", ""), attributes.get("content-desc", "")
    return UIElement(
        box=(left / width, top / height, right / width, bottom / height),
        text=BULLET * len(text) if node.is_set("password") else text,
        kind=attributes.get("class", "").rpartition(".")[2],
        description=(description if description != "null" else "") or attributes.get("hint", ""),
        resource_id=attributes.get("resource-id", ""),
        clickable=node.is_set("clickable"),
        editable=attributes.get("class", "").endswith("EditText"),
        checked=node.is_set("checked"),
        scrollable=node.is_set("scrollable"),
    )


def ui_elements(nodes: Sequence[Node], width: int, height: int) -> tuple[tuple[UIElement, ...], int]:
    """Elements of a screen: the nodes that have words or can be acted on, layout containers left out.

    Boxes are cut to the screen. Of a password's text only its length is taken over, in bullets, as the screen shows it;
    the word "null" that some apps put as a description counts as none.

    Args:
        nodes: a parsed dump.
        width: of the screenshot in pixels, > 0.
        height: of the screenshot in pixels, > 0.

    Returns:
        The elements in document order, and how many were dropped because nothing of their box is on the screen.
    """
    listed = [_element(node, width, height) for node in nodes if _is_worth_listing(node)]
    elements = tuple(element for element in listed if element is not None)
    return elements, len(listed) - len(elements)


def foreground_package(nodes: Sequence[Node]) -> str:
    """The package that owns most nodes, the system's status bar aside; "" for an empty dump."""
    counts = Counter(node.attributes.get("package", "") for node in nodes)
    counts.pop("", None)
    app = {package: count for package, count in counts.items() if package != _SYSTEM_UI} or counts
    return max(app, key=lambda package: (app[package], package), default="")
