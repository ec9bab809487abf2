"""Import section of tab 2: uploads, their tables, metadata that the data do not contain, groups of voices.

The answers apply to sources that are not imported yet, or to the chosen source; the columns that the user
chooses in a table, to its source. The import stores them with each source.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.base import Command
from indextts.commands.data import ImportDataset
from indextts.data.importing.hub import dataset_folder
from indextts.data.importing.items import source_name
from indextts.data.importing.speakers import ANSWERS_NAME, FIELDS, read_answers
from indextts.data.importing.voices import RECORD_NAME, TABLE_NAME, VoiceRow, read_rows, rename_voice
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, read_project, write_project
from indextts.projects.stages import plan_stage
from indextts.webui.data.check_view import in_words
from indextts.webui.data.import_outlook import import_outlook, numbers_html
from indextts.webui.data.import_sources import (
    ImportSource,
    column_tables_html,
    first_rows_html,
    import_sources,
    read_choices,
    sources_of,
    with_choice,
    with_chosen_columns,
)
from indextts.webui.data.review_list import playable
from indextts.webui.data.uploads import remove, store_uploads, upload_message, uploads_html
from indextts.webui.devices import chosen_recognizers, free_device
from indextts.webui.events import on
from indextts.webui.forms import fields_from, form_for, kept_form
from indextts.webui.language import t
from indextts.webui.layout import columns, fields, fold, labelled, small_button
from indextts.webui.markup import remark_html, sound_html, table_html
from indextts.webui.page import Page
from indextts.webui.running.outlook import Start, refused
from indextts.webui.running.panel import CONTINUE, Stage, stage_panel
from indextts.webui.serving.security import file_address
from indextts.webui.view_versions import files_version, job_version, once

HUB_FIELDS = ("hub", "hub_subset", "hub_split", "hub_revision", "max_hours", "speakers")
TEXT_FIELDS = ("keep",)
CLIP_FIELDS = ("trim", "loudness")
LONG_FIELDS = ("asr", "min_clip_s", "max_clip_s", "subtitle_line")
OPTIONS = (*HUB_FIELDS, *CLIP_FIELDS, *LONG_FIELDS, *TEXT_FIELDS)  # of the project, not of a source
NEW_SOURCES = "what is new"
MANIFEST_ENDINGS = (".jsonl", ".json")


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            numbers = gr.HTML(elem_id="data-numbers")
            inputs, stored, filled_for = _form(page)
            build_voices(page)
        with side:
            stage = Stage(
                "data",
                "data.import_and_check",
                partial(prepare, page),
                inputs,
                onward=CONTINUE,
                in_words=in_words,
                store_settings=store_settings,
                filled_for=filled_for,
                also_changes=[stored],
            )
            stage_panel(page, stage)

    def version(project: Project) -> str:
        return f"{job_version(project, 'data')} {files_version(project.manifest)}"

    page.watch(version, numbers_html, [numbers])


def _form(page: Page) -> tuple[list[Component], gr.Textbox, gr.Textbox]:
    """Build uploads and answers, and connect their events.

    Returns:
        The components that the commands are built from, a hidden one that changes with the uploads that they
        import, and the component with the name of the project whose options are in the form.
    """
    files = gr.File(label=t("data.recordings"), file_count="multiple", height=120, elem_id="upload")
    message = gr.HTML(elem_id="upload-message")
    path = gr.Textbox(**labelled("data.server_path", "data-path"), lines=1, max_lines=4)
    table = gr.HTML(elem_id="uploads")
    stored = gr.Textbox(visible="hidden", container=False, show_label=False)
    tables = gr.HTML(elem_id="import-columns", js_on_load="window.chooseColumns(element, trigger, watch)")
    choices = gr.Textbox(visible="hidden", container=False, show_label=False, elem_id="column-choices")
    first_rows = gr.HTML(elem_id="import-rows")
    with fold(t("data.answers"), "import-answers"), fields("import-fields"):
        chosen = gr.Dropdown(
            [(t("data.new_sources"), NEW_SOURCES)],
            **labelled("data.settings_source", "answers-for"),
            value=NEW_SOURCES,
            allow_custom_value=False,
        )
        answers = form_for(ImportDataset, FIELDS)
    with fold(t("data.hub"), "import-hub"), fields():
        options = form_for(ImportDataset, HUB_FIELDS)
    with fold(t("data.clips"), "import-clips"), fields():
        options |= form_for(ImportDataset, CLIP_FIELDS)
    with fold(t("data.long"), "import-long"), fields():
        options |= form_for(ImportDataset, LONG_FIELDS)
    with fold(t("data.texts"), "import-texts"), fields():
        options |= form_for(ImportDataset, TEXT_FIELDS)
    filled_for = kept_form(page, "data", ImportDataset, OPTIONS, list(options.values()))
    removal = small_button(
        "data.remove_this_upload", "upload-remove", elem_classes="quiet asks", visible=False
    )

    def received(project: Project, paths: list[str] | None) -> tuple[Any, ...]:
        return None, upload_message(project, paths or [], store_uploads), *uploaded(project)

    def removed(project: Project, upload: str) -> tuple[Any, ...]:
        if upload == NEW_SOURCES:
            raise UserError(t("data.choose_upload"))
        remove(project, upload)
        return "", *uploaded(project)

    path_of = page.fill(lambda project, _: [named_paths(read_project(project))], [path])

    def named(project: Project, filled: str, typed: str) -> Any:
        if filled != project.root.name or not store_paths(page, project, typed):
            return gr.skip()
        return uploaded(project)[-1]

    outputs = [table, chosen, stored]
    on([path.submit, path.blur], named, [page.project, path_of, path], [stored], latest=True)
    on([files.upload], received, [page.project, files], [files, message, *outputs], each=True)
    on([removal.click], removed, [page.project, chosen], [message, *outputs])
    on(
        [chosen.change],
        lambda source: gr.Button(visible=source != NEW_SOURCES),
        [chosen],
        [removal],
        latest=True,
    )
    # in the browser: an answer of the server could come after the message of a new upload and remove it
    page.project.change(None, None, [message], js="() => ''", api_visibility="private")
    page.watch(once, uploaded, outputs)
    inputs = [chosen, *answers.values(), choices]
    _connect_tables(page, tables, choices, inputs, answers, stored)
    _show_first_rows(page, first_rows, [*inputs, *options.values()], [stored, choices, options["keep"]])
    return [*inputs, *options.values()], stored, filled_for


def _show_first_rows(
    page: Page, first_rows: gr.HTML, inputs: Sequence[Component], triggers: Sequence[Any]
) -> None:
    """Show what the import does with the first rows of tables, by the values of the whole form."""

    def show(project: Project, *values: Any) -> str:
        return first_rows_html(planned_sources(page, project, read_project(project), *values))

    changes = [component.change for component in (*inputs[: 1 + len(FIELDS)], *triggers)]
    page.watch(tables_version, show, [first_rows], inputs, also=changes)


def _connect_tables(
    page: Page,
    tables: gr.HTML,
    choices: gr.Textbox,
    inputs: Sequence[Any],
    answers: Mapping[str, Any],
    stored: gr.Textbox,
) -> None:
    """Show the tables of new sources, and take the columns that are chosen in them."""

    def show(project: Project, *values: Any) -> str:
        return column_tables_html(planned_sources(page, project, read_project(project), *values))

    def choose(project: Project, event: gr.SelectData, *values: Any) -> tuple[Any, Any]:
        settings = read_project(project)
        sources = planned_sources(page, project, settings, *values)
        chosen = json.dumps(with_choice(read_choices(values[-1]), sources, event.row_value))
        # the changed table stays as the browser shows it, with the focus; others of the source may change
        tables_of = {source.key: source.preview.tables for source in sources}
        has_others = len(tables_of.get(str(event.value), ())) > 1
        return chosen, show(project, *values[:-1], chosen) if has_others else gr.skip()

    form = [answers["layout"], answers["columns"]]
    changes = [component.change for component in (inputs[0], stored, *form)]
    page.watch(tables_version, show, [tables], inputs, also=changes)
    on([tables.select], choose, [page.project, *inputs], [choices, tables], each=True)
    on([answers["columns"].input], lambda: "", [], [choices], latest=True)  # typed columns count then


def tables_version(project: Project) -> str:
    stored = (project.root / "project.json", project.dataset / ANSWERS_NAME)
    return files_version(project.uploads, *project.uploaded(), *stored)


def uploaded(project: Project) -> tuple[Any, ...]:
    """Return the table of the uploads, the sources that the answers can apply to, and a version."""
    names = [path.name for path in project.uploaded()]
    choices = [(t("data.new_sources"), NEW_SOURCES), *((name, name) for name in names)]
    stamp = files_version(project.root / "project.json", project.uploads, *project.uploaded())
    return uploads_html(project), gr.Dropdown(choices, value=NEW_SOURCES), stamp


def named_paths(settings: ProjectSettings) -> str:
    return "\n".join(map(str, filter(None, [settings.manifest, *settings.data.get("source", [])])))


def store_paths(page: Page, project: Project, typed: str) -> bool:
    """Store typed paths as manifest and sources; return whether they are new; a UserError for a bad one."""
    settings, title = read_project(project), t("data.server_path")
    paths = [page.roots.inside(line, title) for line in typed.splitlines() if line.strip()]
    for path in paths:
        if not path.exists():
            raise UserError(t("project.no_file", path=path))
    manifest = next((path for path in paths if path.suffix in MANIFEST_ENDINGS), None)
    sources = [str(path) for path in paths if path != manifest]
    data = {name: value for name, value in settings.data.items() if name != "source"}
    data |= {"source": sources} if sources else {}
    changed = settings.model_copy(update={"manifest": manifest, "data": data})
    if changed == settings:
        return False
    write_project(project, changed)
    return True


def prepare(page: Page, project: Project, settings: ProjectSettings, *values: Any) -> Start:
    """Return the commands with what they read and where they write; a new project has nothing to import."""
    try:
        commands = import_commands(page, project, settings, *values)
    except UserError as error:
        is_empty = not settings.manifest and not settings.data and not project.uploaded()
        return Start(outlook=import_outlook(project, ()), error=str(error)) if is_empty else refused(error)
    return Start(commands, outlook=import_outlook(project, commands))


def import_commands(page: Page, project: Project, settings: ProjectSettings, *values: Any) -> list[Command]:
    """Return the commands, with the answers for their sources; a UserError if there is nothing to import."""
    chosen, answers, choices = values[0], values[1 : 1 + len(FIELDS)], values[1 + len(FIELDS)]
    settings = with_recognizer(page, with_options(settings, *values))
    answered = fields_from(ImportDataset, FIELDS, answers)
    known = read_answers(project.dataset)
    commands: list[Command] = []
    for command in plan_stage(project, settings, "data").commands:
        if not isinstance(command, ImportDataset):
            commands.append(command)
            continue
        sources = sources_of(command)
        if not sources and not command.url and not command.hub:
            raise UserError(t("data.nothing_to_import"))
        folders = list(sources)
        if command.hub:
            folders.append(dataset_folder(project.dataset, command.hub, command.hub_subset))
        names = {source_name(source, project.dataset) for source in folders}
        is_meant = chosen in {source.name for source in sources}
        is_new = chosen == NEW_SOURCES and not names & known.keys()
        given = answered if is_meant or is_new else {}
        if command.manifest is not None and not command.source:
            given = {name: value for name, value in given.items() if name not in ("layout", "columns")}
        command = command.model_copy(update={**given, **allowed_audio(page, command)})
        commands += with_chosen_columns(command, read_choices(choices))
    return commands


def store_settings(project: Project, planned: Sequence[Command]) -> None:
    """Store the options in the project's settings, for imports from elsewhere."""
    imports = [command for command in planned if isinstance(command, ImportDataset)]
    settings = read_project(project)
    chosen: dict[str, Any] = {name: value for name, value in settings.data.items() if name not in OPTIONS}
    for name in OPTIONS:
        default = ImportDataset.model_fields[name].default
        values = [value for command in imports if (value := getattr(command, name)) != default]
        chosen |= {name: values[0]} if values else {}
    write_project(project, settings.model_copy(update={"data": chosen}))


