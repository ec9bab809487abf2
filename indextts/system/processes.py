"""Processes that are identified beyond their pid, the git commit of this code, and commands as shell text.

A process is identified by its pid, its start in clock ticks since boot (field 22 of /proc/PID/stat) and the
boot id, so a reused pid or a changed clock never leads to the wrong process. A zombie counts as dead. Linux
only. Standard library only, because the runner of a job imports this before any package is on its path
(indextts/projects/jobs/runner.py).
"""

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LAUNCHER_STOPPED = 1  # exit status of torchrun after a signal, once its ranks have ended


@dataclass(frozen=True)
class Process:
    """A process as recorded in job.json, program.json and .lock."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def recorded(cls, fields: object) -> "Process | None":
        """Return the process recorded in the fields of a JSON object, None if they record none."""
        match fields:
            case {"pid": int(pid), "start_ticks": int(start_ticks), "boot_id": str(boot_id)} if pid > 0:
                return cls(pid, start_ticks, boot_id)
        return None


@dataclass(frozen=True)
class Stat:
    """Fields of /proc/PID/stat; `code` is the state as a letter, Z for a zombie."""

    code: str
    parent: int
    start_ticks: int


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def this_process() -> Process:
    """Return the calling process."""
    return find_process(os.getpid())


def find_process(pid: int) -> Process:
    """Return the process that has this pid now.

    Raises:
        ProcessLookupError: no process has it.
    """
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return Process(pid, stat.start_ticks, _boot_id())


def is_alive(process: Process) -> bool:
    """Return whether this process still runs."""
    stat = read_stat(process.pid)
    return (
        stat is not None
        and stat.start_ticks == process.start_ticks
        and stat.code not in "ZX"
        and process.boot_id == _boot_id()
    )


def read_stat(pid: int) -> Stat | None:
    """Return the /proc/PID/stat fields of a process, None if no process has this pid."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = content[content.rindex(b")") + 2 :].split()  # from field 3; the name may contain spaces and ")"
    return Stat(fields[0].decode(), parent=int(fields[1]), start_ticks=int(fields[19]))


def processes_with(variable: str) -> list[Process]:
    """Return the living processes of this user that started with "NAME=value" in their environment.

    Children inherit it, so this finds them in any session, also after the death of their parent.
    """
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # ended meanwhile, or of another user
            if entry.name.isdigit() and variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(find_process(int(entry.name)))
    return [process for process in found if is_alive(process)]


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to this process, never to a later process with the same pid and never to init."""
    with suppress(ProcessLookupError):
        if process.pid != 1 and is_alive(process):
            os.kill(process.pid, number)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def git_commit() -> str | None:
    """Return the current git commit of this code, None outside a checkout."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True)
    except FileNotFoundError:  # git is not installed
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def shell_text(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a command as shell text, after the environment variables that it needs."""
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), shlex.join(words)]
    )
