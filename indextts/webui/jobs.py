"""JOBS: commands that run in the background and outlive the page. No Gradio, no torch here.

    NAME/jobs/
      .lock                           held while a job is started: two pages cannot both start one
      {YYYYmmdd_HHMMSS}_{stage}/
        job.json       {"stage", "argvs": [[program, flag, ...], ...], "started": unix time,
                        "runner": {"pid", "start_ticks", "boot_id"}}; not a job until the runner added itself
        output.log     what the commands print, each after a line "$ python PROGRAM FLAGS"
        program.json   {"pid", "start_ticks", "boot_id"} of the program that runs now, or ran last
        stop_asked     an empty file: somebody pressed Stop
        exit.json      {"status": 128 + n for signal n, "reason", "ended": unix time}, once the job is over

The runner (job_runner.py) has a session of its own with all that it starts. It runs the commands in order
up to the first that fails, passes SIGTERM on and writes exit.json. What is known about a job is read from
the disk and from /proc at each call: a second page, or the page after a restart, sees the same.
"""

import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from indextts.commands import Command, to_argv
from indextts.errors import UserError
from indextts.processes import Process, is_alive, read_stat, send_signal, session_members
from indextts.project import Project
from indextts.run_dir import write_json

REPOSITORY = Path(__file__).resolve().parent.parent.parent
RUNNER = Path(__file__).resolve().with_name("job_runner.py")

RUNNER_GRACE_S = 2.0  # time for the runner to write exit.json after its program was killed
KILL_LIMIT_S = 10.0  # a process that waits for a disk or a card ends later than its SIGKILL
MAX_TAIL_BYTES = 256 * 1024
MAX_LINE_CHARS = 2000

ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles, links
    r"|[ -/]*[0-~])"
)
CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # all but the tab

EndReason = Literal["finished", "stopped", "failed", "killed"]
JobState = Literal["running", "stopping", "finished", "stopped", "failed", "killed", "lost"]


@dataclass(frozen=True)
class Job:
    """A job as it was when it was read.

    Args:
        state: "killed": its program died of a signal other than SIGINT and SIGTERM; "lost": nothing of it
            lives and nobody saw how it ended.
        started, ended: unix time in seconds.
        exit_status: None while it runs and if it is lost.
    """

    folder: Path
    stage: str
    argvs: tuple[tuple[str, ...], ...]
    started: float
    state: JobState
    exit_status: int | None
    ended: float | None

    @property
    def log(self) -> Path:
        return self.folder / "output.log"

    @property
    def is_active(self) -> bool:
        return self.state in ("running", "stopping")


def start_job(project: Project, stage: str, commands: Sequence[Command]) -> Job:
    """Start the commands, one after another, in the background; return when the job can be stopped.

    Raises:
        UserError: a job of this stage is active in this project, or the job cannot be started.
    """
    try:
        with _lock(project.jobs):
            if any(job.stage == stage and job.is_active for job in list_jobs(project)):
                raise UserError(
                    f"{stage} is already running in {project.root.name}; stop it or let it end first"
                )
            folder = _make_folder(project.jobs, stage)
            argvs = [[command.program, *to_argv(command)] for command in commands]
            write_json(folder / "job.json", {"stage": stage, "argvs": argvs, "started": time.time()})
            _launch(folder)
    except OSError as error:
        raise UserError(
            f"{project.jobs}: {stage} cannot be started ({error.strerror}); check rights and free space"
        ) from None
    job = _read_job(folder)
    assert job
    return job


def list_jobs(project: Project) -> list[Job]:
    """Return the jobs of a project, newest first; a folder without a whole job.json is no job."""
    folders = project.jobs.iterdir() if project.jobs.is_dir() else ()
    jobs = [job for folder in folders if (job := _read_job(folder))]
    return sorted(jobs, key=lambda job: (job.started, job.folder), reverse=True)


def newest_job(project: Project, stage: str) -> Job | None:
    """Return the job of `stage` that was started last, or None."""
    return next((job for job in list_jobs(project) if job.stage == stage), None)


def stop_job(job: Job) -> None:
    """Ask the running program with SIGTERM to save and end; no further command of the job starts."""
    processes = _living_processes(job.folder)
    asked = job.folder / "stop_asked"
    if processes and not asked.exists():  # once: a trainer takes the third SIGTERM as "now, without saving"
        # The runner passes it on; without one, it goes to the program.
        send_signal(processes[0], signal.SIGTERM)
        with suppress(OSError):  # on a full disk the stop works all the same
            asked.touch()


