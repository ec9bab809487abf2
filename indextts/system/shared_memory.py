"""Shared memory of the machine: process pools keep their semaphores in /dev/shm."""

import multiprocessing

from indextts.errors import UserError


def require_semaphores() -> None:
    """Raise a UserError if the system has no space for the semaphores of a process pool."""
    try:
        multiprocessing.get_context("spawn").Lock()
    except OSError as error:
        raise UserError(
            f"/dev/shm cannot be used ({error.strerror}), and several processes need it: free space "
            "there, or start the container with more, for example docker run --shm-size=1g"
        ) from None
