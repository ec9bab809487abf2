"""Tab 8: listen to checkpoints, compare them, score them, and export the model."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.speech import ExportModel
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_stage
from indextts.webui.forms import fields_from, form_for, project_values, with_choices
from indextts.webui.language import t
from indextts.webui.listen import comparing, scoring, speaking
from indextts.webui.listen.saved_models import names
from indextts.webui.page import Page, follow_shared_choice
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import download_link
from indextts.webui.view_versions import files_version, job_version

EXPORT_FIELDS = ("dtype", "format", "average_last")


def build(page: Page) -> None:
    comparing.build(page, speaking.build(page))
    scoring.build(page)
    gr.Markdown(t("listen.export_heading"))
    with gr.Row():
        checkpoint = gr.Dropdown([], label=t("listen.checkpoint"), elem_id="export-checkpoint")
        form = list(form_for(ExportModel, EXPORT_FIELDS).values())
    filled_for = page.fill(
        lambda name, _before: project_values(ExportModel, EXPORT_FIELDS, page.find_settings(name).export),
        form,
    )
    stage = Stage("export", t("listen.export"), commands, [checkpoint, *form], filled_for=filled_for)
    stage_panel(page, stage)
    files = gr.HTML(elem_id="export-files")
    follow_shared_choice(
        page, "export", lambda project: [(each, each) for each in names(project)], checkpoint
    )
    page.watch(
        lambda project: files_version(project.run_dir),
        lambda name, now: checkpoints(page, name, now),
        [checkpoint],
        [checkpoint],
    )
    page.watch(lambda project: job_version(project, "export"), lambda name: exported(page, name), [files])


def commands(
    project: Project, settings: ProjectSettings, checkpoint: str | None, *values: Any
) -> Sequence[Command]:
    fields = fields_from(ExportModel, EXPORT_FIELDS, values)
    planned = plan_stage(project, settings.with_fields("export", **fields), "export").commands
    if not checkpoint or checkpoint not in names(project):
        return planned
    return [command.model_copy(update={"checkpoint": project.run_dir / checkpoint}) for command in planned]


def checkpoints(page: Page, name: str, now: str | None) -> Any:
    """Return the available checkpoints."""
    return with_choices([(found, found) for found in names(page.find_project(name))], now)


def exported(page: Page, name: str) -> Any:
    """Return download links to the exported files, which are served in place."""
    project = page.find_project(name)
    job = newest_job(project, "export")
    if job is not None and job.is_active:
        return gr.skip()
    files = sorted(project.export.iterdir()) if project.export.is_dir() else []
    links = [(download_link(path, path.name), path) for path in files]
    return "<br>".join(f"{link} ({path.stat().st_size / 1e6:.1f} MB)" for link, path in links if link)
