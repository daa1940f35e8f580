"""Constants of the action-grounded crop, each a config value with its range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


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
        fit: levels by which a dimmed pixel may miss the factor, in [0, 32]: rounding, and a little of a codec's noise.
        dark: levels below which the quotient of two pixels says nothing, in [1, 128].
        bright: levels from which any dimming is seen, in [1, 255].
        undimmed: a factor as near to 1 is no dimming, in (0, 0.5].
        left: bright pixels that a dimming may leave as they were for one that it changes, as a white dialog on a white
            page does, in [0, 10].
        faint: the most levels of a codec's trace, in [1, 64].
        ring: side of the square, in pixels, that reaches from a change to its traces, in [3, 33].
        traces: share of the pixels around a change that differ by up to `faint`, from which it is a codec, in (0, 1].
        status_bar: height of the bar at the top, in [0, 0.5]. What changes wholly inside it, as its clock, is no effect
            of the action.
        nav_bar: the same for the bar at the bottom.
        caret_width: changes no wider than this and at least `caret_slim` times as high are a blinking text cursor, in
            [0, 0.1]; 0 for none.
        caret_height: height beyond which they are not, in [0, 1].
        caret_slim: how many times higher than wide they are, in [1, 20]; a codec's blocks make them wider.
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
    fit: int = 3
    dark: int = 12
    bright: int = 48
    undimmed: float = 0.1
    left: float = 0.6
    faint: int = 8
    ring: int = 9
    traces: float = 0.1
    status_bar: float = 0.1
    nav_bar: float = 0.06
    caret_width: float = 0.012
    caret_height: float = 0.12
    caret_slim: float = 2.2
    least: float = 0.0001
    most: float = 0.8
    slack: float = 0.006

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in _RANGES:
                continue
            low, high, open_low = _RANGES[field.name]
            whole = isinstance(field.default, int)
            kinds = int if whole else (int, float)
            good = isinstance(value, kinds) and not isinstance(value, bool)
            good = good and math.isfinite(value) and low <= value <= high
            if not good or (open_low and value == low):
                kind = "whole number" if whole else "number"
                bounds = f"{'(' if open_low else '['}{low:g}, {high:g}]"
                raise CropError(f"`{field.name}` must be a {kind} in {bounds}, got {value!r}.")
        if not isinstance(self.dimming, bool):
            raise CropError(f"`dimming` must be true or false, got {self.dimming!r}.")
        if self.ring % 2 == 0:
            raise CropError(f"`ring` must be odd, since its square has a middle, got {self.ring}.")
        if self.sharp < self.soft:
            raise CropError(
                f"`sharp` must be at least `soft`, got {self.sharp!r} and {self.soft!r}. "
                "Every change must reach the sharp threshold somewhere; raise it, or lower the soft one."
            )


def crop_config(values: CropConfig | Mapping[str, Any]) -> CropConfig:
    """The constants, from a section of a config where they come as one.

    Raises:
        CropError: if a name is unknown, or a value out of range.
    """
    if isinstance(values, CropConfig):
        return values
    known = [field.name for field in fields(CropConfig)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise CropError(f"`crop` must have no other field than {', '.join(known)}, got {', '.join(unknown)}.")
    return CropConfig(**values)


_RANGES: dict[str, tuple[float, float, bool]] = {
    "soft": (0.0, 255.0, True),
    "sharp": (0.0, 255.0, True),
    "exact": (0.0, 1.0, True),
    "smoothing": (0.0, 1.0, True),
    "opening": (0.0, 0.1, False),
    "closing": (0.0, 0.2, False),
    "dimmed": (0.0, 1.0, True),
    "fit": (0.0, 32.0, False),
    "dark": (1.0, 128.0, False),
    "bright": (1.0, 255.0, False),
    "undimmed": (0.0, 0.5, True),
    "left": (0.0, 10.0, False),
    "faint": (1.0, 64.0, False),
    "ring": (3.0, 33.0, False),
    "traces": (0.0, 1.0, True),
    "caret_slim": (1.0, 20.0, False),
    "status_bar": (0.0, 0.5, False),
    "nav_bar": (0.0, 0.5, False),
    "caret_width": (0.0, 0.1, False),
    "caret_height": (0.0, 1.0, False),
    "least": (0.0, 0.1, False),
    "most": (0.0, 1.0, True),
    "slack": (0.0, 0.1, False),
}
"""Lowest and highest value, and whether the lowest itself is out."""
