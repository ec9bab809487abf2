"""Atomic writing of a folder: staged under a temporary name and renamed when complete.

PARENT/
  .tmp-NAME-XXXX/   the staged folder, locked by its writer; folders of dead writers are removed
  .old-NAME/        the previous folder, between two renames; restored after a kill at this point
  NAME/
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.system.files import sync

FOLDER_MODE = 0o755


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `target` on success and is removed on failure.

    Raises:
        OSError: a file operation failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _recover(target)
    aside = Path(tempfile.mkdtemp(prefix=f".tmp-{target.name}-", dir=target.parent))
    lock = os.open(aside, os.O_RDONLY)
    try:
        _try_lock(lock)
        aside.chmod(FOLDER_MODE)
        yield aside
        sync(aside)
        _swap(aside, target)
    finally:
        os.close(lock)
        shutil.rmtree(aside, ignore_errors=True)


def _swap(aside: Path, target: Path) -> None:
    old = _old(target)
    if target.exists():
        target.replace(old)
    aside.replace(target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _recover(target: Path) -> None:
    """Restore the folder after a kill between two renames; remove the folders of killed writers."""
    old = _old(target)
    if old.exists() and not target.exists():
        old.replace(target)
    shutil.rmtree(old, ignore_errors=True)
    for leftover in target.parent.glob(f".tmp-{target.name}-*"):
        lock = os.open(leftover, os.O_RDONLY)
        try:
            if _try_lock(lock):
                shutil.rmtree(leftover, ignore_errors=True)
        finally:
            os.close(lock)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process writes there, or the file system has no locks
        return False
    return True


def _old(target: Path) -> Path:
    return target.with_name(f".old-{target.name}")
