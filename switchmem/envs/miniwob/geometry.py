"""Where the page lies on the phone's screen (AndroidWorld's Pixel 6, measured in its own picture of the app).

AndroidWorld's WebView is scaled to 500 %, so that one CSS pixel is five of the screen, and shows 216 x 436 of them.
"""

from __future__ import annotations

from dataclasses import dataclass

SCALE = 5
PAGE_WIDTH, PAGE_HEIGHT = 216, 436  # CSS pixels
PHONE_WIDTH, PHONE_HEIGHT = 1080, 2400  # pixels
ABOVE = 154  # pixels of status bar and margin above the page
BELOW = PHONE_HEIGHT - ABOVE - PAGE_HEIGHT * SCALE


@dataclass(frozen=True, slots=True)
class Geometry:
    """From pixels of the screenshot to CSS pixels of the page, and back.

    Args:
        padded: whether the screenshot is the phone's whole screen, 1080 x 2400, with white in place of the system's
            bars; else it is the page alone, 1080 x 2180.
    """

    padded: bool = False

    @property
    def top(self) -> int:
        """Pixels of the screenshot above the page."""
        return ABOVE if self.padded else 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the screenshot in pixels."""
        return (PHONE_WIDTH, PHONE_HEIGHT) if self.padded else (PHONE_WIDTH, PAGE_HEIGHT * SCALE)

    def to_page(self, x: float, y: float) -> tuple[float, float] | None:
        """CSS pixels of the page under a pixel; None where the screenshot does not show the page."""
        left, top = self.css(x, y)
        return (left, top) if 0 <= left < PAGE_WIDTH and 0 <= top < PAGE_HEIGHT else None

    def css(self, x: float, y: float) -> tuple[float, float]:
        """CSS pixels of the page at a place of the screenshot, inside the page or not."""
        return (x / SCALE, (y - self.top) / SCALE)
