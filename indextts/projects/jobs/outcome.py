"""How a job stands and how it ended, in sentences with values, so that a table can translate them."""

import signal

from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job
from indextts.system.sentence import Sentence

WAITING = "waiting for another job to end, for {duration}"
RUNNING = "running for {duration}"
STOPPING = "stopping, {duration} after its start"
FINISHED = "finished after {duration}"
STOPPED = "stopped after {duration}"
STOPPED_UNSAVED = "stopped without saving after {duration}: saving took too long"
STOPPED_WAITING = "taken out of the queue"
FAILED = "failed with exit status {status} after {duration}"
COULD_NOT_START = "the program could not be started"
KILLED = "killed by {signal} after {duration}"
KILLED_FOR_MEMORY = (
    "killed by {signal} after {duration}: not by this page, most often because the memory was full"
)
KILLED_BY_HAND = "killed after {duration}, as you asked"
KILLED_STOPPING = "killed after {duration}: it did not end when it was asked to"
LOST = "lost: nobody saw it end, as when the machine is switched off"
NOT_STARTED = "not started: the job before it did not finish"
NOT_STARTED_AFTER = {
    "failed": "not started: the job before it failed",
    "stopped": "not started: the job before it was stopped",
    "killed": "not started: the job before it was killed",
    "lost": "not started: the job before it was lost",
    "not_started": "not started: the job before it was not started either",
}

NO_SUCH_PROGRAM = 127


def outcome(job: Job, now: float) -> Sentence:
    """Return how a job stands at the unix time `now`, or how it ended."""
    duration = clock(job.seconds(now))
    match job.state:
        case "failed" if job.exit_status == NO_SUCH_PROGRAM:
            return Sentence(COULD_NOT_START, {})
        case "failed":
            return Sentence(FAILED, {"status": job.exit_status or 0, "duration": duration})
        case "killed":
            return _killed(job, duration)
        case "not_started":
            return Sentence(NOT_STARTED_AFTER.get(job.before or "", NOT_STARTED), {})
        case "stopped" if job.began is None:
            return Sentence(STOPPED_WAITING, {})
        case "lost":
            return Sentence(LOST, {})
    templates = {"waiting": WAITING, "running": RUNNING, "stopping": STOPPING, "finished": FINISHED}
    was_hurried = job.state == "stopped" and job.stop_stage in ("ending", "killing")
    template = templates.get(job.state, STOPPED_UNSAVED if was_hurried else STOPPED)
    return Sentence(template, {"duration": duration})


def last_lines(job: Job, num_lines: int = 40) -> str:
    """Return the end of a job's log as plain text: what a failed job said last."""
    return tail(job.log, num_lines)


def clock(seconds: float) -> str:
    """Return a duration as 0:07, 12:30 or 1:02:03, in any language."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _killed(job: Job, duration: str) -> Sentence:
    if job.is_kill_asked:
        return Sentence(KILLED_BY_HAND, {"duration": duration})
    if job.stop_stage == "killing":
        return Sentence(KILLED_STOPPING, {"duration": duration})
    number = (job.exit_status or 0) - 128
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    template = KILLED_FOR_MEMORY if number == signal.SIGKILL else KILLED
    return Sentence(template, {"signal": name, "duration": duration})
