"""What the user can fix, as one exception.

    Exception
    └── UserError            one sentence: where, what (with the value), what to do

Any other exception that leaves a program is a bug of ours and keeps its traceback.

Exit statuses of every program:

    0  good                         4  the disk: checkpoints cannot be written
    1  a check found problems,      5  the run directory belongs to a running trainer
       or a bug of ours             6  the loss is not finite
    2  the user's mistake           7  out of memory
    3  resume refused               8  another process of the training is gone
    130, 143, 129, 138  stopped by SIGINT, SIGTERM, SIGHUP, SIGUSR1: a training has saved before
"""

import errno

CHECK_FAILED = 1
USER_MISTAKE = 2
RESUME_REFUSED = 3
DISK_FULL = 4
FOLDER_IN_USE = 5
LOSS_NOT_FINITE = 6
OUT_OF_MEMORY = 7
PROCESS_LOST = 8
STOPPED_BY_CTRL_C = 130

# What the system says of a disk, or of a user's share of it, that is full.
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """Something the user can fix; its message is shown as it is, without a traceback."""

    def __init__(self, message: str, exit_status: int = USER_MISTAKE) -> None:
        super().__init__(message)
        self.exit_status = exit_status
