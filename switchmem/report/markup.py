"""HTML and SVG as trees: what is written is well-formed, and no text can become markup."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from xml.etree.ElementTree import Element, tostring

Child = Element | str | None


def node(tag: str, *children: Child | Iterable[Child], **attributes: Any) -> Element:
    """An element.

    Args:
        tag: its name.
        children: elements and texts in their order; None is left out.
        attributes: values by name; a trailing "_" is dropped and others read as "-" (``class_``, ``text_anchor``).
            None and False leave an attribute out, and True writes it without a value. Numbers are rounded to two
            decimals, finer than a screen.

    >>> tostring(node("p", "a < b", node("br"), "c", class_="x"), method="html", encoding="unicode")
    '<p class="x">a &lt; b<br>c</p>'
    """
    element = Element(tag)
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        element.set(name.rstrip("_").replace("_", "-"), "" if value is True else attribute(value))
    for child in children:
        if child is None or isinstance(child, (str, Element)):
            _append(element, child)
        else:
            for item in child:
                _append(element, item)
    return element


def _append(element: Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        element.append(child)
    elif len(element):
        element[-1].tail = (element[-1].tail or "") + child
    else:
        element.text = (element.text or "") + child


def attribute(value: Any) -> str:
    """A value as an attribute.

    >>> attribute(0.125), attribute(3.0), attribute("x")
    ('0.12', '3', 'x')
    """
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def html(element: Element) -> str:
    """The element as HTML. Contents of `script` and `style` are written as they are: see `script_json`."""
    return tostring(element, encoding="unicode", method="html")


def script_json(value: Any) -> str:
    r"""JSON that may stand in a `script` element, whatever its texts hold.

    No character of it can end the element or open a comment in it, and none is beyond ASCII: U+2028 and lone surrogates
    are escapes too.

    >>> script_json({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'

    Raises:
        ValueError: if a number is not finite.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
