"""The 92 tasks of MobileMiniWoB++, where their pages lie, and the seeds of their instances."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

# AndroidWorld's registry of MiniWoB++ tasks, in its order (android_world, miniwob_registry.py).
TASKS: tuple[str, ...] = tuple(
    """
    bisect-angle book-flight choose-date choose-date-easy choose-date-medium choose-list circle-center click-button
    click-button-sequence click-checkboxes click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer
    click-collapsible click-collapsible-2 click-color click-dialog click-dialog-2 click-link click-menu-2 click-option
    click-pie click-scroll-list click-shades click-shape click-tab click-tab-2 click-tab-2-easy click-tab-2-hard
    click-tab-2-medium click-test click-test-2 click-test-transfer click-widget copy-paste copy-paste-2 count-shape
    count-sides drag-box drag-item email-inbox email-inbox-delete email-inbox-forward email-inbox-forward-nl
    email-inbox-forward-nl-turk email-inbox-important email-inbox-nl-turk email-inbox-noscroll email-inbox-reply
    email-inbox-star-reply enter-date enter-password enter-text enter-text-2 enter-text-dynamic enter-time find-midpoint
    find-word focus-text focus-text-2 grid-coordinate guess-number highlight-text highlight-text-2 identify-shape
    login-user login-user-popup multi-layouts multi-orderings navigate-tree read-table read-table-2 resize-textarea
    right-angle scroll-text scroll-text-2 search-engine simon-says simple-algebra simple-arithmetic social-media
    social-media-all social-media-some terminal text-transform tic-tac-toe unicode-test use-autocomplete use-colorwheel
    use-colorwheel-2 use-slider visual-addition
    """.split()
)


class PagesError(FileNotFoundError):
    """The pages of the tasks cannot be found; the message says where they were looked for and how to get them."""


def pages_root(html_root: str | Path | None = None) -> Path:
    """The folder that holds ``miniwob/*.html``, ``core/`` and ``common/``.

    Args:
        html_root: AndroidWorld's own pages (its app's ``assets/html``) or any other; None takes those of the installed
            package `miniwob`, which holds 91 of the 92.

    Raises:
        PagesError: if there is no such folder, or the package is not installed.
    """
    if html_root is None:
        spec = importlib.util.find_spec("miniwob")  # found, not imported: it would load Selenium
        if spec is None or not spec.submodule_search_locations:
            raise PagesError(
                "the pages must lie in the package `miniwob` or in `html_root`, got neither. "
                'Install them: pip install "switchmem[envs]".'
            )
        root = Path(spec.submodule_search_locations[0]) / "html"
    else:
        root = Path(html_root)
    if not (root / "miniwob").is_dir():
        raise PagesError(
            f"`html_root` must be a folder that holds miniwob/NAME.html, got {str(root)!r}. "
            "AndroidWorld's pages are the folder assets/html of its MiniWoB app."
        )
    return root.resolve()


def page_of(task: str, root: Path) -> Path:
    """The file of a task's page, whether it is there or not."""
    return root / "miniwob" / f"{task}.html"


def available(html_root: str | Path | None = None) -> tuple[str, ...]:
    """The tasks whose page is there, in the order of `TASKS`. The others count as failed in every result.

    Raises:
        PagesError: as `pages_root`.
    """
    root = pages_root(html_root)
    return tuple(task for task in TASKS if page_of(task, root).is_file())


def instance_seed(suite_seed: int, task: str, index: int = 0) -> int:
    """The seed of a task's instance by AndroidWorld's rule: SHA-256 of ``{suite_seed}_{task}_{index}``, modulo 2^32."""
    digest = hashlib.sha256(f"{suite_seed}_{task}_{index}".encode()).hexdigest()
    return int(digest, 16) % 2**32
