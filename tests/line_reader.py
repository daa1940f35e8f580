"""A benchmark of text files, for tests of the conversion: a line ``episode index`` is a step, other lines are faults.

Words after the index do things to the process that reads the line. It is a module of its own, because worker processes
import it.
"""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from switchmem.benchmarks.png import encode_png
from switchmem.benchmarks.sources import open_source
from switchmem.benchmarks.survey import Seen
from switchmem.steps import Action, ActionType, Screenshot, Step


@dataclass(frozen=True)
class LineReader:
    """Reads such files.

    Args:
        log: a file that gets the name of every file that is read, or "".
        seconds: how long a line takes.
    """

    log: str = ""
    seconds: float = 0.0

    def survey(self, source, report):
        for episode, index, words in self._lines(source, report):
            yield Seen(f"lines/{episode}", "general", index, ends="end" in words)

    def read(self, source, wanted, report):
        for episode, index, words in self._lines(source, report):
            if f"lines/{episode}/{index}" not in wanted:
                continue
            if "lost" in words:
                report.add(f"lines/{episode}/{index}", "it cannot be read any more.")
                continue
            pixels = np.random.default_rng(index).integers(0, 256, (6, 4, 3), dtype=np.uint8)
            shot = Screenshot(encode_png(pixels), 4, 6)
            text = f"line of {source.name}"
            yield Step("lines", episode, index, text, shot, (), Action(ActionType.HOME), "general")

    def _lines(self, source, report):
        if self.log:
            with open(self.log, "a") as log:
                log.write(f"{source.name}\n")
        with open_source(source) as file:
            for number, line in enumerate(file.read().decode().splitlines()):
                report.read += 1
                time.sleep(self.seconds)
                episode, _, rest = line.partition(" ")
                index, *words = rest.split() or [""]
                if not index.isdigit():
                    report.add(f"lines/{source.name}#line-{number}", f"`index` must be a number, got {index!r}.")
                    continue
                self._obey(words)
                yield episode, int(index), words

    def _obey(self, words):
        for word in words:
            name, _, value = word.partition(":")
            if name == "kill" and not Path(value).exists():
                Path(value).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "raise":
                raise ZeroDivisionError(value)
            if name == "modules":
                Path(value).write_text("\n".join(sorted(sys.modules)))
