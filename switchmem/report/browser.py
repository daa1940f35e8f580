"""What the page's step browser shows: test steps, their demonstrations, routers and pictures, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ActionDict = Mapping[str, Any]
"""`switchmem.steps.Action.to_dict`."""


@dataclass(frozen=True)
class Picture:
    """An encoded picture, small enough for a page.

    Args:
        data: the bytes of a WebP file.
        width, height: its pixels.
    """

    data: bytes = field(repr=False)
    width: int
    height: int


@dataclass(frozen=True)
class Router:
    """A trained router.

    Args:
        policy: the policy that it makes.
        seed: of its training.
        threshold: its tau; may be infinite.
    """

    policy: str
    seed: int
    threshold: float


@dataclass(frozen=True)
class Demo:
    """A demonstration.

    Args:
        step_id: of the past step.
        instruction: its task.
        action: what was done.
        text: the text memory, as the actor reads it.
        missing: why it cannot be shown, or "".
    """

    step_id: str
    instruction: str = ""
    action: ActionDict | None = None
    text: str = ""
    missing: str = ""


@dataclass(frozen=True)
class ShownStep:
    """A test step. Mappings are by condition ("none", "text", "image", "both").

    Args:
        step_id, trajectory, index: which step.
        category: of the benchmark, or "".
        action_type: of the gold action.
        groups: names of the context groups that it is in.
        memory_id: its demonstration.
        cosine: of step and demonstration in [-1, 1].
        scores: official scores in [0, 1].
        answers: raw answers.
        actions: parsed answers; None where one could not be parsed.
        reasons: why not; None where one could.
        r: score of each router, in the order of `Browser.routers`; none where no router was asked.
        t: soft preference of the step's own shift; > 0 favours Image. None for an actor that shows no states.
        choice: "text" or "image", of the run's own policy; None where there is none.
        instruction: the task, or "" where the step is not at hand.
        gold: the recorded action.
        missing: why the step's record cannot be shown, or "".
    """

    step_id: str
    trajectory: str
    index: int
    category: str
    action_type: str
    groups: tuple[str, ...]
    memory_id: str
    cosine: float
    scores: Mapping[str, float]
    answers: Mapping[str, str]
    actions: Mapping[str, ActionDict | None]
    reasons: Mapping[str, str | None]
    r: tuple[float, ...]
    t: float | None
    choice: str | None
    instruction: str = ""
    gold: ActionDict | None = None
    missing: str = ""


@dataclass(frozen=True)
class Browser:
    """Everything behind the step browser.

    Args:
        steps: ``N`` test steps.
        demos: by step id.
        routers: the run's own first; none for an actor that shows no hidden states.
        pictures: by step id, of steps and demonstrations.
        notes: sentences about what is not shown.
        online: whether the steps are of episodes that were played: what is marked was done, and scores are those of
            the whole episode.
    """

    steps: Sequence[ShownStep]
    demos: Mapping[str, Demo]
    routers: Sequence[Router]
    pictures: Mapping[str, Picture]
    notes: Sequence[str] = ()
    online: bool = False

    def plain(self) -> dict[str, Any]:
        """Strict JSON values for the page's script; pictures by their place in the page alone."""
        places = {step_id: n for n, step_id in enumerate(self.pictures)}
        return {
            "steps": [_plain(step, places) for step in self.steps],
            "demos": {step_id: _plain(demo, places) for step_id, demo in self.demos.items()},
            "routers": [_plain(router, {}) for router in self.routers],
            "sizes": [[picture.width, picture.height] for picture in self.pictures.values()],
            "online": self.online,
        }


def _plain(value: Any, places: Mapping[str, int]) -> dict[str, Any]:
    row = {name: _finite(item) for name, item in vars(value).items()}
    if "step_id" in row:
        row["picture"] = places.get(row["step_id"])
    return row


def _finite(value: Any) -> Any:
    """Infinite numbers as "inf" and "-inf", and NaN as None."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
