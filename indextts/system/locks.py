"""Lock a folder for one writer; the kernel frees the lock when the process ends for any reason."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.errors import FOLDER_IN_USE, UserError, disk_errors


@contextmanager
def locked_folder(lock: Path, *, in_use: str) -> Iterator[None]:
    """Create the folder of the file `lock` and hold the lock of that file.

    Args:
        in_use: the message if another process holds the lock.

    Raises:
        UserError: with status 5 if another process holds the lock; with status 2 if the folder cannot be
            created.
    """
    with disk_errors(lock.parent):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(in_use, FOLDER_IN_USE) from None
        except OSError as error:
            if error.errno != errno.ENOLCK:  # a network file system without locks
                raise
        yield
