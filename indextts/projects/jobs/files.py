"""Files that the page and the runner of a job both read and write. Standard library only: see runner.py."""

from pathlib import Path

from indextts.system.files import read_object
from indextts.system.processes import Process, is_alive

SAVE_S = (
    180.0  # from a stop request to a stop without saving; a large checkpoint takes minutes on a slow disk
)
KILL_S = 20.0  # from there to SIGKILL
WEBHOOK = "INDEXTTS_WEBHOOK"  # an environment variable: other users could read a command line or a file


def live_processes(folder: Path) -> list[Process]:
    """Return the runner and the program of a job, in this order, if they are alive."""
    recorded = (read_object(folder / "job.json").get("runner"), read_object(folder / "program.json"))
    return [process for fields in recorded if (process := _process(fields)) and is_alive(process)]


def end_reason(folder: Path) -> str | None:
    """Return the end reason of a job: the one in exit.json, None while it is active, else "lost"."""
    for _ in range(2):
        reason = read_object(folder / "exit.json").get("reason")
        if isinstance(reason, str):
            return reason
        if live_processes(folder):
            return None
    return "lost"  # checked twice: the job may end between the two reads


def _process(fields: object) -> Process | None:
    try:
        return Process.from_fields(fields)
    except ValueError:
        return None
