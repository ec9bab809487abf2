"""Folder of the files that the page receives: uploads, and Gradio's copies of what players show. No Gradio.

    WORKSPACE/.received/        mode 0700: other users of the machine cannot read it
      .part-RANDOM/             an upload that arrives; removed when it ends in any way (routes.py)
      DIGEST/NAME               a file that arrived, until the page moves it into a project

A page removes files that nobody has touched for MAX_AGE_S, at its start and while it runs.
"""

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

from indextts.errors import disk_errors

NAME = ".received"
MAX_AGE_S = 24 * 3600.0
SWEEP_EVERY_S = 600.0


def received_folder(workspace: Path) -> Path:
    """Create the folder and keep it free of old files; a UserError if it cannot be written.

    Call this before Gradio, which stores files there, is imported: parts of it read GRADIO_TEMP_DIR then.
    """
    folder = workspace.resolve() / NAME
    with disk_errors(f"--workspace: {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    os.environ["GRADIO_TEMP_DIR"] = str(folder)
    threading.Thread(target=_sweep, args=[folder], daemon=True).start()
    return folder


def remove_old(folder: Path, now: float) -> None:
    """Remove what is in a folder and was not changed for MAX_AGE_S before the Unix time `now`."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            # by the change of the inode: a copy has the modification time of its source
            newest = max(inside.lstat().st_ctime for inside in (path, *path.rglob("*")))
            if newest < now - MAX_AGE_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sweep(folder: Path) -> None:
    while True:
        with suppress(OSError):
            remove_old(folder, time.time())
        time.sleep(SWEEP_EVERY_S)
