"""What the user can fix, as one exception.

    Exception
    └── UserError            one sentence: where, what (with the value), what to do

Any other exception that leaves a program is a bug of ours and keeps its traceback.

Exit statuses of every program:

    0  good                      3  resume refused: no checkpoint of the folder can be used
    1  a check found problems    5  the run directory belongs to a running trainer
    2  the user's mistake        6  the loss is not finite
    130, 143  stopped by SIGINT or SIGTERM, with a checkpoint
"""

USER_MISTAKE = 2
RESUME_REFUSED = 3
FOLDER_IN_USE = 5
LOSS_NOT_FINITE = 6
STOPPED_BY_CTRL_C = 130


class UserError(Exception):
    """Something the user can fix; its message is shown as it is, without a traceback."""

    def __init__(self, message: str, exit_status: int = USER_MISTAKE) -> None:
        super().__init__(message)
        self.exit_status = exit_status
