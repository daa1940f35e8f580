"""The command line with an agent without weights: it taps what its instruction quotes, where its memory's form helps.

Running the file with the project on PYTHONPATH is running the command line with this agent.
"""

import math
import re
import sys

from switchmem.agent import Decision, Timings, Tokens
from switchmem.memory.views import Condition
from switchmem.steps import Action, ActionType


class Tapper:
    """Taps the button that the instruction quotes, else the middle of the upper half; without a memory, nothing."""

    def __init__(self, policy, bank):
        self.policy, self.bank = policy, bank

    def act(self, goal, screenshot, ui_elements=(), *, condition=None):
        chosen = condition or Condition.TEXT
        memory = None if chosen is Condition.NONE else self.bank.find(goal).step_id
        quoted = re.findall('"(.*?)"', goal)
        named = [e for e in ui_elements if e.kind.endswith("Button") and quoted and e.text == quoted[0]]
        point = named[0].center if named else (0.4, 0.25)
        action = Action(ActionType.WAIT) if chosen is Condition.NONE and quoted else Action(ActionType.TAP, point)
        r = -1.0 if condition is None else math.nan
        return Decision(action, None, "tap", chosen, r, 0.0, memory, 0.5, Timings(decoding=0.25), Tokens(1, 1, 1, 1))

    def preference(self, goal, screenshot, ui_elements=()):
        return -1.0


def tappers(spec, max_new_tokens, load):
    """In the place of `live_agents`."""
    return Tapper


if __name__ == "__main__":
    from switchmem import cli
    from switchmem.pipeline import rollout_command

    rollout_command.live_agents = tappers
    sys.exit(cli.main(sys.argv[1:]))
