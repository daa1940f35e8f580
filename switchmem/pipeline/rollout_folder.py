"""Which runs are rollouts; light, as every `report` asks it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from switchmem.arguments import resolve_arguments


def is_rollout(words: Sequence[str]) -> bool:
    """Whether the arguments of `report` name a rollout: its run folder, or its config."""
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        name, equals, inside = flag.partition("=")
        place = Path(inside if equals else value)
        if name == "--run" and (place / "config.rollout.yaml").is_file():
            return True
        if name in ("-c", "--config"):
            found = Path(resolve_arguments(["rollout", "--config", str(place)])[-1])
            values = yaml.safe_load(found.read_text(encoding="utf-8"))
            return isinstance(values, dict) and "rollout" in values
    return False
