"""What a model writes for a baseline: kept by content on the disk, checked before it is used, and what it cost."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Any

from switchmem.memory.baseline import Charge, Spent, Writer, WriterCall, Written
from switchmem.memory.views import one_line
from switchmem.stages import make_folder, write_whole

_log = logging.getLogger(__name__)

FORMAT = 1
"""Version of kept answers. Raise it when a question's words around the parts change, and kept ones are left alone."""


class Fault(str, Enum):
    """Why what a model wrote is not used."""

    EMPTY = "empty"
    REFUSAL = "refusal"
    MALFORMED = "malformed"
    ACTION = "action"  # what the actor would do, in place of what it was asked to write


class Unusable(Exception):
    """Carries the fault from where it is found to where the fallback is."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


_REFUSAL = re.compile(
    r"\W*(?:i(?:'|’)?m sorry|i am sorry|sorry\b|i (?:can(?:not|'t|’t)|am unable|am not able|won(?:'|’)t)\b|"
    r"i (?:will not|decline|must decline)\b|"
    r"i(?:'|’)m (?:unable|not able)\b|as an ai\b|unable to (?:assist|help|comply)\b)",
    re.IGNORECASE,
)
_THINKING = "</think>"


def checked_text(text: str, most: int = 600, is_action: Callable[[str], bool] | None = None) -> str:
    """A written text on one line, of at most `most` characters.

    Args:
        text: the raw answer, or a field of it.
        most: longer texts are cut at a blank, since a cap on tokens also cuts.
        is_action: whether a text is an action and no sentence; None where that does not matter.

    Raises:
        Unusable: if it is empty, a refusal or an action.

    >>> checked_text(" Tap the bell. ")
    'Tap the bell.'
    """
    line = one_line(text.rpartition(_THINKING)[2])
    if not re.search(r"\w", line):
        raise Unusable(Fault.EMPTY)
    if _REFUSAL.match(line):
        raise Unusable(Fault.REFUSAL)
    if is_action is not None and is_action(line):
        raise Unusable(Fault.ACTION)
    return line if len(line) <= most else line[:most].rpartition(" ")[0] or line[:most]


def read_fields(text: str, names: Sequence[str], most: int = 600) -> dict[str, str]:
    r"""The fields of an answer of lines ``Name: value``; a value goes on until the next name.

    Args:
        text: the raw answer.
        names: the fields, all of which must be there with a value; case and markup do not matter.
        most: characters of a value.

    Raises:
        Unusable: if the answer is empty or refuses, or a field is missing, empty or a refusal.

    >>> read_fields("Relevant: yes\n**Guideline:** Tap the bell.", ["Relevant", "Guideline"])
    {'Relevant': 'yes', 'Guideline': 'Tap the bell.'}
    """
    answer = text.rpartition(_THINKING)[2]
    checked_text(answer)
    heads = "|".join(map(re.escape, names))
    pieces = re.split(rf"^[\s*#>_-]*({heads})[\s*_]*:[\s*_]*", answer, flags=re.IGNORECASE | re.MULTILINE)
    known = {name.lower(): name for name in names}
    found: dict[str, str] = {}
    for head, value in zip(pieces[1::2], pieces[2::2], strict=True):
        found.setdefault(known[head.lower()], value)
    if len(found) < len(names):
        raise Unusable(Fault.MALFORMED)
    return {name: checked_text(found[name], most) for name in names}


class TemplateWriter:
    """Writes without a model: each call's draft, which its baseline fills from the record. No call is counted."""

    fingerprint = "template"

    def write(self, calls: Sequence[WriterCall]) -> list[Written]:
        """The drafts."""
        return [Written(call.draft) for call in calls]


