"""Stopping a job: asked, and carried out by its runner in stages; or at once."""

import json
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from indextts.projects.jobs.files import live_processes, read_object
from indextts.projects.jobs.records import Job, StopStage
from indextts.system.messages import Message
from indextts.system.processes import Process, is_alive, read_stat, send_signal, session_and_descendants

RUNNER_GRACE_S = 2.0  # time for the runner to write exit.json after its program was killed
KILL_LIMIT_S = 10.0  # a process that waits for a disk or a card ends later than its SIGKILL

SAVING = "jobs.stop.saving"
ENDING = "jobs.stop.ending"
KILLING = "jobs.stop.killing"
UNATTENDED = "jobs.stop.unattended"


@dataclass(frozen=True)
class StopProgress:
    """How far a stop is.

    Args:
        seconds: until the next stage; None if there is none.
    """

    stage: StopStage
    seconds: float | None
    message: Message


def stop_job(job: Job) -> None:
    """Ask the running program with SIGTERM to save and end; no further command of the job starts.

    The runner goes on from there, whatever becomes of the page; a job that waits is over at once.
    """
    processes = live_processes(job.folder)
    asked = job.folder / "stop_asked"
    if processes and not asked.exists():  # once: a trainer takes the third SIGTERM as "now, without saving"
        # The runner passes it on; without one, it goes to the program.
        send_signal(processes[0], signal.SIGTERM)
        with suppress(OSError), asked.open("x") as file:  # on a full disk the stop works all the same
            json.dump({"asked": time.time()}, file)


def stop_progress(job: Job, now: float) -> StopProgress | None:
    """Return how far the stop of a job is at the unix time `now`; None if there is none under way."""
    if job.state != "stopping":
        return None
    runner = read_object(job.folder / "job.json").get("runner")
    processes = live_processes(job.folder)
    if not processes or not isinstance(runner, dict) or processes[0].pid != runner.get("pid"):
        return StopProgress("saving", None, Message(UNATTENDED, {}))
    waited = max(0.0, now - _asked(job, now))
    if waited < job.save_s:
        return _counting("saving", SAVING, job.save_s - waited)
    if waited < job.save_s + job.kill_s:
        return _counting("ending", ENDING, job.save_s + job.kill_s - waited)
    return StopProgress("killing", None, Message(KILLING, {}))


def kill_job(job: Job) -> None:
    """Send SIGKILL to all that the job started, to the runner only if it does not end by itself."""
    processes = live_processes(job.folder)
    anchor = processes and read_stat(processes[0].pid)
    if not anchor:
        return
    with suppress(OSError):
        (job.folder / "kill_asked").touch()
    runner = read_object(job.folder / "job.json").get("runner")
    if len(processes) == 1:  # it waits for its turn, or is between two programs: the runner can end by itself
        send_signal(processes[0], signal.SIGTERM)
    known: set[Process] = set()  # a child of what was killed may be nobody's descendant any more
    began = time.monotonic()
    while time.monotonic() < began + KILL_LIMIT_S:
        known.update(session_and_descendants(anchor.session))
        living = [process for process in known if is_alive(process)]
        if not living:
            return
        for process in living:
            is_runner = isinstance(runner, dict) and process.pid == runner.get("pid")
            if not is_runner or time.monotonic() > began + RUNNER_GRACE_S:
                send_signal(process, signal.SIGKILL)
        time.sleep(0.02)


def _counting(stage: StopStage, template: str, seconds: float) -> StopProgress:
    return StopProgress(stage, seconds, Message(template, {"seconds": round(seconds)}))


def _asked(job: Job, now: float) -> float:
    """Return when the stop was asked; of a file without it (a full disk, an older job) its time counts."""
    path = job.folder / "stop_asked"
    asked = read_object(path).get("asked")
    if isinstance(asked, int | float):
        return asked
    try:
        return path.stat().st_mtime
    except OSError:
        return now