def with_options(settings: ProjectSettings, *values: Any) -> ProjectSettings:
    """Return the settings with the options of the form; of the values of an older form, with their own."""
    typed = values[2 + len(FIELDS) :]
    if not typed:
        return settings
    defaults = {name: ImportDataset.model_fields[name].default for name in OPTIONS}
    return settings.with_fields("data", **defaults | fields_from(ImportDataset, OPTIONS[: len(typed)], typed))


def with_recognizer(page: Page, settings: ProjectSettings) -> ProjectSettings:
    """Return the settings with a path for the recognizer; a UserError if that is not allowed."""
    chosen = chosen_recognizers(page.roots, settings.data.get("asr"))
    if not chosen:
        return settings
    device = free_device(page.workspace, settings.data.get("device", "auto"))
    return settings.with_fields("data", asr=chosen[0], device=device)


def planned_sources(
    page: Page, project: Project, settings: ProjectSettings, *values: Any
) -> list[ImportSource]:
    """Return the sources that the stage would import, with their tables; empty without any."""
    try:
        commands = import_commands(page, project, settings, *values)
    except UserError:
        return []
    return import_sources(project, commands, values[0])


def allowed_audio(page: Page, command: ImportDataset) -> dict[str, list[Path]]:
    """Return the folders that the recordings of a manifest may be in."""
    roots = [page.roots.workspace, *page.roots.others]
    manifest = command.manifest
    if command.audio_root or manifest is None or not any(manifest.is_relative_to(root) for root in roots):
        return {}
    return {"audio_root": roots}


