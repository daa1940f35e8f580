"""Several episodes at a time: each worker has an environment of its own, and keeps it from one episode to the next.

    with Crew(MiniWobEnv, workers=8) as crew:
        for episode in crew.run(jobs, lambda env, job: demonstrate(env, *job)):
            ...

What a job and a result are is the caller's. One actor plays for all and is asked in turns, which its agent sees to.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """All that is asked of an environment here."""

    def close(self) -> None:
        """Let go of it."""


Env = TypeVar("Env", bound=Closable)
Job = TypeVar("Job")
Result = TypeVar("Result")


class Stopped(BaseException):
    """The crew was left before the episode was over; no ordinary handler may take it for an error of the episode."""


class _Over:
    """A worker is at its end, on an error or without one; any other object in the queue is a result.

    Args:
        error: that ended it, or None.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Crew(Generic[Env]):
    """Workers that play episodes. Used in a `with` statement: environments stay open until its end.

    Args:
        make_env: opens an environment; each worker has one, and another one where it broke, in which the episode is
            played once more. Browser environments may share a `Browser`, or have one each: a process of its own.
        workers: episodes at a time, >= 1.
        broke: whether a result says that the environment broke; None never thinks so.

    Raises:
        ValueError: if there is no worker.
    """

    def __init__(self, make_env: Callable[[], Env], workers: int, broke: Callable[[Any], bool] | None = None) -> None:
        if workers < 1:
            raise ValueError(f"`workers` must be at least 1, got {workers}.")
        self.make_env, self.workers = make_env, workers
        self._broke = broke or (lambda result: False)
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

    def run(self, jobs: Sequence[Job], work: Callable[[Env, Job], Result]) -> Iterator[Result]:
        """Play all jobs and give what they come to, as they end and not in order.

        An error of `work`, or of opening an environment, ends the others after their episodes and is raised here. Left
        early, as on an interrupt, the workers end after the step they are at: see `check`.

        Args:
            jobs: what to play.
            work: plays one, in a worker's thread; it keeps the result.
        """
        todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            todo.put(job)
        done: queue.SimpleQueue[Result | _Over] = queue.SimpleQueue()
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
        done: queue.SimpleQueue[Result | _Over],
        work: Callable[[Env, Job], Result],
    ) -> None:
        env: Env | None = None
        over = _Over()
        try:
            while not self._stop.is_set():
                try:
                    job = todo.get_nowait()
                except queue.Empty:  # raised by an episode it would be an error like any other
                    break
                env = self._open() if env is None else env
                result = work(env, job)
                if self._broke(result):  # perhaps not the episode's fault: once more, in a fresh one
                    broken, env = env, None
                    _close(broken)
                    env = self._open()
                    result = work(env, job)
                done.put(result)
                if self._broke(result):
                    broken, env = env, None
                    _close(broken)
        except BaseException as error:  # raised where the crew was asked
            over.error = error
        finally:
            if env is not None:
                self._idle.append(env)
            done.put(over)

    def _open(self) -> Env:
        try:
            return self._idle.pop()
        except IndexError:
            return self.make_env()


def _results(done: queue.SimpleQueue[Result | _Over], workers: int) -> Iterator[Result]:
    while workers:
        found = done.get()
        if not isinstance(found, _Over):
            yield found
        elif found.error is not None:
            raise found.error
        else:
            workers -= 1


def _close(env: Closable) -> None:
    """Let go of an environment that may be broken: what it says then was said when it broke."""
    with contextlib.suppress(Exception):
        env.close()
