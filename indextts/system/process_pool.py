"""Process pool that starts all its workers at its first task, and a map over one.

A worker ignores Ctrl-C, which is for the parent, and ends when the parent ends for any reason.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from indextts.errors import UserError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


class ProcessPool(ProcessPoolExecutor):
    """`ProcessPoolExecutor` of processes that are not forked from this one.

    The standard pool starts a worker with each task. If another worker dies at that moment, its manager
    thread ends the workers it knows and then waits forever for the new one (Python 3.11 and 3.12).

    Raises:
        UserError: /dev/shm has no space for the semaphores of a pool.
    """

    def __init__(self, num_workers: int, context: BaseContext, begin: Callable[[], object]) -> None:
        """Prepare the pool; each worker calls `begin` first."""
        require_semaphores()
        super().__init__(num_workers, context, _begin, (begin,))
        self._safe_to_dynamically_spawn_children = False  # as the standard library sets it for forked workers


def map_in_processes(
    work: Callable[[TaskT], ResultT], tasks: Sequence[TaskT], num_workers: int, chunk: int = 1
) -> Iterator[ResultT]:
    """Yield the result of each task, in order; a single worker is this process.

    Args:
        work: pickled once for each process, so it may hold much.
        chunk: the number of tasks that a process gets at once.

    Raises:
        UserError: a process was killed.
    """
    if num_workers == 1:
        yield from map(work, tasks)
        return
    context = multiprocessing.get_context("spawn")  # not forked: the parent may have threads
    pool = ProcessPool(num_workers, context, partial(_keep, work))
    try:
        yield from pool.map(_do, tasks, chunksize=chunk)
    except KeyboardInterrupt:
        for process in tuple(pool._processes.values()):  # or it waits until their tasks are done
            process.kill()
        raise
    except BrokenProcessPool:
        raise UserError(
            f"one of {num_workers} processes was killed, probably because memory ran out; free memory and "
            "start again (a check takes fewer processes with --num-workers)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def map_in_threads(
    work: Callable[[TaskT], ResultT], tasks: Iterable[TaskT], num_threads: int
) -> Iterator[ResultT]:
    """Yield the result of each task, in order; a caller that stops cancels the tasks that have not begun."""
    with ThreadPoolExecutor(num_threads) as pool:
        try:
            yield from pool.map(work, tasks)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def ahead(items: Iterable[TaskT], start: Callable[[TaskT], ResultT], num_ahead: int) -> Iterator[ResultT]:
    """Yield what `start` returns for each item, after starting the next `num_ahead` items."""
    pending: deque[ResultT] = deque()
    for item in items:
        pending.append(start(item))
        if len(pending) > num_ahead:
            yield pending.popleft()
    yield from pending


_work: list[Callable[[Any], Any]] = []  # of a worker of `map_in_processes`


def _keep(work: Callable[[Any], Any]) -> None:
    _work.append(work)


def _do(task: Any) -> Any:
    return _work[0](task)


def _begin(begin: Callable[[], object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    begin()


def require_semaphores() -> None:
    """Raise a UserError if the system has no space for the semaphores of a process pool."""
    try:
        multiprocessing.get_context("spawn").Lock()
    except OSError as error:
        raise UserError(
            f"/dev/shm cannot be used ({error.strerror}), and several processes need it: free space "
            "there, or start the container with more, for example docker run --shm-size=1g"
        ) from None
