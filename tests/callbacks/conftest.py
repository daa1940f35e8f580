"""The fake harvest, whose script also runs in processes of its own."""

import harvest_run
import pytest


@pytest.fixture(scope="session")
def fake():
    """The module ``harvest_run.py``."""
    return harvest_run
