"""From a folder or a hub id to tokenizer, image processor and weights; no code of a repository is ever run."""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer
from transformers import PreTrainedTokenizerFast as FastTokenizer
from transformers.utils.hub import cached_file, resolve_revision
from transformers.utils.logging import disable_progress_bar

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.spec import DTYPES, ActorSpec, ActorSpecError
from switchmem.actors.vlm import VLMActor

_COMMIT = re.compile(r"[0-9a-f]{40}")
# Adapters of Qwen2-VL and Qwen2.5-VL that were saved by transformers before 4.52 name the parts of the model so.
_OLD_NAMES = {r"^model\.(?=layers\.)": "model.language_model.", r"^visual\.": "model.visual."}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """Where files come from, at one state of it.

    Args:
        name: a folder or a hub id.
        revision: what is asked of the hub; None for a folder, or for the hub's default branch.
        commit: the commit that the hub has at that revision; None for a folder, or where the hub does not tell.
    """

    name: str
    revision: str | None = None
    commit: str | None = None

    @classmethod
    def of(cls, name: str, folder: Path | None, revision: str | None, setting: str = "revision") -> Origin:
        """Ask the hub, or its cache, which commit a revision is now; warn of one that can move.

        Args:
            name: a folder or a hub id.
            folder: the folder; None for a hub id.
            revision: commit, tag or branch of a hub id.
            setting: under which the revision is written in a configuration, for the warning.
        """
        if folder is not None:
            return cls(str(folder))
        found: Any = resolve_revision(name, revision)
        commit = getattr(found, "resolved", found)
        if commit is None or not _COMMIT.fullmatch(commit):
            commit = None
        if revision is None or revision != commit:
            now = f"it is commit {commit} now" if commit else "which commit it is, the hub does not tell"
            _log.warning(
                "`%s` of the hub model %r is %r: its weights may change under this name; %s. Set `%s` to a commit.",
                setting, name, revision, now, setting,
            )  # fmt: skip
        return cls(name, revision, commit)

    @property
    def options(self) -> dict[str, Any]:
        """For ``from_pretrained``: every file comes from the same commit."""
        revision = self.commit or self.revision
        return {} if revision is None else {"revision": revision}

    def facts(self, prefix: str) -> dict[str, str | None]:
        """Name, revision and commit, as plain JSON values."""
        return {prefix: self.name, f"{prefix}_revision": self.revision, f"{prefix}_commit": self.commit}

    def has(self, file: str) -> str | None:
        """Path of a file, None where there is none."""
        path: str | None = cached_file(
            self.name,
            file,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            **self.options,
        )
        return path


def load_actor(spec: ActorSpec) -> VLMActor:
    """What `ActorSpec.load` loads here."""
    if not sys.stderr.isatty():
        disable_progress_bar()  # in a file, a bar is thousands of control characters
    origin = _origin(spec)
    model, facts = load_model(origin, DTYPES[spec.dtype], spec.attention), origin.facts("model")
    if spec.adapter is not None:
        adapter = Origin.of(spec.adapter, spec.adapter_folder(), spec.adapter_revision, "adapter_revision")
        model, facts = merge_adapter(model, adapter), facts | adapter.facts("adapter")
    encoder, template = _encoder(spec, origin), spec.load_template()
    return VLMActor(model.to(_device(spec)), encoder, template, facts, spec.max_batch_tokens)


def load_encoder(spec: ActorSpec) -> PromptEncoder:
    """What `ActorSpec.load_encoder` loads."""
    return _encoder(spec, _origin(spec))


def _origin(spec: ActorSpec) -> Origin:
    """What is loaded: a folder, or a hub id at one commit."""
    return Origin.of(spec.model, spec.checked_folder(), spec.revision)


def _encoder(spec: ActorSpec, origin: Origin) -> PromptEncoder:
    images = load_image_processor(origin, spec.min_pixels, spec.max_pixels)
    return PromptEncoder(load_tokenizer(origin), images, image_token(origin), spec.max_prompt_tokens)


