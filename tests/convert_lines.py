"""Survey and convert a folder of text files, as a program of its own that tests can kill.

python convert_lines.py SOURCE TARGET WORKERS SECONDS
"""

import sys
from pathlib import Path
from unittest.mock import patch

from line_reader import LineReader

from switchmem.benchmarks.convert import convert, survey
from switchmem.benchmarks.sources import find_files


def run(source, target, workers, reader=None, advance=lambda done, total: None, chosen=lambda step_id: True):
    """Everything into the part "all", even indices into the part "even" too, in small chunks; counts, survey."""
    reader = reader or LineReader()
    files = find_files(source, lambda name: True)
    found = survey(reader, files, Path(target) / "survey", workers, advance)
    ids = [step_id for episode in found.episodes for step_id in episode.step_ids if chosen(step_id)]
    parts = {"all": ids, "even": [step_id for step_id in ids if int(step_id.rsplit("/", 1)[1]) % 2 == 0]}
    with patch("switchmem.benchmarks.convert.CHUNK_STEPS", 50):
        return convert(reader, found, parts, Path(target), workers, advance), found


if __name__ == "__main__":
    source, target, workers, seconds = sys.argv[1:]
    sys.stdout.write("started\n")
    sys.stdout.flush()
    run(source, target, int(workers), LineReader(seconds=float(seconds)))
