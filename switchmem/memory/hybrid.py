"""Hybrid retrieval of trajectories by their instruction: a dense cosine and BM25, mixed.

EchoTrail retrieves once per task with ``alpha * dense + (1 - alpha) * sparse`` (arXiv 2512.19396); its alpha is not
known. BM25 scores have no upper end, so they are divided by the highest of the candidates (ours).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from switchmem.memory.baseline import BaselineError

Floats = NDArray[np.float64]


class HybridIndex:
    """Texts to be ranked.

    Args:
        texts: `M` texts, at least one.
        vectors: ``[M, E]`` of them, rows of length 1.

    Raises:
        BaselineError: if there is no text, or the package for BM25 is missing.
    """

    def __init__(self, texts: Sequence[str], vectors: Tensor) -> None:
        if not texts:
            raise BaselineError("hybrid retrieval must have at least one trajectory, got none. Give the bank steps.")
        self._bm25s = _package()
        self._vectors: Floats = vectors.double().cpu().numpy()
        self._sparse = self._bm25s.BM25(auto_compile=False)  # its compiled way needs another package
        self._sparse.index(self._tokens(texts), show_progress=False)

    def scores(self, text: str, vector: Tensor, among: Sequence[int], alpha: float) -> Floats:
        """The mixed score of some of the texts, [m]: the cosine in [-1, 1], and BM25 in [0, 1].

        Args:
            text: the query.
            vector: ``[E]`` of it, of length 1.
            among: places of the texts that count.
            alpha: weight of the cosine, in [0, 1].
        """
        places = np.asarray(among, dtype=np.int64)
        dense = self._vectors[places] @ vector.double().cpu().numpy()
        sparse = self.sparse(text)[places]
        most = sparse.max(initial=0.0)
        return np.asarray(alpha * dense + (1.0 - alpha) * (sparse / most if most > 0 else sparse))

    def sparse(self, text: str) -> Floats:
        """BM25 of all texts, [M], at least 0."""
        (tokens,) = self._tokens([text])
        return np.asarray(self._sparse.get_scores(tokens), dtype=np.float64)

    def _tokens(self, texts: Sequence[str]) -> list[list[str]]:
        # every word counts: instructions are short, and few of them are English prose
        pattern = r"(?u)\b\w+\b"
        found: list[list[str]] = self._bm25s.tokenize(
            list(texts), token_pattern=pattern, stopwords=[], return_ids=False, show_progress=False
        )
        return found


def _package() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise BaselineError(
            f"`echotrail.retrieval` must be 'shared' where bm25s is not installed, got 'hybrid': {error}. "
            'Install it: pip install -e ".[hybrid]".'
        ) from error
    return bm25s
