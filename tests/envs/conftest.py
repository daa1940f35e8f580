"""A browser of the environment's own kind, one for each file of tests."""

import pytest

from switchmem.envs.miniwob.browser import Browser, BrowserError


@pytest.fixture(scope="module")
def browser():
    try:
        opened = Browser()
    except BrowserError as error:
        pytest.skip(str(error))
    with opened:
        yield opened
