"""One step as the actor is asked about it: its facts, its demonstration, every rendered prompt, its pictures as files.

No weights are loaded: tokenizer, chat template and image processor are enough.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.spec import ActorSpec
from switchmem.benchmarks import DataError
from switchmem.benchmarks.base import one_line
from switchmem.benchmarks.store import step_key
from switchmem.console import say
from switchmem.memory.bank import action_text
from switchmem.memory.embedder import Embedder, HashingEmbedder
from switchmem.memory.retrieval import Hit
from switchmem.memory.views import Condition, text_state
from switchmem.prompts import Prompt
from switchmem.runs import RunError
from switchmem.stages import Stage
from switchmem.steps import Step

QUERIES = {"preference": "bank", "test": "test_bank"}
"""Parts whose steps retrieve, each with the part that it retrieves from."""
LISTED = 5


class Part(Protocol):
    """Steps by id."""

    step_ids: tuple[str, ...]

    def __getitem__(self, step_id: str) -> Step:
        """The step, or `RecordError` where its record is damaged."""


class Pairs(Protocol):
    """Retrieved demonstrations, and why some steps have none."""

    hits: dict[str, Hit]
    skipped: dict[str, str]


class ShownData(Protocol):
    """What is asked of the data; `data_modules.StepsDataModule` has it."""

    def part(self, name: str) -> Part:
        """Steps of a prepared part."""

    def pairs(self, part: str) -> Pairs:
        """Which demonstration each query of a prepared part gets."""

    def embedded_with(self, part: str) -> tuple[str, ...]:
        """The parts whose embeddings a prepared part needs."""

    def embeddings_stage(self, part: str) -> Stage:
        """The stage that holds the vectors of a part."""

    def memory_stage(self, part: str) -> Stage:
        """The stage that holds the pairs."""

    def prepare_memory(self, part: str) -> None:
        """Embed, and retrieve for a part."""


@dataclass(frozen=True)
class Shown:
    """A step with what is known of its demonstration.

    Args:
        step: the step.
        parts: names of the parts that hold it.
        demo: its demonstration, None where it has none.
        origin: where the demonstration comes from, or why there is none.
    """

    step: Step
    parts: tuple[str, ...]
    demo: Step | None
    origin: str


def show_step(
    data: ShownData,
    actor: ActorSpec,
    embedder: Embedder,
    folder: Path,
    step_id: str | None,
    memory_id: str | None = None,
) -> None:
    """Print a step and write its prompts and pictures; without an id, list the parts' first ids.

    Args:
        data: with its steps prepared.
        actor: its words, tokens and picture sizes are used.
        embedder: what retrieval would use.
        folder: each step gets a folder of its own in it, named by a hash of its id.
        step_id: any step of any part; None lists some.
        memory_id: a demonstration by hand, of the bank that the step's part retrieves from.

    Raises:
        RunError: if an id is unknown, or retrieval has still to be done and takes a model.
    """
    parts, lacking = _parts(data)
    if step_id is None:
        for line in _listing(parts, lacking):
            say(line)
        return
    shown = _find(data, parts, embedder, step_id, memory_id)
    target = folder / step_key(step_id)
    for line in _render(shown, actor, target):
        say(printable(line))


def printable(text: str) -> str:
    r"""The text with everything that could steer a terminal written as an escape; line breaks stay.

    >>> printable("a\x1b[31mb\nc")
    'a\\x1b[31mb\nc'
    """
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# --- finding ---


def _parts(data: ShownData) -> tuple[dict[str, Part], dict[str, str]]:
    """The parts that have steps, and why others have none."""
    parts: dict[str, Part] = {}
    lacking: dict[str, str] = {}
    for name in (*QUERIES, *QUERIES.values()):
        try:
            parts[name] = data.part(name)
        except DataError as error:
            lacking[name] = str(error)
    return parts, lacking


def _listing(parts: Mapping[str, Part], lacking: Mapping[str, str]) -> Iterator[str]:
    for name, part in parts.items():
        yield f"{name}: {len(part.step_ids)} steps, the first of them:"
        for step_id in part.step_ids[:LISTED]:
            yield f"  --step {quoted(step_id)}"
    for name, reason in lacking.items():
        yield printable(f"{name}: {reason}")


def quoted(step_id: str) -> str:
    """An id as it can be pasted behind a flag, unless it holds control characters."""
    return one_line(shlex.quote(step_id))


def _find(data: ShownData, parts: Mapping[str, Part], embedder: Embedder, step_id: str, memory_id: str | None) -> Shown:
    holders = tuple(name for name, part in parts.items() if step_id in set(part.step_ids))
    if not holders:
        raise _unknown("step", step_id, "the data", [i for part in parts.values() for i in part.step_ids])
    step, role = parts[holders[0]][step_id], holders[0]
    bank = parts[QUERIES.get(role, role)]
    if memory_id is not None:
        if memory_id not in set(bank.step_ids):
            raise _unknown("memory_step", memory_id, f"part {QUERIES.get(role, role)!r}", bank.step_ids)
        return Shown(step, holders, bank[memory_id], "named by hand")
    if role not in QUERIES:
        return Shown(step, holders, None, "none: a step of a bank is no query. Name one with `--memory_step ID`")
    pairs = _pairs(data, role, embedder)
    hit = pairs.hits.get(step_id)
    if hit is None:
        return Shown(step, holders, None, f"none: {pairs.skipped.get(step_id, 'retrieval left the step out')}")
    return Shown(step, holders, bank[hit.step_id], f"retrieved, cosine {hit.cosine:.4f}")


def _pairs(data: ShownData, part: str, embedder: Embedder) -> Pairs:
    stage = data.memory_stage(part)
    if not stage.complete:
        embedded = all(data.embeddings_stage(needed).complete for needed in data.embedded_with(part))
        if not isinstance(embedder, HashingEmbedder) and not embedded:
            command = "harvest" if part == "preference" else "test"
            raise RunError(
                f"`show` must find the demonstrations of part {part!r}, got no finished retrieval in {stage.folder}, "
                f"and embedding with {embedder.name} may take hours. Run `python train.py {command}` with the same "
                "flags first, or name a demonstration with `--memory_step ID`."
            )
        data.prepare_memory(part)
    return data.pairs(part)


def _unknown(flag: str, step_id: str, where: str, known: Sequence[str]) -> RunError:
    near = ", ".join(quoted(other) for other in nearest(step_id, known))
    return RunError(
        f"`--{flag}` must be a step of {where}, got {quoted(step_id)}. Nearest: {near}. "
        "Leave out `--step` to list the first ids of each part."
    )


def nearest(name: str, known: Sequence[str], count: int = 3) -> list[str]:
    """The known names that share the largest part of their letter triples with a name; of equal ones the first.

    >>> nearest("pocket/mail/1", ["pocket/shop/1", "pocket/mail/2", "aitw/9/0"], 2)
    ['pocket/mail/2', 'pocket/shop/1']
    """
    wanted = _triples(name)
    shares = {other: len(wanted & _triples(other)) / len(wanted | _triples(other)) for other in known}
    return sorted(shares, key=lambda other: -shares[other])[:count]


def _triples(name: str) -> set[str]:
    padded = f"  {name}  "
    return {padded[n : n + 3] for n in range(len(padded) - 2)}


# --- showing ---


def _render(shown: Shown, actor: ActorSpec, folder: Path) -> Iterator[str]:
    """Write the files, and give the lines to print."""
    step, demo, encoder = shown.step, shown.demo, actor.load_encoder()
    prompts = actor.prompts(step, demo, Condition if demo is not None else (), encoder)
    pictures = _Pictures(encoder, prompts, folder)
    rows = encoder.encode(step.step_id, prompts.values(), [pictures.sizes(prompt) for prompt in prompts.values()])
    shutil.rmtree(folder, ignore_errors=True)  # what an earlier look with another demonstration left
    folder.mkdir(parents=True)
    pictures.save()
    yield from _facts(shown, actor, encoder)
    yield from pictures.lines()
    for (condition, prompt), row in zip(prompts.items(), rows, strict=True):
        text, path = pictures.rendered(prompt), folder / f"prompt-{condition.value}.txt"
        path.write_text(text, encoding="utf-8", newline="")
        visual = sum(pictures.sizes(prompt))
        yield f"\n===== {condition.value}: {len(row)} tokens, {visual} of them visual; {path} ====="
        yield text


def _facts(shown: Shown, actor: ActorSpec, encoder: PromptEncoder) -> Iterator[str]:
    step, demo = shown.step, shown.demo
    yield f"step: {one_line(step.step_id)}"
    yield f"part: {', '.join(shown.parts)}"
    yield f"instruction: {step.instruction}"
    yield f"gold action: {action_text(step.action)}"
    yield f"elements: {len(step.elements)}"
    if demo is None:
        yield f"demonstration: {shown.origin}"
        return
    yield f"demonstration: {one_line(demo.step_id)}, {shown.origin}"
    yield f"its action: {action_text(demo.action)}"
    grammar = actor.load_grammar().for_screen((demo.screenshot.width, demo.screenshot.height))
    whole = encoder.count(text_state(demo, grammar, actor.load_template().memory))
    limit = actor.state_tokens
    told = "no limit" if limit is None else f"{'cut to' if whole > limit else 'within'} state_tokens = {limit}"
    yield f"its textual screen: {len(demo.elements)} elements, {whole} tokens, {told}"


class _Pictures:
    """The pictures of a step's prompts: "screen.png" is the current one, "memory.png" the demonstration's."""

    def __init__(self, encoder: PromptEncoder, prompts: Mapping[Condition, Prompt], folder: Path) -> None:
        self.encoder, self.folder = encoder, folder
        self.images: dict[str, Image.Image] = {}
        (screen,) = prompts[Condition.NONE].images
        for image in (image for prompt in prompts.values() for image in prompt.images):
            self.images["screen.png" if image is screen else "memory.png"] = image
        self._names = {id(image): name for name, image in self.images.items()}
        _, grids, self._index = encoder.pictures(self.images.values())
        self._tokens = encoder.visual_tokens(grids)

    def _size(self, image: Image.Image) -> int:
        return self._tokens[self._index[id(image)]]

    def sizes(self, prompt: Prompt) -> list[int]:
        """Visual tokens of each picture of a prompt."""
        return [self._size(image) for image in prompt.images]

    def save(self) -> None:
        for name, image in self.images.items():
            image.save(self.folder / name)

    def lines(self) -> Iterator[str]:
        for name, image in self.images.items():
            yield f"picture: {self.folder / name}, {image.width} x {image.height} pixels, {self._size(image)} tokens"

    def rendered(self, prompt: Prompt) -> str:
        """The prompt behind the chat template; each picture's token is replaced by its file and number of tokens."""
        mark: Any = self.encoder.tokenizer.convert_ids_to_tokens(self.encoder.image_token)
        first, *rest = self.encoder.render(prompt).split(mark)
        text = first
        for image, piece in zip(prompt.images, rest, strict=True):
            text += f"[{self._names[id(image)]}: {self._size(image)} tokens]{piece}"
        return text
