"""Import section of tab 2: uploads, and metadata that the data do not contain.

The answers apply to sources that are not imported yet, or to the chosen source. The import stores them with
each source.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.utils import get_upload_folder

from indextts.commands.base import Command
from indextts.commands.data import ImportDataset
from indextts.data.importing.items import source_name
from indextts.data.importing.speakers import FIELDS, read_answers
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_stage
from indextts.system.amounts import shown_size
from indextts.webui.data.uploads import described, remove, store_uploads
from indextts.webui.events import on
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.serving.received import MAX_AGE_S, size_of
from indextts.webui.view_versions import once, periodic_version

NEW_SOURCES = "what is new"
CHOOSE = "data.choose_upload"
NOTHING = "data.nothing_to_import"
RECEIVED = "data.received"


@dataclass(frozen=True)
class ImportForm:
    """Components of the import form.

    Args:
        inputs: components that the commands are built from.
        uploads: table of the uploads that the commands import.
    """

    inputs: Sequence[Component]
    uploads: gr.Dataframe


def import_form(page: Page) -> ImportForm:
    """Build uploads and answers, and connect their events."""
    files = gr.File(
        label=t("data.recordings"),
        file_count="multiple",
        height=140,
        elem_id="upload",
    )
    table = gr.Dataframe(
        headers=[t("data.upload"), t("data.files"), t("data.size")],
        label=t("data.uploaded"),
        interactive=False,
        elem_id="uploads",
    )
    waiting = gr.HTML(elem_id="received", padding=False)
    with gr.Row():
        chosen = gr.Dropdown(
            [(t("data.new_sources"), NEW_SOURCES)],
            value=NEW_SOURCES,
            label=t("data.settings_source"),
            allow_custom_value=False,
            elem_id="answers-for",
        )
        removal = gr.Button(t("data.remove_this_upload"), elem_id="upload-remove")
    with gr.Row():
        fields = form_for(ImportDataset, FIELDS)

    def received(name: str, paths: list[str] | None) -> tuple[Any, Any, Any]:
        project = page.find_project(name)
        if paths:
            store_uploads(project, paths, Path(get_upload_folder()))
        return None, described(project), choices(page, name)

    def removed(name: str, upload: str) -> tuple[Any, Any]:
        project = page.find_project(name)
        if upload == NEW_SOURCES:
            raise UserError(t(CHOOSE))
        remove(project, upload)
        return described(project), choices(page, name)

    def shown(name: str) -> tuple[Any, Any]:
        return described(page.find_project(name)), choices(page, name)

    on([files.upload], received, [page.project, files], [files, table, chosen])
    on([removal.click], removed, [page.project, chosen], [table, chosen])
    page.watch(once, shown, [table, chosen])
    page.watch(periodic_version, lambda _name: shown_received(Path(get_upload_folder())), [waiting])
    return ImportForm([chosen, *fields.values()], table)


def shown_received(folder: Path) -> str:
    """Return how much the page has received that is in no project."""
    files, num_bytes = size_of(folder)
    return html.escape(t(RECEIVED, files=files, size=shown_size(num_bytes), hours=round(MAX_AGE_S / 3600)))


def choices(page: Page, name: str) -> gr.Dropdown:
    """Return the sources that the answers can apply to: all new sources, or one upload."""
    uploads = [path.name for path in page.find_project(name).uploaded()]
    return gr.Dropdown(
        [(t("data.new_sources"), NEW_SOURCES), *((name, name) for name in uploads)], value=NEW_SOURCES
    )


def import_commands(page: Page, project: Project, settings: ProjectSettings, *values: Any) -> list[Command]:
    """Return the commands of the stage, with the answers of the form for the sources they apply to.

    Raises:
        UserError: there is nothing to import.
    """
    chosen, *answers = values
    fields = fields_from(ImportDataset, FIELDS, answers)
    known = read_answers(project.dataset)
    commands: list[Command] = []
    for command in plan_stage(project, settings, "data").commands:
        if not isinstance(command, ImportDataset):
            commands.append(command)
            continue
        sources = [*([command.manifest] if command.manifest is not None else []), *command.source]
        if not sources:
            raise UserError(t(NOTHING))
        names = {source_name(source, project.dataset) for source in sources}
        is_meant = chosen in {source.name for source in sources}
        is_new = chosen == NEW_SOURCES and not names & known.keys()
        given = fields if is_meant or is_new else {}
        if command.manifest is not None and not command.source:
            given = {name: value for name, value in given.items() if name != "layout"}
        commands.append(command.model_copy(update={**given, **allowed_audio(page, command)}))
    return commands


def allowed_audio(page: Page, command: ImportDataset) -> dict[str, list[Path]]:
    """Return the folders that the recordings of a manifest may be in."""
    roots = [page.roots.workspace, *page.roots.others]
    manifest = command.manifest
    if command.audio_root or manifest is None or not any(manifest.is_relative_to(root) for root in roots):
        return {}
    return {"audio_root": roots}
