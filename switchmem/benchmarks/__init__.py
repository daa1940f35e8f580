"""Benchmarks: real files to `Step`, and the official score of each. One file per benchmark."""

from __future__ import annotations

from importlib import import_module

from switchmem.benchmarks.base import Benchmark, DataError, DataReport, Fault

__all__ = ["BENCHMARKS", "Benchmark", "DataError", "DataReport", "Fault", "get_benchmark"]

# Modules are imported only when asked for, so that one benchmark's needs are not another's.
BENCHMARKS: dict[str, str] = {
    "android_control": "switchmem.benchmarks.androidcontrol:AndroidControlBenchmark",
    "aitw": "switchmem.benchmarks.aitw:AitwBenchmark",
    "appagent": "switchmem.benchmarks.appagent:AppAgentBenchmark",
    "recorded": "switchmem.benchmarks.jsonl:RecordedBenchmark",
    "learngui": "switchmem.benchmarks.learngui:LearnGuiBenchmark",
    "learngui_corrected": "switchmem.benchmarks.learngui:CorrectedLearnGuiBenchmark",
    "miniwob": "switchmem.benchmarks.miniwob:MiniWobBenchmark",
    "pocket": "switchmem.benchmarks.pocket:PocketBenchmark",
}


def get_benchmark(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        DataError: if no benchmark has that name.

    Example:
        >>> get_benchmark("aitw").name
        'aitw'
    """
    if name not in BENCHMARKS:
        known = ", ".join(sorted(BENCHMARKS))
        raise DataError(f"`benchmark` must be one of {known}, got {name!r}. Add a new one to BENCHMARKS.")
    module, _, attribute = BENCHMARKS[name].partition(":")
    benchmark: Benchmark = getattr(import_module(module), attribute)()
    return benchmark
