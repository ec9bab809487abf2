"""One writer of a folder at a time; the kernel frees the lock when the process ends, however it ends."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.errors import FOLDER_IN_USE, UserError


@contextmanager
def locked_folder(lock: Path, *, in_use: str) -> Iterator[None]:
    """Make the folder of the file `lock` and hold that file's lock.

    Args:
        in_use: what to say where another process holds it.

    Raises:
        UserError: with status 5 if another process holds it; or the folder cannot be made.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise UserError(
            f"{lock.parent}: cannot be made ({error.strerror}), choose another --output-dir"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(in_use, FOLDER_IN_USE) from None
        except OSError as error:
            if error.errno != errno.ENOLCK:  # a network file system without locks
                raise
        yield
