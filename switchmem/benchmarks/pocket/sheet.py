"""A sheet of pocket screens to look at: ``python -m switchmem.benchmarks.pocket.sheet FILE``.

Each screen stands twice: as a query shows it, and as a demonstration's recording does.
"""

from __future__ import annotations

import sys

from PIL import Image

from switchmem.benchmarks.pocket.apps import app_names, generator, make_app
from switchmem.benchmarks.pocket.scenes import HEIGHT, WIDTH, app_scene, render, system_scene
from switchmem.benchmarks.pocket.vocabulary import NOUNS, SCREENS

GAP = 8


def sheet(columns: int = 4, rows: int = 2) -> Image.Image:
    """``columns`` x ``rows`` screens, the last one a launcher, each beside its recording."""
    canvas = Image.new("RGB", (2 * columns * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP), (128, 128, 128))
    for n in range(columns * rows):
        rng = generator("sheet", n)
        app = make_app(app_names("test")[n], rng, tidy=True)
        last = n == columns * rows - 1
        scene = (
            system_scene("launcher", app.theme, list(NOUNS[:6]), rng) if last else app_scene(app, SCREENS[n % 3], rng)
        )
        for k, legible in enumerate((True, False)):
            x = (2 * (n % columns) + k) * (WIDTH + GAP) + GAP
            canvas.paste(render(scene, legible=legible), (x, (n // columns) * (HEIGHT + GAP) + GAP))
    return canvas


if __name__ == "__main__":
    sheet().save(sys.argv[1], optimize=True)
