"""A frozen vision-language actor: its hidden states and its sampled answers, for a batch of steps."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from switchmem.actors.batching import Batcher, StepSize
from switchmem.actors.decoding import Extension
from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.endings import Ending
from switchmem.actors.engine import PrefixEngine
from switchmem.actors.protocol import ActorError, Observation, StepPrompts
from switchmem.actors.rows import ImageTable, TokenRow, shared_length
from switchmem.actors.sampling import Sampling, noise_key
from switchmem.actors.spending import Spending, Spent
from switchmem.actors.starts import StartKeeper
from switchmem.memory.views import Condition
from switchmem.prompts import DEFAULT, PromptError, PromptTemplate

TURN_END = "<|im_end|>"


def probe_layers(depth: int) -> tuple[int, ...]:
    """Blocks of the layer study: nearest to 0, 1/4, 1/2, 3/4 and 1 of the depth, without repetition.

    >>> probe_layers(32)
    (0, 8, 16, 23, 31)
    """
    return tuple(sorted({math.floor(quarter * (depth - 1) / 4 + 0.5) for quarter in range(5)}))


def hash_parameters(model: nn.Module) -> str:
    """32 hexadecimal digits over the names, types, shapes and bytes of all parameters and buffers."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _size(
    step: StepPrompts, rows: Mapping[Condition, TokenRow], conditions: Sequence[Condition], sampling: Sampling
) -> StepSize:
    prefix = shared_length(list(rows.values()))
    tails = {condition.value: len(row) - prefix for condition, row in rows.items()}
    answers = len(sampling.seeds) * sum(condition in conditions for condition in rows)
    return StepSize(step.step_id, prefix, tails, answers * sampling.max_new_tokens)


