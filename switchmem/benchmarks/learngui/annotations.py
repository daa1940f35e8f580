"""Element annotations, as AMEX has them for LearnGUI's screenshots, to the elements of a step.

    {"image_path": ...,
     "clickable_elements": [{"bbox": [x1, y1, x2, y2], "xml_desc": ["Wi-Fi"], "functionality": "..."}],
     "scrollable_elements": [{"bbox": ..., "xml_desc": ...}]}

Boxes are pixels of the screenshot. ``xml_desc`` may be empty or hold a text twice, ``functionality`` may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from switchmem.benchmarks.base import DataReport
from switchmem.benchmarks.learngui.fields import excerpt, first_text, load_json, numbers_of, require_object, texts_of
from switchmem.steps import RecordError, Screenshot, UIElement

LISTS = ("clickable_elements", "scrollable_elements")
CAPTIONS = (
    "page_caption",
    "caption",
    "screen_caption",
    "page_description",
    "screen_description",
    "screenshot_description",
    "description",
)
"""Names under which a description of the page is read; the release's own name is not documented."""

LARGEST_SCROLL_AREA = 0.65
"""Share of the screen; larger scroll areas say no more than that the page scrolls, and are left out."""


def _box(
    values: Mapping[str, object], shot: Screenshot, report: DataReport
) -> tuple[float, float, float, float] | None:
    """The box as fractions, cut to the screen; None where nothing is left."""
    corners = numbers_of(values.get("bbox"), 4)
    if corners is None:
        return None
    left, top, right, bottom = corners
    x1, x2 = (min(max(x, 0.0), shot.width) for x in (left, right))
    y1, y2 = (min(max(y, 0.0), shot.height) for y in (top, bottom))
    if x1 >= x2 or y1 >= y2:
        return None
    report.note("elements_cut_to_the_screen", int((x1, y1, x2, y2) != (left, top, right, bottom)))
    return x1 / shot.width, y1 / shot.height, x2 / shot.width, y2 / shot.height


def _element(value: object, scrolls: bool, shot: Screenshot, report: DataReport) -> UIElement | None:
    """One element, or None after counting why there is none."""
    box = _box(value, shot, report) if isinstance(value, dict) else None
    if box is None or not isinstance(value, dict):
        report.note("elements_without_a_box_on_the_screen")
        return None
    element = UIElement(
        box=box,
        text=", ".join(texts_of(value.get("xml_desc"))),
        description=first_text(value, "functionality"),
        clickable=not scrolls,
        scrollable=scrolls,
    )
    if scrolls and element.area > LARGEST_SCROLL_AREA:
        report.note("scroll_areas_larger_than_0.65_of_the_screen")
        return None
    return element


def read_annotation(values: object, shot: Screenshot, report: DataReport) -> tuple[tuple[UIElement, ...], str]:
    """Elements and page caption of an annotation.

    Args:
        values: the annotation's JSON value.
        shot: the screenshot that it belongs to.
        report: gets counts of boxes that were cut or dropped.

    Returns:
        Clickable elements, then scrollable ones, each in the annotation's order; and the caption, or "".

    Raises:
        RecordError: if the value is not an object of lists.
    """
    fields = require_object(values, "the element annotation")
    elements: list[UIElement] = []
    for name in LISTS:
        listed = fields.get(name)
        if listed is not None and not isinstance(listed, list):
            raise RecordError(f"`{name}` of the element annotation must be a list, got {excerpt(listed)}.")
        made = [_element(value, name == LISTS[1], shot, report) for value in listed or []]
        elements += [element for element in made if element is not None]
    return tuple(elements), first_text(fields, *CAPTIONS)


def load_annotation(path: Path, shot: Screenshot, report: DataReport) -> tuple[tuple[UIElement, ...], str]:
    """`read_annotation` of a file.

    Raises:
        RecordError: if the file is no JSON, or as `read_annotation`.
    """
    values = load_json(path, lambda key: report.note("annotation_keys_repeated"))
    return read_annotation(values, shot, report)
