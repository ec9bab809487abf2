"""Files, folders and disks that a user named: errors of the system as errors that the user can fix."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.errors import DISK_FULL, FOLDER_IN_USE, UserError, disk_errors
from indextts.system.amounts import shown_size
from indextts.system.files import free_bytes


def read_text_lines(path: Path, flag: str, advice: str = "save it as UTF-8 text") -> list[str]:
    """Return the lines of a text file in UTF-8, with or without a byte order mark.

    Args:
        flag: names the file in messages.
        advice: the remedy for a file that cannot be read.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"{flag} {path}: cannot be read ({reason}); {advice}") from None


def require_space(where: Path | str, folder: Path, what: str, needed: int) -> None:
    """Raise a UserError with status 4 unless the disk of `folder` has `needed` bytes for `what`."""
    free = free_bytes(folder)
    if needed > free:
        amounts = f"{shown_size(needed)}, the disk has {shown_size(free)} free"
        raise UserError(f"{where}: {what} {amounts}; free some space or choose another folder", DISK_FULL)


@contextmanager
def locked_folder(lock: Path, *, in_use: str) -> Iterator[None]:
    """Create the folder of the file `lock` and hold its lock; the kernel frees it when the process ends.

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
