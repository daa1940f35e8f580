"""A harvest with a tiny fake actor, run by the tests in processes of its own.

python harvest_run.py FOLDER --steps 23 --devices 2 --workers 2 --batch 3 --delay 0.0
"""

import argparse
import errno
import hashlib
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from PIL import Image

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from callbacks import HiddenStateHarvester  # noqa: E402
from data_modules.base import StepsDataModule  # noqa: E402
from switchmem.harvest import Harvest  # noqa: E402
from switchmem.memory.embedder import HashingEmbedder  # noqa: E402
from switchmem.memory.views import Condition  # noqa: E402
from switchmem.stages import Stages  # noqa: E402
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement  # noqa: E402

LAYERS, WIDTH = (0, 2), 3


def fake_steps(count, prefix):
    for n in range(count):
        shot = Screenshot.from_image(Image.new("RGB", (12, 20), (n * 7 % 256, 90, 30)))
        elements = (UIElement((0.0, 0.0, 1.0, 0.1), text=f"Row {n % 4}"),)
        yield Step("aitw", f"{prefix}{n // 3}", n % 3, f"Open row {n % 5}", shot, elements, Action(ActionType.BACK))


class FakeData(StepsDataModule):
    def __init__(self, steps, **options):
        super().__init__(**options)
        self.steps = steps

    def read(self, report):
        report.read = report.kept = self.steps + 8
        return {"preference": fake_steps(self.steps, "p"), "bank": fake_steps(9, "m"), "test": fake_steps(8, "t")}

    def fingerprint(self):
        return {"fake": self.steps}


@dataclass
class FakeSampling:
    seeds: tuple


@dataclass
class FakeObservation:
    step_id: str
    state: torch.Tensor
    shifted: dict
    answers: dict
    seconds: float = 0.0


@dataclass
class FakeParsed:
    action: Action | None
    reason: str | None = None


class FakeGrammar:
    def parse(self, text, size):
        kinds = {"back": ActionType.BACK, "home": ActionType.HOME}
        return FakeParsed(Action(kinds[text])) if text in kinds else FakeParsed(None, "no_action")


class FakeActor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)

    def facts(self):
        return {"class": "FakeActor", "device": str(self.weight.device)}

    def parameters_hash(self):
        return hashlib.blake2b(self.weight.detach().cpu().numpy().tobytes()).hexdigest()[:16]


def no_space(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def draw(*key, numbers=1):
    digest = hashlib.shake_256(repr(key).encode()).digest(numbers)
    return torch.tensor(list(digest), dtype=torch.float32) / 255


class FakeModule(L.LightningModule):
    """Everything that it returns is a function of the step, the condition and the seed."""

    def __init__(
        self,
        conditions=("text", "image"),
        seeds=(1, 2),
        delay=0.0,
        drift=False,
        lose=False,
        fail=None,
        slow=None,
        full=None,
    ):
        super().__init__()
        self.actor, self.grammar, self.layers, self.start_hash = FakeActor(), FakeGrammar(), LAYERS, None
        self.conditions, self.sampling = tuple(Condition(c) for c in conditions), FakeSampling(tuple(seeds))
        self.delay, self.drift, self.lose = delay, drift, lose
        # by rank: batches before an error, seconds per batch, batches before the disk is full
        self.fail, self.slow, self.full = fail or {}, slow or {}, full or {}

    def on_predict_start(self):
        self.start_hash = self.actor.parameters_hash()

    def answer(self, step_id, condition, seed):
        return ("back", "home", "???")[int(draw(step_id, condition.value, seed) * 255) % 3]

    def states(self, step_id, name):
        return draw(step_id, name, numbers=len(LAYERS) * WIDTH).reshape(len(LAYERS), WIDTH)

    def predict_step(self, batch, batch_idx=0):
        time.sleep(self.delay * len(batch) + self.slow.get(self.global_rank, 0.0))
        if self.fail.get(self.global_rank) == batch_idx:
            raise RuntimeError("out of memory")
        if self.full.get(self.global_rank) == batch_idx:
            os.fsync = no_space
        if self.drift:
            self.actor.weight.add_(1)
        ids = [item.step.step_id for item in batch]
        return [
            FakeObservation(
                i,
                self.states(i, "state"),
                {c: self.states(i, c.value) for c in self.conditions if c is not Condition.NONE},
                {c: [self.answer(i, c, seed) for seed in self.sampling.seeds] for c in self.conditions},
            )
            for i in (ids[:-1] if self.lose else ids)
        ]


def same(a: Harvest, b: Harvest) -> bool:
    """Whether two harvests hold the same steps with the same answers, scores and tensors."""
    return (
        a.step_ids == b.step_ids
        and all(a.answers(c) == b.answers(c) and torch.equal(a.scores(c), b.scores(c)) for c in a.conditions)
        and all(
            torch.equal(a.states(n, layer), b.states(n, layer)) for n in ("state", "text", "image") for layer in (0, 2)
        )
        and all(torch.equal(a.embeddings(n), b.embeddings(n)) for n in ("text", "image", "instruction", "screenshot"))
    )


def make_data(folder, steps, workers=0, batch=3):
    data = FakeData(steps, batch_size=batch, num_workers=workers)
    data.place(Stages(folder / "stages"), HashingEmbedder(dim=32))
    return data


def run(
    folder,
    steps=12,
    devices=1,
    nodes=1,
    workers=0,
    batch=3,
    part="preference",
    callback=None,
    out="harvest",
    timeout=60.0,
    **module,
):
    several = devices * nodes > 1
    data = make_data(folder, steps, workers, batch)
    data.select(part, folder / out)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=devices,
        num_nodes=nodes,
        strategy=DDPStrategy(timeout=timedelta(seconds=timeout)) if several else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        callbacks=[callback or HiddenStateHarvester(records_per_shard=2, progress_seconds=0.0)],
    )
    trainer.predict(FakeModule(**module), datamodule=data, return_predictions=False)
    return Harvest.open(folder / out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name, default in (("steps", 12), ("devices", 1), ("workers", 0), ("batch", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--delay", type=float, default=0.0)
    options = vars(parser.parse_args())
    run(**options)


if __name__ == "__main__":
    main()
