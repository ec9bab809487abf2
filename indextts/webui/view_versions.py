"""Versions for `Page.watch`: strings that change with files on disk, by stat calls only. No Gradio here.

Manifests are cached until their file changes.
"""

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from indextts.data.cleaned import CLEANED_NAME
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.quality.summary import OVERVIEW_NAME
from indextts.data.review import check_folder
from indextts.projects.jobs.records import job_folders, newest_job, read_job
from indextts.projects.project import Project
from indextts.system.files import count_lines

PERIOD_S = 6


def once(_project: Project) -> str:
    """Constant version of a view that depends on the project only."""
    return ""


def periodic_version(_project: Project) -> str:
    """Version that changes every PERIOD_S seconds, for state that is in no file."""
    return str(int(time.time() // PERIOD_S))


def files_version(*paths: Path) -> str:
    """Return a version that changes whenever a file changes, or a name in a folder."""
    return " ".join(_stamp(path) for path in paths)


def project_version(project: Project) -> str:
    """Return a version that changes with the files that the stages of a project read and write."""
    check = check_folder(project.manifest)
    data = (project.uploads, project.uploads / "files", project.recordings, project.manifest)
    made = (check / OVERVIEW_NAME, project.dataset / CLEANED_NAME, project.tokenizer)
    splits = (file(split) for file in (project.utterances, project.pairs) for split in ("train", "val"))
    base = (project.config, project.base_checkpoint, project.base_tokenizer)
    speech = (project.run_dir, project.export, project.scores, project.listen / "voices", project.server_keys)
    return files_version(*data, *made, *splits, *base, *speech)


def throttled_version(path: Path, every_s: float) -> str:
    """Return a version that changes with a file, at most every `every_s` seconds while it grows."""
    try:
        status = path.stat()
    except OSError:
        return files_version(path)
    if time.time() - status.st_mtime >= every_s:
        return files_version(path)
    return f"{status.st_ino} {status.st_mtime // every_s}"


def job_version(project: Project, stage: str) -> str:
    """Return a version that changes when a job of the stage starts, is asked to stop, or ends."""
    job = newest_job(project, stage)
    return "none" if job is None else f"{job.folder.name} {job.state}"


def is_running(project: Project, *stages: str) -> bool:
    return any((job := newest_job(project, stage)) is not None and job.is_active for stage in stages)


def running_version(project: Project, stage: str) -> str:
    """Return `job_version` with the state of the log and, while the job is active, the current second."""
    job = newest_job(project, stage)
    if job is None:
        return "none"
    second = int(time.time()) if job.is_active else 0
    return f"{job.folder.name} {job.state} {files_version(job.log)} {second}"


def jobs_version(project: Project) -> str:
    """Return a version that changes whenever a job starts, changes its state, ends or is removed."""
    try:
        stat = project.jobs.stat()
    except OSError:
        return ""
    made = (stat.st_ino, stat.st_mtime_ns, stat.st_nlink)
    return f"{made} {' '.join(map(_state, _unfinished(project, made)))}"


@lru_cache(256)
def _unfinished(project: Project, _made: tuple[int, int, int]) -> tuple[Path, ...]:
    """Return the jobs that were active when their folder last changed; finished jobs never change."""
    return tuple(folder for folder in job_folders(project) if not (folder / "exit.json").exists())


def _state(folder: Path) -> str:
    job = read_job(folder)
    return f"{folder.name}={job.state}" if job else f"{folder.name}={files_version(folder)}"


def num_lines(path: Path) -> int | None:
    """Return the cached number of lines of a file; None if it cannot be read."""
    try:
        return _count(path, files_version(path))
    except OSError:
        return None


@lru_cache(maxsize=64)
def _count(path: Path, _version: str) -> int:
    return count_lines(path)


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"


def utterances_of(manifest: Path) -> Sequence[Utterance]:
    """Return the cached utterances of a manifest; a UserError if it is missing or corrupt."""
    return _read(manifest, files_version(manifest))


@lru_cache(maxsize=4)
def _read(manifest: Path, _version: str) -> Sequence[Utterance]:
    return tuple(read_utterances(manifest))
