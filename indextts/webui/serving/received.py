"""Folder of the files that the page receives: uploads, and Gradio's copies of what players show. No Gradio.

    WORKSPACE/.received/        mode 0700: other users of the machine cannot read it
      RANDOM/                   of one running page, which holds its lock (flock)
        .part-RANDOM/           an upload that arrives; removed when it ends in any way
        DIGEST/NAME             a file that arrived, until the page moves it into a project

A page removes its folder when it ends. The next one removes what killed pages left, and each removes files
that nobody has touched for MAX_AGE_S.
"""

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indextts.errors import UserError

NAME = ".received"
PART = ".part-"
MAX_AGE_S = 24 * 3600.0
SWEEP_EVERY_S = 600.0


@contextmanager
def received_folder(workspace: Path) -> Iterator[Path]:
    """Create the folder of this page, and remove it at the end.

    It is where Gradio stores files: call this before Gradio is imported, because parts of it read
    GRADIO_TEMP_DIR then.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        folder, lock = _make_folder(workspace.resolve() / NAME)
    except OSError as error:
        raise UserError(
            f"--workspace: {workspace / NAME} cannot be written ({error.strerror}); use another folder"
        ) from None
    is_over = threading.Event()
    sweeper = threading.Thread(target=_sweep_until, args=(is_over, folder), daemon=True)
    try:
        os.environ["GRADIO_TEMP_DIR"] = str(folder)
        sweeper.start()
        yield folder
    finally:
        is_over.set()
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def size_of(folder: Path) -> tuple[int, int]:
    """Return the number of files in a folder and their bytes, without the empty ones that Gradio leaves."""
    sizes = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # moved or removed meanwhile
            if path.is_file() and (num_bytes := path.stat().st_size):
                sizes.append(num_bytes)
    return len(sizes), sum(sizes)


def remove_old(folder: Path, now: float) -> None:
    """Remove what is in a folder and was not changed for MAX_AGE_S before the Unix time `now`."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            # by the change of the inode: a copy has the modification time of its source
            newest = max(inside.lstat().st_ctime for inside in (path, *path.rglob("*")))
            if newest < now - MAX_AGE_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _make_folder(parent: Path) -> tuple[Path, int]:
    """Return the folder of this page, and the descriptor that holds its lock."""
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    parent.chmod(0o700)
    starting = os.open(parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system without locks
            fcntl.flock(starting, fcntl.LOCK_EX)  # else another page could remove it before it is locked
        for left in parent.iterdir():
            _remove_unless_locked(left)
        folder = Path(tempfile.mkdtemp(dir=parent))
        lock = os.open(folder, os.O_RDONLY)
        _try_lock(lock)
        return folder, lock
    finally:
        os.close(starting)


def _remove_unless_locked(folder: Path) -> None:
    """Remove the folder of a page that has ended."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if _try_lock(descriptor):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock a folder; return False if another page holds it, or where the file system cannot tell."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep_until(is_over: threading.Event, folder: Path) -> None:
    while not is_over.wait(SWEEP_EVERY_S):
        with suppress(OSError):
            remove_old(folder, time.time())
