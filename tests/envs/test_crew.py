"""Episodes in parallel: each worker has its own environment; nothing hangs and nothing is lost when one breaks."""

import queue
import threading

import pytest
from hostile_pages import write

from switchmem.envs.base import Ending, PhoneAction, PhoneActionType
from switchmem.envs.crew import Crew, Stopped
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv

JOBS = range(12)
BROKEN = "broken"


class Env:
    def __init__(self, opened):
        self.closed = False
        opened.append(self)

    def close(self):
        self.closed = True


def broke(result):
    return result[1] == BROKEN


def test_workers_play_side_by_side_in_their_own_environments():
    opened, together = [], threading.Barrier(3, timeout=20)

    def work(env, job):
        if job < 3:
            together.wait()  # passes only if three episodes are under way at once
        return job

    with Crew(lambda: Env(opened), 3) as crew:
        results = list(crew.run(JOBS, work))
        assert len(list(crew.run(JOBS[3:], work))) == 9 and not any(env.closed for env in opened)
    assert sorted(results) == list(JOBS)
    assert len(opened) == 3 and all(env.closed for env in opened)


@pytest.mark.parametrize("result", [None, ValueError("a result may be anything")])
def test_a_result_is_never_taken_for_an_end_or_an_error(result):
    with Crew(lambda: Env([]), 2) as crew:
        assert list(crew.run(JOBS, lambda env, job: result)) == [result] * 12


def test_a_broken_environment_is_replaced():
    opened = []

    def work(env, job):
        return id(env), BROKEN if job == 1 else "seen"

    with Crew(lambda: Env(opened), 1, broke) as crew:
        results = list(crew.run(JOBS[:4], work))
        assert [env.closed for env in opened] == [True, True, False]
    places = [place for place, _ in results]
    assert places[0] != places[1] != places[2] == places[3]  # the broken episode's second try had a fresh one
    assert len(opened) == 3 and all(env.closed for env in opened)


def test_an_episode_is_played_once_more_where_its_environment_broke():
    tries = []

    def work(env, job):
        tries.append(job)
        return job, BROKEN if tries.count(job) == 1 and job == 1 else "seen"

    with Crew(lambda: Env([]), 1, broke) as crew:
        results = list(crew.run(JOBS[:3], work))
    assert [said for _, said in results] == ["seen"] * 3 and tries == [0, 1, 1, 2]


@pytest.mark.parametrize("where", ["open", "work"])
def test_an_error_comes_out_and_everything_is_closed(where):
    opened = []

    def make():
        if where == "open":
            raise OSError("no room")
        return Env(opened)

    def work(env, job):
        raise OSError("no room")

    before = threading.active_count()
    with pytest.raises(OSError, match="no room"), Crew(make, 4) as crew:
        list(crew.run(JOBS, work))
    assert all(env.closed for env in opened) and threading.active_count() == before


def test_an_episodes_own_empty_queue_is_no_end_of_the_work():
    def work(env, job):
        raise queue.Empty

    with pytest.raises(queue.Empty), Crew(lambda: Env([]), 2) as crew:
        list(crew.run(JOBS, work))


def test_leaving_early_ends_the_episodes_under_way():
    opened, ended = [], []
    crew = Crew(lambda: Env(opened), 2)
    first = threading.Event()

    def work(env, job):
        if not first.is_set():
            first.set()
            return job
        try:
            while True:  # an episode without an end
                crew.check()
        except Stopped:
            ended.append(job)
            raise

    with crew:
        traces = crew.run(JOBS, work)
        next(traces)
        traces.close()
    assert 0 < len(ended) <= 2 and all(env.closed for env in opened)


def test_there_must_be_a_worker():
    with pytest.raises(ValueError, match="`workers` must be at least 1, got 0"):
        Crew(lambda: Env([]), 0)


@pytest.mark.browser
def test_environments_of_one_browser_play_side_by_side_and_none_takes_others_with_it(browser, tmp_path):
    scripts = {"good": "core.endEpisode(1)", "bad": "core.endEpisode(-1)", "away": "location.reload()"}
    for name, script in scripts.items():
        write(tmp_path, name, on_tap=script)

    def work(env, task):
        try:
            env.reset(seed=1, options={"task": task})
        except EpisodeError as error:
            return task, error.ending
        return task, env.step(PhoneAction(PhoneActionType.CLICK, x=500, y=500))[4]["reason"]

    endings = {"good": Ending.SUCCESS, "away": Ending.NAVIGATION, "missing": Ending.MISSING_PAGE, "bad": Ending.FAILURE}
    tasks = [*endings, "good"]
    with Crew(lambda: MiniWobEnv(browser, tmp_path, patience=60), 3) as crew:
        results = list(crew.run(tasks, work))
    assert sorted(results) == sorted((task, endings[task]) for task in tasks)
