"""Train the pocket actor on a CPU, from a seed, in four lessons.

    python -m switchmem.pocket_actor.train --out DIR [--seed 0]

1. **Seeing.** The vision tower learns by dense labels that each picture token resembles the token embeddings of
   what its cell shows and of where it is; then it is frozen. (Left trainable, the first gradients of the language
   model wipe it out, and the actor stays blind.)
2. **Reading.** The language model answers what is where on the current screen, and where is what.
3. **Remembering.** The same, and what a demonstration shows at a place, as text or as image.
4. **Acting**, mixed with the earlier questions: prompts as in use, each answer naming its target before its place.

Every batch depends on (seed, lesson, number) alone, and a checkpoint is written every few minutes, so that a
killed training resumes and ends in the same weights on the same machine and library versions.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedTokenizerFast, Qwen3_5ForConditionalGeneration

from switchmem.benchmarks.pocket.apps import generator
from switchmem.benchmarks.pocket.scenes import COLUMNS, ROWS, Scene, render
from switchmem.benchmarks.pocket.vocabulary import BLANK, UNLABELLED
from switchmem.memory.views import Condition
from switchmem.pocket_actor.batches import GRID, Batch, collate, patches
from switchmem.pocket_actor.checkpoint import checkpoint_file, resume, save_checkpoint
from switchmem.pocket_actor.evaluate import solve_rates
from switchmem.pocket_actor.model import (
    PLACES,
    SYMBOLS,
    build_config,
    build_image_processor,
    build_model,
    build_tokenizer,
    embedding_table,
)
from switchmem.pocket_actor.samples import GRAMMAR, Sample, acting, draw_pair, reading

LOG = logging.getLogger(__name__)


# Shares of None, Text, Image and Both among the prompts of a lesson.
ALONE = (1.0, 0.0, 0.0, 0.0)
SINGLE_VIEWS = (0.2, 0.4, 0.4, 0.0)
ACTING = (0.04, 0.5, 0.46, 0.0)
ACTING_WITH_TWO_VIEWS = (0.04, 0.42, 0.38, 0.16)


@dataclass(frozen=True)
class Course:
    """Sizes of the lessons.

    Args:
        seed: of the weights and of every batch.
        seeing, reading, remembering, acting: updates of the four lessons.
        two_views: the update of the last lesson from which prompts with two views join in.
        batch: chats per update.
        lr: highest learning rate of the language model.
        width, layers: of the language model.
    """

    seed: int = 0
    seeing: int = 600
    reading: int = 450
    remembering: int = 600
    acting: int = 1800
    two_views: int = 200
    batch: int = 48
    lr: float = 3e-3
    width: int = 128
    layers: int = 4


def _half() -> torch.autocast:
    """Matrix products in bfloat16, two to four times as fast on a CPU that has it; weights stay float32."""
    return torch.autocast("cpu", torch.bfloat16)


def float32_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Scaled dot-product attention in float32: the CPU's backward kernel is slower in bfloat16."""
    with torch.autocast("cpu", enabled=False):
        causal = attention_mask is None and getattr(module, "is_causal", True)
        q, k, v = query.float(), key.float(), value.float()
        out = functional.scaled_dot_product_attention(
            q, k, v, attention_mask, is_causal=causal, scale=kwargs.get("scaling")
        )
    return out.transpose(1, 2).contiguous(), None


def cell_labels(scene: Scene, *, legible: bool) -> tuple[list[str], list[str]]:
    """What each cell of a screen shows and the place of the entry that covers it, in reading order [ROWS * COLUMNS]."""
    shows, places = [BLANK] * len(PLACES), list(PLACES)
    spans = [(e.symbol, e.is_icon or legible, e.row, e.column, e.span) for e in scene.entries]
    if scene.title:
        spans.append((scene.title, legible, 0, 0, COLUMNS))
    for symbol, readable, row, column, span in spans:
        place = GRAMMAR.point((column + span / 2) / COLUMNS, (row + 0.5) / ROWS)
        for k in range(row * COLUMNS + column, row * COLUMNS + column + span):
            shows[k], places[k] = symbol if readable else UNLABELLED, place
    return shows, places


def picture_tokens(model: Qwen3_5ForConditionalGeneration, pixels: Tensor, images: int) -> Tensor:
    """Token embeddings of pictures, float32 [images * ROWS * COLUMNS, D]."""
    tokens = model.get_submodule("model.visual")(pixels, grid_thw=torch.tensor([GRID] * images)).pooler_output
    return tokens if isinstance(tokens, Tensor) else torch.cat(list(tokens))


