"""AITW's official split files: which episodes are for training and which for the test.

Two layouts exist. The authors publish ``standard.json`` for all sets together (beside four harder divisions, of which
one can be named instead); Auto-GUI publishes ``<set>_texts_splits.json`` for each set. Either is an object of lists:

    {"train": ["17840452040999110365", ...], "val" or "validation": [...], "test": [...]}

Ids are text: half of them exceed 63 bits, and those of the set `single` hold a goal ("4852.969-1019.Add to cart ").
Numbers are taken as they are written. The public files list some ids twice. The stricter use wins: an id that is listed
for the test is never trained on, nor is one that is listed for validation.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from switchmem.benchmarks.aitw.score import NAME
from switchmem.benchmarks.base import DataError
from switchmem.benchmarks.sources import SourceFile, open_source
from switchmem.benchmarks.splits import ROLES, TEST, TRAIN, VAL
from switchmem.benchmarks.untrusted import shorten

STANDARD = "standard.json"
_PER_SET = re.compile(r"[a-z_]+_texts_splits\.json")
_KEYS = {"train": TRAIN, "val": VAL, "validation": VAL, "test": TEST}
_SEGMENT = re.compile(r"(\d+)\.\d+-\d+\..*", re.DOTALL)


@dataclass(frozen=True)
class OfficialSplit:
    """What the split files say.

    Args:
        roles: "train", "val" or "test" by trajectory, ``aitw/<episode id>``.
        conflicts: the roles of each trajectory that is listed in several, and the one that counts.
        repeated: how many ids one list holds more than once.
        files: SHA-256 of each file.
    """

    roles: Mapping[str, str]
    conflicts: Mapping[str, tuple[tuple[str, ...], str]]
    repeated: int
    files: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values for a report; of the roles only their counts."""
        counts = {role: 0 for role in ROLES}
        for role in self.roles.values():
            counts[role] += 1
        return {
            "source": "official files",
            "files": dict(self.files),
            "listed": counts,
            "listed_twice_in_one_part": self.repeated,
            "conflicts": [
                {"id": trajectory, "listed_for": list(listed), "used_for": used}
                for trajectory, (listed, used) in sorted(self.conflicts.items())
            ],
        }


def choose_split_files(found: Sequence[SourceFile]) -> list[SourceFile]:
    """The files that make one division, of all JSON files of a folder.

    Args:
        found: at least one.

    Raises:
        DataError: if it cannot be told which division is meant.
    """
    named = {PurePosixPath(source.name).name: source for source in found}
    if len(found) == 1:
        return list(found)
    if STANDARD in named:
        return [named[STANDARD]]
    per_set = [source for name, source in named.items() if _PER_SET.fullmatch(name)]
    if per_set:
        return per_set
    raise DataError(
        f"the split files must be {STANDARD} or <set>_texts_splits.json, got {', '.join(sorted(named))}, which may "
        "divide the data in different ways. Name the one to use: `splits` (--data.init_args.splits FILE)."
    )


def read_split_files(sources: Sequence[SourceFile]) -> OfficialSplit:
    """Read one division.

    Args:
        sources: its files; an id that two of them list is a conflict as one that one of them lists twice.

    Raises:
        DataError: if a file is not such an object of lists, or an id is neither text nor a whole number.
    """
    listed: dict[str, dict[str, None]] = defaultdict(dict)
    repeated = 0
    digests = {}
    for source in sources:
        with open_source(source) as file:
            data = file.read()
        digests[source.name] = sha256(data).hexdigest()
        for role, ids in _lists(data, source.url).items():
            names = [_trajectory(value, role, source.url) for value in ids]
            repeated += len(names) - len(set(names))
            for name in names:
                listed[name][role] = None
    roles = {name: max(its_roles, key=ROLES.index) for name, its_roles in listed.items()}
    conflicts = {name: (tuple(found), roles[name]) for name, found in listed.items() if len(found) > 1}
    return OfficialSplit(roles, conflicts, repeated, digests)


def _lists(data: bytes, where: str) -> dict[str, list[Any]]:
    """Ids by role."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise ValueError(f"a key comes twice in {shorten(names)}")
        return dict(pairs)

    try:
        values = json.loads(data.decode("utf-8-sig"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} must be a JSON file of episode ids, got: {error}. Fetch it again.") from error
    found = shorten(sorted(values)) if isinstance(values, dict) else type(values).__name__
    roles = [_KEYS.get(key) for key in values] if isinstance(values, dict) else []
    if not {TRAIN, TEST} <= set(roles) or None in roles or len(set(roles)) < len(roles):
        raise DataError(
            f"{where} must be an object of the lists train, val (or validation) and test, got {found}. Give one "
            "of the official split files."
        )
    for key, ids in values.items():
        if not isinstance(ids, list):
            raise DataError(f"{where} must list the episode ids of {key!r}, got {type(ids).__name__}. Fetch it again.")
    return {_KEYS[key]: ids for key, ids in values.items()}


def _trajectory(value: Any, role: str, where: str) -> str:
    if isinstance(value, str) and value:
        return f"{NAME}/{value}"
    if isinstance(value, int) and not isinstance(value, bool):  # Python keeps all digits of a JSON number
        return f"{NAME}/{value}"
    raise DataError(
        f"{where} must list episode ids as text or whole numbers, got {shorten(value)} in {role!r}. A number with a "
        "fraction or an exponent has lost its last digits: write the ids as text."
    )


def recording_of(trajectory: str) -> str:
    """The recording that a trajectory was cut from.

    Episodes of the set `single` are segments of longer recordings, web_shopping's episodes among them, and begin with
    that recording's id. Two segments may show the same screens under different goals, so that it would leak to test on
    one and remember the other, though they are two trajectories.

    >>> recording_of("aitw/8687549299323425604.850-886.Display A-Frames")
    'aitw/8687549299323425604'
    >>> recording_of("aitw/14090173088333454495")
    'aitw/14090173088333454495'
    """
    benchmark, _, episode = trajectory.partition("/")
    segment = _SEGMENT.fullmatch(episode)
    return f"{benchmark}/{segment[1]}" if segment else trajectory
