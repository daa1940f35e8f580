"""What episodes of MobileMiniWoB++ depend on, as plain values that change with it."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from switchmem import envs
from switchmem.benchmarks import uiautomator
from switchmem.envs.miniwob.browser import find_chromium
from switchmem.envs.miniwob.tasks import pages_root
from switchmem.stages import digest_of

_ENVS = Path(str(envs.__file__)).parent
_SCRIPTS = _ENVS / "miniwob" / "demonstrators"


def identity(html_root: str | None = None) -> dict[str, Any]:
    """Digests of the environment's code, of what lists a screen's elements, and of the pages; the browser's name.

    Args:
        html_root: the folder of the pages; None takes those of the package `miniwob`.

    Raises:
        PagesError: if there are no pages.
        BrowserError: if there is no browser.
    """
    root, program = pages_root(html_root), find_chromium()
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    return {
        "environment": "miniwob",
        "code": code_digest(_ENVS),
        "elements": digest_of(Path(uiautomator.__file__)),
        "browser": said.strip(),
        "pages": _digest(root, (p for p in root.rglob("*") if p.is_file())),
    }


def scripts_digest() -> str:
    """32 hexadecimal digits that change with the scripted demonstrators."""
    return code_digest(_SCRIPTS)


def code_digest(folder: Path) -> str:
    """32 hexadecimal digits that change with the code of an environment; of the demonstrators it knows nothing.

    Args:
        folder: of the package; of the demonstrators' own folder all counts.
    """
    found = (path for suffix in ("py", "js") for path in folder.rglob(f"*.{suffix}"))
    return _digest(folder, (path for path in found if "demonstrators" not in path.relative_to(folder).parts))


def _digest(folder: Path, files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder)} {digest_of(path)};".encode())
    return digest.hexdigest()
