"""Jobs for tests, with real programs and real signals."""

import json
import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from indextts.commands.base import Command
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, list_jobs
from indextts.projects.project import Project
from indextts.system.processes import Process, is_alive
from tests.waiting import wait_until

SAVES_ON_SIGTERM = """
import signal, sys, time
def end(number, frame):
    print("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
print("ready")
while True:
    time.sleep(0.01)
"""


DEAF_WITH_A_CHILD = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
print("ready")
while True:
    time.sleep(0.01)
"""


def command_for(name: str, words: tuple[str, ...] = ()) -> Command:
    class Tiny(Command):
        program: ClassVar[str] = name
        words: list[str] = Field([])

    return Tiny(words=list(words))


def program(project: Project, source: str, name: str = "program.py") -> Command:
    """Write a program and return the command that runs it."""
    (project.root.parent / name).write_text(source, encoding="utf-8")
    return command_for(name)


def reread(job: Job) -> Job:
    (same,) = [other for other in list_jobs(Project(job.folder.parent.parent)) if other.folder == job.folder]
    return same


def wait_until_over(job: Job) -> Job:
    return wait_for(job, lambda: not reread(job).is_active)


def wait_until_ready(job: Job, times: int = 1) -> Job:
    return wait_for(job, lambda: tail(job.log).count("ready") >= times)


def wait_for(job: Job, is_true) -> Job:
    wait_until(is_true, lambda: f"{reread(job)}\n{tail(job.log)}", pause_s=0.01)
    return reread(job)


def program_of(job: Job) -> Process:
    return Process(**json.loads((job.folder / "program.json").read_bytes()))


def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    while is_alive(process):
        time.sleep(0.001)


WAITS_FOR_GO = """
import pathlib, sys, time
print("ready")
while not pathlib.Path("go").exists():
    time.sleep(0.01)
sys.exit(int(sys.argv[1].partition("=")[2]) if sys.argv[1:] else 0)
"""


def go(project: Project) -> None:
    """Let the programs that wait for it go on."""
    (project.root.parent / "go").touch()


def processes_in(folder: Path) -> set[int]:
    """Return the processes whose current folder is this one: the jobs of a test and their workers."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.add(int(entry.name))
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process, zombies included."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ended_job(
    folder: Path, log: str, argv: Sequence[str] = ("x.py",), started: float = 1000.0, **ending: object
) -> Path:
    """Write a job that ran for 67 s and ended so, in a folder named as jobs are; return the folder."""
    folder.mkdir(parents=True)
    record = {
        "stage": folder.name.rpartition("_")[2],
        "argvs": [list(argv)],
        "started": started,
        "began": started,
        "runner": {"pid": 1, "start_ticks": 0, "boot_id": "another boot"},
        "versions": {"python": "3"},
    }
    (folder / "job.json").write_text(json.dumps(record))
    (folder / "exit.json").write_text(json.dumps({"ended": 1067.0, **ending}))
    (folder / "output.log").write_text(log)
    (folder / "command.sh").write_text(f"python {shlex.join(argv)}\n")
    return folder


def ended_jobs(project: Project, count: int) -> None:
    """Write `count` jobs that were started one second after another and are over."""
    for number in range(count):
        folder = project.jobs / f"20250101_{number:06}_{'pairs' if number % 2 else 'train'}"
        argv = ("trainers/train_gpt_v2.py", "--tokenizer=/a/b/t.model")
        ended_job(folder, "", argv, float(number), status=0, reason="finished", ended=number + 75)


def bytes_read_so_far() -> int:
    """Return what this process has read, from a cache or not."""
    return int(Path("/proc/self/io").read_text().split()[1])
