"""Stop a job in phases, carried out by its runner, or kill it at once."""

import json
import signal
import time
from contextlib import suppress

from indextts.projects.jobs.files import live_processes, runner_of, started_processes
from indextts.projects.jobs.records import Job
from indextts.system.files import read_object
from indextts.system.messages import Message
from indextts.system.processes import is_alive, send_signal

RUNNER_GRACE_S = 2.0  # time for the runner to write exit.json after its program was killed
KILL_LIMIT_S = 10.0  # a process in a disk or GPU call dies some time after SIGKILL


def stop_job(job: Job) -> None:
    """Send SIGTERM, upon which the program saves and exits; the runner does the rest without the page."""
    processes = live_processes(job.folder)
    asked = job.folder / "stop_asked"
    if processes and not asked.exists():  # only once: a trainer exits without saving on the third SIGTERM
        # to the runner, which forwards it; to the program if the runner has died
        send_signal(processes[0], signal.SIGTERM)
        with suppress(OSError), asked.open("x") as file:  # the stop also works on a full disk
            json.dump({"asked": time.time()}, file)


def stop_progress(job: Job, now: float) -> Message | None:
    """Return the phase of a job's stop at the Unix time `now`; None if it is not stopping."""
    if job.state != "stopping":
        return None
    if runner_of(job.folder) not in live_processes(job.folder):
        return Message("jobs.stop.unattended")
    waited = max(0.0, now - _request_time(job, now))
    for stage, end in (("saving", job.save_s), ("ending", job.save_s + job.kill_s)):
        if waited < end:
            return Message(f"jobs.stop.{stage}", {"seconds": round(end - waited)})
    return Message("jobs.stop.killing")


def kill_job(job: Job) -> None:
    """Send SIGKILL to all processes of the job, to the runner only if it does not exit by itself."""
    runner = runner_of(job.folder)
    if runner is None or not live_processes(job.folder):
        return
    with suppress(OSError):
        (job.folder / "kill_asked").touch()
    began = time.monotonic()
    while time.monotonic() < began + KILL_LIMIT_S:
        started = started_processes(runner)
        if not started and not is_alive(runner):
            return
        for process in started:
            send_signal(process, signal.SIGKILL)
        if time.monotonic() > began + RUNNER_GRACE_S:
            send_signal(runner, signal.SIGKILL)
        elif not started:  # the runner waits or is between two programs
            send_signal(runner, signal.SIGTERM)
        time.sleep(0.02)


def _request_time(job: Job, now: float) -> float:
    """Return the time of the stop request; without a recorded one, the modification time of the file."""
    path = job.folder / "stop_asked"
    asked = read_object(path).get("asked")
    if isinstance(asked, int | float):
        return asked
    try:
        return path.stat().st_mtime
    except OSError:
        return now
