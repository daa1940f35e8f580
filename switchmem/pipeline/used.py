"""What a study uses of a harvest: which blocks, and how many of the samples."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from switchmem.harvest import Harvest
from switchmem.memory.views import Condition
from switchmem.settings import SettingsError, StudySettings

TEXT, IMAGE = Condition.TEXT.value, Condition.IMAGE.value
INPUTS = ("text", "image", "instruction", "screenshot")


def used_blocks(layer: int | Sequence[int] | None, probed: Sequence[int]) -> tuple[int, ...]:
    """The blocks that `study.layer` means.

    Args:
        layer: a probed block, or a negative number that counts them from the end; several are averaged; None is the
            last.
        probed: the harvested blocks, ascending.

    Returns:
        Ascending blocks without repeats.

    Raises:
        SettingsError: if a block was not probed, is meant twice, or none is meant.

    >>> used_blocks(None, [0, 8, 31]), used_blocks(8, [0, 8, 31]), used_blocks([-1, -2], [0, 8, 31])
    ((31,), (8,), (8, 31))
    """
    if layer is None and not probed:  # an endpoint shows no states
        return ()
    asked = [-1] if layer is None else [layer] if isinstance(layer, int) else list(layer)
    found = [probed[n] if -len(probed) <= n < 0 else n for n in asked]
    if not found or len(set(found)) < len(found) or not set(found) <= set(probed):
        raise SettingsError(
            f"`study.layer` must name blocks among those probed, {list(probed)}, or count them from the end (-1 to "
            f"-{len(probed)}), each once, got {layer}. Choose other blocks, or harvest these: `study.probe_layers`."
        )
    return tuple(sorted(found))


class Used:
    """A harvest as a study's settings have it.

    Args:
        harvest: `N` steps.
        settings: of the study.

    Raises:
        SettingsError: if the settings name a block that was not probed.
    """

    def __init__(self, harvest: Harvest, settings: StudySettings) -> None:
        self.harvest, self.settings = harvest, settings
        self.blocks = used_blocks(settings.layer, harvest.layers)

    @property
    def layer(self) -> int | tuple[int, ...]:
        """The blocks as a policy's card has them."""
        return self.blocks[0] if len(self.blocks) == 1 else self.blocks

    def states(self, name: str) -> Tensor:
        """States [N, D] of "state" or a memory condition, averaged over the blocks."""
        total = self.harvest.states(name, self.blocks[0])
        for block in self.blocks[1:]:
            total += self.harvest.states(name, block)
        return total / len(self.blocks) if len(self.blocks) > 1 else total

    def shift(self) -> Tensor:
        """Shifts d [N, D]: Image state minus Text state."""
        return self.states(IMAGE) - self.states(TEXT)

    def scores(self, condition: str) -> Tensor:
        """Scores [N, k] in [0, 1] of the first k samples.

        Raises:
            SettingsError: if more are asked for than were harvested.
        """
        scores = self.harvest.scores(condition)
        wanted = self.settings.samples
        if wanted is not None and wanted > scores.shape[1]:
            raise SettingsError(
                f"`study.samples` must be at most the {scores.shape[1]} harvested, got {wanted}. Add seeds to "
                "`sampling.seeds` and harvest again, or ask for fewer."
            )
        return scores[:, :wanted]

    def router_batch(self) -> dict[str, Tensor]:
        """Everything a router may read of all steps: the state [N, D] and the embeddings [N, E]."""
        return {"state": self.states("state"), **{name: self.harvest.embeddings(name) for name in INPUTS}}


def rows_of(batch: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Some rows of a router's batch; `rows` is bool [N] or holds their places."""
    index = rows.nonzero()[:, 0] if rows.dtype is torch.bool else rows
    return {name: value.index_select(0, index) for name, value in batch.items()}
