"""The phone's picture around the page's."""

from __future__ import annotations

from PIL import Image

from switchmem.envs.miniwob.geometry import Geometry
from switchmem.steps import Screenshot


def encode(page: bytes, geometry: Geometry) -> Screenshot:
    """A screenshot from the page's PNG, with white in place of the system's bars where the geometry has them.

    Raises:
        RecordError: if the bytes are no whole picture.
    """
    shot = Screenshot.from_bytes(page)
    if not geometry.padded:
        return shot
    screen = Image.new("RGB", geometry.size, "white")
    screen.paste(shot.image(), (0, geometry.top))
    return Screenshot.from_image(screen)
