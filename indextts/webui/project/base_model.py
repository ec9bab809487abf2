"""Base model in tab 1: the published files in one line, their table and download, and the project's files."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.bases import BASES, PROPOSED, Base
from indextts.commands.data import DownloadCheckpoints
from indextts.features.published_files import missing_bytes, table
from indextts.projects.project import PUBLISHED, Project, ProjectSettings
from indextts.system.amounts import shown_size
from indextts.webui.forms import component_for, fields_from
from indextts.webui.language import t
from indextts.webui.layout import fold, labelled
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import once

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
        form = {
            "base": component_for(DownloadCheckpoints, "base", PROPOSED.name),
            "what": component_for(DownloadCheckpoints, "what"),
        }
        stage = Stage(
            "download",
            "project.download",
            download_commands,
            list(form.values()),
            home_of=lambda _chosen: Project(page.workspace / PUBLISHED),
        )
        stage_panel(page, stage)
        published = gr.Dataframe(
            headers=[
                t("project.base_model"),
                t("project.state"),
                t("project.file"),
                t("project.size"),
                t("project.purpose"),
            ],
            label=t("project.published_in", folder=page.workspace),
            interactive=False,
            elem_id="published-files",
            max_height=420,
        )
        files = gr.Dataframe(
            **labelled("project.base_files", "base-files"),
            headers=[t("project.base_file"), t("project.size")],
            interactive=False,
        )
    page.watch(
        once,
        lambda _project: gr.Dataframe(label=t("project.published_in", folder=page.workspace)),
        [published],
    )
    page.watch(lambda _project: summary_html(page), lambda _project: summary_html(page), [line])
    watch_rows(page, base_rows, files)
    watch_rows(page, lambda _project: published_rows(page), published)


def watch_rows(page: Page, rows: Callable[[Project], list[list[str]]], shown: gr.Dataframe) -> None:
    """Show rows that are cheap enough to be their own version."""
    page.watch(lambda project: str(rows(project)), rows, [shown])


def bases() -> list[Base]:
    """Return the published models, the proposed one first."""
    return sorted(BASES.values(), key=lambda base: base != PROPOSED)


def summary_html(page: Page) -> str:
    """Return the number of published files of each base that are present, and the size of the others."""
    lines = []
    for base in bases():
        folder = page.workspace / base.folder
        rows = table(folder, base)
        present = sum(state in PRESENT for *_, state in rows)
        if present == len(rows):
            text = t("project.all_files", name=base.title, count=present)
        else:
            size = shown_size(missing_bytes(folder, base))
            text = t("project.some_files", name=base.title, present=present, total=len(rows), size=size)
        lines.append(f'<p class="lead">{escape(text)}</p>')
    return f"<h3>{escape(t('project.base_model'))}</h3>{''.join(lines)}"


def published_rows(page: Page) -> list[list[str]]:
    """Return base, state, place, size and purpose of each published file."""
    return [
        [base.title, t(STATES[state]) if state in STATES else state, place, size, t(PURPOSES[purpose])]
        for base in bases()
        for purpose, place, size, state in table(page.workspace / base.folder, base)
    ]


def download_commands(home: Project, _settings: ProjectSettings, *values: Any) -> Sequence[Command]:
    fields = fields_from(DownloadCheckpoints, ("base", "what"), values)
    folder = home.root.parent / BASES[fields["base"]].folder
    return [DownloadCheckpoints(output_dir=folder, **fields)]


def base_rows(project: Project) -> list[list[str]]:
    """Return the base files of the project with their sizes."""
    paths = (project.config, project.base_checkpoint, project.base_tokenizer)
    return [[p.name, shown_size(p.stat().st_size) if p.is_file() else t("project.missing")] for p in paths]