def kill_job(job: Job) -> None:
    """Send SIGKILL to every process of the job's session, to the runner only if it does not end by itself."""
    processes = _living_processes(job.folder)
    anchor = processes and read_stat(processes[0].pid)
    if not anchor:
        return
    record = _read(_JobRecord, job.folder / "job.json")
    began = time.monotonic()
    while (members := session_members(anchor.session)) and time.monotonic() < began + KILL_LIMIT_S:
        for member in members:
            is_runner = record is not None and member == record.runner
            if not is_runner or time.monotonic() > began + RUNNER_GRACE_S:
                send_signal(member, signal.SIGKILL)
        time.sleep(0.02)


def shell_line(command: Command) -> str:
    """Return the command as it is run and as it can be typed in the repository's root."""
    return shlex.join(["python", command.program, *to_argv(command)])


def tail(path: Path, max_lines: int = 200) -> str:
    """Return the last lines of a log as plain text; "" if there is no file.

    Of a line that was rewritten with carriage returns the last state counts. Escape sequences and control
    characters are gone, a line is cut at 2,000 characters. At most 256 KiB are read, whatever the size.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_TAIL_BYTES))
            block = file.read(MAX_TAIL_BYTES)
    except FileNotFoundError:
        return ""
    lines = block.removesuffix(b"\n").split(b"\n")
    if size > MAX_TAIL_BYTES and len(lines) > 1:
        del lines[0]  # it began before the block
    return "\n".join(_plain(line) for line in lines[-max_lines:])


class _JobRecord(BaseModel):
    stage: str
    argvs: tuple[tuple[str, ...], ...]
    started: float
    runner: Process


class _Exit(BaseModel):
    status: int
    reason: EndReason
    ended: float


RecordT = TypeVar("RecordT", bound=BaseModel)


def _read(model: type[RecordT], path: Path) -> RecordT | None:
    """Return a file's record; None if it is absent or not whole."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


@contextmanager
def _lock(jobs: Path) -> Iterator[None]:
    jobs.mkdir(parents=True, exist_ok=True)
    with (jobs / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_folder(jobs: Path, stage: str) -> Path:
    """Make the folder of a new job; the second job of a second is named after the next free second."""
    seconds = time.time()
    while True:
        folder = jobs / f"{time.strftime('%Y%m%d_%H%M%S', time.localtime(seconds))}_{stage}"
        try:
            folder.mkdir()
        except FileExistsError:
            seconds += 1
        else:
            return folder


def _launch(folder: Path) -> None:
    """Start the runner in a session of its own; return when it stands in job.json."""
    log = folder / "output.log"
    with log.open("ab") as output:
        launcher = subprocess.run(
            [
                sys.executable,
                "-S",
                "-P",
                RUNNER,
                folder.absolute(),
            ],  # -P: nothing beside the runner is imported
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
            start_new_session=True,
        )
    if launcher.returncode:
        raise UserError(f"{log}: the job could not be started ({tail(log, 1)}); free some disk and try again")


def _read_job(folder: Path) -> Job | None:
    record = _read(_JobRecord, folder / "job.json")
    if record is None:
        return None
    ending = _read(_Exit, folder / "exit.json")
    state: JobState = ending.reason if ending else "lost"
    if ending is None and _living_processes(folder):
        state = "stopping" if (folder / "stop_asked").exists() else "running"
    elif ending is None and (ending := _read(_Exit, folder / "exit.json")):
        state = ending.reason  # it ended while we looked
    return Job(
        folder,
        record.stage,
        record.argvs,
        record.started,
        state,
        exit_status=ending.status if ending else None,
        ended=ending.ended if ending else None,
    )


def _living_processes(folder: Path) -> list[Process]:
    """Return the job's runner and program, in this order, as far as they live."""
    record = _read(_JobRecord, folder / "job.json")
    processes = [record.runner if record else None, _read(Process, folder / "program.json")]
    return [process for process in processes if process and is_alive(process)]


def _plain(line: bytes) -> str:
    """Return what a terminal shows of a line in the end."""
    text = line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
    return CONTROL_CHARACTER.sub("", ESCAPE_SEQUENCE.sub("", text))[:MAX_LINE_CHARS]
