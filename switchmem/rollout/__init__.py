"""The closed loop: a frozen actor on an online environment, its memory's form chosen at every step.

`play` plays one episode, `crew` several at a time, `trace` keeps them on the disk, and the others are the protocol of
MobileMiniWoB++ (SwitchMem, section 5): the bank from the actor's own successes, a threshold by matched Image rate, and
policies compared on the same instances. `switchmem.pipeline.rollout` puts them together; `android_world` offers the
agent to AndroidWorld and plays its MiniWoB++ tasks on a phone.
"""

from switchmem.rollout.play import Job, play
from switchmem.rollout.trace import Facts, Move, Trace, TraceError, read_facts, read_trace, write_trace

__all__ = ["Facts", "Job", "Move", "Trace", "TraceError", "play", "read_facts", "read_trace", "write_trace"]
