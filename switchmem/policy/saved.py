"""The saved policy: a router, its frozen threshold, and what both were made for; in a folder, or on a hub.

Letters: `B` batch.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from switchmem.memory.views import Condition
from switchmem.policy.hub import fetch, is_hub_id, publish
from switchmem.policy.model_card import model_card
from switchmem.policy.threshold import PolicyError, choices
from switchmem.router import Batch, PairwiseRouter, Target, router_inputs
from switchmem.stages import check_files, digest_of, fingerprint, write_json, write_whole

_FORMAT = "switchmem.policy/2"
_ROUTER = ("model.safetensors", "config.json")
FILES = (*_ROUTER, "policy.json")
"""All that a policy is; a hub is asked for nothing else."""


@dataclass(frozen=True)
class PolicyCard:
    """What a policy was made for; it decides nothing sensible for anything else.

    Args:
        actor: fingerprint of the actor whose states the router reads.
        layer: decoder block of those states, from 0; of several, the states are averaged.
        template: fingerprint of the prompt template.
        embedder: name of the embedder of the candidates.
        target: what the router learned.
        seed: seed of its training.
        image_rate: share of Image choices on the training steps in [0, 1]; transfer matches it.
        n_pref: non-tied steps it was trained on.
        actor_name: what people call the actor; its fingerprint decides.
        template_name: likewise of the prompt template.
    """

    actor: str
    layer: int | tuple[int, ...]
    template: str
    embedder: str
    target: Target = "dcoe"
    seed: int = 0
    image_rate: float = math.nan
    n_pref: int = 0
    actor_name: str = ""
    template_name: str = ""

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks whose states are averaged."""
        return (self.layer,) if isinstance(self.layer, int) else self.layer


