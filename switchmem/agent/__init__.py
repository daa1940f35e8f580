"""The method live: a frozen policy, an actor and a bank of demonstrations behind one call."""

from switchmem.agent.agent import SwitchMemAgent
from switchmem.agent.decision import Decision, Timings, Tokens
from switchmem.agent.live_bank import LiveBank

__all__ = ["Decision", "LiveBank", "SwitchMemAgent", "Timings", "Tokens"]
