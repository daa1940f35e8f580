"""Lightning callbacks: thin, one file each."""

from callbacks.hidden_state_harvester import HiddenStateHarvester
from callbacks.plain_progress import PlainProgress

__all__ = ["HiddenStateHarvester", "PlainProgress"]
