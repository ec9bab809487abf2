"""Process pool that starts all its workers at its first task."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import BaseContext
from typing import Any

from indextts.errors import UserError


class ProcessPool(ProcessPoolExecutor):
    """`ProcessPoolExecutor` of processes that are not forked from this one.

    The standard pool starts a worker with each task. If another worker dies at that moment, its manager
    thread ends the workers it knows and then waits forever for the new one (Python 3.11 and 3.12).

    Raises:
        UserError: /dev/shm has no space for the semaphores of a pool.
    """

    def __init__(
        self,
        num_workers: int,
        context: BaseContext,
        initializer: Callable[..., object],
        arguments: tuple[Any, ...] = (),
    ) -> None:
        require_semaphores()
        super().__init__(num_workers, context, initializer, arguments)
        self._safe_to_dynamically_spawn_children = False  # as the standard library sets it for forked workers


def require_semaphores() -> None:
    """Raise a UserError if the system has no space for the semaphores of a process pool."""
    try:
        multiprocessing.get_context("spawn").Lock()
    except OSError as error:
        raise UserError(
            f"/dev/shm cannot be used ({error.strerror}), and several processes need it: free space "
            "there, or start the container with more, for example docker run --shm-size=1g"
        ) from None
