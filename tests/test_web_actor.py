"""The shipped web actor on pages that it never saw, and the path from recorded steps over a policy to a rollout."""

import json
import sys

import pytest

from switchmem.actors.spec import SHIPPED, ActorSpec
from switchmem.agent import SwitchMemAgent
from switchmem.cli import main
from switchmem.envs.miniwob.browser import BrowserError, find_chromium
from switchmem.envs.miniwob.env import MiniWobEnv
from switchmem.envs.miniwob.tasks import instance_seed
from switchmem.memory.views import Condition
from switchmem.rollout.play import Job, play

SPEC = ActorSpec("miniwob", grammar="miniwob", template="pocket", screen_text=True, state_tokens=256, device="cpu")
UNSEEN_SUITE = 7_000_000
"""A suite seed of neither the actor's training, the recorded steps, nor a rollout."""
EASY = ("click-dialog", "click-test", "click-test-2", "enter-text", "focus-text", "click-button")


@pytest.fixture(scope="module", autouse=True)
def needs_chromium():
    try:
        find_chromium()
    except BrowserError as error:
        pytest.skip(str(error))


def test_the_weights_are_as_small_as_they_are_said_to_be():
    assert sum(path.stat().st_size for path in SHIPPED["miniwob"].iterdir()) <= 16 * 2**20


@pytest.mark.browser
def test_it_solves_tasks_on_unseen_seeds():
    agent = SwitchMemAgent(None, SPEC, SPEC.load(), None, 32)
    env = MiniWobEnv(max_steps=6)
    try:
        jobs = [Job("none", task, instance_seed(UNSEEN_SUITE, task, n)) for task in EASY for n in range(2)]
        traces = [
            play(env, job, lambda s: agent.act(s.goal, s.screenshot, s.elements, condition=Condition.NONE), stuck=2)
            for job in jobs
        ]
    finally:
        env.close()
    solved = {task: sum(t.success for t in traces if t.task == task) for task in EASY}
    assert sum(solved.values()) >= 8, solved


@pytest.mark.browser
def test_from_recorded_steps_to_a_rollout(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    tasks = "[click-test-2,click-button,enter-text,click-dialog]"
    recorded = [
        "--config=miniwob_offline.yaml",
        f"--data.init_args.tasks={tasks}",
        "--data.init_args.episodes=2",
        "--data.init_args.test_episodes=1",
        "--sampling.seeds=[42,43]",
        "--study.seeds=[0]",
        "--study.bootstrap=100",
    ]
    assert main(["fit", *recorded]) in (0, 1)  # where no step prefers a modality, there is no policy
    assert "miniwob-offline" in capsys.readouterr().out
    played = [
        "--config=miniwob.yaml",
        f"--rollout.tasks={tasks}",
        "--rollout.policies=[none,text]",
        "--rollout.stuck=2",
        "--rollout.bootstrap=100",
        "--rollout.workers=2",
    ]
    assert main(["rollout", *played]) == 0
    results = json.loads((tmp_path / "runs" / "miniwob" / "results.json").read_text())
    assert results["settings"]["screen_text"] is True and results["bank"]["made_by"] == "actor"
    assert results["instances"]["shared"] == [] and results["policies"]["none"]["successes"] >= 1
