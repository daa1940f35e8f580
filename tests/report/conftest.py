"""A real Chromium, where one can be had."""

import os
import shutil

import pytest
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def chromium_path():
    """The browser's program: $SWITCHMEM_CHROMIUM, else one on the path; the test is skipped where there is none."""
    named = os.environ.get("SWITCHMEM_CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        where = f"$SWITCHMEM_CHROMIUM is {named!r}, which cannot be run" if named else "no Chromium on the path"
        pytest.skip(
            f"{where}; install one (Debian: apt-get install chromium), or set SWITCHMEM_CHROMIUM to its program"
        )
    return found


@pytest.fixture(scope="module")
def chromium(chromium_path):
    """A running browser. By module: Playwright's loop must not be there when other tests start theirs."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path)
        yield browser
        browser.close()
