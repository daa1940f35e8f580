"""A study from end to end: harvest, targets, routers with thresholds, frozen policy, evaluation."""

from switchmem.pipeline.study import Study
from switchmem.pipeline.workshop import StudyData, Workshop, best_checkpoint, validated

__all__ = ["Study", "StudyData", "Workshop", "best_checkpoint", "validated"]
