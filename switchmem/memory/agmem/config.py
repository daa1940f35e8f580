"""Constants of the action-grounded crop, each a config value with its range."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


class CropError(ValueError):
    """A crop's argument breaks a rule; the message names the argument, the rule, the value and the way out."""


@dataclass(frozen=True)
class CropConfig:
    """How a change between two screenshots becomes a box (AGMem, appendix B.1, which gives steps and no constants).

    Lengths are fractions of the screen's shorter side unless said otherwise, so that one config serves all densities.

    Args:
        soft: residual in levels of 0 to 255 from which a pixel may belong to the change.
        sharp: residual that a connected change must reach somewhere; at least `soft`.
        exact: factor of both thresholds for pairs without a codec's traces, whose faint edges are real, in (0, 1].
        smoothing: side of the window whose mean is subtracted from the difference, in (0, 1].
        opening: side of the square of the morphological opening, in [0, 0.1]; 0 leaves it out.
        closing: side of the square of the morphological closing, in [0, 0.2]; 0 leaves it out.
        dimming: whether a uniform dimming of the rest of the screen, as behind a dialog, is taken out first.
        dimmed: least share of the changed bright pixels that one factor must explain to be such a dimming, in (0, 1].
        status_bar: height of the bar at the top, in [0, 0.5]. What changes wholly inside it, as its clock, is no effect
            of the action.
        nav_bar: the same for the bar at the bottom.
        caret_width: changes no wider than this and at least three times as high are a blinking text cursor, in
            [0, 0.1]; 0 for none.
        caret_height: height beyond which they are not, in [0, 1].
        least: area of a connected change's box, as a fraction of the screen, below which it is noise, in [0, 0.1].
        most: area of the box, as a fraction of the screen, beyond which there is no distinct region, in (0, 1].
        slack: how far a box may stand out of an element that still contains it, in [0, 0.1].

    Raises:
        CropError: if a value is out of its range.
    """

    soft: float = 12.0
    sharp: float = 30.0
    exact: float = 0.25
    smoothing: float = 0.03
    opening: float = 0.0019
    closing: float = 0.015
    dimming: bool = True
    dimmed: float = 0.25
    status_bar: float = 0.1
    nav_bar: float = 0.06
    caret_width: float = 0.012
    caret_height: float = 0.12
    least: float = 0.0001
    most: float = 0.8
    slack: float = 0.006

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in _RANGES:
                continue
            low, high, open_low = _RANGES[field.name]
            good = isinstance(value, (int, float)) and math.isfinite(value) and low <= value <= high
            if not good or (open_low and value == low):
                raise CropError(
                    f"`{field.name}` must be a number in {'(' if open_low else '['}{low:g}, {high:g}], got {value!r}."
                )
        if self.sharp < self.soft:
            raise CropError(
                f"`sharp` must be at least `soft`, got {self.sharp!r} and {self.soft!r}. "
                "Every change must reach the sharp threshold somewhere; raise it, or lower the soft one."
            )


_RANGES: dict[str, tuple[float, float, bool]] = {
    "soft": (0.0, 255.0, True),
    "sharp": (0.0, 255.0, True),
    "exact": (0.0, 1.0, True),
    "smoothing": (0.0, 1.0, True),
    "opening": (0.0, 0.1, False),
    "closing": (0.0, 0.2, False),
    "dimmed": (0.0, 1.0, True),
    "status_bar": (0.0, 0.5, False),
    "nav_bar": (0.0, 0.5, False),
    "caret_width": (0.0, 0.1, False),
    "caret_height": (0.0, 1.0, False),
    "least": (0.0, 0.1, False),
    "most": (0.0, 1.0, True),
    "slack": (0.0, 0.1, False),
}
"""Lowest and highest value, and whether the lowest itself is out."""
