"""What a report shows of the audit that lies in its run's folder."""

from __future__ import annotations

import json
from typing import Any

import yaml

from switchmem.evaluation.verdict import audit_counts, audit_rows
from switchmem.report import Audit
from switchmem.resolved import changes, other_harvest
from switchmem.runs import RunFolder


def audit_of(run: RunFolder) -> tuple[Audit | None, list[str]]:
    """A run's audit, and notes on one that cannot be shown.

    Args:
        run: after `fit`, `test` and perhaps `audit`. An audit of another harvest than that of its `fit`, as one that
            was made before, says nothing of the results and is left out.
    """
    path = run.path / "audit.json"
    if not path.is_file():
        return None, []
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = other_harvest(_config(run, "fit"), _config(run, "audit"))
        shown = Audit(
            title=audit_counts(document),
            verdict=[str(sentence) for sentence in document["verdict"]["text"]],
            rows=audit_rows(document),
            notes=[str(note) for note in document.get("notes", ())],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        return None, [f"The audit is not in this page: {path} cannot be read ({error!r}). Run `audit` again."]
    if found:
        return None, [f"The audit is not in this page, as it is of another harvest: {changes(found)}."]
    return shown, []


def _config(run: RunFolder, command: str) -> dict[str, Any]:
    return dict(yaml.safe_load(run.file("config", command, "yaml").read_text(encoding="utf-8")))
