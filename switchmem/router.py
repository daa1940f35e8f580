"""The pairwise router: from the actor's state and two embedded candidates to one preference score.

Letters: `B` batch, `D` width of the state, `E` embedding size, `d` router width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F

from switchmem.stages import write_json, write_whole

Target = Literal["dcoe", "utility", "binary", "basic"]
"""What a router learns: SwitchMem's soft target, the utility gap, its sign, or its sign without hidden states."""
Feature = Literal["s", "e", "s*e", "|s-e|"]
"""What the scorer reads of state and candidate: either, their product, the size of their difference."""
FEATURES: tuple[Feature, ...] = get_args(Feature)
Batch = Mapping[str, Any]
_FORMAT = "switchmem.router/1"


class RouterError(ValueError):
    """A router was given inputs of other sizes, or a folder that does not hold one."""


def router_inputs(batch: Batch, target: Target) -> tuple[Tensor, Tensor, Tensor]:
    """What a router of this kind reads.

    Args:
        batch: `state` [B, D], `text`, `image`, `instruction`, `screenshot` [B, E].
        target: "basic" replaces the actor's state by the embeddings of instruction and screenshot, [B, 2E].

    Returns:
        State, Text candidate and Image candidate, as `PairwiseRouter` takes them.
    """
    if target == "basic":
        return torch.cat([batch["instruction"], batch["screenshot"]], dim=-1), batch["text"], batch["image"]
    return batch["state"], batch["text"], batch["image"]


class PairwiseRouter(nn.Module):
    """Score how much more Image memory would help than Text memory.

    State and candidate are mapped to one width and normalised; a scorer shared by both modalities reads
    ``[s; e; s * e; |s - e|]``, so that exchanging the two candidates changes the sign of the result and nothing else.

    Args:
        state_dim: D, width of the state.
        embed_dim: E, width of the candidates' embeddings.
        width: d, width in which state and candidate meet.
        hidden: width of the scorer's hidden layer.
        dropout: probability in [0, 1) of dropping a hidden unit while training.
        features: what the scorer reads, without repeats; None takes all four. One of them must depend on the candidate.

    Raises:
        RouterError: if a width is below 1, `dropout` is outside its range, or `features` break their rule.

    >>> router = PairwiseRouter(state_dim=8, embed_dim=6).eval()
    >>> s, text, image = torch.randn(3, 8), torch.randn(3, 6), torch.randn(3, 6)
    >>> r = router(s, text, image)
    >>> tuple(r.shape), torch.allclose(r, -router(s, image, text))
    ((3,), True)
    """

    def __init__(
        self,
        state_dim: int,
        embed_dim: int,
        width: int = 256,
        hidden: int = 256,
        dropout: float = 0.1,
        features: Sequence[Feature] | None = None,
    ) -> None:
        super().__init__()
        self.features = tuple(FEATURES if features is None else features)
        self.config = {
            "state_dim": state_dim,
            "embed_dim": embed_dim,
            "width": width,
            "hidden": hidden,
            "dropout": dropout,
            "features": list(self.features),
        }
        if min(state_dim, embed_dim, width, hidden) < 1 or not 0.0 <= dropout < 1.0:
            raise RouterError(f"router widths must be >= 1 and `dropout` in [0, 1), got {self.config}.")
        known = set(self.features) <= set(FEATURES) and len(set(self.features)) == len(self.features)
        if not known or not set(self.features) - {"s"}:
            raise RouterError(
                f"`features` must be some of {', '.join(FEATURES)}, each once and not `s` alone, got "
                f"{list(self.features)}. Text and Image differ in the candidate, which `s` does not see."
            )
        self.state_map = nn.Linear(state_dim, width)
        self.candidate_map = nn.Linear(embed_dim, width)
        self.scorer = nn.Sequential(
            nn.Linear(len(self.features) * width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, 1)
        )

    def forward(self, state: Tensor, text: Tensor, image: Tensor) -> Tensor:
        """Preference for Image over Text.

        Args:
            state: [B, D], the actor's state s.
            text: [B, E], embedding of the candidate as Text memory.
            image: [B, E], embedding of the same candidate as Image memory.

        Returns:
            r [B], any real number; the larger, the more Image is preferred.

        Raises:
            RouterError: if a shape does not fit.
        """
        rows = state.shape[:1]
        wanted = {"state": (*rows, self.config["state_dim"])} | dict.fromkeys(
            ("text", "image"), (*rows, self.config["embed_dim"])
        )
        for (name, shape), given in zip(wanted.items(), (state, text, image), strict=True):
            if tuple(given.shape) != shape:
                raise RouterError(
                    f"`{name}` must be {list(shape)}, got {list(given.shape)}. "
                    "The router reads the actor, layer and embedder that it was trained on."
                )
        s = F.normalize(self.state_map(state), dim=-1)
        return self._score(s, image) - self._score(s, text)

    def _score(self, s: Tensor, candidate: Tensor) -> Tensor:
        """Score q [B] of one modality from the normalised state s [B, d] and the candidate [B, E]."""
        e = F.normalize(self.candidate_map(candidate), dim=-1)
        parts = {"s": lambda: s, "e": lambda: e, "s*e": lambda: s * e, "|s-e|": lambda: (s - e).abs()}
        scores: Tensor = self.scorer(torch.cat([parts[name]() for name in self.features], dim=-1))
        return scores.squeeze(-1)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `config.json` into `folder`, each renamed from a temporary name."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        write_whole(folder / "model.safetensors", save(tensors))  # `save_file` would keep it from all other users
        write_json(folder / "config.json", {"format": _FORMAT, **self.config})

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> PairwiseRouter:
        """Load a saved router, in eval mode on the CPU.

        Raises:
            RouterError: if a file is missing, damaged or of another format.
        """
        folder = Path(folder)
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if config.pop("format", None) != _FORMAT:
                raise ValueError(f"config.json is not of format {_FORMAT!r}")
            router = cls(**config)
            router.load_state_dict(load_file(folder / "model.safetensors"))
        except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            raise RouterError(
                f"`folder` must hold the config.json and model.safetensors of a router, got {folder}: {error}. "
                "Train it again, or give the folder that `save_pretrained` wrote."
            ) from error
        return router.eval()
