"""Files and processes of a job, for the page and for the runner. Standard library only: see runner.py."""

from pathlib import Path

from indextts.system.files import read_object
from indextts.system.processes import Process, is_alive, processes_with

SAVE_S = (
    180.0  # from a stop request to a stop without saving; a large checkpoint takes minutes on a slow disk
)
KILL_S = 20.0  # from there to SIGKILL
WEBHOOK = "INDEXTTS_WEBHOOK"  # an environment variable: other users could read a command line or a file
MARK = "INDEXTTS_JOB"  # the runner sets it for its programs; torchrun starts each rank in a separate session


def runner_of(folder: Path) -> Process | None:
    """Return the runner of a job, dead or alive; None if job.json names none."""
    return Process.recorded(read_object(folder / "job.json").get("runner"))


def live_processes(folder: Path) -> list[Process]:
    """Return the runner and the program of a job, in this order, if they are alive."""
    recorded = (runner_of(folder), Process.recorded(read_object(folder / "program.json")))
    return [process for process in recorded if process and is_alive(process)]


def mark(runner: Process) -> str:
    """Return the value of MARK for the programs of this runner."""
    return f"{runner.pid}-{runner.start_ticks}"


def started_processes(runner: Process) -> list[Process]:
    """Return the living processes that the programs of this runner are or started."""
    return processes_with(f"{MARK}={mark(runner)}")


def end_reason(folder: Path) -> str | None:
    """Return the end reason of a job: the one in exit.json, None while it is active, else "lost"."""
    for _ in range(2):
        reason = read_object(folder / "exit.json").get("reason")
        if isinstance(reason, str):
            return reason
        if live_processes(folder):
            return None
    return "lost"  # checked twice: the job may end between the two reads
