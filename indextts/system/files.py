"""Files that are complete or absent: written under a temporary name, synced and renamed.

    NAME  <-- rename --  .tmp-NAME      a kill leaves only the temporary file, which the next writer replaces

Standard library only: the runner of a job imports this before any package is on its path.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

TEMPORARY = ".tmp-"


class FileStamp(NamedTuple):
    """What changes when a file is written or replaced, without reading it."""

    num_bytes: int
    mtime_ns: int
    inode: int


@contextmanager
def written_aside(path: Path, *, is_unique: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync that file and rename it to `path`.

    After an exception `path` is as it was and the temporary file is gone.

    Args:
        is_unique: give each writer its own temporary name, for a file that two may write at once.

    Raises:
        OSError: the file cannot be written.
    """
    owner = f"-{secrets.token_hex(4)}" if is_unique else ""
    aside = path.with_name(f"{TEMPORARY}{path.name}{owner}")
    try:
        yield aside
        sync(aside)
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file through a temporary one, see `written_aside`."""
    with written_aside(path) as aside:
        aside.write_bytes(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object as indented JSON through a temporary file, see `written_aside`."""
    write_bytes(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`: a hard link where the file system can, else a copy.

    What was at `target` is replaced in one step.
    """
    aside = target.with_name(f"{TEMPORARY}{target.name}")
    aside.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), aside)  # not a symbolic link, which may be relative to its own folder
    except OSError:
        shutil.copy2(source, aside)  # with its time, by which the pipeline notices a change
        sync(aside)
    aside.replace(target)
    aside.unlink(missing_ok=True)  # rename keeps both names when they already are the same file


def sync(path: Path) -> None:
    """Force a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_stamp(path: Path) -> FileStamp:
    """Return size, modification time and inode of a file.

    Raises:
        OSError: there is no such file.
    """
    status = path.stat()
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino)


def count_lines(path: Path) -> int:
    """Return the number of lines of a file that are not blank.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())
