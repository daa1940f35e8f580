"""Teach the web actor on a CPU: demonstrations in Chromium, then updates on their steps.

    python -m switchmem.miniwob_actor.train --out DIR [--seed 0]

1. The scripted demonstrators play instances of a suite seed that no study uses; the steps of solved ones are kept in
   ``DIR/demonstrations``, a folder per task, and are not played again.
2. The model learns to look up places in made-up lists, then in the screens' texts, then each step's action, from the
   actor's own prompt: the instruction, the current screen as text and as a picture, and, on some, a demonstration.

Every batch depends on (seed, number) alone, and a checkpoint is written every few minutes, so that a killed training
resumes and ends in the same weights on the same machine and library versions.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedTokenizerFast, Qwen3_5ForConditionalGeneration

from switchmem.actors.encoder import PromptEncoder
from switchmem.benchmarks.pocket.apps import generator
from switchmem.memory.views import Condition, text_state
from switchmem.miniwob_actor.collect import collect
from switchmem.miniwob_actor.model import build_tokenizer, frequent_words
from switchmem.miniwob_actor.optimizers import Optimizers
from switchmem.miniwob_actor.samples import GRAMMAR, SHARES, TEMPLATE, Batch, Lessons, Sample, collate
from switchmem.pocket_actor.batches import rope_positions
from switchmem.pocket_actor.checkpoint import checkpoint_file, resume, save_checkpoint
from switchmem.pocket_actor.model import build_config, build_image_processor, build_model
from switchmem.pocket_actor.train import float32_attention
from switchmem.steps import Step

LOG = logging.getLogger(__name__)
_FIRST_LISTS, _LEVEL, _HIGHEST = 350, 25, 4
"""Updates with the shortest lists, updates between two levels of the lists, and the last level. Longer lists that come
before the short ones are mastered keep the look-up from forming."""
HELD_OUT = 8
"""One of so many episodes of a task is not learned from, but asked for during training."""


@dataclass(frozen=True)
class Course:
    """Sizes.

    Args:
        seed: of the weights and of every batch.
        episodes: instances that are played per task.
        lists: updates in which the actor is asked for places in made-up lists.
        reading: updates after these in which it is mostly asked what is where on a screen.
        acting: the last updates.
        batch: chats per update; twice as many of the shortest lists.
        lr, matrix_lr: highest learning rates, see `Optimizers`.
        width, layers: of the language model; its first block has linear attention, whose convolution tells each token
            its neighbours.
    """

    seed: int = 0
    episodes: int = 16
    lists: int = 475
    reading: int = 150
    acting: int = 1025
    batch: int = 32
    lr: float = 2e-3
    matrix_lr: float = 2e-2
    width: int = 128
    layers: int = 3

    @property
    def updates(self) -> int:
        """All of them."""
        return self.lists + self.reading + self.acting

    def share(self, number: int) -> float:
        """The learning rate of an update as a share of the highest."""
        return min(1.0, (number + 1) / 40, 0.02 + 1.6 * (1 - number / self.updates))


class Pictures:
    """The patches of every step's picture; all have the same grid.

    Args:
        steps: whose pictures.
        encoder: of the actor.
    """

    def __init__(self, steps: list[Step], encoder: PromptEncoder) -> None:
        self._patches: dict[str, Tensor] = {}
        for step in steps:
            (patches,), self.grid, _ = encoder.pictures([step.screenshot.image()])
            self._patches[step.step_id] = patches.half()
        side = encoder.image_processor.merge_size
        _, rows, columns = self.grid[0].tolist()
        self.height, self.width = rows // side, columns // side

    def tokens(self, model: Qwen3_5ForConditionalGeneration, names: list[str]) -> Tensor:
        """Token embeddings of pictures, ``[pictures * height * width, D]``."""
        pixels = torch.cat([self._patches[name].float() for name in names])
        tokens = model.get_submodule("model.visual")(pixels, grid_thw=self.grid.repeat(len(names), 1)).pooler_output
        return tokens if isinstance(tokens, Tensor) else torch.cat(list(tokens))


def hidden_states(model: Qwen3_5ForConditionalGeneration, batch: Batch, pictures: Pictures) -> Tensor:
    """Last states of the learned places, ``[n, D]``."""
    with torch.autocast("cpu", torch.bfloat16):
        embedded = model.get_input_embeddings()(batch.ids)
        is_image = batch.ids == model.config.image_token_id
        if batch.pictures:
            tokens = pictures.tokens(model, batch.pictures).to(embedded.dtype)
            embedded = embedded.masked_scatter(is_image[..., None], tokens)
        positions = torch.zeros((3, *batch.ids.shape), dtype=torch.long)
        for row, flags in enumerate(batch.is_image):
            found = rope_positions(flags, pictures.height, pictures.width)
            positions[:, row, : len(flags)] = torch.from_numpy(found)
        out = model.model.language_model(inputs_embeds=embedded, position_ids=positions, use_cache=False)
    return out.last_hidden_state[batch.labels != -100].float()


def draw_batch(lessons: Lessons, course: Course, number: int) -> list[Sample]:
    """The chats of an update; all have the same kind and condition.

    Those of two updates are drawn together, and the shorter half is the first one's: less of a batch is padding.
    """
    if number < course.lists:
        rng = generator(course.seed, "web", number)
        level = min(max(0, number - _FIRST_LISTS) // _LEVEL, _HIGHEST)
        return [lessons.draw_list(rng, level) for _ in range(course.batch if level else 2 * course.batch)]
    pair, later = divmod(number - course.lists, 2)
    drawn = _draw_pair(lessons, course, pair, number < course.lists + course.reading)
    return drawn[later * course.batch : (later + 1) * course.batch]


@lru_cache(maxsize=1)
def _draw_pair(lessons: Lessons, course: Course, pair: int, reads: bool) -> list[Sample]:
    """The chats of two updates, the shortest first."""
    rng = generator(course.seed, "web pair", pair)
    condition = list(SHARES)[int(rng.choice(len(SHARES), p=list(SHARES.values())))]
    if rng.random() < (0.85 if reads else 0.05):
        drawn = [lessons.draw_reading(rng) for _ in range(2 * course.batch)]
    else:
        drawn = [lessons.draw(rng, condition) for _ in range(2 * course.batch)]
    return sorted(drawn, key=lambda sample: len(sample.ids))


def held_out(steps: list[Step]) -> tuple[list[Step], list[Step]]:
    """Steps to learn from, and those of one episode in `HELD_OUT`, by the order of each task's episodes."""
    episodes: dict[str, dict[str, int]] = {}
    for step in steps:
        known = episodes.setdefault(step.category, {})
        known.setdefault(step.episode_id, len(known))
    asked = [step for step in steps if episodes[step.category][step.episode_id] % HELD_OUT == HELD_OUT - 1]
    ids = {step.step_id for step in asked}
    return [step for step in steps if step.step_id not in ids], asked


