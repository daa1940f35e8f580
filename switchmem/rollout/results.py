"""What a rollout found, as one JSON document, and the table that is printed from it.

A task is done or not. The denominator holds every task that was asked for: one whose page is missing counts as failed
under every policy, and is named. Policies are compared on the same instances: McNemar's exact test, Holm's adjustment
over the fixed conditions and, apart from them, over the memory baselines, and an interval from resampled tasks. Rates
are in [0, 1], success and differences in percent and percentage points; what is not defined is null.
"""

from __future__ import annotations

import io
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from switchmem.envs.base import Ending
from switchmem.evaluation import baseline_text, cluster_bootstrap, holm, mcnemar_exact
from switchmem.memory.views import Condition
from switchmem.rollout.baseline_results import told_of_played
from switchmem.rollout.trace import REQUEST_FAILED, Facts, broke, finite

FORMAT = "switchmem.rollout/1"
SWITCHMEM = "switchmem"
"""The policy that chooses the memory's form at every step."""
FIXED = tuple(condition.value for condition in Condition)
POLICIES = (*FIXED, SWITCHMEM)


class RolloutError(ValueError):
    """A rollout cannot be played or read as asked; the message says why, and the way out."""


@dataclass(frozen=True)
class Played:
    """What was played.

    Args:
        tasks: every task that was asked for; the denominator.
        episodes: of each policy and memory baseline, one per task, in the order of `tasks`.
        facts: entries of the document that are told as they are (bank, threshold, instances, settings, provenance).
        notes: what the numbers must be read with.
        baselines: of each memory baseline what is told of it as it is, see `told_of_played`.
    """

    tasks: Sequence[str]
    episodes: Mapping[str, Sequence[Facts]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def build_rollout_results(played: Played, replicates: int = 20_000) -> dict[str, Any]:
    """The results document.

    Args:
        played: what was played.
        replicates: resamples of tasks behind each interval, >= 1.

    Raises:
        RolloutError: if a policy's episodes are not one per task.
    """
    for policy, episodes in played.episodes.items():
        if [episode.task for episode in episodes] != list(played.tasks):
            raise RolloutError(
                f"every policy must have one episode of each of the {len(played.tasks)} tasks, got {len(episodes)} of "
                f"{policy!r}. Run the same command again: what is missing is played."
            )
    policies = {name: _row(episodes) for name, episodes in played.episodes.items()}
    for name, about in played.baselines.items():
        policies[name]["image_rate"] = float(about["shows_image"])
    unequal = _unequal(played)
    notes = list(played.notes)
    if missing := _missing(played):
        notes.append(f"{len(missing)} of {len(played.tasks)} tasks have no page and count as failed: {_list(missing)}.")
    if broken := _ended(played, lambda episode: broke(episode.ending, bool(episode.look))):
        notes.append(
            f"{len(broken)} episodes ended because their page, browser or environment broke, twice each, and count as "
            f"failed: {_list(broken)}. Their traces say how; delete these to have them played again."
        )
    if refused := _ended(played, lambda episode: episode.ending == REQUEST_FAILED):
        notes.append(
            f"{len(refused)} episodes ended because an endpoint gave no answer, and count as failed: {_list(refused)}. "
            "Their traces say why; delete these to have them played again."
        )
    if unequal:
        notes.append(
            f"{len(unequal)} tasks did not begin with the same screen under every policy: {_list(unequal)}. Their "
            "pages are not the same twice."
        )
    return {
        "format": FORMAT,
        "benchmark": "miniwob",
        "n_tasks": len(played.tasks),
        "tasks": list(played.tasks),
        "missing": missing,
        "unequal": unequal,
        "policies": policies,
        **_comparisons(policies, played, replicates),
        "baselines": {name: told_of_played(played.episodes[name], about) for name, about in played.baselines.items()},
        "by_task": {
            task: {name: episodes[n].success for name, episodes in played.episodes.items()}
            for n, task in enumerate(played.tasks)
        },
        "notes": notes,
        **finite(played.facts),
    }


def _missing(played: Played) -> list[str]:
    missing = Ending.MISSING_PAGE.value
    first = next(iter(played.episodes.values()), ())
    return [episode.task for episode in first if episode.ending == missing]


def _ended(played: Played, so: Callable[[Facts], bool]) -> list[str]:
    """The episodes that ended so, as policy/task."""
    found = ((policy, episode) for policy, episodes in played.episodes.items() for episode in episodes)
    return [f"{policy}/{episode.task}" for policy, episode in found if so(episode)]


def _unequal(played: Played) -> list[str]:
    """Tasks whose first screen is not the same under every policy that could begin them."""
    found = []
    for n, task in enumerate(played.tasks):
        looks = {episodes[n].look for episodes in played.episodes.values() if episodes[n].look}
        if len(looks) > 1:
            found.append(task)
    return found


def _list(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _row(episodes: Sequence[Facts]) -> dict[str, Any]:
    """What a policy did."""
    forms = Counter(form for episode in episodes for form in episode.forms)
    moves = sum(forms.values())
    remembered = moves - forms[Condition.NONE.value]
    actor = [s for episode in episodes for s in episode.actor_seconds]
    whole = [s for episode in episodes for s in episode.step_seconds]
    shown = forms[Condition.IMAGE.value] + forms[Condition.BOTH.value]
    return {
        "success": 100.0 * sum(e.success for e in episodes) / len(episodes),
        "successes": sum(e.success for e in episodes),
        "tasks": len(episodes),
        "steps": moves,
        "image_rate": shown / remembered if remembered else None,
        "forms": dict(forms),
        "unparsable": sum(e.unparsable for e in episodes),
        "tokens": {"prompt": sum(e.tokens[0] for e in episodes), "answer": sum(e.tokens[1] for e in episodes)},
        "endings": dict(Counter(e.ending for e in episodes)),
        "actor_seconds_per_step": statistics.fmean(actor) if actor else None,
        "seconds_per_step": statistics.fmean(whole) if whole else None,
    }


def _comparisons(policies: Mapping[str, Any], played: Played, replicates: int) -> dict[str, Any]:
    """SwitchMem against every fixed condition and baseline; the best fixed one stands out, of equal ones the first."""
    fixed = [name for name in FIXED if name in policies]
    best = max(fixed, key=lambda name: policies[name]["successes"], default=None)
    result: dict[str, Any] = {"comparison": {"policy": SWITCHMEM, "baseline": best}, "comparisons": {}}
    if SWITCHMEM not in policies:
        return result
    rows = _against(fixed, played, replicates) | _against(list(played.baselines), played, replicates)
    return {**result, "comparisons": rows}


def _against(names: Sequence[str], played: Played, replicates: int) -> dict[str, dict[str, Any]]:
    """SwitchMem against some others; p is adjusted over these."""
    ours = [e.success for e in played.episodes[SWITCHMEM]]
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        theirs = [e.success for e in played.episodes[name]]
        gaps = [float(a) - float(b) for a, b in zip(ours, theirs, strict=True)]
        interval = cluster_bootstrap(gaps, list(played.tasks), replicates)
        rows[name] = {
            "diff": 100.0 * interval.mean,
            "ci95": [_percent(end) for end in (interval.lo, interval.hi)],
            "only_ours": sum(gap > 0 for gap in gaps),
            "only_theirs": sum(gap < 0 for gap in gaps),
            "p": mcnemar_exact(ours, theirs),
        }
    for name, adjusted in zip(rows, holm([row["p"] for row in rows.values()]), strict=True):
        rows[name]["p_holm"] = adjusted
    return rows


def _percent(share: float) -> float | None:
    return None if math.isnan(share) else 100.0 * share


def read_rollout_results(path: Path) -> dict[str, Any]:
    """Inverse of writing the document.

    Raises:
        RolloutError: if the file is missing, damaged or something else.
    """
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"no {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RolloutError(
            f"{path} must hold the results of a rollout, got: {error!r}. Run `rollout` again."
        ) from error
    return values


def rollout_table(results: Mapping[str, Any]) -> Table:
    """The policies of a document as a table for a terminal."""
    best = results["comparison"]["baseline"]
    table = Table(
        title=f"{results['benchmark']}, online: {results['n_tasks']} tasks",
        caption="\n".join(results["notes"]),
        caption_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for heading in ("done %", "tasks", "image %", "steps", "SwitchMem over it", "95 % CI", "p", "Holm p", "s/step"):
        table.add_column(heading, justify="right")
    for cells in rollout_rows(results):
        name = f"{cells[0]} (best fixed)" if cells[0] == best else cells[0]
        table.add_row(name, *cells[1:], style="bold" if cells[0] == SWITCHMEM else None)
    return table


def rollout_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """The table's cells as text."""
    rows = []
    for name, row in results["policies"].items():
        compared = results["comparisons"].get(name)
        cells = [name, f"{row['success']:.2f}", f"{row['successes']}/{row['tasks']}"]
        cells += ["" if row["image_rate"] is None else f"{100 * row['image_rate']:.1f}", str(row["steps"])]
        if compared is None:
            cells += [""] * 4
        else:
            lo, hi = compared["ci95"]
            interval = "undefined" if lo is None or hi is None else f"[{lo:+.2f}, {hi:+.2f}]"
            cells += [f"{compared['diff']:+.2f}", interval, _p(compared["p"]), _p(compared["p_holm"])]
        seconds = row["actor_seconds_per_step"]
        rows.append([*cells, "" if seconds is None else f"{seconds:.3f}"])
    return rows


def rollout_text(results: Mapping[str, Any], width: int = 120) -> str:
    """The tables as plain text, for files and pipes; what the memory baselines cost has one of its own."""
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, force_terminal=False).print(rollout_table(results))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n" + baseline_text(results)


def _p(p: float) -> str:
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
