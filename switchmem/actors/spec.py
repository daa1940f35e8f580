"""Which actor, exactly: everything that decides its weights and its words, as plain configuration."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from switchmem.actors.grammars.base import Grammar, get_grammar
from switchmem.memory.budget import Budget
from switchmem.memory.views import Condition, views_as_dict
from switchmem.prompts import Prompt, PromptTemplate, build_prompts, fingerprint, get_template
from switchmem.steps import Step

if TYPE_CHECKING:
    from switchmem.actors.encoder import PromptEncoder
    from switchmem.actors.vlm import VLMActor

POCKET_FOLDER = Path(__file__).parent / "pocket"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_log = logging.getLogger(__name__)


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
        model: ``pocket`` for the one that is shipped, a folder, or a hub id.
        revision: commit or tag of a hub id; recommended there, and without meaning for a folder.
        dtype: float32, bfloat16 or float16.
        grammar: how it writes actions, of `get_grammar`.
        template: the words of its prompts, of `get_template`.
        attention: attention kernel: sdpa, eager or flash_attention_2.
        device: ``auto``, or a torch device such as ``cpu`` or ``cuda:0``.
        max_pixels: the most pixels of a picture; larger ones are scaled down. None keeps the model's own limit.
        max_prompt_tokens: the most tokens of a prompt, visual ones included; None for no limit.
        state_tokens: the most tokens of a demonstration's textual screen, which is cut to them without losing the
            demonstrated element; None writes all of the screen.

    Raises:
        ActorSpecError: if the dtype is unknown, or `state_tokens` is below 1.
        GrammarError: if the grammar is unknown.
        PromptError: if the template is unknown.
    """

    model: str = "pocket"
    revision: str | None = None
    dtype: str = "float32"
    grammar: str = "pocket"
    template: str = "pocket"
    attention: str = "sdpa"
    device: str = "auto"
    max_pixels: int | None = None
    max_prompt_tokens: int | None = None
    state_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise ActorSpecError(f"`dtype` must be one of {', '.join(_DTYPES)}, got {self.dtype!r}.")
        if self.state_tokens is not None and self.state_tokens < 1:
            raise ActorSpecError(f"`state_tokens` must be at least 1 or null, got {self.state_tokens}.")
        get_grammar(self.grammar)
        get_template(self.template)

    @property
    def folder(self) -> Path | None:
        """Where the weights lie; None for a hub id."""
        if self.model == "pocket":
            return POCKET_FOLDER
        path = Path(self.model).expanduser()
        return path if path.is_dir() else None

    def load_grammar(self) -> Grammar:
        """The actor's grammar."""
        return get_grammar(self.grammar)

    def load_template(self) -> PromptTemplate:
        """The words of the actor's prompts."""
        return get_template(self.template)

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

        A local folder counts by the bytes of its files, a hub id by its name and revision, the template by its words,
        and what the textual views tell counts too. No weights are loaded. The device is left out: it moves results by
        rounding alone.

        Raises:
            ActorSpecError: if a local model has no files.
        """
        values: dict[str, Any] = asdict(self)
        del values["device"]
        values.update(template=fingerprint(self.load_template()), views=views_as_dict())
        folder = self.folder
        if folder is not None:
            values.update(model=_hash_files(folder), revision=None)
        return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()

    def load_encoder(self) -> PromptEncoder:
        """Load what makes tokens and patches of a prompt; no weights.

        Tokenizer and image processor are loaded on their own, since `AutoProcessor` needs torchvision for its video
        part; pictures are always prepared by Pillow, so that they are the same on every machine.

        Raises:
            ActorSpecError: if a local model has no files.
            OSError: if a hub id cannot be fetched.
        """
        from transformers import AutoConfig, AutoImageProcessor, PreTrainedTokenizerFast

        from switchmem.actors.encoder import PromptEncoder

        name, source = self._source()
        # Not `AutoTokenizer`: it goes by the model type and would rebuild a word tokenizer as an empty Qwen BPE.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(name, **source)
        images = AutoImageProcessor.from_pretrained(name, backend="pil", **source)
        if self.max_pixels is not None:
            smallest = min(images.size["shortest_edge"], self.max_pixels)
            images.size = {"shortest_edge": smallest, "longest_edge": self.max_pixels}
        image_token = AutoConfig.from_pretrained(name, **source).image_token_id
        return PromptEncoder(tokenizer, images, image_token, self.max_prompt_tokens)

    def load(self) -> VLMActor:
        """Load the actor, frozen and in evaluation mode.

        Raises:
            ActorSpecError: if a local model has no files.
            OSError: if a hub id cannot be fetched.
        """
        from transformers import AutoModelForImageTextToText
        from transformers.utils.logging import disable_progress_bar

        from switchmem.actors.vlm import VLMActor

        if not sys.stderr.isatty():
            disable_progress_bar()  # in a file, a bar is thousands of control characters
        name, source = self._source()
        if self.folder is None and self.revision is None:
            _log.warning(
                "`revision` is not set for the hub model %r: its weights may change under this name.", self.model
            )
        model: Any = AutoModelForImageTextToText.from_pretrained(
            name, dtype=_DTYPES[self.dtype], attn_implementation=self.attention, **source
        )
        return VLMActor(model.to(self._device()), self.load_encoder())

    def _source(self) -> tuple[str, dict[str, Any]]:
        """What is loaded: a folder, or a hub id and its revision."""
        folder = self.folder
        if folder is not None:
            _hash_files(folder, only_check=True)
            return str(folder), {}
        return self.model, {"revision": self.revision} if self.revision else {}

    def _device(self) -> torch.device:
        if self.device != "auto":
            return torch.device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _hash_files(folder: Path, only_check: bool = False) -> str:
    """Hash of the names and bytes of a model folder's files.

    Raises:
        ActorSpecError: if there is no config.json.
    """
    if not (folder / "config.json").is_file():
        raise ActorSpecError(
            "`model` must be a folder with config.json, model.safetensors, tokenizer.json and "
            f"preprocessor_config.json, got {folder} without config.json. Reinstall the package, or give another "
            "folder or a hub id."
        )
    digest = hashlib.blake2b(digest_size=16)
    for path in () if only_check else sorted(folder.iterdir()):
        if path.is_file():
            digest.update(f"{path.name} {path.stat().st_size};".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()