MAX_VOICES = 50  # those with the most clips
VOICES = {"voice": "", "name": "", "clips": "number", "minutes": "number", "closest": "", "listen": ""}


def build_voices(page: Page) -> None:
    """Build the table and the form below it; both are hidden without groups of voices."""
    with gr.Column(visible=False, elem_id="voices") as section:
        table = gr.HTML(elem_id="voices-table")
        with fields("voices-fields"):
            voice = gr.Dropdown([], label=t("data.voices.voice"), elem_id="voices-voice")
            name = gr.Textbox(label=t("data.voices.name"), max_length=64, elem_id="voices-name")
        button = small_button("data.voices.rename", "voices-rename")
        message = gr.HTML(elem_id="voices-message")

    def shown(project: Project) -> tuple[Any, ...]:
        rows = read_rows(project.dataset)
        choices = [f"{row.voice} ({row.speaker})" if row.speaker != row.voice else row.voice for row in rows]
        options = list(zip(choices, (row.voice for row in rows), strict=True))
        html = voices_html(project, rows)
        return gr.Column(visible=bool(rows)), html, gr.Dropdown(choices=options, value=None)

    def renamed(project: Project, chosen: str | None, typed: str) -> str:
        if not chosen:
            raise UserError(t("data.voices.no_voice"))
        speaker = " ".join(typed.split())
        if not speaker:
            raise UserError(t("data.voices.no_name"))
        rename_voice(project.dataset, chosen, speaker)
        text = t("data.voices.renamed", voice=chosen, name=speaker)
        return f'<p class="is-ready" role="status">{escape(text)}</p>'

    page.watch(voices_version, shown, [section, table, voice])
    on([button.click, name.submit], renamed, [page.project, voice, name], [message])


