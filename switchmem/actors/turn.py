"""One step as it comes, for one answer: the state is read first, and what was computed for it serves the memory too."""

from __future__ import annotations

import torch
from torch import Tensor

from switchmem.actors.decoding import Extension
from switchmem.actors.engine import Prefixes
from switchmem.actors.protocol import StepPrompts
from switchmem.actors.rows import shared_length
from switchmem.actors.vlm import VLMActor
from switchmem.memory.views import Condition


class Turn:
    """The prompts of one step, tokenised.

    `read_state`, `open` and `answer` are called in this order; each runs the model no more than it must. Without
    `read_state`, `open` runs the prompt as a whole: that is the way of a fixed condition.

    Args:
        actor: the loaded actor.
        prompts: of the step; the state prompt, and those that `open` may be asked for.

    Raises:
        PromptError: if the state prompt is missing, or a prompt is too long.
    """

    def __init__(self, actor: VLMActor, prompts: StepPrompts) -> None:
        self._actor, self._engine = actor, actor.engine
        self._images, (self._rows,) = actor.tokenise([prompts])
        self._images.pixels = list(self._images.pixels)
        self._prefixes: Prefixes | None = None
        self.shared = shared_length(list(self._rows.values()))

    def length(self, condition: Condition) -> int:
        """Tokens of a whole prompt, visual ones included."""
        return len(self._rows[condition])

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self._engine.device

    @torch.no_grad()
    def read_state(self, *layers: int) -> Tensor:
        """Run the state prompt, and keep what the other prompts share with it.

        Args:
            layers: of the block whose state is read, from 0; the states of several are averaged.

        Returns:
            s_i, ``[D]`` float32 on the CPU.
        """
        state_prompt = self._rows[Condition.NONE]
        self._prefixes, states = self._engine.prefill_reading(state_prompt, self.shared, self._images, layers)
        return states.mean(dim=0).cpu()

    @torch.no_grad()
    def run_prefix(self) -> None:
        """Run what the prompts share, where the state is not needed."""
        self._prefixes = self._engine.prefill([self._rows[Condition.NONE]], [self.shared], self._images)

    @torch.no_grad()
    def open(self, condition: Condition) -> Extension:
        """Run what is left of a prompt, up to its last token."""
        row = self._rows[condition]
        prefixes = self._prefixes or self._engine.prefill([row], [0], self._images)
        (extension,) = self._engine.extend(prefixes, [0], [row], [self._actor.num_layers - 1])
        return extension

    @torch.no_grad()
    def answer(self, extension: Extension, max_new_tokens: int) -> tuple[str, int]:
        """The most likely answer, token by token, and how many tokens were drawn, the end token included."""
        unused = torch.zeros(1, 1, dtype=torch.long)  # keys of the noise that greedy decoding does not add
        ((tokens,),) = self._engine.decode([extension], unused, 0.0, max_new_tokens)
        return self._actor.text(tokens), len(tokens)
