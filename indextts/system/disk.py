"""Files and disks that a user named: errors of the system as errors that the user can fix."""

from pathlib import Path

from indextts.errors import DISK_FULL, UserError
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
