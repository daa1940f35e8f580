"""The memory baselines of a rollout: each is one more policy on the same instances, with the same bank and actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from switchmem.actors.api.answers import Usage
from switchmem.actors.protocol import Actor
from switchmem.actors.spec import ActorSpec
from switchmem.agent import BaselineAgent, LiveBank
from switchmem.memory.baseline import Baseline, Writer
from switchmem.pipeline.baselines import make_writer, writer_fingerprint, writer_name
from switchmem.settings import BaselineSettings
from switchmem.stages import Stages


@dataclass
class PlayedBaselines:
    """The baselines that a rollout plays.

    Args:
        settings: which ones, and who writes; none by default.
        spec: the actor.
        max_new_tokens: the most tokens of an answer.
        stages: where written pieces are kept.
        load: gives the loaded actor; it is asked only where an episode is missing.
    """

    settings: BaselineSettings
    spec: ActorSpec
    max_new_tokens: int
    stages: Stages
    load: Callable[[], Actor]

    def __post_init__(self) -> None:
        self._writer: Writer | None = None

    def chosen(self) -> list[Baseline]:
        """Those that are asked for, in order."""
        return self.settings.chosen()

    def inputs(self, baseline: Baseline, fingerprint: str) -> dict[str, Any]:
        """What its episodes depend on beside the world, the actor and the bank.

        Args:
            baseline: one of the chosen ones.
            fingerprint: of the actor.
        """
        return {
            "baseline": baseline.played_identity(),
            "writer": writer_fingerprint(self.settings, fingerprint),
        }

    def agent(self, baseline: Baseline, bank: LiveBank, fingerprint: str) -> BaselineAgent:
        """An agent under a baseline; one writer serves them all."""
        actor = self.load()
        if self._writer is None:
            self._writer = make_writer(self.settings, self.stages, actor, self.spec.device, fingerprint)
        return BaselineAgent(baseline, self.spec, actor, bank, self._writer, self.max_new_tokens)

    def spent(self) -> dict[str, Any] | None:
        """What the endpoint of a named writer was asked in this process; None without one."""
        if not self.settings.names or self.settings.model is None or self.settings.model.endpoint is None:
            return None
        used = Usage() if self._writer is None else getattr(self._writer, "usage", Usage())
        return dict(used.to_dict())

    def about(self) -> dict[str, Mapping[str, Any]]:
        """What the results tell of each as it is."""
        written_by = writer_name(self.settings)
        return {
            b.name: {"shows_image": b.shows_image, "identity": b.played_identity(), "written_by": written_by}
            for b in self.chosen()
        }
