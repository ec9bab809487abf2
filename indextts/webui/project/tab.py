"""Tab 1: create a project; steps, base files, published files and machine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.data import DownloadCheckpoints
from indextts.errors import UserError
from indextts.features.published_files import table
from indextts.projects.pipeline import copy_base_files
from indextts.projects.project import (
    NAME_RULE,
    PUBLISHED,
    Project,
    ProjectSettings,
    is_folder_name,
    make_settings,
    project_names,
)
from indextts.system.amounts import shown_size
from indextts.webui.events import on
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.monitor.machine import read_machine
from indextts.webui.page import Page
from indextts.webui.running import all_jobs
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.stage_list import stage_states, stages_html
from indextts.webui.view_versions import once, periodic_version

PUBLISHED_IN = "project.published_in"
MISSING = "project.missing"
PURPOSES = {
    "base model": "project.purposes.base_model",
    "speech features": "project.purposes.speech_features",
    "sound": "project.purposes.sound",
}
STATES = {
    "checked": "project.states.checked",
    "there": "project.states.present",
    "absent": "project.states.missing",
}
RESERVED = "project.reserved"
NAME_TAKEN = "project.name_taken"
NO_FILE = "project.no_file"


def build(page: Page) -> None:
    way = gr.HTML(elem_id="way")
    with gr.Accordion(t("project.create_heading"), open=False, elem_id="new-project"):
        name = gr.Textbox(label=t("project.name"), elem_id="new-name")
        manifest = gr.Textbox(
            label=t("project.manifest"),
            info=t("project.manifest_help"),
            elem_id="new-manifest",
        )
        base = gr.Textbox(
            PUBLISHED,
            label=t("project.base_model"),
            info=t("project.base_model_help"),
            elem_id="new-base",
        )
        button = gr.Button(t("project.create"), variant="primary", elem_id="project-start")
    all_jobs.build(page)
    files = gr.Dataframe(
        headers=[t("project.base_file"), t("project.size")],
        label=t("project.base_model"),
        interactive=False,
        elem_id="base-files",
    )
    with gr.Accordion(t("project.published_files"), elem_id="published"):
        published = build_download(page)
    hardware = gr.Textbox(label=t("project.this_machine"), interactive=False, lines=4, elem_id="hardware")
    page.watch(periodic_version, lambda _: str(read_machine(page.workspace)), [hardware])
    on([button.click], lambda *values: create(page, *values), [name, manifest, base], [page.project])
    page.watch(
        lambda project: str([stage.state for stage in stage_states(project)]),
        lambda name: stages_html(stage_states(page.find_project(name))),
        [way],
    )
    watch_rows(page, base_rows, files)
    watch_rows(page, lambda _project: published_rows(page), published)


def watch_rows(page: Page, rows: Callable[[Project], list[list[str]]], shown: gr.Dataframe) -> None:
    """Show rows that are cheap enough to be their own version."""
    page.watch(lambda project: str(rows(project)), lambda name: rows(page.find_project(name)), [shown])


def build_download(page: Page) -> gr.Dataframe:
    """Build the download of the published files; return their table."""
    published = gr.Dataframe(
        headers=[t("project.purpose"), t("project.file"), t("project.size"), t("project.state")],
        label=t(PUBLISHED_IN, folder=published_folder(page)),
        interactive=False,
        elem_id="published-files",
        max_height=700,
    )
    form = form_for(DownloadCheckpoints, ("what",))
    home = Project(published_folder(page))
    page.watch(once, lambda _name: gr.Dataframe(label=t(PUBLISHED_IN, folder=home.root)), [published])
    inputs = list(form.values())
    stage_panel(page, Stage("download", t("project.download"), download_commands, inputs, home=home))
    return published


def published_folder(page: Page) -> Path:
    """Return the folder of the published files of a workspace."""
    return page.workspace / PUBLISHED


def published_rows(page: Page) -> list[list[str]]:
    """Return purpose, place, size and state of each published file."""
    rows = table(published_folder(page))
    return [
        [t(PURPOSES[purpose]), place, size, t(STATES[state]) if state in STATES else state]
        for purpose, place, size, state in rows
    ]


def download_commands(home: Project, _settings: ProjectSettings, *values: Any) -> Sequence[Command]:
    fields = fields_from(DownloadCheckpoints, ("what",), values)
    return [DownloadCheckpoints(output_dir=home.root, **fields)]


def create(page: Page, name: str | None, manifest: str | None, base: str | None) -> gr.Dropdown:
    """Create a project and select it."""
    name = (name or "").strip()
    if not is_folder_name(name):
        raise UserError(t(NAME_RULE, name=repr(name)))
    settings = make_settings(
        name=name,
        manifest=page.roots.inside(manifest, t("project.manifest")) if (manifest or "").strip() else None,
        base=page.roots.inside(base, t("project.base_model")),
    )
    if settings.name == PUBLISHED:
        raise UserError(t(RESERVED, folder=PUBLISHED))
    if settings.name in project_names(page.workspace):
        raise UserError(t(NAME_TAKEN, name=settings.name))
    if settings.manifest is not None and not settings.manifest.is_file():
        raise UserError(t(NO_FILE, path=settings.manifest))
    root = page.roots.inside(settings.name, t("project.name"))  # refuses a symlink that leads outside
    copy_base_files(Project(root), settings)
    return gr.Dropdown(choices=project_names(page.workspace), value=settings.name)


def base_rows(project: Project) -> list[list[str]]:
    """Return the base files of the project with their sizes."""
    paths = (project.config, project.base_checkpoint, project.base_tokenizer)
    return [[p.name, shown_size(p.stat().st_size) if p.is_file() else t(MISSING)] for p in paths]
