"""Policies on a hub: the Hugging Face Hub, or whatever speaks like it at $HF_ENDPOINT.

The hub's own client does the work, with its login, cache and proxies. It is imported where it is used: no other run
needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from switchmem.policy.threshold import PolicyError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_id(name: str | Path) -> bool:
    """Whether a name can only be meant for a hub: ``owner/name``, and nothing of that name lies here.

    >>> is_hub_id("owner/name"), is_hub_id("runs/pocket/policy"), is_hub_id("./name")
    (True, False, False)
    """
    return isinstance(name, str) and _ID.fullmatch(name) is not None and not Path(name).exists()


def fetch(
    repo_id: str,
    files: Sequence[str],
    revision: str | None,
    token: str | None,
    cache_dir: str | Path | None,
    local_files_only: bool,
) -> Path:
    """Fetch some files of a repository, all of one commit, and nothing else of it.

    Args:
        repo_id: ``owner/name``.
        files: their names.
        revision: branch, tag or commit; None takes the main branch.
        token: of the hub; None takes the user's.
        cache_dir: where to keep them; None takes the client's own place.
        local_files_only: whether the network may not be asked.

    Returns:
        The folder that holds them.

    Raises:
        PolicyError: if that fails.
    """
    from huggingface_hub import snapshot_download

    with _told(f"`name` must be a folder with a policy, or a policy on the hub, got {_called(repo_id, revision)}"):
        return Path(
            snapshot_download(
                repo_id,
                revision=revision,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only,
                allow_patterns=list(files),
            )
        )


def publish(
    folder: Path, repo_id: str, private: bool | None, revision: str | None, token: str | None, message: str
) -> str:
    """Upload a folder's files in one commit; creates repository and branch where they are missing.

    Args:
        folder: its files are uploaded.
        repo_id: ``owner/name``.
        private: whether a new repository is private; None takes the owner's default.
        revision: branch; None takes the main one.
        token: of the hub; None takes the user's.
        message: of the commit.

    Returns:
        The commit's address.

    Raises:
        PolicyError: if that fails.
    """
    if _ID.fullmatch(repo_id) is None:
        raise PolicyError(f"`repo_id` must be owner/name, got {repo_id!r}. The owner is you or an organisation.")
    from huggingface_hub import HfApi

    with _told(f"`repo_id` must be a repository that you may write, got {_called(repo_id, revision)}"):
        api = HfApi(token=token, library_name="switchmem")
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        commit = api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, commit_message=message)
        return str(commit.commit_url)


def _called(repo_id: str, revision: str | None) -> str:
    return repr(repo_id) if revision is None else f"{repo_id!r} at revision {revision!r}"


@contextmanager
def _told(found: str) -> Iterator[None]:
    """Tell errors of the hub's client in this project's words."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RevisionResolutionError

    try:
        yield
    except HfHubHTTPError as error:
        raise PolicyError(
            f"{found}: {_reason(error)} Check name and revision; for private ones log in (`hf auth login`) or set "
            "HF_TOKEN."
        ) from error
    except (HFValidationError, RevisionResolutionError, OSError) as error:  # no network, no cache, no space
        raise PolicyError(
            f"{found}: {_reason(error)} Correct the name, or look at the network and $HF_ENDPOINT."
        ) from error


def _reason(error: Exception) -> str:
    """The first two lines: what happened, and with what. Behind them stands the client's own advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__
