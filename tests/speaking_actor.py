"""An actor without weights for the memory baselines: it taps, and answers a writer's question as it is told."""

import re
import threading

import torch

from switchmem.actors.protocol import Observation
from switchmem.memory.views import Condition


class Speaks:
    """Taps the same place on every screen.

    Args:
        says: from a question's text to the answer; None refuses.
        acts: from a screen's prompt to the answer; None taps on the right.

    Attributes:
        questions: texts of what it was asked to write.
        prompts: step id and text of every screen that it was asked to act on.
    """

    specials = ("<|im_start|>", "<|im_end|>")
    num_layers = 0

    def __init__(self, says=None, acts=None):
        self.says = says or (lambda text: "I'm sorry, I can't help with that.")
        self.acts = acts or (lambda text: "tap r3c3")
        self.questions, self.prompts = [], []
        self._turn = threading.Lock()

    def count(self, text):
        return len(text.split())

    def observe(self, batch, conditions, layers, sampling):
        assert self._turn.acquire(blocking=False), "two threads must not ask one actor at a time"
        try:
            return [self._observe(one.step_id, text_of(one.prompts[Condition.NONE])) for one in batch]
        finally:
            self._turn.release()

    def _observe(self, name, text):
        if re.match(r"question \d", name):
            self.questions.append(text)
            answer = self.says(text)
        else:
            self.prompts.append((name, text))
            answer = self.acts(text)
        none = torch.zeros(0, 0)
        return Observation(
            name, none, {}, {Condition.NONE: [answer]}, {Condition.NONE: [3]}, 0.25, {Condition.NONE: 40}
        )


def text_of(prompt):
    return prompt.system + "".join(part if isinstance(part, str) else "<picture>" for part in prompt.parts)
