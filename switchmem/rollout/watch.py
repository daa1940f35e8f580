"""An episode as it goes: a page that loads itself again every second, and an animated GIF of each finished episode."""

from __future__ import annotations

import html
import io
import threading
from pathlib import Path

from PIL import Image, ImageDraw

from switchmem.envs.base import Screen
from switchmem.rollout.play import Decided, Job, phone_action
from switchmem.stages import make_folder, write_whole

WIDTH = 270  # pixels of a frame; a quarter of the phone's
FRAME_MS, LAST_MS = 900, 2500
MARK = (214, 39, 40)
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>switchmem: rollout</title>
<style>body {{ font: 15px system-ui, sans-serif; margin: 1rem; display: flex; flex-wrap: wrap; gap: 1rem }}
figure {{ margin: 0; width: {width}px }} img {{ width: 100%; border: 1px solid #999 }}</style></head>
<body>{figures}</body></html>
"""


class Watch:
    """Writes what is seen into a folder.

    Args:
        folder: gets ``index.html``, the newest frame of each worker, and ``<policy>-<task>-<seed>.gif``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_folder(folder)
        self._lock = threading.Lock()
        self._frames: dict[Job, list[Image.Image]] = {}
        self._cards: dict[str, str] = {}

    @property
    def page(self) -> Path:
        """The page to be opened in a browser."""
        return self.folder / "index.html"

    def saw(self, job: Job, number: int, screen: Screen, decision: Decided | None) -> None:
        """A screen, and what was decided on it; None on the last one, after which the GIF is written."""
        frame, words = draw(screen, decision), caption(decision)
        worker = threading.current_thread().name
        with self._lock:
            frames = self._frames.setdefault(job, [])
            frames.append(frame)
            if decision is None:
                write_whole(self.folder / f"{job.policy}-{job.task}-{job.seed}.gif", animated(self._frames.pop(job)))
            write_whole(self.folder / f"{worker}.png", _png(frame))
            title = html.escape(f"{job.policy}, {job.task}, step {number + 1}: {words}")
            self._cards[worker] = f'<figure><img src="{worker}.png" alt=""><figcaption>{title}</figcaption></figure>'
            figures = "".join(self._cards[name] for name in sorted(self._cards))
            write_whole(self.page, PAGE.format(width=WIDTH, figures=figures).encode("utf-8", "replace"))


def caption(decision: Decided | None) -> str:
    """What was decided, in a few words."""
    if decision is None:
        return "over"
    done = decision.action
    told = f"no action ({decision.why})" if done is None else ""
    if done is not None:
        told = " ".join(part for part in (done.type.value, done.text or "") if part)
    return f"{decision.form} memory; {told}"


def draw(screen: Screen, decision: Decided | None) -> Image.Image:
    """A frame: the screen, small, with the action drawn on it and told below."""
    shot = screen.screenshot.image()
    height = round(shot.height * WIDTH / shot.width)
    frame = Image.new("RGB", (WIDTH, height + 18), "white")
    frame.paste(shot.resize((WIDTH, height), Image.Resampling.BILINEAR))
    pen = ImageDraw.Draw(frame)
    text = caption(decision).encode("ascii", "replace").decode()  # the font that Pillow brings has no more
    pen.text((4, height + 3), text[:44], fill="black")
    action = None if decision is None else decision.action
    if action is not None and action.point is not None:
        x, y = action.point[0] * WIDTH, action.point[1] * height
        pen.ellipse((x - 9, y - 9, x + 9, y + 9), outline=MARK, width=3)
        if action.end is not None:
            pen.line((x, y, action.end[0] * WIDTH, action.end[1] * height), fill=MARK, width=3)
    if decision is not None and phone_action(decision, screen)[1]:
        pen.rectangle((0, 0, WIDTH - 1, height - 1), outline=MARK, width=4)
    return frame


def animated(frames: list[Image.Image]) -> bytes:
    """The frames as a GIF that rests on the last one."""
    size = (max(f.width for f in frames), max(f.height for f in frames))
    same = [frame if frame.size == size else frame.resize(size) for frame in frames]
    buffer = io.BytesIO()
    times = [FRAME_MS] * (len(same) - 1) + [LAST_MS]
    same[0].save(buffer, "GIF", save_all=True, append_images=same[1:], duration=times, loop=0)
    return buffer.getvalue()


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
