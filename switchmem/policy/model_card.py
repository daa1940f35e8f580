"""The model card of a policy: what it is for, and what a test run measured. Nothing is in it that was not measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from switchmem.policy.threshold import PolicyError

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from switchmem.policy.saved import PolicyCard

Results = Mapping[str, Any]
PAPER = "*Learning How to Remember: Memory Modality Selection for GUI Agents* (arXiv 2610.17928)"
EXAMPLE = """```python
from switchmem.policy import Policy

policy = Policy.from_pretrained("OWNER/NAME", revision="COMMIT")
```"""
LEARNED = {
    "dcoe": "the soft preference in the actor's own states (SwitchMem)",
    "utility": "the gap between the two scores",
    "binary": "which of the two scores is higher",
    "basic": "which of the two scores is higher, without hidden states",
}


def model_card(card: PolicyCard, threshold: float, results: Results | None = None) -> str:
    """The text of a README.md with the hub's metadata in front.

    Args:
        card: of the policy.
        threshold: its tau.
        results: of the `test` that scored it; None says that it was not tested.

    Raises:
        PolicyError: if the results are of another policy.
    """
    from huggingface_hub import ModelCardData  # the hub's client, which no other run needs

    own = None if results is None else _own_row(card, threshold, results)
    data = ModelCardData(
        library_name="switchmem",
        tags=["gui-agent", "memory", "router"],
        base_model=card.actor_name.partition("@")[0] if _on_hub(card.actor_name) else None,
        model_name=f"switchmem-{card.target}-{card.seed}" if own else None,
        eval_results=None if own is None or results is None else _metrics(results, own),
    )
    parts = [f"---\n{data.to_yaml()}\n---", *_purpose(card, threshold)]
    parts += ["## Results", "It was not tested."] if results is None or own is None else _measured(results, own)
    return "\n\n".join(parts) + "\n"


def _own_row(card: PolicyCard, threshold: float, results: Results) -> Mapping[str, Any]:
    """The row of the very router that is shared: a policy's row in the table is a mean over seeds."""
    for row in results["per_seed"]:
        if (row["target"], row["seed"], float(row["threshold"])) == (card.target, card.seed, threshold):
            return dict(row)
    known = ", ".join(f"{row['target']}-{row['seed']} at {row['threshold']}" for row in results["per_seed"]) or "none"
    raise PolicyError(
        f"`results` must be of this policy, {card.target}-{card.seed} at threshold {threshold}, got those of {known}. "
        "Run `test` for this policy."
    )


def _on_hub(name: str) -> bool:
    """Whether an actor's name is a hub id with its revision; of a local folder it is the folder's own name."""
    return "/" in name


def _metrics(results: Results, own: Mapping[str, Any]) -> list[EvalResult]:
    from huggingface_hub import EvalResult

    values = {
        "score": (own["score"], "Mean official score, %"),
        "best_fixed_score": (_baseline(results)["score"], f"Always {results['comparison']['baseline']}, %"),
        "oracle_score": (results["policies"]["oracle"]["score"], "Better of Text and Image per step, %"),
        "image_rate": (100 * own["image_rate"], "Steps with Image memory, %"),
    }
    return [
        EvalResult(
            task_type="other",
            task_name="Choosing the form of a GUI agent's memory",
            dataset_type=str(results["benchmark"]),
            dataset_name=str(results["benchmark"]),
            dataset_split="test",
            metric_type=name,
            metric_name=words,
            metric_value=round(float(value), 4),
        )
        for name, (value, words) in values.items()
    ]


def _baseline(results: Results) -> Mapping[str, Any]:
    row: Mapping[str, Any] = results["policies"][results["comparison"]["baseline"]]
    return row


def _purpose(card: PolicyCard, threshold: float) -> list[str]:
    layers = ", ".join(map(str, card.blocks))
    rows = [
        ("actor", _with_fingerprint(card.actor_name, card.actor)),
        ("decoder block, from 0", layers),
        ("prompt template", _with_fingerprint(card.template_name, card.template)),
        ("embedder", f"`{card.embedder}`"),
        ("learned", f"{LEARNED[card.target]}, from {card.n_pref:,} steps, seed {card.seed}"),
        ("threshold", "always Text" if threshold == math.inf else f"{threshold:.6g}"),
    ]
    if threshold == -math.inf:
        rows[-1] = ("threshold", "always Image")
    return [
        "# A memory modality policy",
        "For a phone-using agent it decides at each step whether a remembered demonstration is shown as text or as an "
        f"image. It is a small router over a frozen actor's hidden state with a frozen threshold, after {PAPER}.",
        "## What it is for",
        _table(("", "made for"), rows),
        "It refuses any other actor, block, prompt template or embedder.",
        EXAMPLE,
        "`SwitchMemAgent.from_pretrained` takes the same name, and runs it in an agent's loop. The files are "
        "safetensors and JSON; nothing is unpickled.",
    ]


def _with_fingerprint(name: str, fingerprint: str) -> str:
    return f"{name} (`{fingerprint}`)" if name else f"`{fingerprint}`"


def _measured(results: Results, own: Mapping[str, Any]) -> list[str]:
    baseline = results["comparison"]["baseline"]
    rows = []
    for name, row in results["policies"].items():
        compared = results["comparisons"].get(name)
        difference = ("", "") if compared is None else (f"{compared['diff']:+.2f}", _interval(compared["ci95"]))
        label = f"{name} (best fixed)" if name == baseline else name
        rows.append((label, f"{row['score']:.2f}", f"{100 * row['image_rate']:.1f}", *difference))
    columns = ("policy", "score, %", "Image, % of steps", f"points over {baseline}", "95 % interval")
    source = results["provenance"]
    code = f"code {source['git']}{' with changes' if source.get('dirty') else ''}" if source.get("git") else "no commit"
    return [
        "## Results",
        f"This router: {own['score']:.2f} % on {results['n_steps']:,} test steps of {results['n_trajectories']:,} "
        f"trajectories of {results['benchmark']}, Image on {100 * own['image_rate']:.1f} % of them, "
        f"{own['diff']:+.2f} points over always {baseline}. In the table, learned policies are means over "
        "router seeds, and intervals resample trajectories.",
        *(f"**{note}**" for note in results["notes"]),
        _table(columns, rows),
        f"Measured by `train.py test` ({source.get('time', 'no date')}, {code}).",
    ]


def _interval(ends: Sequence[float | None]) -> str:
    lo, hi = ends
    return "undefined" if lo is None or hi is None else f"[{lo:+.2f}, {hi:+.2f}]"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar in a cell would end it."""
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in cells
    )