@torch.no_grad()
def right_answers(
    model: Qwen3_5ForConditionalGeneration, lessons: Lessons, asked: list[Step], pictures: Pictures
) -> dict[str, float]:
    """By task the share of held-out steps, without memory, of which every word of the gold answer is the likeliest."""
    model.eval()
    pad, image = model.config.get_text_config().pad_token_id, model.config.image_token_id
    right: dict[str, list[bool]] = {}
    for first in range(0, len(asked), 16):
        chunk = asked[first : first + 16]
        batch = collate([lessons.sample(step, None, Condition.NONE) for step in chunk], pad, image)
        best = model.lm_head(hidden_states(model, batch, pictures)).argmax(-1)
        learned = batch.labels != -100
        hits = torch.ones_like(learned)
        hits[learned] = best == batch.labels[learned]
        for step, row in zip(chunk, hits.all(dim=1).tolist(), strict=True):
            right.setdefault(step.category, []).append(row)
    model.train()
    return {task: float(np.mean(values)) for task, values in sorted(right.items())}


def teach(
    model: Qwen3_5ForConditionalGeneration,
    lessons: Lessons,
    asked: list[Step],
    pictures: Pictures,
    course: Course,
    out: Path,
) -> None:
    """All updates, resumed from the checkpoint in ``out`` if there is one."""
    pad, image = model.config.get_text_config().pad_token_id, model.config.image_token_id
    optimizer = Optimizers(model, model.model.language_model, course.matrix_lr, course.lr)
    start, losses, began = resume(model, optimizer, out), [], time.monotonic()
    for number in range(start, course.updates):
        optimizer.set_share(course.share(number))
        batch = collate(draw_batch(lessons, course, number), pad, image)
        states = hidden_states(model, batch, pictures)
        loss = functional.cross_entropy(model.lm_head(states), batch.labels[batch.labels != -100])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        losses.append(loss.item())
        if number % 50 == 49:
            spent = time.monotonic() - began
            LOG.info("%d/%d: loss %.3f, %.0f s", number + 1, course.updates, np.mean(losses[-50:]), spent)
        if number % 250 == 249:
            save_checkpoint(model, optimizer, number + 1, out)
            rates = right_answers(model, lessons, asked, pictures)
            LOG.info("right on held-out steps: %.3f %s", np.mean(list(rates.values())), json.dumps(rates))


