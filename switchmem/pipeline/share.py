"""Sharing a run's policy: the model card comes from the run's results, and only the policy leaves the machine."""

from __future__ import annotations

from pathlib import Path

from switchmem.console import say
from switchmem.pipeline.report import finished
from switchmem.policy import Policy
from switchmem.runs import RunError, RunFolder


def push_policy(
    run: RunFolder,
    repo_id: str | None = None,
    folder: str | None = None,
    policy: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
) -> str:
    """Upload a run's policy with its model card to a hub, or write both into a folder to look at.

    Args:
        run: after `fit` and `test`.
        repo_id: ``owner/name``; created where it is missing.
        folder: where to write instead of uploading.
        policy: one of the folders in the run's ``policy``, such as ``dcoe-1``; None takes the run's own.
        private: whether a new repository is private; None takes the owner's default.
        revision: branch; None takes the main one.

    Returns:
        The commit's address, or the folder.

    Raises:
        RunError: if `test` has not finished in the run, there is no such policy, or not one of `repo_id` and `folder`
            is given.
        PolicyError: if the policy is damaged, or the hub refuses.
    """
    if (repo_id is None) == (folder is None):
        raise RunError(
            f"`push` must get either `--repo_id owner/name` or `--folder PATH`, got {repo_id!r} and {folder!r}. A "
            "folder shows what would be uploaded."
        )
    results = finished(run, "push")
    saved = Policy.load(run.policy if policy is None else _inside(run, policy))
    if folder is not None:
        saved.save_pretrained(folder, results)
        where = str(Path(folder).absolute())
    else:
        where = saved.push_to_hub(str(repo_id), results, private=private, revision=revision)
    say(f"policy: {saved.card.target}-{saved.card.seed} is in {where}")
    return where


def _inside(run: RunFolder, name: str) -> Path:
    known = sorted(path.parent.name for path in run.policy.glob("*/policy.json"))
    if name not in known:
        raise RunError(f"`--policy` must be one of {', '.join(known) or 'none'}, got {name!r}, in {run.policy}.")
    return run.policy / name