class KeptWriter:
    """A writer whose answers are kept by content, so that a killed run goes on and a second one is free.

    Processes may share the folder: an answer is written as a whole, and equal questions have equal answers.

    Args:
        writer: is asked what is not kept.
        folder: one file per answer; created if needed.
        together: the most calls that are asked before their answers are kept, at least 1: a kill loses no more.
    """

    def __init__(self, writer: Writer, folder: Path, together: int = 32) -> None:
        self.writer, self.folder, self.together = writer, folder, max(1, together)

    @property
    def fingerprint(self) -> str:
        """That of the writer."""
        return self.writer.fingerprint

    @property
    def usage(self) -> Any:
        """What the writer's endpoint was asked in this process; None where it has none."""
        return getattr(self.writer, "usage", None)

    def write(self, calls: Sequence[WriterCall]) -> list[Written]:
        """Kept answers where there are some; equal calls are made once.

        Raises:
            WriteError: if an answer cannot be written to the disk.
        """
        keys = [call.key(f"{FORMAT} {self.fingerprint}") for call in calls]
        found = {key: kept for key in set(keys) if (kept := self._read(key)) is not None}
        missing = list({key: call for key, call in zip(keys, calls, strict=True) if key not in found}.items())
        for start in range(0, len(missing), self.together):
            some = missing[start : start + self.together]
            for (key, _), answer in zip(some, self.writer.write([call for _, call in some]), strict=True):
                self._keep(key, answer)
                found[key] = answer
        return [found[key] for key in keys]

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def _keep(self, key: str, answer: Written) -> None:
        path = self._path(key)
        make_folder(path.parent)
        write_whole(path, json.dumps(asdict(answer)).encode("ascii"))

    def _read(self, key: str) -> Written | None:
        path = self._path(key)
        try:
            return replace(_checked(json.loads(path.read_text(encoding="ascii"))), kept=True)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            _log.warning("%s is no kept answer (%s); it is asked for and written again.", path, error)
            return None


class Tally:
    """A writer that notes what it is asked between two looks, for what asks it on its own.

    Args:
        writer: answers.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._spent = Spent()

    @property
    def fingerprint(self) -> str:
        """That of the writer."""
        return self.writer.fingerprint

    def write(self, calls: Sequence[WriterCall]) -> list[Written]:
        """The writer's answers."""
        answers = self.writer.write(calls)
        self._spent = Spent((*self._spent.calls, *calls), (*self._spent.answers, *answers))
        return answers

    def take(self) -> Spent:
        """What was spent since the last look."""
        spent, self._spent = self._spent, Spent()
        return spent


def _checked(values: Any) -> Written:
    answer = Written(**values)
    counts = (answer.calls, answer.tokens_in, answer.tokens_out)
    if not isinstance(answer.text, str) or not all(n is None or isinstance(n, int) for n in counts):
        raise ValueError(f"got {values!r}")
    if not isinstance(answer.seconds, (int, float)):
        raise ValueError(f"got {answer.seconds!r} seconds")
    return answer


def costs(spent: Spent, writer: str) -> dict[str, Any]:
    """What the calls for one view cost, as plain JSON values.

    Args:
        spent: the calls and their answers.
        writer: the writer's fingerprint.

    Returns:
        "calls", "tokens_in", "tokens_out" (None where they are not told) and "seconds" of what is charged to the step;
        "kept", how many of all its answers came from the disk; and "offline", the same four numbers by the key of each
        call that was made for the bank, so that they can be counted once over all steps.
    """
    pairs = list(zip(spent.calls, spent.answers, strict=True))
    offline = {c.key(writer): list(_numbers([a]).values()) for c, a in pairs if c.charge is Charge.OFFLINE}
    own = _numbers([answer for call, answer in pairs if call.charge is Charge.STEP])
    return {**own, "kept": sum(answer.kept for answer in spent.answers), "offline": offline}


def _numbers(answers: Sequence[Written]) -> dict[str, Any]:
    return {
        "calls": sum(answer.calls for answer in answers),
        "tokens_in": total([answer.tokens_in for answer in answers]),
        "tokens_out": total([answer.tokens_out for answer in answers]),
        "seconds": float(sum(answer.seconds for answer in answers)),
    }


def total(counts: Sequence[int | None]) -> int | None:
    """Their sum; None where one is not told.

    >>> total([1, 2]), total([1, None])
    (3, None)
    """
    return None if any(count is None for count in counts) else sum(count for count in counts if count is not None)


def mean(numbers: Sequence[float | None] | None) -> float | None:
    """Their mean; None where there are none, or one is not told.

    >>> mean([1, 2]), mean([1, None]), mean([])
    (1.5, None, None)
    """
    told = [number for number in numbers or () if number is not None]
    return sum(told) / len(told) if numbers and len(told) == len(numbers) else None


def counted(rows: Iterable[Iterable[str]]) -> dict[str, int]:
    """How often each name stands in some rows, in the order of the names."""
    return dict(sorted(Counter(name for row in rows for name in row).items()))


def offline_costs(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Costs of all calls that were made for the bank, each counted once.

    Args:
        rows: of `costs`, one per step.
    """
    calls = {key: numbers for row in rows for key, numbers in row["offline"].items()}
    columns = list(zip(*calls.values(), strict=True)) or [(), (), (), ()]
    return {
        "answers": len(calls),
        "calls": sum(columns[0]),
        "tokens_in": total(columns[1]),
        "tokens_out": total(columns[2]),
        "seconds": float(sum(columns[3])),
    }