def texts_of(steps: list[Step]) -> list[str]:
    """Every text that the actor reads or writes."""
    read = [text for step in steps for text in (step.instruction, text_state(step, GRAMMAR, TEMPLATE.memory))]
    return read + [GRAMMAR.action(step.action) for step in steps]


def train(course: Course, out: Path, start: Path | None = None) -> None:
    """Play, learn, and write the actor's folder.

    Args:
        course: sizes.
        out: the folder.
        start: of an actor that is taught further; None begins with random weights.
    """
    out.mkdir(parents=True, exist_ok=True)
    stores = collect(out / "demonstrations", course.episodes)
    steps = [step for store in stores.values() for step in store.iterate(store.step_ids)]
    began = time.process_time()
    learned, asked = held_out(steps)
    if start is None:
        tokenizer = build_tokenizer(frequent_words(texts_of(learned)))
    else:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(start)
    config = build_config(tokenizer, course.width, course.layers, linear=1)
    encoder = PromptEncoder(tokenizer, build_image_processor(), config.image_token_id, None)
    pictures = Pictures(steps, encoder)
    visual_tokens = pictures.height * pictures.width
    lessons = Lessons(learned, encoder, visual_tokens)
    LOG.info("%d steps to learn from, %d held out, %d words", len(learned), len(asked), len(tokenizer))
    AttentionInterface.register("float32", float32_attention)
    if start is None:
        model = build_model(config, course.seed, head=0.2)
    else:
        model = Qwen3_5ForConditionalGeneration.from_pretrained(start, dtype=torch.float32)
    model.model.language_model.set_attn_implementation("float32")
    teach(model, lessons, asked, pictures, course, out)
    model.model.language_model.set_attn_implementation("sdpa")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    encoder.image_processor.save_pretrained(out)
    checkpoint_file(out).unlink(missing_ok=True)
    LOG.info("%.2f CPU hours", (time.process_time() - began) / 3600)


def main() -> None:
    """Command line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the actor and of its demonstrations")
    parser.add_argument("--start", type=Path, help="folder of an actor that is taught further")
    for name, field in Course.__dataclass_fields__.items():
        parser.add_argument(f"--{name}", type=type(field.default), default=field.default)
    values = vars(parser.parse_args())
    out, start = values.pop("out"), values.pop("start")
    train(Course(**values), out, start)


if __name__ == "__main__":
    main()
