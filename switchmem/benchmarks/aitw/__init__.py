"""Android in the Wild (AITW): its TFRecord episodes and its official action-matching score."""

from switchmem.benchmarks.aitw.records import find_shards, read_tfrecords
from switchmem.benchmarks.aitw.score import AitwBenchmark, actions_match

__all__ = ["AitwBenchmark", "actions_match", "find_shards", "read_tfrecords"]
