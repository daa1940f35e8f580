"""AGMem's action-grounded view of a step, in the place of its screenshot (arXiv 2606.14106, section 3.2)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from PIL import Image

from switchmem.memory.agmem.config import CropConfig, crop_config
from switchmem.memory.agmem.crop import Box, Crop, action_grounded_crop
from switchmem.memory.agmem.ignored import around, clocks
from switchmem.memory.baseline import Baseline, BaselineError, Scene, ScreenStyle, Showing, View
from switchmem.memory.views import Condition, memory_parts
from switchmem.steps import Step

_POINTER = 0.03
"""Half a side around a touched point, of the shorter side, in which a shown touch may appear."""


@dataclass(frozen=True)
class ActionView:
    """The view of one step.

    Args:
        picture: the crop, or a whole screen.
        crop: where it was cut, and why.
        step: the step whose screen it is cut from; the demonstration itself where it is that step's whole screen.
    """

    picture: Image.Image
    crop: Crop
    step: Step


def crop_of(step: Step, after: Step | None, config: CropConfig | None = None, touches: bool = False) -> Crop:
    """Where the action of a step took effect on the next screen.

    Args:
        step: the step.
        after: the step that follows it; None where there is none.
        config: the constants.
        touches: whether changes in a small box around the touched point count as a shown touch alone.
    """
    pixels = np.asarray(step.screenshot.image())
    if after is None:
        return action_grounded_crop(pixels, None, config=config)
    ignored = clocks(step.elements, after.elements)
    if touches and step.action.point is not None:
        ignored += around([step.action.point], _POINTER, (step.screenshot.width, step.screenshot.height))
    boxes = [element.box for element in after.elements]
    return action_grounded_crop(pixels, np.asarray(after.screenshot.image()), boxes, ignored, config)


def view_of(
    step: Step,
    after: Step | None,
    config: CropConfig | None = None,
    least: int = 32,
    whole: Literal["demonstration", "after"] = "demonstration",
    touches: bool = False,
) -> ActionView:
    """The action-relevant view C of a step.

    Args:
        step: the step.
        after: the step that follows it; None where there is none.
        config: the constants of the crop.
        least: shortest side of a crop in pixels; a smaller one is given more of what surrounds it.
        whole: whose screen is shown where no region is distinct: the step's own, or the later one.
        touches: see `crop_of`.
    """
    crop = crop_of(step, after, config, touches)
    if crop.is_whole or after is None:
        shown = step if whole == "demonstration" or after is None else after
        return ActionView(shown.screenshot.image(), crop, shown)
    size = after.screenshot.width, after.screenshot.height
    crop = replace(crop, box=roomy(crop.box, size, least))
    return ActionView(after.screenshot.image().crop(crop.box), crop, after)


def roomy(box: Box, size: tuple[int, int], least: int) -> Box:
    """A box of at least `least` pixels each way, as far as the screen has them: encoders refuse slivers.

    >>> roomy((0, 10, 4, 60), (100, 100), 20)
    (0, 10, 20, 60)
    """
    left, right = _stretched(box[0], box[2], size[0], least)
    top, bottom = _stretched(box[1], box[3], size[1], least)
    return left, top, right, bottom


def _stretched(low: int, high: int, limit: int, least: int) -> tuple[int, int]:
    lacking = max(0, min(least, limit) - (high - low))
    low = min(max(0, low - lacking // 2), limit - (high - low) - lacking)
    return low, low + max(high - low, min(least, limit)) if lacking else high


@dataclass(frozen=True)
class AGMem(Baseline):
    """The retrieved step as the Image condition shows it, with its screenshot cut to where the action took effect.

    Args:
        crop: constants of the crop.
        least: shortest side of a crop in pixels, at least 1.
        whole: whose screen is shown where no region is distinct, the demonstration's own or the later one.
        touches: whether the recordings show touches, whose dots are then no change.

    Raises:
        BaselineError: if `least` is below 1.
        CropError: if a constant of the crop is out of range.
    """

    name: ClassVar[str] = "agmem"
    shows_image: ClassVar[bool] = True
    words: ClassVar[dict[str, str]] = {
        "picture": "\nWhat the action changed, cut from the next screen of the demonstration, from {start} to {end} of "
        "the whole screen; all places are those of the whole screen:\n",
        "after": "\nThe next screen of the demonstration, after the action:\n",
    }

    crop: CropConfig = field(default_factory=CropConfig)
    least: int = 32
    whole: Literal["demonstration", "after"] = "demonstration"
    touches: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "crop", crop_config(self.crop))  # a config's section comes as a mapping
        if self.least < 1:
            raise BaselineError(f"`{self.name}.least` must be at least 1, got {self.least}.")

    def show(self, scene: Scene) -> Showing:
        """No call is made. `View.notes` says why the view is what it is, so that whole screens are counted."""
        yield from ()
        demo = scene.demo
        if demo is None:
            return View()
        view = view_of(demo, scene.after(demo), self.crop, self.least, self.whole, self.touches)
        style = scene.style.for_screen((demo.screenshot.width, demo.screenshot.height))
        layout = scene.layout
        if not view.crop.is_whole:
            layout = replace(layout, picture=self.words["picture"].format(**_corners(view, style)))
        elif view.step is not demo:
            layout = replace(layout, picture=self.words["after"])
        parts = memory_parts(demo, Condition.IMAGE, style, layout, view.picture)
        return View(memory=parts, notes=(f"view: {view.crop.reason.value}",))

    def identity(self) -> dict[str, Any]:
        """See `Baseline.identity`."""
        return {**super().identity(), "settings": asdict(self)}


def _corners(view: ActionView, style: ScreenStyle) -> dict[str, str]:
    left, top, right, bottom = view.crop.box
    width, height = view.step.screenshot.width, view.step.screenshot.height
    return {"start": style.point(left / width, top / height), "end": style.point(right / width, bottom / height)}
