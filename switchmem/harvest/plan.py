"""What one pass of the actor over the data is to harvest, and where to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from switchmem.harvest.damaged import forget_damaged
from switchmem.harvest.shards import done_ids
from switchmem.harvest.writing import begin_writing
from switchmem.memory.embedder import Embedder


@dataclass(frozen=True)
class HarvestPlan:
    """One pass.

    Args:
        part: name of the data's part ("preference", "test"), for messages.
        folder: the harvest folder.
        expected_ids: all steps of the pass, in the order in which they are to be read.
        todo: those of them that no finished shard holds.
        skipped: reasons by id of the steps that cannot be harvested.
        embedder: embeds memories, instructions and screenshots.
    """

    part: str
    folder: Path
    expected_ids: tuple[str, ...]
    todo: tuple[str, ...]
    skipped: Mapping[str, str]
    embedder: Embedder

    @classmethod
    def open(
        cls, part: str, folder: Path, expected_ids: Sequence[str], skipped: Mapping[str, str], embedder: Embedder
    ) -> HarvestPlan:
        """Look up what is done already, and forget which records were damaged in an earlier pass.

        No rank may write before every rank has looked, or their shares differ. This process counts as a writer from
        now on, see `wait_for_writers`.

        Raises:
            HarvestError: if a finished shard is damaged.
            WriteError: if nothing can be written beside the folder.
        """
        begin_writing(folder)
        forget_damaged(folder)
        done = done_ids(folder)
        todo = tuple(step_id for step_id in expected_ids if step_id not in done)
        return cls(part, folder, tuple(expected_ids), todo, dict(skipped), embedder)