def teach_seeing(model: Qwen3_5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, course: Course) -> None:
    """Lesson 1; freezes the vision tower at its end."""
    table = embedding_table(model).detach()
    symbols = table[tokenizer.convert_tokens_to_ids(list(SYMBOLS))]
    places = table[tokenizer.convert_tokens_to_ids(list(PLACES))]
    index_s, index_p = ({w: i for i, w in enumerate(words)} for words in (SYMBOLS, PLACES))
    tower = model.get_submodule("model.visual")
    optimizer = torch.optim.AdamW(tower.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.5e-3, course.seeing)
    for step in range(course.seeing):
        rng = generator(course.seed, "seeing", step)
        pictures, shown, where = [], [], []
        for _ in range(course.batch):
            pair = draw_pair(rng, system=0.3)
            legible = bool(rng.random() < 0.65)
            scene = pair.current.scene
            pictures.append(np.asarray(render(scene, legible=legible)))
            labels = cell_labels(scene, legible=legible)
            shown += [index_s[s] for s in labels[0]]
            where += [index_p[p] for p in labels[1]]
        with _half():
            tokens = picture_tokens(model, torch.from_numpy(patches(np.stack(pictures))), course.batch).float()
        scores, target = tokens @ symbols.T, torch.tensor(shown)
        loss = functional.cross_entropy(scores, target) + functional.cross_entropy(
            tokens @ places.T, torch.tensor(where)
        )
        loss = loss + 1e-3 * tokens.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            right = (scores.argmax(-1) == target).float()
            drawn = target != index_s[BLANK]
            LOG.info("seeing %d/%d: loss %.3f, entries %.3f", step + 1, course.seeing, loss.item(), right[drawn].mean())
    tower.requires_grad_(False)


def language_loss(model: Qwen3_5ForConditionalGeneration, batch: Batch, image_token: int) -> Tensor:
    """Mean cross-entropy of the learned words. Logits are computed where something is learned only."""
    with torch.no_grad():
        tokens = picture_tokens(model, batch.pixels, batch.images)
    embedded = model.get_input_embeddings()(batch.ids)
    embedded = embedded.masked_scatter((batch.ids == image_token)[..., None], tokens.float())
    hidden = model.model.language_model(inputs_embeds=embedded, position_ids=batch.positions, use_cache=False)
    learned = batch.labels != -100
    return functional.cross_entropy(model.lm_head(hidden.last_hidden_state[learned]), batch.labels[learned])


def draw_batch(course: Course, lesson: str, step: int) -> list[Sample]:
    """The chats of an update. All share a kind and a condition, so that their lengths are close."""
    rng = generator(course.seed, lesson, step)
    shares, asks, turns = ALONE, True, 1
    if lesson == "remembering":
        shares = SINGLE_VIEWS
    elif lesson == "acting":
        progress = step / course.acting
        asks, turns = rng.random() < max(0.1, 0.5 - progress), 4 if progress < 0.7 else 2
        shares = ACTING if step < course.two_views else ACTING_WITH_TWO_VIEWS
    condition = list(Condition)[int(rng.choice(4, p=shares))]
    pairs = [draw_pair(rng, system=0.1 if asks else 0.15) for _ in range(course.batch)]
    if condition is Condition.BOTH:
        return [acting(p, condition, rng, turns, earlier=True) for p in pairs]
    return [reading(p, condition, rng) if asks else acting(p, condition, rng, turns) for p in pairs]


def teach_language(
    model: Qwen3_5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, course: Course, out: Path
) -> None:
    """Lessons 2 to 4, resumed from the checkpoint in ``out`` if there is one."""
    image_token = model.config.image_token_id
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, course.lr, weight_decay=0.01, betas=(0.9, 0.98))
    plan = [(name, k) for name in ("reading", "remembering", "acting") for k in range(getattr(course, name))]
    start = resume(model, optimizer, out)
    began, losses = time.monotonic(), []
    for step, (lesson, number) in list(enumerate(plan))[start:]:
        for group in optimizer.param_groups:
            group["lr"] = course.lr * min(1.0, (step + 1) / 200, 0.03 + 1.4 * (1 - step / len(plan)))
        batch = collate(draw_batch(course, lesson, number), tokenizer)
        with _half():
            loss = language_loss(model, batch, image_token)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 49:
            LOG.info(
                "%s %d/%d: loss %.3f, %.0f s",
                lesson,
                step + 1,
                len(plan),
                np.mean(losses[-50:]),
                time.monotonic() - began,
            )
        if step % 250 == 249:
            save_checkpoint(model, optimizer, step + 1, out)
            LOG.info("solved: %s", json.dumps(solve_rates(model, tokenizer, count=240)))


def train(course: Course, out: Path) -> None:
    """Run the course and write the actor's folder."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    tokenizer = build_tokenizer()
    AttentionInterface.register("float32", float32_attention)
    model = build_model(build_config(tokenizer, course.width, course.layers), course.seed)
    model.model.language_model.set_attn_implementation("float32")
    if checkpoint_file(out).exists():
        model.model.visual.requires_grad_(False)
    else:
        teach_seeing(model, tokenizer, course)
    teach_language(model, tokenizer, course, out)
    model.model.language_model.set_attn_implementation("sdpa")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    build_image_processor().save_pretrained(out)
    checkpoint_file(out).unlink()
    rates = solve_rates(model, tokenizer, count=2000)
    LOG.info("solved: %s after %.2f CPU hours", json.dumps(rates), (time.process_time() - began) / 3600)


def main() -> None:
    """Command line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained actor")
    for name, field in Course.__dataclass_fields__.items():
        parser.add_argument(f"--{name}", type=type(field.default), default=field.default)
    values = vars(parser.parse_args())
    train(Course(**{k: v for k, v in values.items() if k != "out"}), values["out"])


if __name__ == "__main__":
    main()
