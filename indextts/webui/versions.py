"""Words that change when what is on the disk does, for `Page.watch`. No Gradio here; stat calls only.

Manifests as the page reads them: again only when the file has changed. No Gradio here.
"""

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from indextts.data.manifest import Utterance, read_utterances
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project

NOW_AND_THEN_S = 6


def once(_project: Project) -> str:
    """Never changes: what is shown depends on the project alone."""
    return ""


def now_and_then(_project: Project) -> str:
    """Change every NOW_AND_THEN_S seconds, for what no file tells."""
    return str(int(time.time() // NOW_AND_THEN_S))


def files_version(*paths: Path) -> str:
    """Return a word that changes whenever a file is made, replaced, written to or removed.

    Of a folder it changes when a name in it does.
    """
    return " ".join(_stamp(path) for path in paths)


def calm_version(path: Path, every_s: float) -> str:
    """Return a word that changes with a file, but at most every `every_s` seconds while it is written to.

    For what is dear to show. Once the file rests so long, the word is that of `files_version`.
    """
    try:
        status = path.stat()
    except OSError:
        return files_version(path)
    if time.time() - status.st_mtime >= every_s:
        return files_version(path)
    return f"{status.st_ino} {status.st_mtime // every_s}"


def job_version(project: Project, stage: str) -> str:
    """Return a word that changes when a job of the stage starts, is asked to stop, or ends."""
    job = newest_job(project, stage)
    return "none" if job is None else f"{job.folder.name} {job.state}"


def running_version(project: Project, stage: str) -> str:
    """Return `job_version`, the state of the log and, while the job is active, the second."""
    job = newest_job(project, stage)
    if job is None:
        return "none"
    second = int(time.time()) if job.is_active else 0
    return f"{job.folder.name} {job.state} {files_version(job.log)} {second}"


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_ino}.{status.st_size}.{status.st_mtime_ns}"


def utterances_of(manifest: Path) -> Sequence[Utterance]:
    """Return the utterances of a manifest; it may be asked at every key that somebody types.

    Raises:
        UserError: the file is not there, or is damaged.
    """
    return _read(manifest, files_version(manifest))


@lru_cache(maxsize=4)
def _read(manifest: Path, _version: str) -> Sequence[Utterance]:
    return tuple(read_utterances(manifest))
