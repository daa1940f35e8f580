"""Episodes side by side: in order, each with its own page, and none that takes others with it."""

import pytest
from hostile_pages import write

from switchmem.envs.base import Ending, PhoneAction, PhoneActionType
from switchmem.envs.miniwob.env import MiniWobEnv
from switchmem.envs.miniwob.parallel import Instance, play_all, suite
from switchmem.envs.miniwob.tasks import TASKS

pytestmark = pytest.mark.browser
TAP = PhoneAction(PhoneActionType.CLICK, x=500, y=500)


@pytest.fixture
def make_env(browser, tmp_path):
    write(tmp_path, "good", on_tap="core.endEpisode(1)")
    write(tmp_path, "bad", on_tap="core.endEpisode(-1)")
    write(tmp_path, "away", on_tap="location.reload()")
    return lambda: MiniWobEnv(browser, tmp_path, max_steps=2, patience=60)


def tapping(env, instance):
    return lambda screen: TAP


def test_results_stand_in_the_order_of_the_instances(make_env, capsys):
    names = ["good", "away", "missing", "bad", "good"]
    episodes = play_all([Instance(name, 1) for name in names], tapping, make_env, workers=3, title="play")
    assert [e.instance.task for e in episodes] == names
    endings = [Ending.SUCCESS, Ending.NAVIGATION, Ending.MISSING_PAGE, Ending.FAILURE, Ending.SUCCESS]
    assert [e.ending for e in episodes] == endings
    assert [e.succeeded for e in episodes] == [True, False, False, False, True]
    assert [e.steps for e in episodes] == [1, 1, 0, 1, 1]
    assert "play: 5 in" in capsys.readouterr().out


def test_a_fault_of_the_agent_comes_through(make_env):
    def begin(env, instance):
        raise RuntimeError("my agent is broken")

    with pytest.raises(RuntimeError, match="my agent is broken"):
        play_all([Instance("good", 1)] * 3, begin, make_env, workers=2)


def test_there_is_at_least_one_worker(make_env):
    with pytest.raises(ValueError, match="`workers` must be at least 1, got 0"):
        play_all([], tapping, make_env, workers=0)


def test_a_suite_has_all_tasks_and_seeds_of_its_own():
    assert [i.task for i in suite(42)] == list(TASKS)
    assert not set(suite(42)) & set(suite(43))
