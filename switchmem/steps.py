"""The one record that every room speaks: a recorded step of a phone-using agent.

Coordinates are ``(x, y)`` fractions of the screen in [0, 1], x right and y down from the top left.
Swipes are finger motion: from where the finger touches to where it lifts. Readers and action
grammars convert at their own edge, so nothing between them ever converts again.

Records are validated when they are built (`RecordError`), so that the rooms behind can trust them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Any

from PIL import Image


class RecordError(ValueError):
    """A record breaks a rule; the message names the field, the rule, the value and the way out."""


class ActionType(str, Enum):
    """What an agent can do on a phone."""

    TAP = "tap"
    LONG_PRESS = "long_press"
    SWIPE = "swipe"
    DRAG = "drag"
    TYPE = "type"
    BACK = "back"
    HOME = "home"
    ENTER = "enter"
    OPEN = "open"
    WAIT = "wait"
    COMPLETE = "complete"
    IMPOSSIBLE = "impossible"

    @property
    def is_spatial(self) -> bool:
        """Whether the action is carried out at a place on the screen (SwitchMem, section 6.1)."""
        return self in _AT_POINT or self in _ALONG_PATH


_AT_POINT = frozenset({ActionType.TAP, ActionType.LONG_PRESS})
_ALONG_PATH = frozenset({ActionType.SWIPE, ActionType.DRAG})
_WITH_TEXT = frozenset({ActionType.TYPE, ActionType.OPEN})


def _check_point(name: str, point: tuple[float, float] | None) -> None:
    if point is None:
        return
    is_pair = isinstance(point, tuple) and len(point) == 2
    if not is_pair or not all(isinstance(v, (int, float)) and 0.0 <= v <= 1.0 for v in point):
        raise RecordError(
            f"`{name}` must be (x, y) fractions of the screen in [0, 1], got {point!r}. "
            "Divide pixels by the screen's width and height in the reader."
        )


@dataclass(frozen=True, slots=True)
class Action:
    """One action.

    Args:
        type: what is done.
        point: where the finger touches, ``(x, y)`` in [0, 1]; taps, long presses, swipes and drags, and where a text is
            typed into a field that is touched first.
        end: where the finger lifts, ``(x, y)`` in [0, 1]; swipes and drags only.
        text: what is typed, the app that is opened, or the answer given on completion.
        description: a sentence that tells the action, where the recording has one.

    Raises:
        RecordError: if a point is missing, superfluous or outside the screen, or a text is missing.
    """

    type: ActionType
    point: tuple[float, float] | None = None
    end: tuple[float, float] | None = None
    text: str | None = None
    description: str = ""

    def __post_init__(self) -> None:
        _check_point("point", self.point)
        _check_point("end", self.end)
        needs_point = self.type in _AT_POINT or self.type in _ALONG_PATH
        if needs_point != (self.point is not None) and self.type is not ActionType.TYPE:
            rule = "needs a `point`" if needs_point else "takes no `point`"
            raise RecordError(f"action {self.type.value!r} {rule}, got {self.point!r}.")
        if (self.type in _ALONG_PATH) != (self.end is not None):
            rule = "needs an `end`" if self.type in _ALONG_PATH else "takes no `end`"
            raise RecordError(f"action {self.type.value!r} {rule}, got {self.end!r}.")
        if self.type in _WITH_TEXT and self.text is None:
            raise RecordError(f"action {self.type.value!r} needs a `text`, got None. An empty text is ''.")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = {"point": self.point, "end": self.end, "text": self.text, "description": self.description}
        return {"type": self.type.value, **values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Action:
        """Inverse of `to_dict`.

        Raises:
            RecordError: if the type is unknown or a rule of `Action` is broken.
        """
        try:
            kind = ActionType(values["type"])
        except (KeyError, TypeError, ValueError) as error:
            known = ", ".join(t.value for t in ActionType)
            raise RecordError(f"`action` must be an object whose `type` is one of {known}, got {values!r}.") from error
        point, end = (tuple(p) if isinstance(p, list) else p for p in (values.get("point"), values.get("end")))
        return cls(kind, point, end, values.get("text"), values.get("description") or "")


_NUMBERS = frozenset({int, float})  # what nearly all boxes hold; asked first, as it is quick


def _are_numbers(values: tuple[object, ...]) -> bool:
    return _NUMBERS.issuperset(map(type, values)) or all(isinstance(value, (int, float)) for value in values)


def _are_four_finite(box: object) -> bool:
    return isinstance(box, tuple) and len(box) == 4 and _are_numbers(box) and all(map(math.isfinite, box))


def _is_box(box: tuple[float, float, float, float]) -> bool:
    if not isinstance(box, tuple) or len(box) != 4 or not _are_numbers(box):
        return False
    left, top, right, bottom = box
    return 0.0 <= left <= right <= 1.0 and 0.0 <= top <= bottom <= 1.0


@dataclass(frozen=True, slots=True)
class UIElement:
    """One element of a screen, as an accessibility tree or an annotation lists it.

    Args:
        box: ``(left, top, right, bottom)`` fractions of the screen in [0, 1], left <= right, top <= bottom.
        text: the text shown, or "".
        kind: class or annotated type ("Button", "ICON_STAR"), or "".
        description: the accessibility label or a functional description, or "".
        resource_id: the developer's identifier, or "".
        clickable, editable, checked, scrollable: state flags; False where the recording does not say.
        recorded: ``(left, top, right, bottom)`` as recorded, where that leaves the screen and `box` is what of it is
            on the screen, for a score that looks at it; None where the two are the same.

    Raises:
        RecordError: if the box is inverted or leaves the screen, or `recorded` is not four numbers.
    """

    box: tuple[float, float, float, float]
    text: str = ""
    kind: str = ""
    description: str = ""
    resource_id: str = ""
    clickable: bool = False
    editable: bool = False
    checked: bool = False
    scrollable: bool = False
    recorded: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        if self.recorded is not None and not _are_four_finite(self.recorded):
            raise RecordError(
                f"`recorded` must be (left, top, right, bottom), four finite numbers, got {self.recorded!r}. "
                "Leave it out where the box is on the screen."
            )
        if not _is_box(self.box):
            raise RecordError(
                "`box` must be (left, top, right, bottom) in [0, 1] with left <= right and top <= bottom, "
                f"got {self.box!r}. Clamp or drop the element in the reader."
            )

    @property
    def label(self) -> str:
        """The words that name the element: its text, else its description, else ""."""
        return self.text or self.description

    @property
    def center(self) -> tuple[float, float]:
        """Middle of the box, ``(x, y)`` in [0, 1]."""
        left, top, right, bottom = self.box
        return ((left + right) / 2, (top + bottom) / 2)

    @property
    def area(self) -> float:
        """Share of the screen in [0, 1]."""
        left, top, right, bottom = self.box
        return (right - left) * (bottom - top)

    def contains(self, point: tuple[float, float]) -> bool:
        """Whether ``(x, y)`` lies in the box, edges included."""
        left, top, right, bottom = self.box
        return left <= point[0] <= right and top <= point[1] <= bottom

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; empty fields are left out."""
        # not `asdict`, which copies every value: screens have a hundred elements, and conversions millions of screens
        return {name: value for name, value in zip(_ELEMENT_FIELDS, _element_values(self), strict=True) if value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UIElement:
        """Inverse of `to_dict`. Unknown keys raise `RecordError`."""
        try:
            boxes = {name: tuple(values[name]) for name in ("box", "recorded") if name in values}
            return cls(**{**values, "box": tuple(values["box"]), **boxes})
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, RecordError):
                raise
            raise RecordError(
                f"`element` must have a `box` and known fields, got {dict(values)!r}: {error}."
            ) from error


