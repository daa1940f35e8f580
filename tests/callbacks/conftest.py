"""The fake harvest as a module; its script also runs in processes of its own."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fake():
    """The module ``harvest_run.py``."""
    spec = importlib.util.spec_from_file_location("harvest_run", Path(__file__).with_name("harvest_run.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["harvest_run"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["harvest_run"]
