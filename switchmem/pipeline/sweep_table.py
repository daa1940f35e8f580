"""The one table in which a sweep ends."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from switchmem.stages import write_json, write_whole

MEASURES = ("score", "image_rate", "diff", "lo", "hi", "p", "val_regret")


def write_table(folder: Path, name: str, method: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``sweep.json``, ``sweep.csv`` and ``sweep.txt``, the best score first and what failed last.

    Args:
        folder: gets the files.
        name: of the sweep.
        method: "grid" or "random".
        names: of its parameters.
        rows: of `switchmem.pipeline.sweep.run_job`.
    """
    rows = sorted(rows, key=lambda row: -row.get("score", float("-inf")))
    write_json(folder / "sweep.json", {"sweep": name, "method": method, "parameters": list(names), "rows": rows})
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*names, *MEASURES, "policy", "baseline", "seconds", "key", "error"])
    for row in rows:
        rest = (row.get(name, "") for name in ("policy", "baseline", "seconds", "key", "error"))
        writer.writerow([*row["parameters"].values(), *(row.get(name) for name in MEASURES), *rest])
    write_whole(folder / "sweep.csv", table.getvalue().encode("utf-8", "backslashreplace"))
    write_whole(folder / "sweep.txt", sweep_text(name, names, rows).encode("utf-8", "backslashreplace"))


def sweep_text(title: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as plain text.

    Args:
        title: the sweep's name.
        names: of its parameters.
        rows: in the order to show them.
    """
    heads = [*(name.removeprefix("model.init_args.").removeprefix("study.") for name in names)]
    heads += ["score %", "image %", "points", "95 % CI", "p", "val regret"]
    lines = [heads, *([*(str(row["parameters"].get(n, "")) for n in names), *_cells(row)] for row in rows)]
    widths = [max(len(line[n]) for line in lines if n < len(line)) for n in range(len(heads))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]
    done = [row for row in rows if "error" not in row]
    notes = list(dict.fromkeys(note for row in done for note in row["notes"]))
    if done:
        steps = ", ".join(dict.fromkeys(f"{row['steps']} steps of {row['trajectories']} trajectories" for row in done))
        over = ", ".join(dict.fromkeys(str(row["baseline"]) for row in done))
        notes.insert(0, f"test part, {steps}; points over the best fixed condition ({over}), over trajectories.")
    notes.append(
        "Rows show what a setting does. To choose settings take `val regret`, the points per non-tied step that the "
        "policy loses on held-out training trajectories: the best of many test scores is too good."
    )
    return "\n".join([f"sweep {title}", *text, *notes]) + "\n"


def _cells(row: Mapping[str, Any]) -> list[str]:
    if "error" in row:
        return ["failed"]
    ends = "undefined" if row["lo"] is None else f"[{row['lo']:+.2f}, {row['hi']:+.2f}]"
    regret = "" if row["val_regret"] is None else f"{row['val_regret']:.2f}"
    cells = [f"{row['score']:.2f}", f"{100 * row['image_rate']:.1f}", f"{row['diff']:+.2f}", ends]
    return [*cells, "<.001" if row["p"] < 0.001 else f"{row['p']:.3f}", regret]
