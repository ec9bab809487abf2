"""Whether a machine of a cluster sees the recordings: without their disk it must not judge them."""

import socket
from collections.abc import Iterable
from pathlib import Path

from indextts.errors import UserError


def require_folders(recordings: Iterable[Path]) -> None:
    """Raise a UserError if a recording's folder is not on this machine.

    Each recording of a machine that lacks the shared disk would be missing, and since nothing is quicker to
    find out, it would get most of them.
    """
    for folder in sorted({path.parent for path in recordings}):
        try:
            is_there = folder.is_dir()
        except OSError:  # a network disk that is gone
            is_there = False
        if not is_there:
            raise UserError(
                f"{folder} is not on {socket.gethostname()}: all machines need the recordings under the same "
                "paths; mount the disk there, then run the same command again"
            )
