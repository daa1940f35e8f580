"""Lines of a fit."""

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.demos.boring_classes import BoringModel

from callbacks import PlainProgress


class Logging(BoringModel):
    def training_step(self, batch, batch_idx):
        out = super().training_step(batch, batch_idx)
        self.log("train/loss", torch.tensor(0.5), on_epoch=True, on_step=False)
        return out


def fit(seconds, epochs=3, enabled=True, more=()):
    bar = PlainProgress(seconds)
    if not enabled:
        bar.disable()
    trainer = L.Trainer(
        max_epochs=epochs, limit_train_batches=1, limit_val_batches=1, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_model_summary=False, callbacks=[*more, bar],
    )  # fmt: skip
    assert trainer.progress_bar_callback is bar  # it takes the place of Lightning's own
    trainer.fit(Logging())


def test_one_line_per_epoch_without_control_characters(capsys):
    fit(seconds=0.0)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert lines == [f"epoch {n} of 3: train/loss 0.5" for n in (1, 2, 3)]


def test_seldom_lines_but_always_the_last(capsys):
    fit(seconds=1e6)
    assert [line for line in capsys.readouterr().out.splitlines() if line] == ["epoch 3 of 3: train/loss 0.5"]


def test_the_last_epoch_is_told_when_early_stopping_chooses_it(capsys):
    stop = EarlyStopping("train/loss", patience=1, check_on_train_epoch_end=True)
    fit(seconds=1e6, epochs=9, more=[stop])
    assert [line for line in capsys.readouterr().out.splitlines() if line] == ["epoch 2 of 9: train/loss 0.5"]


def test_disabled_says_nothing(capsys):
    fit(seconds=0.0, enabled=False)
    assert "epoch" not in capsys.readouterr().out
