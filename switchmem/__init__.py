"""SwitchMem: choose, step by step, how a phone agent is shown one remembered demonstration."""

__version__ = "0.1.0"
