"""A folder that is there whole or not at all: written aside, renamed when it is done.

PARENT/
  .tmp-NAME-XXXX/   what is being written; its writer holds a lock on it, so that a dead one's is swept
  .old-NAME/        what stood there before, between two renames; after a kill there it is put back
  NAME/
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.system.files import sync

FOLDER_MODE = 0o755


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that takes its place when all went well, else is removed.

    Raises:
        OSError: the system refuses something.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _mend(target)
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


def foreign_files(target: Path, own: Collection[str], mark: str) -> list[str]:
    """Return the names in the folder `target` that no writer of ours put there.

    Args:
        target: need not be there.
        own: names that a writer gives.
        mark: the one without which none of the others counts as ours.
    """
    names = sorted(path.name for path in target.iterdir()) if target.is_dir() else []
    return [name for name in names if name not in own] if mark in names else names


def _swap(aside: Path, target: Path) -> None:
    old = _old(target)
    if target.exists():
        target.replace(old)
    aside.replace(target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _mend(target: Path) -> None:
    """Put back what a kill between two renames left aside; sweep what killed writers left."""
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
    except OSError:  # somebody writes there, or the file system has no locks
        return False
    return True


def _old(target: Path) -> Path:
    return target.with_name(f".old-{target.name}")
