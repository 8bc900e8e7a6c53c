"""Runs replica tasks one after another, or in spawned processes. The results do not depend on which."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from divtrace.errors import DivtraceError
from divtrace.sieve.task import ReplicaResult, ReplicaTask, sieve_replica

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.sharedctypes import Synchronized

SMALLEST = 32 << 20
"""Bytes of input below which starting a process costs more than it saves."""
_POLL = 0.2

Progress = Callable[[int], None]
_counter: Synchronized[int] | None = None


def workers_for(tasks: Sequence[ReplicaTask], jobs: int | None) -> int:
    """How many processes to use: at most `jobs`, by default the number of cores, and no more than there are tasks."""
    wanted = jobs if jobs is not None else (os.cpu_count() or 1)
    if sum(task.size for task in tasks) < SMALLEST:
        return 1
    return max(1, min(wanted, len(tasks)))


def run_tasks(tasks: Sequence[ReplicaTask], jobs: int | None, progress: Progress | None = None) -> list[ReplicaResult]:
    """The result of every task, in the order of the tasks.

    Raises:
        DivtraceError: a process died; a report without its replica would look more complete than it is.
        NotSievableError: one of the tasks raised it.
    """
    workers = workers_for(tasks, jobs)
    if workers == 1:
        return _one_after_another(tasks, progress)
    from concurrent.futures import ProcessPoolExecutor, wait
    from multiprocessing import get_context

    context = get_context("spawn")  # a forked child would inherit locks that other threads hold
    counter = context.Value("Q", 0)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(counter,)) as pool:
        futures = [pool.submit(_work, task) for task in tasks]
        waiting = set(futures)
        while waiting:
            waiting = wait(waiting, timeout=_POLL).not_done
            if progress is not None:
                progress(counter.value)
        return [_result(future, task.name) for future, task in zip(futures, tasks, strict=True)]


def _result(future: Future[ReplicaResult], name: str) -> ReplicaResult:
    from concurrent.futures.process import BrokenProcessPool

    try:
        return future.result()
    except BrokenProcessPool as error:
        raise DivtraceError(
            f"{name} could not be analysed: its process, or one beside it, died",
            hint="memory may have run out; --jobs 1 needs the least",
        ) from error


def _one_after_another(tasks: Sequence[ReplicaTask], progress: Progress | None) -> list[ReplicaResult]:
    results = []
    done = 0
    for task in tasks:
        told = None if progress is None else _behind(progress, done)
        results.append(sieve_replica(task, told))
        done += task.size
    return results


def _behind(progress: Progress, done: int) -> Progress:
    return lambda more: progress(done + more)


def _start(counter: Synchronized[int]) -> None:
    global _counter
    _counter = counter


def _work(task: ReplicaTask) -> ReplicaResult:
    told = 0

    def tell(read: int) -> None:
        nonlocal told
        if _counter is not None:
            with _counter.get_lock():
                _counter.value += read - told
        told = read

    return sieve_replica(task, tell)
