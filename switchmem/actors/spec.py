"""Which actor, exactly: everything that decides its weights and its words, as plain configuration."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from switchmem.actors.api.endpoint import Endpoint
from switchmem.actors.grammars.base import Grammar, get_grammar
from switchmem.memory.budget import Budget
from switchmem.memory.views import Condition, views_as_dict
from switchmem.prompts import Prompt, PromptTemplate, build_prompts, fingerprint, get_template
from switchmem.steps import Step

if TYPE_CHECKING:  # the command line's parser runs these imports too, so they must be light
    from switchmem.actors.encoder import PromptEncoder
    from switchmem.actors.protocol import Actor

SHIPPED = {name: Path(__file__).parent / name for name in ("pocket", "miniwob")}
"""Folders of the actors that come along, by name."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


class ActorSpecError(ValueError):
    """An actor's configuration breaks a rule or its files are missing; the message names the way out."""


class PromptTokenizer(Protocol):
    """What the building of prompts asks of an actor; `VLMActor` and `PromptEncoder` have it."""

    @property
    def specials(self) -> tuple[str, ...]:
        """The words that are escaped in every text of the outside world."""

    def count(self, text: str) -> int:
        """Tokens of a text, for `ActorSpec.state_tokens`."""


@dataclass(frozen=True)
class ActorSpec:
    """A frozen actor.

    Args:
        model: ``pocket`` or ``miniwob`` for those that are shipped, a folder, or a hub id.
        revision: commit, tag or branch of a hub id; a commit is recommended, the others can move. Without meaning for
            a folder.
        adapter: folder or hub id of a PEFT adapter such as a LoRA, which is merged into the weights; null for none.
        adapter_revision: what `revision` is, for the adapter.
        dtype: float32, bfloat16 or float16.
        grammar: how it writes actions, of `get_grammar`.
        template: the words of its prompts, of `get_template`.
        memory_first: whether the memory comes before the current state in its prompts. Less can be shared then.
        screen_text: whether the current screen is also given as text, behind the instruction, in every condition.
        attention: attention kernel: sdpa, eager or flash_attention_2.
        device: ``auto``, or a torch device such as ``cpu`` or ``cuda:0``.
        min_pixels: the fewest pixels of a picture; smaller ones are scaled up. None keeps the model's own limit.
        max_pixels: the most pixels of a picture; larger ones are scaled down. None keeps the model's own limit.
        max_prompt_tokens: the most tokens of a prompt, visual ones included; None for no limit.
        state_tokens: the most tokens of a textual screen: a demonstration's is cut to them without losing the
            demonstrated element. None writes all of the screen.
        max_batch_tokens: the most tokens that lie in memory at once, padding and the answers' own included; longer
            batches of steps are run in parts. None runs each batch as it comes. Where memory runs out all the same,
            a batch is halved.
        endpoint: a chat endpoint that serves `model`; None loads the weights here.

    Raises:
        ActorSpecError: if the dtype is unknown, a limit is below 1, `min_pixels` above `max_pixels`, or a setting is
            given that an endpoint cannot follow.
        GrammarError: if the grammar is unknown.
        PromptError: if the template is unknown.
    """

    model: str = "pocket"
    revision: str | None = None
    adapter: str | None = None
    adapter_revision: str | None = None
    dtype: str = "float32"
    grammar: str = "pocket"
    template: str = "pocket"
    memory_first: bool = False
    screen_text: bool = False
    attention: str = "sdpa"
    device: str = "auto"
    min_pixels: int | None = None
    max_pixels: int | None = None
    max_prompt_tokens: int | None = None
    state_tokens: int | None = None
    max_batch_tokens: int | None = None
    endpoint: Endpoint | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ActorSpecError(f"`dtype` must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")
        for name in ("min_pixels", "max_pixels", "max_prompt_tokens", "state_tokens", "max_batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ActorSpecError(f"`{name}` must be at least 1 or null, got {value}.")
        if None not in (self.min_pixels, self.max_pixels) and self.min_pixels > self.max_pixels:  # type: ignore[operator]
            raise ActorSpecError(
                f"`min_pixels` must be at most `max_pixels`, got {self.min_pixels} and {self.max_pixels}."
            )
        for name in ("max_prompt_tokens", "max_batch_tokens", "min_pixels", "adapter"):
            if self.endpoint is not None and getattr(self, name) is not None:
                raise ActorSpecError(
                    f"`{name}` must be null with an `endpoint`, got {getattr(self, name)!r}: the server holds the "
                    "model and counts its tokens. `max_pixels` and `state_tokens` bound what it is sent."
                )
        get_grammar(self.grammar)
        get_template(self.template)

    @property
    def folder(self) -> Path | None:
        """Where the weights lie; None for a hub id, or behind an endpoint."""
        if self.endpoint is not None:
            return None
        if self.model in SHIPPED:
            return SHIPPED[self.model]
        path = Path(self.model).expanduser()
        return path if path.is_dir() else None

    @property
    def name(self) -> str:
        """What people call it, without a path of this machine: ``owner/model@revision``, or its folder's own name."""
        parts = [
            (self.model, self.revision),
            *([] if self.adapter is None else [(self.adapter, self.adapter_revision)]),
        ]
        return " + ".join(_name(model, revision) for model, revision in parts)

    def load_grammar(self) -> Grammar:
        """The actor's grammar."""
        return get_grammar(self.grammar, self.max_pixels)

    def load_template(self) -> PromptTemplate:
        """The words of the actor's prompts, and their order."""
        template = get_template(self.template)
        template = template.with_screen_text() if self.screen_text else template
        return template.with_memory_first() if self.memory_first else template

    def prompts(
        self, step: Step, demo: Step | None, conditions: Iterable[Condition], tokenizer: PromptTokenizer
    ) -> dict[Condition, Prompt]:
        """What the actor is asked at a step: the state prompt, and one prompt for each other condition.

        Args:
            step: the current step.
            demo: its demonstration; may be None where no memory condition is wanted.
            conditions: in which forms the demonstration is shown.
            tokenizer: the loaded actor, or its encoder alone.

        Raises:
            PromptError: if a memory condition has no demonstration.
            BudgetError: if a demonstrated element does not fit into `state_tokens`.
        """
        budget = None if self.state_tokens is None else Budget(self.state_tokens, tokenizer.count)
        template, grammar = self.load_template(), self.load_grammar()
        return build_prompts(step, demo, conditions, template, grammar, tokenizer.specials, budget)

    def fingerprint(self) -> str:
        """32 hexadecimal digits that change with everything that can change an answer.

        A local folder counts by the bytes of its files, a hub id by its name and revision, an adapter likewise; the
        template and the grammar's own message count by their words, and what the textual views tell counts too. No
        weights are loaded. Device and `max_batch_tokens` are left out: they move results by rounding alone.

        Raises:
            ActorSpecError: if a local model or adapter has no files.
        """
        values: dict[str, Any] = asdict(self)
        del values["device"], values["max_batch_tokens"], values["endpoint"]
        if self.endpoint is not None:
            for name in ("revision", "dtype", "attention"):  # the server's affair
                del values[name]
            values["endpoint"] = self.endpoint.identity
        values.update(template=fingerprint(self.load_template()), views=views_as_dict())
        values.update(system=self.load_grammar().system)
        if (folder := self.checked_folder()) is not None:
            values.update(model=_hash_files(folder), revision=None)
        if (folder := self.adapter_folder()) is not None:
            values.update(adapter=_hash_files(folder), adapter_revision=None)
        return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()

    def load_encoder(self) -> PromptEncoder:
        """Load what makes tokens and patches of a prompt; no weights.

        Tokenizer and image processor are loaded on their own, since `AutoProcessor` needs torchvision for its video
        part; pictures are always prepared by Pillow, so that they are the same on every machine.

        Raises:
            ActorSpecError: if a local model has no files, there is no chat template, or the actor is an endpoint.
            OSError: if a hub id cannot be fetched.
        """
        if self.endpoint is not None:
            raise ActorSpecError(
                f"`endpoint` must be null where prompts are tokenised here, got {self.endpoint.base_url}: a server "
                "shows neither tokens nor template. Use the same model's own files."
            )
        from switchmem.actors.loading import load_encoder

        return load_encoder(self)

    def load(self) -> Actor:
        """Load the actor, frozen and in evaluation mode; or what speaks to its endpoint.

        Raises:
            ActorSpecError: if a local model has no files, there is no chat template, or the adapter does not fit.
            ActorError: if the model is of no kind that the engine knows.
            OSError: if a hub id cannot be fetched.
        """
        if self.endpoint is not None:
            from switchmem.actors.api.actor import ChatActor

            return ChatActor(self.model, self.endpoint, self.max_pixels)
        from switchmem.actors.loading import load_actor

        return load_actor(self)

    def checked_folder(self) -> Path | None:
        """The model's folder, None for a hub id.

        Raises:
            ActorSpecError: if `model` is neither, or the folder holds no model.
        """
        needed = "config.json, model.safetensors, tokenizer.json and preprocessor_config.json"
        return _checked("model", self.model, self.folder, needed)

    def adapter_folder(self) -> Path | None:
        """The adapter's folder, None for a hub id or no adapter.

        Raises:
            ActorSpecError: if `adapter` is neither, or the folder holds no adapter.
        """
        if self.adapter is None:
            return None
        path = Path(self.adapter).expanduser()
        folder = path if path.is_dir() else None
        return _checked("adapter", self.adapter, folder, "adapter_config.json and adapter_model.safetensors")


def _name(model: str, revision: str | None) -> str:
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve().name
    return model if revision is None else f"{model}@{revision}"


def _checked(setting: str, name: str, folder: Path | None, needed: str) -> Path | None:
    """The folder, or None where the name can be a hub id.

    Args:
        setting: under which the name is written in a configuration.
        name: of a folder or at the hub.
        folder: where that name is one.
        needed: files that must be in it, for the message; the first one is looked for.

    Raises:
        ActorSpecError: if it is neither.
    """
    if folder is None and not _HUB_ID.fullmatch(name):
        raise ActorSpecError(
            f"`{setting}` must be a folder or a hub id such as Qwen/Qwen3.5-9B, got {name!r}, which is neither. "
            "Correct the path."
        )
    first = re.split("[, ]", needed)[0]
    if folder is not None and not (folder / first).is_file():
        raise ActorSpecError(
            f"`{setting}` must be a folder with {needed}, got {folder} without {first}. Give another folder or a hub "
            "id, or reinstall the package if it is its own."
        )
    return folder


def _hash_files(folder: Path) -> str:
    """Hash of the names and bytes of a folder's files."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(f"{path.name} {path.stat().st_size};".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()
