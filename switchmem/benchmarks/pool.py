"""Tasks over worker processes: bounded queues, progress in bytes, and no process left behind.

The standard pools cannot say which task a killed worker was at, and may wait for it for ever. Here each worker holds
one task and one pipe, so that both are known.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from switchmem.benchmarks.base import DataError

OnRead = Callable[[int], None]
POLL = 0.2  # seconds between two looks at the workers' progress


@dataclass(frozen=True)
class Task:
    """One piece of work.

    Args:
        name: what is worked on, for messages.
        function: called as ``function(payload, on_read)``; both it and `payload` can be pickled. It leaves its result
            in a file and calls `on_read` with the bytes of input that it has taken.
        payload: the task's data.
    """

    name: str
    function: Callable[[Any, OnRead], None]
    payload: Any


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(tasks: Sequence[Task], workers: int | None, on_read: OnRead) -> None:
    """Do all tasks, in this process or in several.

    Workers are spawned: they import what the tasks need and nothing else, and inherit neither threads nor locks. They
    end when this call ends, however it ends, and when this process is killed.

    Args:
        tasks: in the order in which they are begun.
        workers: processes, at least 1; 1 works in this process, None takes one per available core.
        on_read: called with the bytes that were read since its last call.

    Raises:
        ValueError: if `workers` is below 1.
        DataError: if a worker process dies; the message names its task.
        Exception: whatever a task raises.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"`workers` must be at least 1 or None, got {workers}.")
    count = min(workers or available_cores(), len(tasks))
    if count > 1:
        _run_spawned(tasks, count, on_read)
        return
    with _seldom_collected():
        for task in tasks:
            task.function(task.payload, on_read)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for reference cycles less often.

    A step has some hundred small objects and no cycle; looking after every 700 of them takes a tenth of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(200_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: Task | None = None


def _run_spawned(tasks: Iterable[Task], count: int, on_read: OnRead) -> None:
    context = multiprocessing.get_context("spawn")
    counter, waiting, told = context.Value("q", 0), deque(tasks), 0
    workers: list[_Worker] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, counter), daemon=True)
            process.start()
            theirs.close()  # so that a dead worker is an end of file here
            workers.append(_Worker(process, ours))
            _give(workers[-1], waiting)
        while any(worker.task for worker in workers):
            ready = wait([worker.pipe for worker in workers if worker.task], timeout=POLL)
            for worker in workers:
                if worker.pipe in ready:
                    _take(worker)
                    _give(worker, waiting)
            now = counter.value
            if now > told:
                on_read(now - told)
                told = now
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
            worker.pipe.close()


def _give(worker: _Worker, waiting: deque[Task]) -> None:
    worker.task = waiting.popleft() if waiting else None
    if worker.task is not None:
        try:
            worker.pipe.send((worker.task.function, worker.task.payload))
        except BrokenPipeError:
            raise _died(worker) from None


def _take(worker: _Worker) -> None:
    """Hear the end of a worker's task."""
    try:
        error = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        raise _died(worker) from None
    if error is not None:
        raise error


def _died(worker: _Worker) -> DataError:
    worker.process.join()
    code, name = worker.process.exitcode, worker.task.name if worker.task else "nothing"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
    hint = " Memory may have run out: allow fewer workers." if code == -signal.SIGKILL else ""
    return DataError(
        f"A worker process {how} while it read {name}.{hint} Run the same command again: it goes on with that file."
    )


def _end_with_parent() -> None:
    """End this process when the one that spawned it has gone, which may have had no chance to end its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _serve(pipe: Connection, counter: Any) -> None:
    """Do tasks until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def on_read(count: int) -> None:
        with counter.get_lock():
            counter.value += count

    while True:
        try:
            function, payload = pipe.recv()
        except EOFError:
            return
        try:
            with _seldom_collected():
                function(payload, on_read)
        except Exception as error:
            pipe.send(_sendable(error))
        else:
            pipe.send(None)


def _sendable(error: Exception) -> Exception:
    """The exception itself where it survives pickling, else one that holds its traceback."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception's own arguments decide what it raises here
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
