"""Files that are complete or absent: written under a temporary name, synced, then renamed.

    NAME  <-- rename --  .tmp-NAME      a kill leaves only the temporary file; the next writer replaces it

Standard library only: the runner of a job imports this before any package is on its path.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

TEMPORARY = ".tmp-"


class FileStamp(NamedTuple):
    """File status that changes whenever a file is written or replaced."""

    num_bytes: int
    mtime_ns: int
    inode: int


@contextmanager
def written_aside(path: Path, *, is_unique: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync that file and rename it to `path`.

    After an exception `path` is unchanged and the temporary file is deleted.

    Args:
        is_unique: use a temporary name per writer, for files with concurrent writers.

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


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if the file is missing or invalid."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`: a hard link where the file system can, else a copy.

    Replaces `target` atomically.
    """
    aside = target.with_name(f"{TEMPORARY}{target.name}")
    aside.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), aside)  # a symbolic link may be relative to its folder
    except OSError:
        shutil.copy2(source, aside)  # keeps the modification time, by which the pipeline detects changes
        sync(aside)
    aside.replace(target)
    aside.unlink(missing_ok=True)  # a rename onto the same inode keeps both names


def sync(path: Path) -> None:
    """Flush the bytes of a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_stamp(path: Path) -> FileStamp:
    """Return size, modification time and inode of a file.

    Raises:
        OSError: the file does not exist.
    """
    status = path.stat()
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino)


def first_free(path_of: Callable[[int], Path]) -> Path:
    """Return the first of the paths for 1, 2, 3 ... that does not exist."""
    return next(path for number in count(1) if not (path := path_of(number)).exists())


def count_lines(path: Path) -> int:
    """Return the number of non-blank lines of a file.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk where `folder` is or will be created."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
