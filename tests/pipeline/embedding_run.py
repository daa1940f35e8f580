"""An embedding pass over made-up steps, run by the tests in processes of its own.

python embedding_run.py FOLDER --steps 300 --devices 2 --workers 1 --delay 0.0
"""

import argparse
import sys
import time
from pathlib import Path

import lightning as L
import torch
from PIL import Image

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from data_modules.base import StepsDataModule  # noqa: E402
from switchmem.memory.embedder import HashingEmbedder  # noqa: E402
from switchmem.memory.embeddings import Embeddings  # noqa: E402
from switchmem.pipeline.embedding import EmbeddingPass  # noqa: E402
from switchmem.stages import Stages  # noqa: E402
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement  # noqa: E402

SHOT = Screenshot.from_image(Image.new("RGB", (8, 12), (90, 90, 30)))


class ByCall(HashingEmbedder):
    """As a trained model: what else is in a call shows in the last digits of its vectors."""

    def __init__(self, delay=0.0):
        super().__init__(32)
        self.delay, self.placed = delay, []

    def place(self, device):
        self.placed.append(device)

    def texts(self, texts):
        time.sleep(self.delay)
        vectors = super().texts(texts)
        return torch.nn.functional.normalize(vectors + 1e-4 * vectors.mean(dim=0), dim=1) if texts else vectors


class MadeUp(StepsDataModule):
    def __init__(self, folder, steps, delay=0.0):
        super().__init__()
        self.steps = steps
        self.place(Stages(folder), ByCall(delay))

    def read(self, report):
        return {"preference": self._steps("p", self.steps), "bank": self._steps("m", 70), "test": self._steps("t", 5)}

    def _steps(self, prefix, count):
        for n in range(count):
            element = (UIElement((0.0, 0.0, 1.0, 0.1), text=f"Row {n % 7} {prefix}"),)
            yield Step("aitw", f"{prefix}{n // 3}", n % 3, f"Open row {n % 50}", SHOT, element, Action(ActionType.BACK))

    def fingerprint(self):
        return self.steps


def run(folder, steps=300, devices=1, workers=0, delay=0.0, **options):
    """The pass, as a study runs it, and the finished embeddings."""
    data = MadeUp(folder, steps, delay)
    data.prepare_steps()
    job = data.embedding_job("preference")
    job.stage.begin()
    trainer = L.Trainer(
        accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", logger=False,
        enable_checkpointing=False, enable_model_summary=False, enable_progress_bar=False, default_root_dir=folder,
    )  # fmt: skip
    options = {"rows_per_shard": 64, "progress_seconds": 0.0, **options}
    trainer.predict(EmbeddingPass(job, workers, **options), return_predictions=False)
    return data, Embeddings.open(job.stage.folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name, default in (("steps", 300), ("devices", 1), ("workers", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--delay", type=float, default=0.0)
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
