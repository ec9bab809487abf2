"""All jobs of a project, newest first, with start, duration and result. No Gradio here."""

import os
import shlex
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from indextts.projects.jobs.records import Job, clock, job_folders, list_jobs, outcome, read_job
from indextts.projects.project import Project
from indextts.system.messages import Message, as_is

MAX_COMMAND_CHARS = 100
AND_MORE = "jobs.and_more"


@dataclass(frozen=True)
class HistoryRow:
    """A row of the job table.

    Args:
        when: the local time of the start.
        command: of the first program, shortened.
        duration: "" while the job is active, so that the table does not change every second.
    """

    folder: Path
    when: str
    stage: str
    command: Message
    duration: str
    state: str
    outcome: Message


def rows(project: Project, now: float, max_rows: int | None = None) -> list[HistoryRow]:
    """Return a row for each job, newest first."""
    return [_row(job, now) for job in list_jobs(project)[:max_rows]]


def version(project: Project) -> str:
    """Return a version that changes whenever a job starts, changes its state, ends or is removed."""
    try:
        stat = project.jobs.stat()
    except OSError:
        return ""
    made = (stat.st_ino, stat.st_mtime_ns, stat.st_nlink)
    states = (_state(folder) for folder in _unfinished(project, made))
    return f"{made} {' '.join(states)}"


@lru_cache(256)
def _unfinished(project: Project, _made: tuple[int, int, int]) -> tuple[Path, ...]:
    """Return the jobs that were active when their folder last changed; finished jobs never change."""
    return tuple(folder for folder in job_folders(project) if not (folder / "exit.json").exists())


def _state(folder: Path) -> str:
    """Return the state of a job, or the modification time of its folder if it has ended."""
    job = read_job(folder)
    return f"{folder.name}={job.state}" if job else f"{folder.name}={_changed(folder)}"


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _row(job: Job, now: float) -> HistoryRow:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started))
    duration = "" if job.is_active or job.ended is None else clock(job.seconds(now))
    return HistoryRow(job.folder, when, job.stage, _short(job), duration, job.state, outcome(job, now))


def _short(job: Job) -> Message:
    """Return the first command without the folders of its paths, which are the same in every row."""
    words = [_last_part(word) for word in job.argvs[0]] if job.argvs else []
    command = shlex.join(words)
    if len(command) > MAX_COMMAND_CHARS:
        command = command[: MAX_COMMAND_CHARS - 1] + "…"
    if len(job.argvs) > 1:
        return Message(AND_MORE, {"command": command, "count": len(job.argvs) - 1})
    return as_is(command)


def _last_part(word: str) -> str:
    flag, equals, value = word.partition("=")
    return f"{flag}={os.path.basename(value)}" if equals and value.startswith("/") else word  # noqa: PTH119
