"""Recorded steps of MobileMiniWoB++: played once, dealt out by instance, none of the study's own."""

from pathlib import Path

import pytest

from data_modules import MiniWobDataModule
from switchmem.benchmarks import uiautomator
from switchmem.benchmarks.base import DataError
from switchmem.envs.miniwob.browser import BrowserError, find_chromium
from switchmem.envs.miniwob.demonstrators.recording import STUDY_SEEDS
from switchmem.envs.miniwob.tasks import instance_seed
from switchmem.memory.embedder import HashingEmbedder
from switchmem.stages import Stages
from switchmem.steps import ActionType

TASKS = ["click-test", "enter-text"]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    try:
        find_chromium()
    except BrowserError as error:
        pytest.skip(str(error))
    data = MiniWobDataModule(episodes=2, test_episodes=1, tasks=TASKS)
    data.place(Stages(tmp_path_factory.mktemp("stages")), HashingEmbedder(64))
    data.prepare_memory("preference")
    data.prepare_memory("test")
    return data


@pytest.mark.browser
def test_whole_instances_are_in_one_part(played):
    parts = {name: played.part(name) for name in ("preference", "test")}
    trajectories = {n: {p.meta(i).trajectory for i in p.step_ids} for n, p in parts.items()}
    assert len(trajectories["preference"]) == 4 and len(trajectories["test"]) == 2
    assert not trajectories["preference"] & trajectories["test"]
    seeds = {t.rpartition("-")[2] for side in trajectories.values() for t in side}
    assert not seeds & {str(instance_seed(suite, task)) for suite in STUDY_SEEDS for task in TASKS}


@pytest.mark.browser
def test_a_text_is_typed_at_its_place(played):
    part = played.part("preference")
    steps = [part[step_id] for step_id in part.step_ids]
    typed = [step for step in steps if step.action.type is ActionType.TYPE]
    assert len(typed) == 2
    for step in typed:
        assert step.action.point is not None and step.action.text in step.instruction
        assert step.benchmark == "miniwob" and step.screenshot.width == 270 and step.elements


@pytest.mark.browser
def test_memories_come_from_other_instances(played):
    for part in ("preference", "test"):
        queries, bank = played.part(part), played.part("preference")
        for query, hit in played.pairs(part).hits.items():
            assert queries.meta(query).trajectory != bank.meta(hit.step_id).trajectory


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"episodes": 1}, "`episodes` must be at least 2"),
        ({"test_episodes": 0}, "`test_episodes` must be at least 1"),
        ({"tasks": ["click-nothing"]}, "must have a demonstrator"),
        ({"suite_seed": 42}, "none of the study's own seeds"),
    ],
)
def test_mistakes_are_told_before_a_browser_opens(arguments, message):
    with pytest.raises(DataError, match=message):
        MiniWobDataModule(**arguments)


@pytest.mark.browser
def test_another_reading_of_the_screens_is_played_anew(played, monkeypatch, tmp_path):
    before = played.steps_stage.key
    changed = tmp_path / "uiautomator.py"
    changed.write_text(Path(uiautomator.__file__).read_text() + "# changed\n")
    monkeypatch.setattr(uiautomator, "__file__", str(changed))
    assert played.steps_stage.key != before
