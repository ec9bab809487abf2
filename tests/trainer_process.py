"""A trainer in its own process: start, watch, signal, and end it with all its children. Linux only.

This module knows the trainer from outside only: its command line, the changes in its folder, its exit status.
"""

import ctypes
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conftest import REPOSITORY

TRAINER = REPOSITORY / "trainers/train_gpt_v2.py"
# what a run would choose for its machine besides the batch size, so that runs of two machines compare
FIXED_FLAGS = (
    "--batch-tokens=0",
    "--grad-accumulation=1",
    "--num-workers=0",
    "--no-grad-checkpointing",
    "--no-compile",
    "--no-amp",
)

# from <sys/inotify.h>
IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x80, 0x100, 0x200
_EVENT_HEAD = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name


class FolderEvents:
    """Changes of the names in a folder, reported by the kernel within microseconds (inotify).

    Polling would use the trainer's processor time and miss states that last a millisecond.
    """

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = IN_MODIFY | IN_MOVED_TO | IN_CREATE | IN_DELETE
        if self._descriptor < 0 or libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask) < 0:
            raise OSError(ctypes.get_errno(), f"{folder}: inotify cannot watch it")

    def read(self, timeout_s: float) -> list[tuple[int, str]]:
        """Return the (mask, name) of the changes since the last call; wait if there are none."""
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return []
        data = os.read(self._descriptor, 1 << 16)
        events, at = [], 0
        while at < len(data):
            _, mask, _, length = _EVENT_HEAD.unpack_from(data, at)
            at += _EVENT_HEAD.size
            events.append((mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
            at += length
        return events

    def close(self) -> None:
        os.close(self._descriptor)


class TrainerProcess:
    """Running trainer, leader of its own session."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        """Start it.

        Args:
            log: receives its output, appended.
        """
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(TRAINER), *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment(),
            )
        self.pid = self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit status, negative for a signal; None if the process still runs after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def wait_for(self, events: FolderEvents, matches: Callable[[int, str], bool], count: int) -> bool:
        """Return True at the `count`-th matching event; False if the process exits before."""
        while self.is_running():
            for mask, name in events.read(timeout_s=0.05):
                count -= matches(mask, name)
                if count == 0:
                    return True
        return False

    def send(self, number: int, *, to_group: bool = False) -> None:
        if self.is_running():  # not reaped yet, so the kernel has not reused the number
            (os.killpg if to_group else os.kill)(self.pid, number)

    def has_loaded_torch(self) -> bool:
        """Return whether the process has loaded the library of torch."""
        try:
            return "libtorch" in Path(f"/proc/{self.pid}/maps").read_text()
        except OSError:  # it has just exited
            return True

    def members(self) -> list[int]:
        """Return the processes of its session that still run, data workers included."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):  # it has just exited
                continue
            if int(session) == self.pid and state not in "ZX":
                found.append(int(path.parent.name))
        return found

    def wait_for_members(self, timeout_s: float) -> list[int]:
        """Wait up to `timeout_s` for its session to end; return the processes that still run."""
        deadline = time.monotonic() + timeout_s
        while (found := self.members()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def end(self) -> None:
        """Kill the process and its children."""
        if self.is_running():
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        for pid in self.members():
            os.kill(pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    """Return an environment in which two runs are bit-identical: one thread, no GPU."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path}
