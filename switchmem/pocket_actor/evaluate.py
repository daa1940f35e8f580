"""How often the pocket actor solves a step, by what the target is and how the demonstration is given."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerFast, Qwen3_5ForConditionalGeneration

from switchmem.benchmarks.pocket.apps import generator
from switchmem.benchmarks.pocket.vocabulary import ICONS, SCREENS
from switchmem.memory.views import Condition
from switchmem.pocket_actor.batches import collate
from switchmem.pocket_actor.samples import Pair, acting, draw_pair


def _kind(pair: Pair) -> str:
    if pair.current.scene.kind not in SCREENS:
        return "system"
    return "icon" if pair.current.target in ICONS else "label"


@torch.no_grad()
def solve_rates(
    model: Qwen3_5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, count: int, seed: int = 1
) -> dict[str, dict[str, float]]:
    """Teacher-forced success on fresh apps: every word of the gold answer is the likeliest.

    This is a quick look during training, on apps drawn as in training; the README's rates come from the test
    split and the actor's own engine.

    Returns:
        ``{condition: {"icon": rate, "label": rate, "system": rate}}``, rates in [0, 1].
    """
    model.eval()
    pairs = [draw_pair(generator(seed, "solve", n), control=0.0) for n in range(count)]
    kinds = [_kind(pair) for pair in pairs]
    rates: dict[str, dict[str, float]] = {}
    for condition in Condition:
        right: list[bool] = []
        for first in range(0, count, 120):
            chunk = pairs[first : first + 120]
            samples = [acting(p, condition, generator(seed, "turns", first + k)) for k, p in enumerate(chunk)]
            batch = collate(samples, tokenizer)
            grid = torch.tensor([(1, 14, 8)] * batch.images)
            tokens = model.get_submodule("model.visual")(batch.pixels, grid_thw=grid).pooler_output
            tokens = tokens if isinstance(tokens, torch.Tensor) else torch.cat(list(tokens))
            embedded = model.get_input_embeddings()(batch.ids)
            embedded = embedded.masked_scatter((batch.ids == model.config.image_token_id)[..., None], tokens)
            out = model.model.language_model(inputs_embeds=embedded, position_ids=batch.positions, use_cache=False)
            best = model.lm_head(out.last_hidden_state).argmax(-1)
            right += ((best == batch.labels) | (batch.labels == -100)).all(1).tolist()
        rates[condition.value] = {
            kind: round(sum(r for r, k in zip(right, kinds, strict=True) if k == kind) / max(1, kinds.count(kind)), 3)
            for kind in ("icon", "label", "system")
        }
    model.train()
    return rates
