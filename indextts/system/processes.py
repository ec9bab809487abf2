"""Processes that are recognised after a restart of the page, and signalled without mistaking one for another.

A process is the one that was started if its number, its start in clock ticks since boot (field 22 of
/proc/PID/stat) and the boot are the same; the wall clock has no part in it. A zombie is dead. Linux only, and
the standard library only: the runner of a job starts without anything else.

Which code runs.

A command as a person can type it. The standard library only: see indextts/projects/jobs/runner.py.
"""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

LAUNCHER_STOPPED = 1  # the status with which torchrun ends after a signal, once its processes are over


@dataclass(frozen=True)
class Process:
    """A process as job.json, program.json and .lock name it."""

    pid: int
    start_ticks: int
    boot_id: str

    def __post_init__(self) -> None:
        if self.pid <= 0:
            raise ValueError(f"{self.pid} is no process number")

    @classmethod
    def from_json(cls, text: bytes) -> "Process":
        """Return the process that a file names.

        Raises:
            ValueError: the file names none.
        """
        return cls.from_fields(json.loads(text))

    @classmethod
    def from_fields(cls, fields: object) -> "Process":
        """Return the process that a part of a JSON file names.

        Raises:
            ValueError: it names none.
        """
        match fields:
            case {"pid": int(pid), "start_ticks": int(start_ticks), "boot_id": str(boot_id)}:
                return cls(pid, start_ticks, boot_id)
        raise ValueError("a process needs pid, start_ticks and boot_id")

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says of a process; `code` is one letter, Z for a zombie."""

    code: str
    parent: int
    session: int
    start_ticks: int


def this_process() -> Process:
    """Return the calling process."""
    return find_process(os.getpid())


def find_process(pid: int) -> Process:
    """Return the process that has this number now.

    Raises:
        ProcessLookupError: there is none.
    """
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return Process(pid, stat.start_ticks, _boot_id())


def is_alive(process: Process) -> bool:
    """Whether this very process still runs."""
    stat = read_stat(process.pid)
    return (
        stat is not None
        and stat.start_ticks == process.start_ticks
        and stat.code not in "ZX"
        and process.boot_id == _boot_id()
    )


def read_stat(pid: int) -> Stat | None:
    """Return what the kernel says of a process; None if there is none with this number."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = content[content.rindex(b")") + 2 :].split()  # from field 3 on; the name may hold blanks and ")"
    return Stat(
        fields[0].decode(), parent=int(fields[1]), session=int(fields[3]), start_ticks=int(fields[19])
    )


def session_members(session: int) -> list[Process]:
    """Return the living processes of a session, never init (1), which a container puts into everyone's."""
    return [_named(pid, stat) for pid, stat in _living().items() if stat.session == session]


def session_and_descendants(session: int) -> list[Process]:
    """Return the living processes of a session and whatever they started, in whatever session that is.

    The workers that torchrun starts have sessions of their own.
    """
    living = _living()
    found = {pid for pid, stat in living.items() if stat.session == session}
    while more := {pid for pid, stat in living.items() if stat.parent in found} - found:
        found |= more
    return [_named(pid, living[pid]) for pid in sorted(found)]


def children_of(pid: int) -> list[Process]:
    """Return the living processes that a process started and that it still has."""
    return [_named(child, stat) for child, stat in _living().items() if stat.parent == pid]


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to this process, never to a later one with its number, and never to init."""
    if process.pid == 1:
        return
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if is_alive(process):  # asked after the descriptor was bound to whoever has the number
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _living() -> dict[int, Stat]:
    pids = [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.name != "1"
    ]
    stats = {pid: read_stat(pid) for pid in pids}
    return {pid: stat for pid, stat in stats.items() if stat and stat.code not in "ZX"}


def _named(pid: int, stat: Stat) -> Process:
    return Process(pid, stat.start_ticks, _boot_id())


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def git_commit() -> str | None:
    """Return the commit of this code, None where it is no checkout."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True)
    except FileNotFoundError:  # no git on this machine
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def shell_text(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a command behind what it finds in its environment besides the usual."""
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), shlex.join(words)]
    )
