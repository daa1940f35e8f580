"""The parts that the figures are drawn from: scales, axes and marks, as SVG.

Nothing here has a colour: marks have classes, and the page's style gives these theirs, in light and in dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from switchmem.report.markup import Child, node

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels.

    Args:
        lo, hi: values at the two ends, lo < hi.
        start, end: their pixels.
    """

    lo: float
    hi: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Pixel of a value."""
        return self.start + (value - self.lo) / (self.hi - self.lo) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside the scale, about `count` of them.

        >>> Scale(0.0, 1.0, 0, 100).ticks()
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        step = _round_step((self.hi - self.lo) / count)
        first, last = math.ceil(self.lo / step - 1e-9), math.floor(self.hi / step + 1e-9)
        return [round(k * step, 10) for k in range(first, last + 1)]

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, floor: float | None = None) -> Scale:
        """A scale that holds all values with a little air around them.

        Args:
            values: finite, at least one.
            start: pixel of its lowest value.
            end: pixel of its highest.
            floor: a value that the scale holds in any case, such as 0.
        """
        inside = [*values, *([] if floor is None else [floor])]
        lo, hi = min(inside), max(inside)
        if math.isclose(lo, hi, rel_tol=1e-9, abs_tol=1e-9):  # equal but for rounding
            half = 0.5 * abs(hi) if abs(hi) > 1e-6 else 1.0
            return cls(lo - half, hi + half, start, end)
        air = 0.06 * (hi - lo)
        return cls(lo if lo == floor else lo - air, hi if hi == floor else hi + air, start, end)


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= step * 0.999)


def short(value: float) -> str:
    """A tick's value in as few characters as tell it.

    >>> short(0.5), short(-20.0), short(0.0)
    ('0.5', '−20', '0')
    """
    return f"{value:g}".replace("-", "−")


def svg(width: float, height: float, label: str, *children: Child | Iterable[Child]) -> Element:
    """A drawing of ``width`` x ``height`` pixels that scales with its column, named for those who do not see it."""
    shape = {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": label}
    return node("svg", *children, xmlns="http://www.w3.org/2000/svg", class_="figure", **shape)


def label(text: str, x: float, y: float, anchor: str = "start", class_: str = "", tip: str | None = None) -> Element:
    """A text whose baseline is at `y`."""
    title = None if tip is None else node("title", tip)
    return node("text", title, text, x=x, y=y, text_anchor=anchor, class_=class_ or None)


LETTER, LINE = 7.2, 14.0
"""Pixels that a letter takes at most, and a line of text."""


def names(points: Sequence[tuple[str, Point]], width: float, height: float) -> list[Element]:
    """Names beside their dots, over no other name or dot if there is room; one that moved away has a line to its dot.

    Args:
        points: names with the middles of their dots.
        width: pixels in which all names stay.
        height: likewise.
    """
    taken = [(x - 5, y - 5, x + 5, y + 5) for _, (x, y) in points]
    found: list[Element] = []
    for text, (x, y) in sorted(points, key=lambda point: point[1][1]):
        long = LETTER * len(text)
        places = [(x + side, y + LINE * row) for row in (0, 1, -1, 2, -2, 3, -3, 4, -4) for side in (9, -9 - long)]
        boxes = [(at, (at[0], at[1] - LINE / 2, at[0] + long, at[1] + LINE / 2)) for at in places]
        inside = [(at, box) for at, box in boxes if min(box) >= 0 and box[2] <= width and box[3] <= height]
        free = (pair for pair in inside if not any(_overlap(pair[1], other) for other in taken))
        at, box = next(free, (inside or boxes)[0])
        taken.append(box)
        beside = at[0] > x
        if abs(at[1] - y) >= LINE:
            found.append(line((x, y), (at[0] - 2 if beside else at[0] + long + 2, at[1]), "grid"))
        found.append(label(text, at[0] if beside else at[0] + long, at[1] + 4, "start" if beside else "end"))
    return found


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def line(a: Point, b: Point, class_: str) -> Element:
    """A straight line."""
    return node("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], class_=class_)


def dot(x: float, y: float, class_: str, tip: str, radius: float = 4.0) -> Element:
    """A filled circle that says what it is under the pointer."""
    return node("circle", node("title", tip), cx=x, cy=y, r=radius, class_=class_)


def bar(x0: float, x1: float, y: float, height: float, class_: str, tip: str) -> Element:
    """A horizontal bar that says what it is under the pointer."""
    return node("rect", node("title", tip), x=min(x0, x1), y=y, width=abs(x1 - x0), height=height, class_=class_)


def path(points: Sequence[Point], class_: str) -> Element:
    """A line through points."""
    return node("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=class_)


def star(x: float, y: float, tip: str, radius: float = 9.0) -> Element:
    """A five-pointed star."""
    corners = []
    for k in range(10):
        r, angle = (radius if k % 2 == 0 else 0.42 * radius), math.pi * (k / 5 - 0.5)
        corners.append(f"{x + r * math.cos(angle):.1f},{y + r * math.sin(angle):.1f}")
    return node("polygon", node("title", tip), points=" ".join(corners), class_="star")


def axis_x(scale: Scale, top: float, bottom: float, title: str, ticks: Sequence[float] | None = None) -> list[Element]:
    """Upright grid lines with their values below, and the axis' title."""
    found: list[Element] = []
    for value in scale.ticks() if ticks is None else ticks:
        x = scale(value)
        found += [line((x, top), (x, bottom), "grid"), label(short(value), x, bottom + 17, "middle", "tick")]
    found.append(label(title, (scale.start + scale.end) / 2, bottom + 36, "middle", "axis"))
    return found