@dataclass(frozen=True, eq=False)
class Policy:
    """A router with its frozen threshold.

    Args:
        router: the trained router.
        threshold: tau.
        card: what it was made for.
    """

    router: PairwiseRouter
    threshold: float
    card: PolicyCard

    @torch.inference_mode()
    def route(self, batch: Batch) -> tuple[list[Condition], torch.Tensor]:
        """Choose the memory of each step.

        Args:
            batch: the inputs of `switchmem.router.router_inputs`, on the router's device.

        Returns:
            B conditions, each Image or Text, and the router scores r [B].
        """
        r = self.router.eval()(*router_inputs(batch, self.card.target))
        chosen = choices(r.cpu(), self.threshold)
        return [Condition.IMAGE if image else Condition.TEXT for image in chosen], r

    def check(
        self,
        *,
        actor: str,
        layer: int | tuple[int, ...],
        template: str,
        embedder: str,
        actor_name: str = "",
        template_name: str = "",
    ) -> None:
        """Refuse to be used with another actor, block, template or embedder than in training.

        Args:
            actor: as in `PolicyCard`, and so are the next three.
            layer: of the states.
            template: of the prompts.
            embedder: of the candidates.
            actor_name: for the message alone.
            template_name: likewise.

        Raises:
            PolicyError: if one differs; all that do are named, with what was trained with.
        """
        given = {"actor": actor, "layer": layer, "template": template, "embedder": embedder}
        names = {"actor": actor_name, "template": template_name}
        wrong = []
        for part, value in given.items():
            trained = getattr(self.card, part)
            if value != trained:
                named = getattr(self.card, f"{part}_name", "")
                wrong.append(f"`{part}` is {_called(value, names.get(part))}, trained with {_called(trained, named)}")
        if wrong:
            raise PolicyError(
                f"the policy must be used as it was trained, got: {'; '.join(wrong)}. "
                "Use the actor's own policy, or train one for these settings."
            )

    def save(self, folder: str | Path) -> None:
        """Write the router's files and `policy.json`, which comes last: with it the policy is complete."""
        folder = Path(folder)
        # an older threshold must never stand beside the new router
        (folder / "policy.json").unlink(missing_ok=True)
        self.router.save_pretrained(folder)
        card = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(self.card).items()}
        # JSON has no infinity, so it is kept as the text that `float` reads
        threshold = self.threshold if math.isfinite(self.threshold) else str(self.threshold)
        values = {"format": _FORMAT, "threshold": threshold, "card": card}
        values["digests"] = {name: digest_of(folder / name) for name in _ROUTER}
        write_json(folder / "policy.json", {**values, "digest": fingerprint(values)})

    @classmethod
    def load(cls, folder: str | Path) -> Policy:
        """Inverse of `save`.

        Raises:
            PolicyError: if a file is missing, damaged, altered or of another format.
        """
        folder = Path(folder)
        try:
            values: dict[str, Any] = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
            if values["format"] != _FORMAT:
                raise ValueError(f"format {values['format']!r} is not {_FORMAT!r}")
            if values.pop("digest") != fingerprint(values):
                raise ValueError("policy.json was altered")
            check_files(folder, {name: values["digests"][name] for name in _ROUTER}, "")
            card: dict[str, Any] = {k: v for k, v in values["card"].items() if v is not None}
            if isinstance(card["layer"], list):
                card["layer"] = tuple(card["layer"])
            policy = cls(PairwiseRouter.from_pretrained(folder), float(values["threshold"]), PolicyCard(**card))
            if policy.card.target not in get_args(Target) or math.isnan(policy.threshold):
                raise ValueError(f"target {policy.card.target!r}, threshold {policy.threshold}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PolicyError(
                f"`folder` must hold a whole policy (policy.json, config.json, model.safetensors), got {folder}: "
                f"{error}. Run `fit` again, or fetch it again."
            ) from error
        return policy

    # --- sharing ---

    def save_pretrained(self, folder: str | Path, results: Mapping[str, Any] | None = None) -> None:
        """Write the files of `save`, and a model card as ``README.md``.

        Args:
            folder: where to; it is created.
            results: of the `test` that scored this policy; None writes a card that says it was not tested.

        Raises:
            PolicyError: if the results are of another policy.
        """
        text = model_card(self.card, self.threshold, results)
        self.save(folder)
        write_whole(Path(folder) / "README.md", text.encode("utf-8", "replace"))

    def push_to_hub(
        self,
        repo_id: str,
        results: Mapping[str, Any] | None = None,
        *,
        private: bool | None = None,
        revision: str | None = None,
        token: str | None = None,
        commit_message: str = "A policy of switchmem",
    ) -> str:
        """Upload the files of `save_pretrained` to a repository, which is created where it is missing.

        Args:
            repo_id: ``owner/name``.
            results: as of `save_pretrained`.
            private: whether a new repository is private; None takes the owner's default.
            revision: branch to write to, created where it is missing; None takes the main one.
            token: of the hub; None takes the one that ``hf auth login`` left, or $HF_TOKEN.
            commit_message: of the upload.

        Returns:
            The address of the commit.

        Raises:
            PolicyError: if the results are of another policy, or the hub refuses; its reason is in the message.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, results)
            return publish(Path(folder), repo_id, private, revision, token, commit_message)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
    ) -> Policy:
        """Load a policy from a folder, or from a hub. Nothing is unpickled, and no code of the repository runs.

        Args:
            name: a folder, or where there is none ``owner/name`` on the hub.
            revision: branch, tag or commit on the hub; a commit is recommended, the others can move.
            token: for private repositories; None takes the one that ``hf auth login`` left, or $HF_TOKEN.
            cache_dir: where fetched files are kept; None takes the hub client's own place.
            local_files_only: ask no network; take what was fetched before.

        Raises:
            PolicyError: if there is none, it cannot be fetched, or is damaged; or a folder is given a revision.
        """
        if not is_hub_id(name):
            if revision is not None:
                raise PolicyError(
                    f"`revision` must be left out for a folder, got {revision!r} for {name}. Folders have no history; "
                    "give the hub's owner/name."
                )
            return cls.load(name)
        return cls.load(fetch(str(name), FILES, revision, token, cache_dir, local_files_only))


def _called(value: Any, name: str | None) -> str:
    return f"{name!r} ({value})" if name else repr(value)