def _device(spec: ActorSpec) -> torch.device:
    if spec.device != "auto":
        return torch.device(spec.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_tokenizer(origin: Origin) -> Any:
    """A tokenizer with its chat template.

    Raises:
        ActorSpecError: if there is no chat template.
    """
    # `AutoTokenizer` goes by the model type and would rebuild a word tokenizer as an empty Qwen BPE.
    cls = FastTokenizer if origin.has("tokenizer.json") else AutoTokenizer
    tokenizer = cls.from_pretrained(origin.name, trust_remote_code=False, **origin.options)
    if tokenizer.chat_template is None:
        path = origin.has("chat_template.json")  # where processors kept it in their first year
        tokenizer.chat_template = None if path is None else json.loads(Path(path).read_text("utf-8"))["chat_template"]
    if tokenizer.chat_template is None:
        raise ActorSpecError(
            f"`model` must have a chat template in tokenizer_config.json, chat_template.jinja or chat_template.json, "
            f"got none in {origin.name}. Copy the one of the model that it was trained from."
        )
    return tokenizer


def load_image_processor(origin: Origin, min_pixels: int | None, max_pixels: int | None) -> Any:
    """An image processor that uses Pillow, so that pictures are prepared alike on every machine.

    Args:
        origin: where from.
        min_pixels: the fewest pixels of a picture; None for the model's own limit, lowered to ``max_pixels``.
        max_pixels: the most; None for the model's own limit, raised to ``min_pixels``.
    """
    images = AutoImageProcessor.from_pretrained(origin.name, backend="pil", trust_remote_code=False, **origin.options)
    least, most = int(images.size["shortest_edge"]), int(images.size["longest_edge"])  # areas, despite their names
    if max_pixels is not None:
        least, most = min(least, max_pixels), max_pixels
    if min_pixels is not None:
        least, most = min_pixels, max(most, min_pixels)
    images.size = {"shortest_edge": least, "longest_edge": most}
    return images


def image_token(origin: Origin) -> int:
    """Id of the token that stands for a piece of a picture."""
    return int(AutoConfig.from_pretrained(origin.name, trust_remote_code=False, **origin.options).image_token_id)


def load_model(origin: Origin, dtype: torch.dtype, attention: str) -> Any:
    """A vision-language model with the head that draws tokens."""
    return AutoModelForImageTextToText.from_pretrained(
        origin.name,
        dtype=dtype,
        attn_implementation=attention,
        trust_remote_code=False,
        use_safetensors=True,  # other weight files are pickles
        **origin.options,
    )


def merge_adapter(model: Any, origin: Origin) -> Any:
    """The model with the weights of a PEFT adapter added to its own.

    Merged, the model is as simple and as fast as before; in bfloat16 and float16 each changed weight is rounded once.

    Args:
        model: of the kind that the adapter was trained on; it is used up.
        origin: where the adapter lies.

    Raises:
        ActorSpecError: if PEFT is missing, the adapter cannot be merged, or some of its weights have no place.
    """
    try:
        from peft import PeftConfig, PeftModel
    except ImportError as error:
        raise ActorSpecError("`adapter` needs PEFT. Run `pip install switchmem[adapters]`.") from error
    if origin.has("adapter_model.safetensors") is None:
        raise ActorSpecError(
            f"`adapter` must have its weights in adapter_model.safetensors, got none in {origin.name}. Save it with "
            "`save_pretrained`; other weight files are pickles."
        )
    config = PeftConfig.from_pretrained(origin.name, **origin.options)
    if config.is_prompt_learning:
        raise ActorSpecError(
            f"`adapter` must be one whose weights can be merged, such as LoRA, got {config.peft_type.value} in "
            f"{origin.name}. Train a LoRA."
        )
    names: Any = {"key_mapping": _OLD_NAMES, **origin.options}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of weights without a place, which are looked for below
            adapted: Any = PeftModel.from_pretrained(model, origin.name, **names)
        # Asked again, PEFT tells what it only warned of; without a place for them, the actor would be the bare model.
        result = adapted.load_adapter(origin.name, "default", **names)
        astray = [*result.missing_keys, *result.unexpected_keys]
        found = f"{len(astray)} weights without a place, such as {astray[0]!r}" if astray else ""
    except (RuntimeError, ValueError) as error:  # other shapes, or no layer of those names
        found = str(error)
    if found:
        raise ActorSpecError(
            f"`adapter` must fit the model, got one of {config.base_model_name_or_path!r} in {origin.name}. Load the "
            f"model that it was trained on. PEFT found: {found}"
        )
    return adapted.merge_and_unload()
