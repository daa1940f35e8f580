"""Episodes in parallel: each worker has its own environment; nothing hangs and nothing is lost when one breaks."""

import threading

import pytest

from switchmem.rollout.crew import Crew, Stopped
from switchmem.rollout.play import Job
from switchmem.rollout.trace import ENVIRONMENT_ERROR

JOBS = [Job("none", f"task-{n}", n) for n in range(12)]


class Env:
    def __init__(self, opened):
        self.closed = False
        opened.append(self)

    def close(self):
        self.closed = True


def test_workers_play_side_by_side_in_their_own_environments():
    opened, together = [], threading.Barrier(3, timeout=20)

    def work(env, job):
        if job in JOBS[:3]:
            together.wait()  # passes only if three episodes are under way at once
        return job.trace("seen", detail=str(id(env)))

    with Crew(lambda: Env(opened), 3) as crew:
        traces = list(crew.run(JOBS, work))
        assert len(list(crew.run(JOBS[3:], work))) == 9 and not any(env.closed for env in opened)
    assert {trace.task for trace in traces} == {job.task for job in JOBS} and len(traces) == 12
    assert len(opened) == 3 and all(env.closed for env in opened)


def test_a_broken_environment_is_replaced():
    opened = []

    def work(env, job):
        return job.trace(ENVIRONMENT_ERROR if job.seed == 1 else "seen", detail=str(id(env)))

    with Crew(lambda: Env(opened), 1) as crew:
        traces = list(crew.run(JOBS[:4], work))
        assert [env.closed for env in opened] == [True, True, False]
    places = [trace.detail for trace in traces]
    assert places[0] != places[1] != places[2] == places[3]  # the broken episode's second try had a fresh one
    assert len(opened) == 3 and all(env.closed for env in opened)


def test_an_episode_is_played_once_more_where_its_environment_broke():
    tries = []

    def work(env, job):
        tries.append(job.task)
        return job.trace(ENVIRONMENT_ERROR if tries.count(job.task) == 1 and job.seed == 1 else "seen")

    with Crew(lambda: Env([]), 1) as crew:
        traces = list(crew.run(JOBS[:3], work))
    assert [trace.ending for trace in traces] == ["seen"] * 3 and tries == ["task-0", "task-1", "task-1", "task-2"]


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


def test_leaving_early_ends_the_episodes_under_way():
    opened, ended = [], []
    crew = Crew(lambda: Env(opened), 2)
    first = threading.Event()

    def work(env, job):
        if not first.is_set():
            first.set()
            return job.trace("seen")
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
