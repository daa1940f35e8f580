"""The pocket world: a synthetic, phone-like benchmark that runs on a CPU in minutes.

Its numbers are synthetic and say nothing about real apps; it exists so that every stage can be run, tested
and studied with a known truth: which view of a demonstration holds what the agent needs.
"""

from switchmem.benchmarks.pocket.benchmark import PocketBenchmark
from switchmem.benchmarks.pocket.episodes import PocketSpec, fingerprint, generate_steps

__all__ = ["PocketBenchmark", "PocketSpec", "fingerprint", "generate_steps"]
