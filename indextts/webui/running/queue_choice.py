"""Start time of a job: now, or after an active job of any project."""

from pathlib import Path

import gradio as gr

from indextts.errors import UserError
from indextts.projects.jobs.records import Job, list_jobs
from indextts.projects.names import title_of
from indextts.projects.project import PUBLISHED, Project, project_names
from indextts.webui.language import t, t_or
from indextts.webui.view_versions import jobs_version


def active_version(workspace: Path) -> str:
    """Return a version that changes when a job of any project starts or ends."""
    return " ".join(jobs_version(home) for home in job_homes(workspace))


def job_homes(workspace: Path) -> list[Project]:
    """Return all folders with jobs: the projects, and the folder of the published files."""
    return [Project(workspace / name) for name in (*project_names(workspace), PUBLISHED)]


def waiting_choice(workspace: Path, now: str | None) -> gr.Dropdown:
    """Return the dropdown of active jobs, hidden without one; the selection stays while its job is active."""
    found = [(t("jobs.start_now"), "")]
    for name, job in _active_jobs(workspace):
        stage, title = t_or(f"stage.{job.stage}", job.stage), title_of(Project(workspace / name))
        found.append((t("jobs.after", stage=stage, project=title), f"{name}/{job.folder.name}"))
    if now in [choice for _, choice in found]:  # unchanged, because the user may change it meanwhile
        return gr.Dropdown(choices=found, visible=len(found) > 1)
    return gr.Dropdown(choices=found, value="", visible=len(found) > 1)


def find_active(workspace: Path, chosen: str | None) -> Path | None:
    """Return the folder of the chosen job, None for an immediate start.

    Raises:
        UserError: no job of this name is active.
    """
    if not chosen:
        return None
    for name, job in _active_jobs(workspace):
        if chosen == f"{name}/{job.folder.name}":
            return job.folder
    raise UserError(t("jobs.already_ended"))


def _active_jobs(workspace: Path) -> list[tuple[str, Job]]:
    return [
        (home.root.name, job) for home in job_homes(workspace) for job in list_jobs(home) if job.is_active
    ]
