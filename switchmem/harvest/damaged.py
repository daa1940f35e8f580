"""Steps whose record turns out to be damaged while the actor runs: counted by id, in a file each.

Loader workers of any rank find them, so that files in the harvest folder are what all of them share.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from switchmem.harvest.shards import write_json
from switchmem.stages import make_folder


def note_damaged(folder: Path, step_id: str, reason: str) -> None:
    """Say that a step cannot be harvested.

    Args:
        folder: the harvest folder; created if needed.
        step_id: of the step.
        reason: what was found, and where.
    """
    make_folder(folder)
    key = hashlib.blake2b(step_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    write_json(folder / f"damaged-{key}.json", {"step_id": step_id, "reason": reason})


def read_damaged(folder: Path) -> dict[str, str]:
    """Reasons by step id, sorted by id."""
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("damaged-*.json")]
    return {note["step_id"]: note["reason"] for note in sorted(notes, key=lambda note: note["step_id"])}


def forget_damaged(folder: Path) -> None:
    """Before a pass: its records are read afresh, and may be whole by now."""
    for path in folder.glob("damaged-*.json"):
        path.unlink(missing_ok=True)  # another rank may have been faster
