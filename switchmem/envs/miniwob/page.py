"""One task's page in the browser: started, touched, typed into and looked at. All of it is asynchronous."""

from __future__ import annotations

import asyncio
import base64
import math
import re
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import BrowserContext, CDPSession, Dialog, Page
from playwright.async_api import Error as PlaywrightError

from switchmem.envs.base import Ending
from switchmem.envs.miniwob.accessibility import STYLES
from switchmem.envs.miniwob.geometry import PAGE_HEIGHT, PAGE_WIDTH, SCALE

START = "2023-10-15T15:34:00Z"
"""The clock of AndroidWorld's phone when a task begins."""
_BEFORE_START = "2023-10-15T15:33:00Z"  # the clock is installed earlier, as it can only be stopped in the future
_FIRST_TICK = 32_000  # milliseconds since the clock was installed; later than any page can have loaded
_BESIDE = "\n".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("shim.js", "picker.js"))
Result = TypeVar("Result")
_WORLD = "phone"
TAP_MS = 400  # the longest wait for the mouse events that follow a touch; taps on nothing send them too
HOLD_MS = 1000  # AndroidWorld's long press
_LONG_PRESS_SECONDS = 0.9  # real time: the browser takes a touch of half a second for a long press
_TYPING_MS = 100  # of the page's clock between the last letter and Enter
_QUIET_MS, _LONGEST_SCROLL_MS = 120, 2000
_CLOSE_SECONDS = 3.0
_SLOP = 15.0  # CSS pixels of a finger's way that Chromium takes for a tap's trembling: they scroll nothing
_LIFT_SECONDS = 0.12  # a finger that rests before it lifts leaves nothing rolling on

# Random numbers drawn while the page loads, before the task is seeded, are the same every time as well.
_RANDOM = "(() => { let state = 1; Math.random = () => (state = (state * 48271) % 2147483647) / 2147483647; })()"
# The app has no time limit: it clears the timer. Without one the pages give no reward, so it is put off for weeks.
_BEGIN = """(() => {
  if (typeof core !== "object" || typeof core.startEpisodeReal !== "function") return { error: "no MiniWoB++ core" };
  core.EPISODE_MAX_TIME = 2e9;
  Math.seedrandom(%d);
  core.startEpisodeReal();
  const said = core.getUtterance();
  return { utterance: String(said !== null && typeof said === "object" ? said.utterance : said) };
})()"""
_REWARD = re.compile(r"reward: \S+ \(raw: (\S+)\)")


class PageGone(Exception):
    """The page is no longer there to be asked; `ending` says why."""

    def __init__(self, ending: Ending, detail: str = "") -> None:
        super().__init__(f"{ending.value}: {detail}" if detail else ending.value)
        self.ending, self.detail = ending, detail