def axis_y(scale: Scale, left: float, right: float, title: str) -> list[Element]:
    """Level grid lines with their values at the left, and the axis' title above them."""
    found: list[Element] = []
    for value in scale.ticks():
        y = scale(value)
        found += [line((left, y), (right, y), "grid"), label(short(value), left - 7, y + 4, "end", "tick")]
    found.append(label(title, 8, scale.end - 14, "start", "axis"))
    return found


@dataclass(frozen=True)
class Estimate:
    """One row of a `forest`.

    Args:
        name: of the row.
        value: the estimate.
        ends: of its interval; None where they are undefined.
        class_: colours the row.
        right: a text at its right end.
        singles: further values that are shown as small dots, such as those of each seed.
    """

    name: str
    value: float
    ends: Sequence[float | None]
    class_: str
    right: str
    singles: tuple[float, ...] = ()


def forest(rows: Sequence[Estimate], axis: str, tell: Callable[[Estimate], str], heading: str) -> Element:
    """Estimates with intervals under each other, and a line at 0.

    Args:
        rows: from top to bottom, at least one.
        axis: title of the axis.
        tell: what a row says under the pointer and to screen readers.
        heading: of the texts at the right.
    """
    left, right, top, pitch = 100.0, 430.0, 30.0, 30.0
    bottom = top + pitch * len(rows)
    values = [v for r in rows for v in (r.value, *r.ends, *r.singles) if v is not None]
    scale = Scale.around(values, left, right, floor=0.0)
    marks: list[Element] = [label(heading, 550, top - 10, "end", "axis")]
    for k, row in enumerate(rows):
        y = top + pitch * (k + 0.5)
        marks.append(label(row.name, left - 12, y + 4, "end"))
        lo, hi = row.ends
        if lo is not None and hi is not None:
            marks.append(line((scale(lo), y), (scale(hi), y), f"interval {row.class_}"))
        marks += [dot(scale(single), y + 8, f"single {row.class_}", short(single), 2.0) for single in row.singles]
        marks += [dot(scale(row.value), y, row.class_, tell(row), 5.0), label(row.right, 550, y + 4, "end", "value")]
    zero = line((scale(0.0), top), (scale(0.0), bottom), "zero")
    told = f"{axis}. " + "; ".join(tell(row) for row in rows)
    return svg(560, bottom + 44, told, axis_x(scale, top, bottom, axis), zero, marks)
