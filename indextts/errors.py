"""The exception for errors that the user can fix, and the exit statuses of all programs.

    Exception
    └── UserError            one line: where, what (with the value), what to do

Any other exception that leaves a program is an internal error and keeps its traceback.

Exit statuses:

    0  good                         4  disk full: checkpoints cannot be written
    1  a check found problems,      5  the run directory is in use by a running trainer
       or an internal error         6  the loss is not finite
    2  wrong usage                  7  out of memory
    3  resume refused               8  another rank was lost
    130, 143, 129, 138  stopped by SIGINT, SIGTERM, SIGHUP, SIGUSR1, after a trainer saved
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECK_FAILED = 1
USER_MISTAKE = 2
RESUME_REFUSED = 3
DISK_FULL = 4
FOLDER_IN_USE = 5
LOSS_NOT_FINITE = 6
OUT_OF_MEMORY = 7
PROCESS_LOST = 8
STOPPED_BY_CTRL_C = 130

# errno values of a full disk or an exhausted quota.
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """An error that the user can fix; programs print its message without a traceback."""

    def __init__(self, message: str, exit_status: int = USER_MISTAKE) -> None:
        super().__init__(message)
        self.exit_status = exit_status


@contextmanager
def disk_errors(where: Path | str) -> Iterator[None]:
    """Turn an OSError, such as a full disk (status 4), into a UserError.

    Args:
        where: the path that cannot be written, with its flag if there is one.
    """
    try:
        yield
    except OSError as error:
        is_full = error.errno in DISK_FULL_ERRNOS
        advice = (
            "free some space and run the same command again" if is_full else "check the folder and the disk"
        )
        raise UserError(
            f"{where}: cannot be written ({error.strerror or error}); {advice}",
            DISK_FULL if is_full else USER_MISTAKE,
        ) from None