def voices_version(project: Project) -> str:
    return files_version(project.dataset / RECORD_NAME, project.dataset / TABLE_NAME)


def voices_html(project: Project, rows: list[VoiceRow]) -> str:
    """Return the groups with most clips as a table, with a typical and the farthest clip of each."""
    if not rows:
        return ""
    heads = [(t(f"data.voices.{name}"), css) for name, css in VOICES.items()]
    rows_html = [_voice_cells(project, row) for row in rows[:MAX_VOICES]]
    more = t("data.voices.more", count=len(rows) - MAX_VOICES) if len(rows) > MAX_VOICES else ""
    return (
        f"<h3>{escape(t('data.voices.heading'))}</h3><p>{escape(t('data.voices.lead'))}</p>"
        f"{table_html(heads, rows_html, 'voices')}"
        f"{remark_html(more)}"
    )


def _voice_cells(project: Project, row: VoiceRow) -> list[str]:
    closest = f"{row.closest} ({row.distance:.2f})" if row.closest and row.distance is not None else ""
    files = (project.dataset / file for file in (row.sample_1, row.farthest) if file)
    players = "".join(sound_html(file_address(path)) for file in files if (path := playable(project, file)))
    cells = [row.voice, row.speaker, f"{row.clips:,}", f"{row.minutes:.1f}", closest]
    return [*map(escape, cells), players]
