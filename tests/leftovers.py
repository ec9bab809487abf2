"""Processes that a test session starts are killed when the session ends, however it ends. Linux.

Every program that a test starts inherits MARK from its parent's environment, even when it is detached into a
session of its own. The sweep looks for the mark in /proc/PID/environ. The mark is a path: the session, then
the xdist worker, then the test that is running, so that a sweep can be limited to one of them:

    1f0c2a                  the session
    1f0c2a/gw1              what a worker's fixtures start
    1f0c2a/gw1/4d           what the 77th test of that worker starts

A guardian process waits for the end of pytest and sweeps too: SIGKILL, SIGTERM or a second Ctrl-C leave
pytest no time for it. The guardian runs this file as a program, with the standard library only:

    python tests/leftovers.py PARENT_PID MARK
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MARK = "INDEXTTS_TEST_SESSION"
SWEEP_S = 30.0
# Libraries start these once per process and expect them to live as long.
OF_LIBRARIES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "_inductor/compile_worker")


def start_guardian(mark: str) -> None:
    """Start the process that sweeps once this process is gone; it carries no mark itself."""
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    guardian = subprocess.Popen(
        [sys.executable, "-S", str(Path(__file__).resolve()), str(os.getpid()), mark],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    guardian.returncode = 0  # it outlives this process, so nothing waits for it


def sweep(mark: str, spare: Sequence[str] = ()) -> list[str]:
    """Kill every process that carries the mark or a mark below it; return their command lines.

    Args:
        spare: not those with one of these in their command line.
    """
    killed: dict[int, str] = {}
    deadline = time.monotonic() + SWEEP_S
    while time.monotonic() < deadline:
        found = [pid for pid in marked(mark) if not any(name in _command(pid) for name in spare)]
        if not found:
            break
        for pid in found:
            command = _command(pid)
            if _kill(pid, mark):
                killed.setdefault(pid, command)
        time.sleep(0.01)
    return list(killed.values())


def marked(mark: str) -> list[int]:
    """Return the processes that carry the mark or a mark below it."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - paths are slow
    return [pid for pid in pids if pid != os.getpid() and _is_marked(pid, mark)]


def _is_marked(pid: int, mark: str) -> bool:
    """Return whether a living process has the mark; the environment of a zombie is empty."""
    wanted = f"{MARK}={mark}".encode()
    with suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable == wanted or variable.startswith(wanted + b"/"):
                return True
    return False


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def _kill(pid: int, mark: str) -> bool:
    """Kill a process that has the mark, never a later process that was given its number."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if _is_marked(pid, mark):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return True
        finally:
            os.close(descriptor)
    return False


def main(parent: int, mark: str) -> None:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([descriptor], [], [])
    sweep(mark)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
