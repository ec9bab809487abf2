"""Start a job: create its folder, record and script, and launch its runner."""

import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from platform import python_version
from threading import Thread
from typing import get_args

from indextts.commands.app import Stage
from indextts.commands.base import Command
from indextts.commands.launching import ALONE, Launch
from indextts.commands.terminal import to_argv
from indextts.errors import UserError
from indextts.projects.jobs import files
from indextts.projects.jobs.files import runner_of
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, chain, list_jobs, read_job
from indextts.projects.project import REPOSITORY, Project
from indextts.system.files import write_json
from indextts.system.processes import git_commit, shell_text

# jobs that are no stage of a project
DEMO_JOB = "demo"  # runs all stages of a demo, or those that remain of another project
CHECK_JOB = "check"
TRANSCRIBE_JOB = "transcribe"  # ends with an import and a check
CLEAN_JOB = "clean"  # ends with a check
TENSORBOARD_JOB = "tensorboard"
PROOF_JOB = "proof"
DATA_JOBS = (CHECK_JOB, TRANSCRIBE_JOB, CLEAN_JOB)  # of tab 2
RUNNER = Path(__file__).resolve().with_name("runner.py")

SCRIPT_NAME = "command.sh"
TIME_FORMAT = "%Y%m%d_%H%M%S"  # of the names of folders


def start_job(
    project: Project,
    stage: str,
    commands: Sequence[Command],
    *,
    after: Path | None = None,
    launch: Launch = ALONE,
) -> Job:
    """Start the commands in the background, one after another; return when the job can be stopped.

    Args:
        after: the folder of a job of any project. The new job waits for its end, runs if it finished, and
            ends with "not_started" otherwise.
        launch: launches each command.

    Raises:
        UserError: another job of this stage would still be active, `after` is not a job, or the job cannot
            start.
    """
    try:
        with _lock(project.jobs):
            _check_no_other_is_active(project, stage, after)
            folder = _make_folder(project.jobs, stage)
            argvs = [[command.program, *to_argv(command)] for command in commands]
            record = {
                "stage": stage,
                "argvs": argvs,
                "launcher": launch.prefix,
                "environment": launch.environment,
                "launch": launch.model_dump(mode="json"),
                "started": time.time(),
                "versions": versions(),
                "after": str(after.resolve()) if after else None,
                "save_s": files.SAVE_S,
                "kill_s": files.KILL_S,
            }
            write_json(folder / "job.json", record)
            _write_script(folder, argvs, launch)
            _launch_runner(folder)
    except OSError as error:
        raise UserError(
            f"{project.jobs}: {stage} cannot start ({error.strerror}); check permissions and free space"
        ) from None
    job = read_job(folder)
    assert job
    return job


def shell_line(command: Command, launch: Launch = ALONE) -> str:
    """Return the command as a shell line to run in the repository root."""
    return shell_text(["python", *launch.prefix, command.program, *to_argv(command)], launch.environment)


def script(job: Job) -> Path:
    return job.folder / SCRIPT_NAME


def versions() -> dict[str, str]:
    """Return the versions of Python, torch, Gradio and this code, without importing torch."""
    found = {"python": python_version()}
    for name in ("torch", "gradio"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = git_commit()
    return {**found, "commit": commit} if commit else found


def _check_no_other_is_active(project: Project, stage: str, after: Path | None) -> None:
    """Raise UserError unless each active job of the stage will have ended when the new one begins."""
    if after is not None and read_job(after) is None:
        raise UserError(f"{after.name} is not a job to wait for; choose a job from the list")
    ended_by_then = {folder.resolve() for folder in chain(after)}
    active = [job for name in _conflicting(stage) for job in list_jobs(project, name) if job.is_active]
    for job in active:
        if job.folder.resolve() not in ended_by_then:
            state = "waiting" if job.state == "waiting" else "running"
            raise UserError(
                f"{job.stage} is already {state} in {project.root.name}; stop it, wait for its end, "
                "or start this job after it"
            )


def _conflicting(stage: str) -> tuple[str, ...]:
    """Return the stages whose jobs cannot run beside one of `stage`; a message names the first active one."""
    stages = get_args(Stage)
    if stage == DEMO_JOB:
        return (DEMO_JOB, *stages, *DATA_JOBS)
    if stage == PROOF_JOB:
        return (PROOF_JOB, "train", DEMO_JOB)  # a training leaves no memory for another
    if stage in ("data", *DATA_JOBS):  # the import ends with a check
        return ("data", *DATA_JOBS, DEMO_JOB)
    return (stage, DEMO_JOB) if stage in stages else (stage,)


@contextmanager
def _lock(jobs: Path) -> Iterator[None]:
    jobs.mkdir(parents=True, exist_ok=True)
    with (jobs / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_folder(jobs: Path, stage: str) -> Path:
    """Create the folder of a new job, named after the current second.

    If the clock was set back, or a job has this name, the name is a second after the newest one: the order of
    the names is the order of the jobs.
    """
    times = (_time_in(name) for name in os.listdir(jobs))  # noqa: PTH208 - names, because paths are slow
    now = datetime.now().replace(microsecond=0)
    newest = max((found for found in times if found is not None), default=datetime.min)
    folder = jobs / f"{max(now, newest + timedelta(seconds=1)):{TIME_FORMAT}}_{stage}"
    folder.mkdir()
    return folder


def _time_in(name: str) -> datetime | None:
    """Return the time in the name of a job's folder; None if it is not one, or is beyond any clock."""
    try:
        found = datetime.strptime(name[: len("20260131_235959")], TIME_FORMAT)
    except ValueError:
        return None
    return found if found.year < 9999 else None


def _write_script(folder: Path, argvs: Sequence[Sequence[str]], launch: Launch) -> None:
    lines = [
        "#!/usr/bin/env bash",
        "# The commands of this job, to run without the page.",
        "set -eu",
        f"cd {shlex.quote(str(REPOSITORY))}",
        *(shell_text([sys.executable, "-u", *launch.prefix, *argv], launch.environment) for argv in argvs),
    ]
    path = folder / SCRIPT_NAME
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    path.chmod(0o755)


def _launch_runner(folder: Path) -> None:
    """Start the runner in a session of its own; return when it has recorded itself in job.json."""
    log = folder / "output.log"
    with log.open("ab") as output:
        runner = subprocess.Popen(
            [sys.executable, "-S", "-P", RUNNER, folder.absolute()],  # -P: import nothing from its folder
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
            start_new_session=True,
        )
    Thread(target=runner.wait, daemon=True).start()  # leaves no zombie; the runner outlives this process
    while runner_of(folder) is None:
        if runner.returncode is not None:
            raise UserError(
                f"{log}: the job could not start ({tail(log, 1)}); free some disk space and try again"
            )
        time.sleep(0.005)
