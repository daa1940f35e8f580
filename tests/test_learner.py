"""The Lightning module against a plainly written PyTorch loop, on one and on two ranks."""

import json
import os
import subprocess
import sys

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn import functional as F
from torch.utils.data import DataLoader

from switchmem.learner import LearnerError, RouterModule, preference_losses
from switchmem.router import PairwiseRouter

D, E = 12, 7
TARGETS = ("dcoe", "utility", "binary", "basic")


def steps(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = {k: torch.randn(n, E, generator=generator) for k in ("text", "image", "instruction", "screenshot")}
    rows["state"] = torch.randn(n, D, generator=generator)
    rows["target"] = rows["state"][:, 0] * 2 + 0.1
    rows["delta"] = (rows["target"].sign() * torch.randint(1, 8, (n,), generator=generator) / 7).double()
    return rows


def batches(n=40, size=8, seed=0):
    rows = steps(n, seed)
    return [
        {k: v[i : i + size] for k, v in rows.items()} | {"step_id": [f"b/e/{j}" for j in range(i, min(i + size, n))]}
        for i in range(0, n, size)
    ]


def loader(n=40, seed=0):
    return DataLoader(batches(n, seed=seed), batch_size=None)


class Preference(LightningDataModule):
    """Batches in a fixed order, as the real data module offers them."""

    feature_dims = {"state": D, "text": E, "image": E, "instruction": E, "screenshot": E}

    def train_dataloader(self):
        return loader(44)

    def val_dataloader(self):
        return loader(13, seed=1)

    def predict_dataloader(self):
        keys = ("state", "text", "image", "instruction", "screenshot", "step_id")
        return DataLoader([{k: batch[k] for k in keys} for batch in batches(13, seed=1)], batch_size=None)


def trainer(folder, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return Trainer(default_root_dir=folder, **({"enable_checkpointing": False} | quiet | options))


def doubled(batch):
    return {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in batch.items()}


def plain_losses(r, batch, target):
    if target == "dcoe":
        return [(a - b) ** 2 for a, b in zip(r, batch["target"], strict=True)]
    if target == "utility":
        return [(a - b) ** 2 for a, b in zip(r, batch["delta"], strict=True)]
    return [-F.logsigmoid(a if b > 0 else -a) for a, b in zip(r, batch["delta"], strict=True)]


def plain_state(batch, target):
    return torch.cat([batch["instruction"], batch["screenshot"]], 1) if target == "basic" else batch["state"]


@pytest.mark.parametrize("target", TARGETS)
def test_training_equals_a_plain_loop(tmp_path, target):
    # in float64: Adam divides by the gradient's size, and so turns the last bits of a tiny gradient into whole steps
    torch.manual_seed(0)
    module = RouterModule(target, lr=1e-2, width=6, hidden=9, dropout=0.0, state_dim=D, embed_dim=E)
    router = PairwiseRouter(2 * E if target == "basic" else D, E, 6, 9, 0.0)
    router.load_state_dict(module.router.state_dict())
    router.double()
    runner = trainer(tmp_path, max_epochs=3, num_sanity_val_steps=0, precision="64-true")
    runner.fit(module, Preference())

    optimizer = torch.optim.AdamW(router.parameters(), lr=1e-2, weight_decay=0.01)
    for _ in range(3):
        seen = []
        for batch in map(doubled, batches(44)):
            scores = router(plain_state(batch, target), batch["text"], batch["image"])
            losses = torch.stack(plain_losses(scores, batch, target))
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            seen += losses.tolist()
    for ours, plain in zip(module.router.parameters(), router.parameters(), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-9, rtol=1e-7)
    held = []
    for batch in map(doubled, batches(13, seed=1)):
        held += plain_losses(router(plain_state(batch, target), batch["text"], batch["image"]), batch, target)
    logged = runner.callback_metrics
    # a mean over steps, not over batches: the last batch is smaller
    assert logged["train/loss"].item() == pytest.approx(sum(seen) / 44, rel=1e-5)
    assert logged[RouterModule.monitor].item() == pytest.approx(torch.stack(held).mean().item(), rel=1e-5)
    assert 0.0 <= logged["val/sign_accuracy"].item() <= 1.0


def test_it_learns_what_the_state_says(tmp_path):
    torch.manual_seed(0)
    module = RouterModule(lr=1e-2)
    runner = trainer(tmp_path, max_epochs=40)
    runner.fit(module, Preference())
    assert runner.callback_metrics["train/sign_accuracy"] > 0.95
    assert (RouterModule.monitor, RouterModule.mode) == ("val/loss", "min")


def test_widths_come_from_the_data_module(tmp_path):
    module = RouterModule("basic")
    trainer(tmp_path, fast_dev_run=True).fit(module, Preference())
    assert module.router.config["state_dim"] == 2 * E
    assert module.hparams["state_dim"] is None  # what the user gave is what is kept
    with pytest.raises(LearnerError, match="`state_dim` must be given where the data module does not say it"):
        trainer(tmp_path, fast_dev_run=True).fit(RouterModule(), loader(), loader())
    with pytest.raises(LearnerError, match="must have widths before it is called"):
        RouterModule()(batches()[0])


@pytest.mark.parametrize("dims", [{}, {"state_dim": D, "embed_dim": E}])
def test_checkpoints_load_with_weights_only(tmp_path, dims):
    module = RouterModule("utility", width=6, hidden=9, **dims)
    saver = ModelCheckpoint(
        tmp_path, monitor=RouterModule.monitor, mode=RouterModule.mode, save_top_k=-1, save_last=True
    )
    runner = trainer(tmp_path, max_epochs=2, enable_checkpointing=True, callbacks=[saver])
    runner.fit(module, Preference())
    for path in tmp_path.glob("*.ckpt"):
        torch.load(path, weights_only=True)
    loaded = RouterModule.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert loaded.target == "utility" and loaded.hparams == module.hparams
    batch = batches()[0]
    assert torch.equal(loaded.eval()(batch), module.eval()(batch))
    resumed = RouterModule("utility", width=6, hidden=9, **dims)
    again = trainer(tmp_path, max_epochs=3)
    again.fit(resumed, Preference(), ckpt_path=str(tmp_path / "last.ckpt"), weights_only=True)
    assert again.current_epoch == 3


@pytest.mark.parametrize("target", TARGETS)
def test_prediction_carries_the_step_ids(tmp_path, target):
    module = RouterModule(target, state_dim=D, embed_dim=E)
    outputs = trainer(tmp_path).predict(module, Preference())
    assert [i for out in outputs for i in out["step_id"]] == [f"b/e/{j}" for j in range(13)]
    whole = steps(13, seed=1)
    expected = module.eval().router(plain_state(whole, target), whole["text"], whole["image"])
    torch.testing.assert_close(torch.cat([out["r"] for out in outputs]), expected)


def test_tied_steps_are_refused():
    batch = batches()[0]
    batch["delta"][2] = 0.0
    for target in TARGETS:
        with pytest.raises(LearnerError, match="`delta` must not be 0, got 1 tied steps in a batch of 8"):
            preference_losses(torch.zeros(8), batch, target)


@pytest.mark.parametrize("change", [{"target": "sorcery"}, {"lr": 0.0}, {"weight_decay": -1.0}])
def test_arguments_are_checked(change):
    with pytest.raises(LearnerError, match=f"`{next(iter(change))}` (must be|>= 0, got)"):
        RouterModule(**change)


RANKS = """
import json, os, sys
sys.path.insert(0, os.environ["TESTS"])
from test_learner import measure

if __name__ == "__main__":
    metrics = measure(sys.argv[1], 2, int(os.environ.get("LOCAL_RANK", 0)))
    if metrics:
        json.dump(metrics, open(sys.argv[2], "w"))
"""


def measure(folder, devices, rank):
    """Validation metrics of an untrained router on 8, 8 and 5 steps; of two ranks one holds 13 steps, one 8."""
    torch.manual_seed(0)
    module = RouterModule(state_dim=D, embed_dim=E)
    runner = trainer(folder, devices=devices, strategy="ddp" if devices > 1 else "auto", use_distributed_sampler=False)
    metrics = runner.validate(module, DataLoader(batches(21)[rank::devices], batch_size=None), verbose=False)[0]
    return metrics if runner.is_global_zero else None


def test_two_ranks_measure_what_one_does(tmp_path, project):
    (tmp_path / "ranks.py").write_text(RANKS)
    env = {**os.environ, "PYTHONPATH": str(project), "TESTS": str(project / "tests"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "ranks.py", str(tmp_path), "two.json"]
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=480)
    assert run.returncode == 0, run.stderr
    two = json.loads((tmp_path / "two.json").read_text())
    one = measure(tmp_path, 1, 0)
    assert two == pytest.approx(one, abs=1e-6)
    assert one.keys() == {"val/loss", "val/sign_accuracy", "val/regret"}