_ELEMENT_FIELDS = UIElement.__slots__
_element_values = attrgetter(*_ELEMENT_FIELDS)


@dataclass(frozen=True, slots=True)
class Screenshot:
    """An encoded screenshot.

    Args:
        data: the bytes of a PNG, WebP or JPEG file.
        width, height: pixels of the decoded picture, both > 0.
    """

    data: bytes = field(repr=False)
    width: int
    height: int

    @classmethod
    def from_bytes(cls, data: bytes) -> Screenshot:
        """Wrap an encoded picture after decoding it once.

        Raises:
            RecordError: if the bytes are not a whole picture that Pillow can decode.
        """
        try:
            with Image.open(io.BytesIO(data), formats=("PNG", "WEBP", "JPEG")) as image:
                image.load()
                width, height = image.size
        except Exception as error:  # Pillow raises many types on broken files, OSError and SyntaxError among them
            start = data[:8].hex(" ")
            raise RecordError(
                f"`screenshot` must be a whole PNG, WebP or JPEG, got {len(data)} bytes starting {start!r}: {error}. "
                "Fetch the picture again."
            ) from error
        return cls(data, width, height)

    @classmethod
    def from_image(cls, image: Image.Image) -> Screenshot:
        """Encode a picture as lossless PNG."""
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG")
        return cls(buffer.getvalue(), *image.size)

    def image(self) -> Image.Image:
        """The decoded RGB picture."""
        with Image.open(io.BytesIO(self.data)) as image:
            return image.convert("RGB")


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded step: what was asked, what was on the screen, and what was done.

    Args:
        benchmark: name of the benchmark, without "/".
        episode_id: identifier of the trajectory; any text, kept as text (AITW's exceed 64 bits).
        index: place in the trajectory, from 0.
        instruction: the task given to the agent, not empty.
        screenshot: what was on the screen.
        elements: the screen's elements in the recording's order.
        action: the gold action.
        category: group inside which retrieval stays ("google_apps"), or "".
        activity: the foreground activity or app, or "".
        caption: a description of the page, or "".

    Raises:
        RecordError: if a rule above is broken.
    """

    benchmark: str
    episode_id: str
    index: int
    instruction: str
    screenshot: Screenshot
    elements: tuple[UIElement, ...]
    action: Action
    category: str = ""
    activity: str = ""
    caption: str = ""

    def __post_init__(self) -> None:
        if not self.benchmark or "/" in self.benchmark:
            raise RecordError(f"`benchmark` must be a name without '/', got {self.benchmark!r}.")
        if not isinstance(self.episode_id, str) or not self.episode_id:
            raise RecordError(f"`episode_id` must be a non-empty text, got {self.episode_id!r}.")
        if not isinstance(self.index, int) or self.index < 0:
            raise RecordError(f"`index` must be an integer >= 0, got {self.index!r}.")
        if not isinstance(self.instruction, str) or not self.instruction.strip():
            raise RecordError(f"`instruction` must not be empty, got {self.instruction!r}.")

    @property
    def step_id(self) -> str:
        """``benchmark/episode/index``; unique over a benchmark."""
        return f"{self.benchmark}/{self.episode_id}/{self.index}"

    @property
    def trajectory(self) -> str:
        """``benchmark/episode``; the unit of every split and resampling."""
        return f"{self.benchmark}/{self.episode_id}"

    @property
    def density(self) -> float:
        """Unique elements per fraction of the screen that their boxes cover together; NaN without any area.

        The union is computed exactly on the grid of all box edges (SwitchMem, section 6.1.1).
        """
        boxes = {e.box for e in self.elements}
        unique = {(e.box, e.label, e.kind) for e in self.elements}
        xs = sorted({x for b in boxes for x in (b[0], b[2])})
        area = 0.0
        for x0, x1 in zip(xs, xs[1:], strict=False):
            spans = sorted((b[1], b[3]) for b in boxes if b[0] <= x0 and b[2] >= x1)
            covered, reach = 0.0, 0.0
            for top, bottom in spans:
                covered += max(0.0, bottom - max(top, reach))
                reach = max(reach, bottom)
            area += covered * (x1 - x0)
        return len(unique) / area if area > 0 else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without the screenshot's bytes."""
        return {
            "step_id": self.step_id,
            "benchmark": self.benchmark,
            "episode_id": self.episode_id,
            "index": self.index,
            "instruction": self.instruction,
            "category": self.category,
            "activity": self.activity,
            "caption": self.caption,
            "action": self.action.to_dict(),
            "elements": [e.to_dict() for e in self.elements],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], screenshot: Screenshot) -> Step:
        """Inverse of `to_dict`.

        Raises:
            RecordError: if a field is missing or a rule is broken.
        """
        try:
            return cls(
                benchmark=values["benchmark"],
                episode_id=values["episode_id"],
                index=values["index"],
                instruction=values["instruction"],
                screenshot=screenshot,
                elements=tuple(UIElement.from_dict(e) for e in values["elements"]),
                action=Action.from_dict(values["action"]),
                category=values.get("category", ""),
                activity=values.get("activity", ""),
                caption=values.get("caption", ""),
            )
        except KeyError as error:
            raise RecordError(f"`step` must have the field {error.args[0]!r}, got {sorted(values)}.") from error
        except TypeError as error:
            raise RecordError(
                f"`step` must be an object of a step's fields, got {str(values)[:99]}: {error}."
            ) from error
