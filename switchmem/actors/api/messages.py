"""A prompt as a chat endpoint reads it: messages, with pictures as data URLs."""

from __future__ import annotations

import base64
import hashlib
import io
import math
from collections.abc import Callable
from typing import Any

from PIL import Image

from switchmem.prompts import Prompt


def messages(prompt: Prompt, show: Callable[[Image.Image], str]) -> list[dict[str, Any]]:
    """A prompt as chat messages: the system's words, then one user message whose parts are in reading order.

    Args:
        prompt: words and pictures, the current state first.
        show: writes a picture as a URL.
    """
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": show(part)}}
        for part in prompt.parts
    ]
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return [*system, {"role": "user", "content": content}]


class Pictures:
    """Pictures of one batch: each is hashed once, and encoded once if any request needs it."""

    def __init__(self, max_pixels: int | None) -> None:
        self._max_pixels = max_pixels
        self._digests: dict[int, tuple[Image.Image, str]] = {}  # the picture is held, lest its id be given anew
        self._urls: dict[str, str] = {}

    def digest(self, image: Image.Image) -> str:
        """Changes with the picture's pixels and the size it is sent in, and not with a PNG encoder's version."""
        if id(image) not in self._digests:
            pixels = hashlib.blake2b(image.convert("RGB").tobytes(), digest_size=16).hexdigest()
            self._digests[id(image)] = (image, f"{image.size}>{shown_size(image.size, self._max_pixels)}:{pixels}")
        return self._digests[id(image)][1]

    def url(self, image: Image.Image) -> str:
        """The picture as a PNG in a data URL."""
        digest = self.digest(image)
        if digest not in self._urls:
            size = shown_size(image.size, self._max_pixels)
            rgb = image.convert("RGB")
            buffer = io.BytesIO()
            (rgb if size == rgb.size else rgb.resize(size, Image.Resampling.BICUBIC)).save(buffer, "PNG")
            self._urls[digest] = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
        return self._urls[digest]


def shown_size(size: tuple[int, int], max_pixels: int | None) -> tuple[int, int]:
    """Width and height under a limit of pixels, in nearly the same proportion.

    >>> shown_size((1080, 2400), 1_000_000), shown_size((640, 480), None)
    ((670, 1490), (640, 480))
    """
    width, height = size
    if max_pixels is None or width * height <= max_pixels:
        return size
    scale = math.sqrt(max_pixels / (width * height))
    return max(1, math.floor(width * scale)), max(1, math.floor(height * scale))