class TaskPage:
    """A page that an episode plays on.

    Attributes:
        ended: what took the page away (navigation, a dialog, a crash ...), or None.
        detail: a few words on that.
        raw_reward: what the page said first, without the time discount; None before it says anything.
        utterance: the page's instruction.
    """

    def __init__(self, context: BrowserContext, page: Page, session: CDPSession) -> None:
        self._context, self._page, self._session = context, page, session
        self._frame = ""
        self._world: int | None = None
        self._loaded = False
        self._dead = asyncio.Event()
        self.ended: Ending | None = None
        self.detail = ""
        self.raw_reward: float | None = None
        self.utterance = ""

    @classmethod
    async def open(cls, context: BrowserContext) -> TaskPage:
        """An empty page, ready to load a task."""
        page = await context.new_page()
        self = cls(context, page, await context.new_cdp_session(page))
        await self._prepare()
        return self

    async def begin(self, url: str, seed: int) -> None:
        """Load a task's page and begin it with a seed.

        Raises:
            PageGone: if the page cannot be loaded or begun.
        """
        try:
            await self._page.goto(url)
            self._loaded = True
            await self._set_clock()
            begun = await self._evaluate(_BEGIN % seed)
        except PlaywrightError as error:
            raise PageGone(self.ended or Ending.PAGE_ERROR, self.detail or str(error)) from error
        if self.ended is not None:
            raise PageGone(self.ended, self.detail)
        if "error" in begun:
            raise PageGone(Ending.PAGE_ERROR, begun["error"])
        self.utterance = begun["utterance"]

    async def _set_clock(self) -> None:
        """Let every episode begin at the same tick: how many had gone by until the clock was stopped is chance.

        Frames come every 16 ms counted from the clock's first tick, so that it shows in what is animated.
        """
        ticks = await self._evaluate("performance.now()")
        await self._page.clock.run_for(_FIRST_TICK - ticks)
        await self._page.clock.set_system_time(START)

    async def _prepare(self) -> None:
        page, session = self._page, self._session
        page.on("crash", lambda _: self._die("the page's process died"))
        page.on("close", lambda _: self._die("the page was closed"))
        page.on("dialog", self._on_dialog)
        page.on("download", lambda download: self._end(Ending.DOWNLOAD, download.url))
        page.on("popup", lambda popup: self._end(Ending.POPUP, popup.url))
        session.on("Page.frameNavigated", self._on_navigation)
        session.on("Runtime.consoleAPICalled", self._on_console)
        session.on("Runtime.executionContextCreated", self._on_world)
        await page.clock.install(time=_BEFORE_START)
        await page.clock.pause_at(START)
        await page.add_init_script(_RANDOM)
        await session.send("Page.enable")
        self._frame = (await session.send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        await session.send("Runtime.enable")
        await session.send("Page.addScriptToEvaluateOnNewDocument", {"source": _BESIDE, "worldName": _WORLD})
        # Pictures taken in a session have the size that the same session asks for.
        metrics = {"width": PAGE_WIDTH, "height": PAGE_HEIGHT, "deviceScaleFactor": SCALE, "mobile": False}
        await session.send("Emulation.setDeviceMetricsOverride", metrics)

    def _end(self, ending: Ending, detail: str) -> None:
        if self.ended is None:
            self.ended, self.detail = ending, detail

    def _die(self, detail: str) -> None:
        self._end(Ending.PAGE_CRASH, detail)
        self._dead.set()

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._end(Ending.DIALOG, f"{dialog.type}: {dialog.message}")
        await dialog.dismiss()

    def _on_navigation(self, event: Mapping[str, Any]) -> None:
        if self._loaded and "parentId" not in event["frame"]:
            self._end(Ending.NAVIGATION, event["frame"]["url"])

    def _on_console(self, event: Mapping[str, Any]) -> None:
        # AndroidWorld's app reads the reward from the console too: so it is known even if the page is left right after
        match = _REWARD.fullmatch(str(event["args"][0].get("value", ""))) if event["args"] else None
        if match is not None and self.raw_reward is None:
            try:
                self.raw_reward = float(match[1])
            except ValueError:  # "undefined": the page gave no number, which is no success
                self.raw_reward = float("nan")

    def _on_world(self, event: Mapping[str, Any]) -> None:
        context = event["context"]
        if context["name"] == _WORLD and context.get("auxData", {}).get("frameId") == self._frame:
            self._world = context["id"]

    async def _evaluate(self, script: str, world: int | None = None) -> Any:
        where = {"contextId": world} if world is not None else {}
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True, **where}
        answer = await self._session.send("Runtime.evaluate", asked)
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"]
            raise PlaywrightError(str(thrown.get("exception", {}).get("description", thrown["text"])))
        return answer["result"].get("value")

    async def while_alive(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await some work on the page. What was asked of a page whose process dies is never answered.

        Raises:
            PageGone: if the page dies.
        """
        task, dead = asyncio.ensure_future(work), asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait((task, dead), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise PageGone(self.ended or Ending.PAGE_CRASH, self.detail)
        finally:
            task.cancel()
            dead.cancel()

    async def wait_for_end(self, seconds: float) -> None:
        """Wait until it is known what took the page away, for some seconds at the most."""
        until = asyncio.get_running_loop().time() + seconds
        while self.ended is None and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)

    async def evaluate(self, script: str) -> Any:
        """The JSON value of a script in the page's own world."""
        return await self._page.evaluate(script)

    async def pass_time(self, milliseconds: int) -> None:
        """Let the page's clock run, with all timers that fall due on the way."""
        await self._page.clock.run_for(milliseconds)

    async def tap(self, x: float, y: float) -> None:
        """Touch and lift at a place in CSS pixels, and wait until the page has dealt with it."""
        before = await self._evaluate("phone.taps()", self._world)
        await self._touch("touchStart", x, y)
        await self._touch("touchEnd")
        await self._settle(before)

    async def long_press(self, x: float, y: float) -> None:
        """Touch, hold for a second, and lift."""
        await self._touch("touchStart", x, y)
        await asyncio.sleep(_LONG_PRESS_SECONDS)
        await self.pass_time(HOLD_MS)
        await self._touch("touchEnd")
        await self._settle()

    async def swipe(self, start: tuple[float, float], end: tuple[float, float], moves: int = 10) -> None:
        """Move a finger from one place to another, in CSS pixels; what it scrolls stays where it was left."""
        await self._evaluate(f"phone.hold({start[0]}, {start[1]})", self._world)
        await self._touch("touchStart", *start)
        for move in range(1, moves + 1):
            part = move / moves
            await self._touch("touchMove", start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part)
        await asyncio.sleep(_LIFT_SECONDS)
        await self._touch("touchEnd")
        await self._evaluate(f"phone.still({_QUIET_MS}, {_LONGEST_SCROLL_MS})", self._world)
        dx, dy = (_scrolled(a - b) for a, b in zip(start, end, strict=True))
        await self._evaluate(f"phone.place({dx}, {dy})", self._world)

    async def type(self, text: str, clear: bool = False) -> None:
        """Type into what has the focus and press Enter, as AndroidWorld always does."""
        keyboard = self._page.keyboard
        if clear:
            await keyboard.press("Control+a")
            await keyboard.press("Delete")
        await keyboard.type(text)
        await self.pass_time(_TYPING_MS)
        await self.enter()

    async def enter(self) -> None:
        """Press Enter."""
        await self._page.keyboard.press("Enter")
        await self._settle()

    async def back(self) -> None:
        """The phone's back key: it closes a picker that is open, and does nothing else in the app."""
        await self._evaluate("phone.back()", self._world)

    async def screenshot(self) -> bytes:
        """The page's 1080 x 2180 pixels as PNG."""
        shot = await self._session.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        return base64.b64decode(shot["data"])

    async def tree(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Chromium's accessibility tree, and the boxes and styles of the document's nodes."""
        nodes = (await self._session.send("Accessibility.getFullAXTree"))["nodes"]
        asked = {"computedStyles": list(STYLES), "includeDOMRects": True}
        return nodes, await self._session.send("DOMSnapshot.captureSnapshot", asked)

    async def close(self) -> None:
        """Close the page and its profile, whatever the page is at."""
        try:
            await asyncio.wait_for(self._context.close(), _CLOSE_SECONDS)
        except TimeoutError:
            await self.kill()
            await self._context.close()

    async def kill(self) -> None:
        """End the page's process, which may be too busy to be asked: no answer is waited for."""
        crash = asyncio.ensure_future(self._session.send("Page.crash"))
        await asyncio.wait((crash,), timeout=_CLOSE_SECONDS)
        if crash.done():
            crash.exception()  # that the page is gone, which is what was wanted
        else:
            crash.cancel()

    async def _touch(self, kind: str, x: float | None = None, y: float | None = None) -> None:
        points = [{"x": x, "y": y}] if x is not None else []
        await self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    async def _settle(self, taps_before: int | None = None) -> None:
        taps, wait = (-1, 0) if taps_before is None else (taps_before, TAP_MS)
        await self._evaluate(f"phone.settled({taps}, {wait})", self._world)


def _scrolled(way: float) -> float:
    """How far a view goes with a finger that went so far the other way, in CSS pixels."""
    return math.copysign(max(0.0, abs(way) - _SLOP), way)
