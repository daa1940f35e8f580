"""What differs between the model classes of the Qwen vision-language family, in one place.

Qwen2-VL (also UI-TARS and Aguvis), Qwen2.5-VL, Qwen3-VL and Qwen3.5 share names and shapes in transformers, and differ
in what their vision towers give and in their blocks: Qwen3-VL also adds features of inner vision layers to the outputs
of its first text blocks, Qwen3.5 has linear-attention blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import ModelOutput

from switchmem.actors.protocol import ActorError

_ATTENTION = {"full_attention", "linear_attention"}
_KERNELS = ("fla", "causal_conv1d")


class Architecture:
    """A vision-language model as the engine sees it.

    Args:
        model: of transformers, with a head for tokens.

    Raises:
        ActorError: if its class or its blocks are of another kind.
    """

    def __init__(self, model: Any) -> None:
        inner: Any = getattr(model, "model", None)
        needed = {"language_model": inner, "visual": inner, "get_rope_index": inner, "get_image_features": model}
        lacking = [name for name, owner in needed.items() if not hasattr(owner, name)]
        if lacking or getattr(model.config, "image_token_id", None) is None:
            raise ActorError(
                f"`model` must be a vision-language model of the Qwen family, got {type(model).__name__} without "
                f"{', '.join(lacking) or 'an image token'}. Use Qwen2-VL, Qwen2.5-VL, Qwen3-VL or Qwen3.5."
            )
        self.model = model
        self.text_config: Any = model.config.get_text_config()
        self.image_token = int(model.config.image_token_id)
        self.blocks: nn.ModuleList = inner.language_model.layers
        kinds = set(getattr(self.text_config, "layer_types", None) or ["full_attention"])
        if not kinds <= _ATTENTION:
            raise ActorError(
                f"`model` must have blocks of full or linear attention alone, got {', '.join(sorted(kinds))}. Its "
                "cache forgets what a shared prefix needs. Set `use_sliding_window` to false in its config.json, if "
                "it was trained so."
            )
        self.is_recurrent = "linear_attention" in kinds

    def positions(self, tokens: Tensor, grids: Tensor) -> Tensor:
        """Rotary positions ``[3, W]`` of a whole prompt ``[W]`` with pictures of the grids ``[n, 3]``, n >= 0."""
        is_image = tokens == self.image_token
        positions, _ = self.model.model.get_rope_index(
            tokens[None],
            mm_token_type_ids=is_image.int()[None],
            image_grid_thw=grids if len(grids) else None,
        )
        found: Tensor = positions[:, 0]
        return found

    def see(self, pixels: Tensor, grids: Tensor) -> list[ModelOutput]:
        """What the vision tower makes of pictures.

        Args:
            pixels: ``[patches, values]`` of all pictures, one after the other.
            grids: ``[n, 3]`` int64.

        Returns:
            Per picture an output that `together` joins with others.
        """
        output = self.model.get_image_features(pixels, grids, return_dict=True)
        inner = getattr(output, "deepstack_features", None)
        seen = []
        for n in range(len(grids)):
            fields = {"pooler_output": output.pooler_output[n : n + 1]}
            if inner is not None:
                fields["deepstack_features"] = [level[n : n + 1] for level in inner]
            seen.append(type(output)(**fields))
        return seen

    def together(self, seen: Sequence[Any]) -> dict[str, ModelOutput] | None:
        """Outputs of several pictures as the model takes them in the place of pixels; None for no picture."""
        if not seen:
            return None
        fields: dict[str, Any] = {"pooler_output": [output.pooler_output[0] for output in seen]}
        if hasattr(seen[0], "deepstack_features"):
            by_picture = [[level[0] for level in output.deepstack_features] for output in seen]
            fields["deepstack_features"] = [list(level) for level in zip(*by_picture, strict=True)]
        return {"image": type(seen[0])(**fields)}

    def facts(self) -> dict[str, Any]:
        """What was really loaded, as plain JSON values: class, types of the weights, attention kernels.

        Linear-attention blocks use the kernels of `fla` and `causal_conv1d` where transformers could import them, and
        plain torch, which is slower, where the version is None.
        """
        config: Any = self.model.config
        facts: dict[str, Any] = {
            "class": type(self.model).__name__,
            "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in self.model.parameters()}),
            "attention": self.text_config._attn_implementation,
            "vision_attention": config.vision_config._attn_implementation,
        }
        if self.is_recurrent:
            loaded = {name: sys.modules.get(name) for name in _KERNELS}
            facts["linear_attention"] = {
                name: None if module is None else str(getattr(module, "__version__", "of unknown version"))
                for name, module in loaded.items()
            }
        return facts
