"""Lightning data modules: arguments to a stream of steps with memories, or to the router's features."""

from data_modules.aitw import AitwDataModule
from data_modules.base import StepsDataModule
from data_modules.features import RouterFeatures, split_by_trajectory
from data_modules.learngui import LearnGuiDataModule
from data_modules.miniwob import MiniWobDataModule
from data_modules.pocket import PocketDataModule
from data_modules.trajectories import TrajectoriesDataModule

__all__ = [
    "AitwDataModule",
    "LearnGuiDataModule",
    "MiniWobDataModule",
    "PocketDataModule",
    "RouterFeatures",
    "StepsDataModule",
    "TrajectoriesDataModule",
    "split_by_trajectory",
]
