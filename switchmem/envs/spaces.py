"""Gymnasium's spaces of screens and actions."""

from __future__ import annotations

from typing import Any

import gymnasium

from switchmem.envs.base import DIRECTIONS, PhoneAction, PhoneActionType, Screen


class ScreenSpace(gymnasium.Space[Screen]):
    """Screens of one size.

    Args:
        width: of the screenshots in pixels.
        height: of the screenshots in pixels.
    """

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.width, self.height = width, height

    def contains(self, x: Any) -> bool:
        """Whether this is a screen of that size."""
        return isinstance(x, Screen) and (x.screenshot.width, x.screenshot.height) == (self.width, self.height)

    @property
    def is_np_flattenable(self) -> bool:
        """Screens have elements, which are no numbers."""
        return False


class PhoneActionSpace(gymnasium.Space[PhoneAction]):
    """Actions at the pixels of a screen.

    Args:
        width: of the screenshots in pixels.
        height: of the screenshots in pixels.
        seed: of `sample`.
    """

    def __init__(self, width: int, height: int, seed: int | None = None) -> None:
        super().__init__(seed=seed)
        self.width, self.height = width, height

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> PhoneAction:
        """A tap, a scroll, Enter or a wait, at a random place. Nothing that ends an episode by itself."""
        x, y = int(self.np_random.integers(self.width)), int(self.np_random.integers(self.height))
        kinds = (PhoneActionType.CLICK, PhoneActionType.SCROLL, PhoneActionType.KEYBOARD_ENTER, PhoneActionType.WAIT)
        kind = kinds[int(self.np_random.integers(len(kinds)))]
        if kind is PhoneActionType.CLICK:
            return PhoneAction(kind, x, y)
        if kind is PhoneActionType.SCROLL:
            return PhoneAction(kind, x, y, direction=DIRECTIONS[int(self.np_random.integers(4))])
        return PhoneAction(kind)

    def contains(self, x: Any) -> bool:
        """Whether this is an action whose point, if it has one, is a pixel of the screen."""
        if not isinstance(x, PhoneAction):
            return False
        return x.x is None or x.y is None or (x.x < self.width and x.y < self.height)

    @property
    def is_np_flattenable(self) -> bool:
        """Actions hold text."""
        return False
