"""Several episodes at a time: each worker has an environment of its own, and so a browser's process of its own.

The actor is one for all of them and is asked in turns: it is the agent that sees to it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from switchmem.rollout.play import Environment, Job
from switchmem.rollout.trace import ENVIRONMENT_ERROR, Trace

Env = TypeVar("Env", bound=Environment)
Result = TypeVar("Result")


class Stopped(BaseException):
    """The crew was left before the episode was over; no ordinary handler may take it for an error of the episode."""


class Crew(Generic[Env]):
    """Workers that play episodes. Used in a `with` statement: environments stay open until its end.

    Args:
        make_env: opens an environment; each worker has one, and another one where it broke, in which the episode is
            played once more.
        workers: episodes at a time, >= 1.

    Raises:
        ValueError: if there is no worker.
    """

    def __init__(self, make_env: Callable[[], Env], workers: int) -> None:
        if workers < 1:
            raise ValueError(f"`workers` must be at least 1, got {workers}.")
        self.make_env, self.workers = make_env, workers
        self._stop = threading.Event()
        self._idle: list[Env] = []

    def __enter__(self) -> Crew[Env]:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close every environment."""
        while self._idle:
            _close(self._idle.pop())

    def check(self) -> None:
        """To be called between the steps of an episode.

        Raises:
            Stopped: if the crew was left meanwhile.
        """
        if self._stop.is_set():
            raise Stopped

    def run(self, jobs: Sequence[Job], work: Callable[[Env, Job], Trace]) -> Iterator[Trace]:
        """Play all jobs and give their traces as they end.

        An error of `work`, or of opening an environment, ends the others after their episodes and is raised here. Left
        early, as on an interrupt, the workers end after the step they are at: see `check`.

        Args:
            jobs: what to play.
            work: plays one, in a worker's thread; it keeps the trace.
        """
        todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            todo.put(job)
        done: queue.SimpleQueue[Trace | BaseException | None] = queue.SimpleQueue()
        self._stop.clear()
        threads = [
            threading.Thread(target=self._worker, args=(todo, done, work), name=f"worker-{n}", daemon=True)
            for n in range(min(self.workers, len(jobs)))
        ]
        for thread in threads:
            thread.start()
        try:
            yield from _results(done, len(threads))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _worker(
        self,
        todo: queue.SimpleQueue[Job],
        done: queue.SimpleQueue[Trace | BaseException | None],
        work: Callable[[Env, Job], Trace],
    ) -> None:
        env: Env | None = None
        try:
            while not self._stop.is_set():
                job = todo.get_nowait()
                env = self._open() if env is None else env
                trace = work(env, job)
                if trace.ending == ENVIRONMENT_ERROR:  # perhaps not the episode's fault: once more, in a fresh one
                    broken, env = env, None
                    _close(broken)
                    env = self._open()
                    trace = work(env, job)
                done.put(trace)
                if trace.ending == ENVIRONMENT_ERROR:
                    broken, env = env, None
                    _close(broken)
        except queue.Empty:
            pass  # nothing is left to play
        except BaseException as error:  # raised where the crew was asked
            done.put(error)
        finally:
            if env is not None:
                self._idle.append(env)
            done.put(None)

    def _open(self) -> Env:
        try:
            return self._idle.pop()
        except IndexError:
            return self.make_env()


def _results(done: queue.SimpleQueue[Trace | BaseException | None], workers: int) -> Iterator[Trace]:
    while workers:
        found = done.get()
        if found is None:
            workers -= 1
        elif isinstance(found, Trace):
            yield found
        else:
            raise found


def _close(env: Environment) -> None:
    """Let go of an environment that may be broken: what it says then was said when it broke."""
    with contextlib.suppress(Exception):
        env.close()
