"""The method live: a frozen policy, an actor and a bank of demonstrations behind one call.

```python
from switchmem.actors.spec import ActorSpec
from switchmem.agent import LiveBank, SwitchMemAgent
from switchmem.memory import HashingEmbedder

bank = LiveBank.of_run("runs/pocket", HashingEmbedder())  # the run's demonstrations; `build` takes step shards of yours
agent = SwitchMemAgent.from_pretrained("runs/pocket/policy", ActorSpec("pocket"), bank)
for _ in range(20):
    screenshot, elements = phone.look()  # yours: a picture, and [{"box": [0.1, 0.4, 0.9, 0.5], "text": "Wi-Fi"}, ...]
    decision = agent.act("open mail", screenshot, elements)
    print(decision.explain(), decision.action or decision.reason, f"{decision.timings.total:.2f} s", sep="; ")
    if decision.action is None or decision.action.type == "complete":
        break
    phone.do(decision.action)  # places are fractions of the screen
```
"""

from switchmem.agent.agent import SwitchMemAgent, load_policy
from switchmem.agent.baseline_agent import BaselineAgent, BaselineDecision
from switchmem.agent.decision import Decision, Timings, Tokens
from switchmem.agent.endpoint_agent import EndpointAgent
from switchmem.agent.live_bank import LiveBank

__all__ = [
    "BaselineAgent",
    "BaselineDecision",
    "Decision",
    "EndpointAgent",
    "LiveBank",
    "SwitchMemAgent",
    "Timings",
    "Tokens",
    "load_policy",
]