class VLMActor:
    """A loaded model with its encoder, frozen.

    Build one with `ActorSpec.load`.

    Args:
        model: a vision-language model of the Qwen family; it is put into evaluation mode and frozen.
        encoder: its tokenizer and image processor.
        template: tells how its answers open and end.
        origin: where the weights come from, for `facts`.
        max_batch_tokens: see `ActorSpec`.

    Raises:
        ActorError: if the model is of another kind, or the tokenizer lacks a token of the template or any token that
            ends a turn.
    """

    def __init__(
        self,
        model: Any,
        encoder: PromptEncoder,
        template: PromptTemplate = DEFAULT,
        origin: Mapping[str, Any] | None = None,
        max_batch_tokens: int | None = None,
    ) -> None:
        self.model: nn.Module = model.eval().requires_grad_(False)
        self.encoder = encoder
        self._ending = self._find_ending(model, encoder, template)
        self._origin = dict(origin or {})
        self.engine = PrefixEngine(model, self._ending)
        self._starts = StartKeeper(self.engine.start_cache)
        self.batcher = Batcher(max_batch_tokens)

    @staticmethod
    def _find_ending(model: Any, encoder: PromptEncoder, template: PromptTemplate) -> Ending:
        known = encoder.tokenizer.get_vocab()
        unknown = [word for word in template.ends if word not in known]
        if unknown:
            raise ActorError(
                f"`tokenizer` must have the tokens that end an answer of template {template.name!r}, got no "
                f"{', '.join(unknown)}. Use the template of the model's own family."
            )
        configured = getattr(model.generation_config, "eos_token_id", None)
        named = configured if isinstance(configured, (list, tuple)) else [configured]
        tokens = [*named, encoder.tokenizer.eos_token_id, known.get(TURN_END), *(known[word] for word in template.ends)]
        found = {int(token) for token in tokens if token is not None}
        if not found:
            raise ActorError(
                f"`tokenizer` must have {TURN_END} or an `eos_token`, got neither. Name one in tokenizer_config.json."
            )
        after, lead = (encoder.tokens(text) for text in (template.ends_after, template.answer or ""))
        return Ending(tuple(sorted(found)), after, lead)

    def facts(self) -> dict[str, Any]:
        """What was really loaded, as plain JSON values: origin, class, types of the weights, kernels, processors."""
        images = self.encoder.image_processor
        return {
            **self._origin,
            **self.engine.architecture.facts(),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "device": str(self.engine.device),
            "tokenizer": type(self.encoder.tokenizer).__name__,
            "image_processor": type(images).__name__,
            "pixels": [int(images.size["shortest_edge"]), int(images.size["longest_edge"])],
        }

    @property
    def specials(self) -> tuple[str, ...]:
        """The tokenizer's special and added tokens, for `build_prompt` to escape."""
        return self.encoder.specials

    def count(self, text: str) -> int:
        """Tokens of a text of the outside world, escaped as in a prompt."""
        return self.encoder.count(text)

    @property
    def num_layers(self) -> int:
        """Number of decoder blocks."""
        return len(self.engine.blocks)

    @property
    def hidden_size(self) -> int:
        """Width D of the hidden states."""
        config: Any = self.model.config
        return int(config.get_text_config().hidden_size)

    def parameters_hash(self) -> str:
        """Changes with any parameter; compare it before and after a run. See `hash_parameters`."""
        return hash_parameters(self.model)

    @torch.no_grad()
    def observe(
        self, batch: Sequence[StepPrompts], conditions: Sequence[Condition], layers: Sequence[int], sampling: Sampling
    ) -> list[Observation]:
        """Read the states of every prompt and sample answers.

        Args:
            batch: steps with their prompts; a step may lack some conditions.
            conditions: for which answers are sampled; states are read for every prompt.
            layers: L blocks to read, from 0; negative ones count from the last.
            sampling: temperature, seeds and length of the answers.

        Returns:
            One observation per step, in order; each is the same in any batch, up to the rounding of the device.

        Raises:
            ActorError: if the model is not frozen, or a single step does not fit into memory.
            PromptError: if a prompt lacks or is too long.
        """
        self._check_frozen()
        if not batch:
            return []
        table, rows = self.tokenise(batch)
        layers = [range(self.num_layers)[layer] for layer in layers]

        def observe(group: list[int]) -> list[Observation]:
            steps, prompts = [batch[n] for n in group], [rows[n] for n in group]
            return self._observe(steps, prompts, table, conditions, layers, sampling)

        sizes = [_size(step, prompts, conditions, sampling) for step, prompts in zip(batch, rows, strict=True)]
        return self.batcher.run(sizes, observe)

    def _observe(
        self,
        batch: Sequence[StepPrompts],
        rows: Sequence[Mapping[Condition, TokenRow]],
        table: ImageTable,
        conditions: Sequence[Condition],
        layers: Sequence[int],
        sampling: Sampling,
    ) -> list[Observation]:
        """`observe` for steps that run together."""
        started = time.perf_counter()
        lengths = [shared_length(list(prompts.values())) for prompts in rows]
        spending = Spending(rows, lengths, table, self.engine.device)
        state_prompts = [prompts[Condition.NONE] for prompts in rows]
        start = self._starts.find(state_prompts, lengths, self.engine.device)
        prefixes = self.engine.prefill(state_prompts, lengths, table, start)
        spending.prefixes()
        states: list[dict[Condition, Tensor]] = [{} for _ in batch]
        sampled: list[tuple[int, Condition]] = []
        open_: list[Extension] = []
        for condition in Condition:
            steps = [b for b, prompts in enumerate(rows) if condition in prompts]
            for extension in self.engine.extend(prefixes, steps, [rows[b][condition] for b in steps], layers):
                members = [steps[n] for n in extension.rows]
                for b, state in zip(members, extension.states.cpu(), strict=True):
                    states[b][condition] = state
                if condition in conditions:
                    sampled += [(b, condition) for b in members]
                    open_.append(extension)
            spending.prompts(condition, steps)
        answers = self._sample(batch, sampled, open_, sampling)
        spending.answers(answers)
        seconds = (time.perf_counter() - started) / len(batch)
        sizes = [{condition: len(row) for condition, row in prompts.items()} for prompts in rows]
        return [
            self._observation(s.step_id, states[b], answers[b], seconds, sizes[b], spending.of(b))
            for b, s in enumerate(batch)
        ]

    def _check_frozen(self) -> None:
        """Refuse a model that somebody has put back into training mode, or parts of it.

        Raises:
            ActorError: if so.
        """
        training = [name for name, module in self.model.named_modules() if module.training]
        if training:
            raise ActorError(
                f"`model` must be in evaluation mode, got training mode in {len(training)} of its modules, such as "
                f"{training[0] or type(self.model).__name__!r}. Call `actor.model.eval()`."
            )
        learning = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        if learning:
            raise ActorError(
                f"`model` must be frozen, got gradients for {len(learning)} parameters, such as {learning[0]!r}. Call "
                "`actor.model.requires_grad_(False)`."
            )

    def tokenise(self, batch: Sequence[StepPrompts]) -> tuple[ImageTable, list[dict[Condition, TokenRow]]]:
        """Pictures of a batch, and per step its tokenised prompts.

        Raises:
            PromptError: if a step lacks its state prompt, or a prompt is too long.
        """
        for step in batch:
            if Condition.NONE not in step.prompts:
                found = ", ".join(step.prompts) or "none"
                raise PromptError(
                    f"Step {step.step_id!r} must have the state prompt (condition 'none'), got {found}. "
                    "Build the prompts with `build_prompts`."
                )
        images = [image for step in batch for prompt in step.prompts.values() for image in prompt.images]
        pixels, grids, index = self.encoder.pictures(images)
        sizes = self.encoder.visual_tokens(grids)
        rows = []
        for step in batch:
            shown = {c: tuple(index[id(image)] for image in prompt.images) for c, prompt in step.prompts.items()}
            runs = [[sizes[image] for image in pictures] for pictures in shown.values()]
            encoded = self.encoder.encode(step.step_id, step.prompts.values(), runs)
            pairs = zip(shown.items(), encoded, strict=True)
            rows.append({c: self.engine.row(ids, pictures, grids) for (c, pictures), ids in pairs})
        return ImageTable(pixels, grids), rows

    def _sample(
        self,
        batch: Sequence[StepPrompts],
        sampled: Sequence[tuple[int, Condition]],
        extensions: Sequence[Extension],
        sampling: Sampling,
    ) -> list[dict[Condition, list[list[int]]]]:
        """Per step and condition K answers as tokens."""
        answers: list[dict[Condition, list[list[int]]]] = [{} for _ in batch]
        if sampled:
            keys = [[noise_key(batch[b].step_id, c, seed) for seed in sampling.seeds] for b, c in sampled]
            drawn = self.engine.decode(extensions, torch.tensor(keys), sampling.temperature, sampling.max_new_tokens)
            for (b, condition), tokens in zip(sampled, drawn, strict=True):
                answers[b][condition] = tokens
        return answers

    def _observation(
        self,
        step_id: str,
        states: dict[Condition, Tensor],
        answers: dict[Condition, list[list[int]]],
        seconds: float,
        prompt_tokens: dict[Condition, int],
        spent: Spent,
    ) -> Observation:
        return Observation(
            step_id=step_id,
            state=states[Condition.NONE],
            shifted={condition: state for condition, state in states.items() if condition is not Condition.NONE},
            answers={condition: [self.text(tokens) for tokens in drawn] for condition, drawn in answers.items()},
            new_tokens={condition: [len(tokens) for tokens in drawn] for condition, drawn in answers.items()},
            seconds=seconds,
            prompt_tokens=prompt_tokens,
            facts={"spent": spent},
        )

    def text(self, tokens: Sequence[int]) -> str:
        """An answer as text, without its end token."""
        return self.encoder.text(tokens[:-1] if tokens and tokens[-1] in self._ending.tokens else tokens)
