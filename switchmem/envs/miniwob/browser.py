"""One headless Chromium, driven from a thread of its own, so that whatever a page does can be cut short."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from playwright.async_api import Browser as PlaywrightBrowser
from playwright.async_api import BrowserContext, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from switchmem.envs.miniwob.geometry import PAGE_HEIGHT, PAGE_WIDTH, SCALE

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = (
    # No page reaches the network: the tasks need none, and a page that goes elsewhere must fail alike everywhere.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    # Text is drawn the same on every screen: without subpixel positions of the machine's display settings.
    "--font-render-hinting=none",
    "--disable-lcd-text",
    # A crashed page is reported as such; nothing is uploaded or written about it.
    "--disable-breakpad",
)
LAUNCH_SECONDS, CLOSE_SECONDS = 60.0, 10.0

Result = TypeVar("Result")


class BrowserError(RuntimeError):
    """No Chromium can be had, or it does not start; the message says what to do."""


def find_chromium(named: str | None = None) -> str:
    """The program of a Chromium: the named one, else $SWITCHMEM_CHROMIUM, else one on the path.

    Raises:
        BrowserError: if there is none.
    """
    named = named or os.environ.get("SWITCHMEM_CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        where = f"{named!r}, which cannot be run" if named else "none on the path"
        raise BrowserError(
            f"the environment must have a Chromium, got {where}. Install one (Debian: apt-get install chromium), "
            "or set SWITCHMEM_CHROMIUM to its program."
        )
    return found


class Browser:
    """A headless Chromium for any number of pages. It starts when the first page is wanted, and again after a crash.

    Args:
        program: of the browser; None as `find_chromium`.

    Raises:
        BrowserError: if no Chromium is found, or it does not start.
    """

    def __init__(self, program: str | None = None) -> None:
        self.program = find_chromium(program)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chromium", daemon=True)
        self._thread.start()
        self._starting = asyncio.Lock()
        self._driver: Playwright | None = None
        self._browser: PlaywrightBrowser | None = None

    def call(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        """Run a coroutine in the browser's thread.

        Raises:
            TimeoutError: if it takes longer than that; it is cancelled then.
        """
        if not self._thread.is_alive():
            work.close()
            raise BrowserError("the browser must be open, got one that was closed. Open another `Browser`.")
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop).result()

    def start(self) -> None:
        """Start the browser where it does not run: at first, and after it died.

        Raises:
            BrowserError: if it does not start.
        """
        if self._browser is None or not self._browser.is_connected():
            self.call(self._running(), 2 * LAUNCH_SECONDS)

    async def _running(self) -> PlaywrightBrowser:
        async with self._starting:  # parallel episodes want the browser at the same time
            if self._browser is None or not self._browser.is_connected():
                self._browser = await self._launch()
            return self._browser

    async def context(self) -> BrowserContext:
        """A fresh, empty profile with the phone's screen. Its pages share no process with those of another one.

        Raises:
            BrowserError: if the browser does not start.
        """
        browser = await self._running()
        try:
            return await self._new_context(browser)
        except PlaywrightError:  # it died, and had not been noticed yet
            async with self._starting:
                if self._browser is browser:
                    self._browser = None
            return await self._new_context(await self._running())

    async def _new_context(self, browser: PlaywrightBrowser) -> BrowserContext:
        return await browser.new_context(
            viewport={"width": PAGE_WIDTH, "height": PAGE_HEIGHT},
            device_scale_factor=SCALE,
            # `is_mobile` would lay pages without a viewport tag out at 980 CSS pixels.
            has_touch=True,
            is_mobile=False,
            accept_downloads=False,
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
        )

    async def _launch(self) -> PlaywrightBrowser:
        if self._driver is None:
            self._driver = await async_playwright().start()
        # root has no sandbox to give: Chromium refuses to start without this there
        unboxed = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
        try:
            return await self._driver.chromium.launch(
                executable_path=self.program, args=[*ARGUMENTS, *unboxed], timeout=1000 * LAUNCH_SECONDS
            )
        except PlaywrightError as error:
            raise BrowserError(
                f"`program` must be a Chromium that starts, got {self.program!r}: {error}. Try it by hand."
            ) from error

    def close(self) -> None:
        """End the browser and its thread. A closed one cannot be used again; closing twice does nothing."""
        if not self._thread.is_alive():
            return
        try:
            self.call(self._close(), 2 * CLOSE_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close(self) -> None:
        if self._browser is not None:
            await self._browser.close()
        if self._driver is not None:
            await self._driver.stop()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
