"""Base model in tab 1: the published files in one line, their table and download, and the project's files."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.data import DownloadCheckpoints
from indextts.features.published_files import FILES, missing_bytes, table
from indextts.projects.project import PUBLISHED, Project, ProjectSettings
from indextts.system.amounts import shown_size
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.layout import fold
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import once

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
PRESENT = ("checked", "there")


def build(page: Page) -> None:
    """Build the line, and the fold with the download and both tables."""
    line = gr.HTML(elem_id="base-model")
    with fold(t("project.published_files"), "published"):
        form = form_for(DownloadCheckpoints, ("what",))
        home = Project(published_folder(page))
        inputs = list(form.values())
        stage_panel(page, Stage("download", "project.download", download_commands, inputs, home=home))
        published = gr.Dataframe(
            headers=[t("project.purpose"), t("project.file"), t("project.size"), t("project.state")],
            label=t(PUBLISHED_IN, folder=published_folder(page)),
            interactive=False,
            elem_id="published-files",
            max_height=420,
        )
        files = gr.Dataframe(
            headers=[t("project.base_file"), t("project.size")],
            label=t("project.base_files"),
            interactive=False,
            elem_id="base-files",
        )
    page.watch(once, lambda _name: gr.Dataframe(label=t(PUBLISHED_IN, folder=home.root)), [published])
    page.watch(lambda _project: summary_html(page), lambda _name: summary_html(page), [line])
    watch_rows(page, base_rows, files)
    watch_rows(page, lambda _project: published_rows(page), published)


def watch_rows(page: Page, rows: Callable[[Project], list[list[str]]], shown: gr.Dataframe) -> None:
    """Show rows that are cheap enough to be their own version."""
    page.watch(lambda project: str(rows(project)), lambda name: rows(page.find_project(name)), [shown])


def published_folder(page: Page) -> Path:
    """Return the folder of the published files of a workspace."""
    return page.workspace / PUBLISHED


def summary_html(page: Page) -> str:
    """Return the number of published files that are present, and the size of the others."""
    rows = table(published_folder(page))
    present = sum(state in PRESENT for *_, state in rows)
    if present == len(FILES):
        text = t("project.all_files", count=present)
    else:
        size = shown_size(missing_bytes(published_folder(page)))
        text = t("project.some_files", present=present, total=len(FILES), size=size)
    return f'<h3>{escape(t("project.base_model"))}</h3><p class="lead">{escape(text)}</p>'


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


def base_rows(project: Project) -> list[list[str]]:
    """Return the base files of the project with their sizes."""
    paths = (project.config, project.base_checkpoint, project.base_tokenizer)
    return [[p.name, shown_size(p.stat().st_size) if p.is_file() else t(MISSING)] for p in paths]
