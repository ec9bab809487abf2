"""Disks that are soon full: a file system of a few bytes in a mount namespace, and files of limited size."""

import os
import resource
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

# the folder is copied back with its hard links: outside the namespace it is as it was
MOUNTED = """
folder=$1 options=$2 fill=$3; shift 3
mount -t tmpfs -o "$options" tmpfs "$folder" || exit 99
if [ "$fill" ]; then cat /dev/zero > "$folder/filler" 2> /dev/null; fi
"$@"
status=$?
mkdir -p "$COPY" && cp -a "$folder/." "$COPY/"
exit $status
"""


@contextmanager
def largest_file(num_bytes: int, pid: int = 0) -> Iterator[None]:
    """Limit the size of files, so that the system refuses longer ones as on a full disk.

    Args:
        pid: of the process; 0 for this one. Python ignores the signal that comes with the error.
    """
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@cache
def is_allowed() -> bool:
    """Return whether this user may mount in a namespace of its own."""
    try:
        mounted = subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
        )
    except FileNotFoundError:
        return False
    return mounted.returncode == 0


needs_namespaces = pytest.mark.skipif(not is_allowed(), reason="needs unprivileged mount namespaces")


def run_with_disk(
    folder: Path, num_bytes: int, argv: Sequence[str], copy: Path, *, is_full: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program that sees a disk of `num_bytes` at `folder`; copy what it leaves there to `copy`.

    Args:
        is_full: a file takes all of the space from the start.
    """
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(folder), f"size={num_bytes}", "1" * is_full, *argv],
        env={**os.environ, "COPY": str(copy), "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
