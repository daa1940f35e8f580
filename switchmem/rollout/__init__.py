"""The closed loop: a frozen actor on an online environment, its memory's form chosen at every step.

`play` plays one episode, `crew` several at a time, `trace` keeps them on the disk, and the others are the protocol of
MobileMiniWoB++ (SwitchMem, section 5): the bank from the actor's own successes, a threshold by matched Image rate, and
policies compared on the same instances. `switchmem.pipeline.rollout` puts them together; `android_world` offers the
agent to AndroidWorld and plays its MiniWoB++ tasks on a phone. Import from these: some load an actor, and the command
line, which knows their errors, must not.
"""
