"""LearnGUI: Offline and Online demonstrations, few-shot tasks, and the official score beside a corrected one."""

from switchmem.benchmarks.learngui.episodes import Episode, load_offline, load_online
from switchmem.benchmarks.learngui.layout import GUIDE, Layout, find_layout
from switchmem.benchmarks.learngui.reader import StepReader
from switchmem.benchmarks.learngui.score import (
    CorrectedLearnGuiBenchmark,
    LearnGuiBenchmark,
    is_action_match,
    is_corrected_match,
)
from switchmem.benchmarks.learngui.strings import action_string, parse_action, recorded_action
from switchmem.benchmarks.learngui.tasks import Task, load_tests

__all__ = [
    "GUIDE",
    "CorrectedLearnGuiBenchmark",
    "Episode",
    "Layout",
    "LearnGuiBenchmark",
    "StepReader",
    "Task",
    "action_string",
    "find_layout",
    "is_action_match",
    "is_corrected_match",
    "load_offline",
    "load_online",
    "load_tests",
    "parse_action",
    "recorded_action",
]
