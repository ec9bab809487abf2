"""Processes that are recognised after a restart of the page, and signalled without mistaking one for another.

A process is the one that was started if its number, its start in clock ticks since boot (field 22 of
/proc/PID/stat) and the boot are the same; the wall clock has no part in it. A zombie is dead. Linux only.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field


class Process(BaseModel, frozen=True):
    """A process as job.json, program.json and .lock name it."""

    pid: int = Field(gt=0)
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says of a process; `code` is one letter, Z for a zombie."""

    code: str
    session: int
    start_ticks: int


def this_process() -> Process:
    """Return the calling process."""
    stat = read_stat(os.getpid())
    assert stat is not None
    return Process(pid=os.getpid(), start_ticks=stat.start_ticks, boot_id=_boot_id())


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
    return Stat(fields[0].decode(), session=int(fields[3]), start_ticks=int(fields[19]))


def session_members(session: int) -> list[Process]:
    """Return the living processes of a session, never init (1), which a container puts into everyone's."""
    boot_id = _boot_id()
    pids = [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.name != "1"
    ]
    stats = {pid: read_stat(pid) for pid in pids}
    return [
        Process(pid=pid, start_ticks=stat.start_ticks, boot_id=boot_id)
        for pid, stat in stats.items()
        if stat and stat.session == session and stat.code not in "ZX"
    ]


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


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
