"""A working directory with the fake actor, and the command line to use in it."""

import sys

import fake_actor

from switchmem.cli import main

SMALL = [
    "--config=pocket.yaml",
    *fake_actor.FLAGS,
    "--study.targets=[dcoe,binary]",
    "--study.seeds=[0,1]",
    "--study.bootstrap=200",
    "--trainer.max_epochs=2",
    "--run.report=false",  # test_report_run.py looks at pages
]


class Desk:
    """Runs commands in `folder`.

    Args:
        folder: becomes the working directory.
        monkeypatch: undoes everything.
        answers: what the fake actor should answer by step id; None takes those of the small pocket world.
    """

    def __init__(self, folder, monkeypatch, answers=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["train.py"])
        answers = fake_actor.recorded_actions(fake_actor.pocket_steps()) if answers is None else answers
        self.loads = fake_actor.install(monkeypatch, folder / "fake", answers)

    def __call__(self, command, *flags, small=SMALL):
        return main([command, *small, "--actor.model=fake", *flags])

    @property
    def run(self):
        return self.folder / "runs" / "pocket"
