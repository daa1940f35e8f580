"""The harvest: what a frozen actor showed on each step, kept in shards that survive a kill.

`make_record` turns an observation into a `Record`; `HarvestWriter` appends records, one writer per rank; `merge` checks
that every expected step is there exactly once and writes the manifest; `Harvest` reads it all back as tensors.
"""

from switchmem.harvest.actors import note_actor, note_usage, read_actors, read_usage, usage_words
from switchmem.harvest.damaged import note_damaged, read_damaged
from switchmem.harvest.plan import HarvestPlan
from switchmem.harvest.reader import Harvest, merge
from switchmem.harvest.record import HarvestError, Record, Vectors, make_record
from switchmem.harvest.shards import HarvestWriter, bind_settings, done_ids
from switchmem.harvest.writing import begin_writing, end_writing, wait_for_writers

__all__ = [
    "Harvest",
    "HarvestError",
    "HarvestPlan",
    "HarvestWriter",
    "Record",
    "Vectors",
    "begin_writing",
    "bind_settings",
    "done_ids",
    "end_writing",
    "make_record",
    "merge",
    "note_actor",
    "note_damaged",
    "note_usage",
    "read_actors",
    "read_damaged",
    "read_usage",
    "usage_words",
    "wait_for_writers",
]
