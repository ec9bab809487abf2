"""Jobs of a project, as the disk and /proc show them now, and their state as a translatable message."""

import os
import signal
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError

from indextts.commands.launching import ALONE, Launch
from indextts.errors import UserError
from indextts.projects.jobs.files import KILL_S, SAVE_S, live_processes
from indextts.projects.project import Project
from indextts.system.files import FileStamp, file_stamp, read_object
from indextts.system.messages import Message
from indextts.system.processes import Process

EndReason = Literal["finished", "stopped", "failed", "killed", "not_started"]
JobState = Literal[
    "waiting", "running", "stopping", "finished", "stopped", "failed", "killed", "not_started", "lost"
]
StopStage = Literal["saving", "ending", "killing"]
Seconds = Annotated[float, Field(ge=0, lt=2**33)]  # a duration or Unix time, until 2242; any view can show it

MAX_CACHED_JOBS = 2048  # ended jobs kept in memory, a few KiB each


class Job(BaseModel, frozen=True):
    """A job at the time it was read: the fields of job.json and exit.json, and its state.

    Args:
        state: "waiting": for the job `after` to end; "killed": a signal other than SIGINT and SIGTERM ended
            its program; "not_started": the job before it did not finish; "lost": none of its processes is
            alive, and its end was not recorded.
        started, began, ended: Unix time in seconds; `began` is None while it waits, and if it never ran.
        save_s, kill_s: seconds between the phases of a stop.
        exit_status: None while it runs, and if it is lost or was not started.
        stop_stage: the last phase of a stop that was reached.
        before: end reason of the job before this one, if it is why this one was not started.
    """

    folder: Path
    state: JobState
    is_kill_asked: bool

    stage: str
    argvs: tuple[tuple[str, ...], ...]
    started: Seconds
    runner: Process
    versions: dict[str, str] = {}
    after: Path | None = None
    began: Seconds | None = None
    save_s: Seconds = SAVE_S
    kill_s: Seconds = KILL_S
    launch: Launch = ALONE

    exit_status: int | None = Field(None, alias="status")
    ended: Seconds | None = None
    stop_stage: StopStage | None = None
    before: str | None = None

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
    """Return the jobs of a project or stage, newest first by name; skip folders without a valid job.json."""
    names = (name for name in _names(project) if not stage or name.endswith(f"_{stage}"))
    found = [read_job(project.jobs / name) for name in sorted(names, reverse=True)]
    return [job for job in found if job and stage in ("", job.stage)]


def newest_job(project: Project, stage: str) -> Job | None:
    """Return the running job of `stage`, else the one started last, None if there are none."""
    jobs = list_jobs(project, stage)
    running = (job for job in jobs if job.state in ("running", "stopping"))
    return next(running, jobs[0] if jobs else None)


def job_folders(project: Project) -> Iterator[Path]:
    """Yield the folders that may be jobs."""
    yield from (project.jobs / name for name in _names(project))


def read_job(folder: Path) -> Job | None:
    """Return the job in a folder, None if there is none; a job that has ended is cached."""
    if job := _ended_job(folder):
        return job
    if not live_processes(folder):  # it may have ended after the first read
        return _ended_job(folder) or _job(folder, "lost", {})
    job = _job(folder, "stopping" if (folder / "stop_asked").exists() else "running", {})
    is_waiting = job is not None and job.state == "running" and job.after is not None and job.began is None
    return job.model_copy(update={"state": "waiting"}) if job and is_waiting else job


def chain(folder: Path | None) -> list[Path]:
    """Return the folders of a job, of the job it waits or waited for, of the job before that, and so on."""
    found: list[Path] = []
    while folder is not None and folder not in found:
        found.append(folder)
        job = read_job(folder)
        folder = job.after if job else None
    return found


def _names(project: Project) -> list[str]:
    """Return the names of the folders that may be jobs; names, because creating paths is slow."""
    try:
        with os.scandir(project.jobs) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _ended_job(folder: Path) -> Job | None:
    try:
        return _read_ended(folder, file_stamp(folder / "exit.json"))
    except OSError:
        return None


@lru_cache(MAX_CACHED_JOBS)
def _read_ended(folder: Path, _stamp: FileStamp) -> Job | None:
    ending = read_object(folder / "exit.json")
    return _job(folder, ending.get("reason"), ending) if ending.get("reason") in get_args(EndReason) else None


def _job(folder: Path, state: object, ending: dict[str, Any]) -> Job | None:
    """Return the job of a folder in this state; None if a field is missing or invalid."""
    found = {
        **read_object(folder / "job.json"),
        **ending,
        "folder": folder,
        "state": state,
        "is_kill_asked": (folder / "kill_asked").exists(),
    }
    try:
        return Job.model_validate(found)
    except (ValidationError, UserError):
        return None


NO_SUCH_PROGRAM = 127


def outcome(job: Job, now: float) -> Message:
    """Return the state of a job at the Unix time `now`, or its end."""
    values: dict[str, object] = {"duration": clock(job.seconds(now))}
    kind: str = job.state
    match job.state:
        case "failed":
            kind = "could_not_start" if job.exit_status == NO_SUCH_PROGRAM else "failed"
            values["status"] = job.exit_status or 0
        case "killed":
            number = (job.exit_status or 0) - 128
            is_known = number in set(signal.Signals)
            values["signal"] = signal.Signals(number).name if is_known else f"signal {number}"
            if job.is_kill_asked:
                kind = "killed_by_hand"
            elif job.stop_stage == "killing":
                kind = "killed_stopping"
            elif number == signal.SIGKILL:
                kind = "killed_for_memory"
        case "not_started" if job.before in ("failed", "stopped", "killed", "lost", "not_started"):
            return Message(f"jobs.outcome.not_started_after.{job.before}", values)
        case "stopped" if job.began is None:
            kind = "stopped_waiting"
        case "stopped" if job.stop_stage in ("ending", "killing"):
            kind = "stopped_unsaved"
    return Message(f"jobs.outcome.{kind}", values)


def clock(seconds: float) -> str:
    """Return a duration as 0:07, 12:30 or 1:02:03, the same in every language."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
