"""Jobs of a project, as the disk and /proc show them now, and their state as a translatable message."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from indextts.commands.launching import ALONE, Launch
from indextts.errors import UserError
from indextts.projects.jobs.files import KILL_S, SAVE_S, live_processes
from indextts.projects.jobs.log_tail import tail
from indextts.projects.project import Project
from indextts.system.files import FileStamp, file_stamp
from indextts.system.messages import Message
from indextts.system.processes import Process

EndReason = Literal["finished", "stopped", "failed", "killed", "not_started"]
JobState = Literal[
    "waiting", "running", "stopping", "finished", "stopped", "failed", "killed", "not_started", "lost"
]
StopStage = Literal["saving", "ending", "killing"]
Seconds = Annotated[float, Field(ge=0, lt=2**33)]  # a duration or Unix time, until 2242; any view can show it

NUM_LAST_JOBS = 8
MAX_CACHED_JOBS = 2048  # ended jobs kept in memory, a few KiB each


@dataclass(frozen=True)
class Job:
    """A job at the time it was read.

    Args:
        state: "waiting": for the job `after` to end; "killed": a signal other than SIGINT and SIGTERM ended
            its program; "not_started": the job before it did not finish; "lost": none of its processes is
            alive, and its end was not recorded.
        started, began, ended: Unix time in seconds; `began` is None while it waits, and if it never ran.
        exit_status: None while it runs, and if it is lost or was not started.
        before: end reason of the job before this one, if it is why this one was not started.
        stop_stage: the last phase of a stop that was reached.
        save_s, kill_s: seconds between the phases of a stop.
        launch: launches each of its commands.
    """

    folder: Path
    stage: str
    argvs: tuple[tuple[str, ...], ...]
    started: float
    state: JobState
    exit_status: int | None
    ended: float | None
    began: float | None
    after: Path | None
    before: str | None
    form: dict[str, Any]
    versions: dict[str, str]
    stop_stage: StopStage | None
    is_kill_asked: bool
    save_s: float
    kill_s: float
    launch: Launch

    @property
    def log(self) -> Path:
        return self.folder / "output.log"

    @property
    def is_active(self) -> bool:
        return self.state in ("waiting", "running", "stopping")

    def seconds(self, now: float) -> float:
        """Return the duration of the run so far, or of the wait if the job has not begun."""
        return max(0.0, (self.ended or now) - (self.began or self.started))


def list_jobs(project: Project, stage: str = "") -> list[Job]:
    """Return the jobs of a project or stage, newest first; skip folders without a valid job.json.

    The order of their names is that in which they were started, whatever the clock did (starting.py).
    """
    names = sorted((name for name in _names(project) if _may_be_of(name, stage)), reverse=True)
    jobs = (job for name in names if (job := read_job(project.jobs / name)))
    return [job for job in jobs if stage in ("", job.stage)]


def newest_job(project: Project, stage: str) -> Job | None:
    """Return the running job of `stage`, else the one started last, None if there are none.

    Reads only the last few jobs: a job that waited for no other started after all earlier ones had ended.
    """
    jobs: list[Job] = []
    for name in sorted((name for name in _names(project) if _may_be_of(name, stage)), reverse=True):
        if (job := read_job(project.jobs / name)) and job.stage == stage:
            jobs.append(job)
            if len(jobs) >= NUM_LAST_JOBS and job.after is None:
                break
    running = (job for job in jobs if job.state in ("running", "stopping"))
    return next(running, jobs[0] if jobs else None)


def job_folders(project: Project) -> Iterator[Path]:
    """Yield the folders that may be jobs."""
    yield from (project.jobs / name for name in _names(project))


def read_job(folder: Path) -> Job | None:
    """Return the job in a folder, None if there is none; a job that has ended is cached."""
    try:
        stamp = file_stamp(folder / "exit.json")
    except OSError:
        return _read_now(folder)
    return _read_ended(folder, stamp) or _read_now(folder)


def chain(folder: Path | None) -> list[Path]:
    """Return the folders of a job, of the job it waits or waited for, of the job before that, and so on."""
    found: list[Path] = []
    while folder is not None and folder not in found:
        found.append(folder)
        job = read_job(folder)
        folder = job.after if job else None
    return found


class _JobRecord(BaseModel):
    """Fields of job.json; older versions lack those with a default."""

    stage: str
    argvs: tuple[tuple[str, ...], ...]
    started: Seconds
    runner: Process
    form: dict[str, Any] = {}
    versions: dict[str, str] = {}
    after: Path | None = None
    began: Seconds | None = None
    save_s: Seconds = SAVE_S
    kill_s: Seconds = KILL_S
    launch: Launch = ALONE


class _Exit(BaseModel):
    """Fields of exit.json."""

    status: int | None
    reason: EndReason
    ended: Seconds
    stop_stage: StopStage | None = None
    before: str | None = None


RecordT = TypeVar("RecordT", bound=BaseModel)


def _read(model: type[RecordT], path: Path) -> RecordT | None:
    """Return the record in a file; None if the file is missing or invalid."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError, UserError):
        return None


