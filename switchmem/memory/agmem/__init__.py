"""AGMem: memory as action-grounded views (arXiv 2606.14106), as a view of one step and whole."""

from switchmem.memory.agmem.config import CropConfig, CropError
from switchmem.memory.agmem.crop import Crop, Reason, action_grounded_crop
from switchmem.memory.agmem.guard import Guard, GuardConfig
from switchmem.memory.agmem.view import ActionView, AGMem, view_of
from switchmem.memory.agmem.whole import AGMemWhole

__all__ = [
    "AGMem",
    "AGMemWhole",
    "ActionView",
    "Crop",
    "CropConfig",
    "CropError",
    "Guard",
    "GuardConfig",
    "Reason",
    "action_grounded_crop",
    "view_of",
]