def _names(project: Project) -> list[str]:
    """Return the names of the folders that may be jobs; names, because creating paths is slow."""
    try:
        with os.scandir(project.jobs) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _may_be_of(name: str, stage: str) -> bool:
    return not stage or name.endswith(f"_{stage}")


def _read_now(folder: Path) -> Job | None:
    record = _read(_JobRecord, folder / "job.json")
    if record is None:
        return None
    ending = _read(_Exit, folder / "exit.json")
    if ending is None and live_processes(folder):
        is_waiting = record.after is not None and record.began is None
        state: JobState = "waiting" if is_waiting else "running"
        return _job(folder, record, "stopping" if (folder / "stop_asked").exists() else state, None)
    ending = ending or _read(_Exit, folder / "exit.json")  # it may have ended after the first read
    return _job(folder, record, ending.reason if ending else "lost", ending)


@lru_cache(MAX_CACHED_JOBS)
def _read_ended(folder: Path, _stamp: FileStamp) -> Job | None:
    record, ending = _read(_JobRecord, folder / "job.json"), _read(_Exit, folder / "exit.json")
    return _job(folder, record, ending.reason, ending) if record and ending else None


def _job(folder: Path, record: _JobRecord, state: JobState, ending: _Exit | None) -> Job:
    return Job(
        folder=folder,
        stage=record.stage,
        argvs=record.argvs,
        started=record.started,
        state=state,
        exit_status=ending.status if ending else None,
        ended=ending.ended if ending else None,
        began=record.started if record.after is None else record.began,
        after=record.after,
        before=ending.before if ending else None,
        form=record.form,
        versions=record.versions,
        stop_stage=ending.stop_stage if ending else None,
        is_kill_asked=(folder / "kill_asked").exists(),
        save_s=record.save_s,
        kill_s=record.kill_s,
        launch=record.launch,
    )


WAITING = "jobs.outcome.waiting"
RUNNING = "jobs.outcome.running"
STOPPING = "jobs.outcome.stopping"
FINISHED = "jobs.outcome.finished"
STOPPED = "jobs.outcome.stopped"
STOPPED_UNSAVED = "jobs.outcome.stopped_unsaved"
STOPPED_WAITING = "jobs.outcome.stopped_waiting"
FAILED = "jobs.outcome.failed"
COULD_NOT_START = "jobs.outcome.could_not_start"
KILLED = "jobs.outcome.killed"
KILLED_FOR_MEMORY = "jobs.outcome.killed_for_memory"
KILLED_BY_HAND = "jobs.outcome.killed_by_hand"
KILLED_STOPPING = "jobs.outcome.killed_stopping"
LOST = "jobs.outcome.lost"
NOT_STARTED = "jobs.outcome.not_started"
NOT_STARTED_AFTER = {
    "failed": "jobs.outcome.not_started_after.failed",
    "stopped": "jobs.outcome.not_started_after.stopped",
    "killed": "jobs.outcome.not_started_after.killed",
    "lost": "jobs.outcome.not_started_after.lost",
    "not_started": "jobs.outcome.not_started_after.not_started",
}

NO_SUCH_PROGRAM = 127


def outcome(job: Job, now: float) -> Message:
    """Return the state of a job at the Unix time `now`, or its end."""
    duration = clock(job.seconds(now))
    match job.state:
        case "failed" if job.exit_status == NO_SUCH_PROGRAM:
            return Message(COULD_NOT_START, {})
        case "failed":
            return Message(FAILED, {"status": job.exit_status or 0, "duration": duration})
        case "killed":
            return _killed(job, duration)
        case "not_started":
            return Message(NOT_STARTED_AFTER.get(job.before or "", NOT_STARTED), {})
        case "stopped" if job.began is None:
            return Message(STOPPED_WAITING, {})
        case "lost":
            return Message(LOST, {})
    templates = {"waiting": WAITING, "running": RUNNING, "stopping": STOPPING, "finished": FINISHED}
    was_hurried = job.state == "stopped" and job.stop_stage in ("ending", "killing")
    template = templates.get(job.state, STOPPED_UNSAVED if was_hurried else STOPPED)
    return Message(template, {"duration": duration})


def last_lines(job: Job, num_lines: int = 40) -> str:
    """Return the last lines of a job's log as plain text."""
    return tail(job.log, num_lines)


def clock(seconds: float) -> str:
    """Return a duration as 0:07, 12:30 or 1:02:03, the same in every language."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _killed(job: Job, duration: str) -> Message:
    if job.is_kill_asked:
        return Message(KILLED_BY_HAND, {"duration": duration})
    if job.stop_stage == "killing":
        return Message(KILLED_STOPPING, {"duration": duration})
    number = (job.exit_status or 0) - 128
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    template = KILLED_FOR_MEMORY if number == signal.SIGKILL else KILLED
    return Message(template, {"signal": name, "duration": duration})
