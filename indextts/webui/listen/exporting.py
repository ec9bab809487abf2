"""Sub-tabs Export and Publish of tab 8: write a checkpoint as a model folder, download or upload it.

The upload (tools/publish.py) makes a private repository on the hub. It becomes public only from a terminal or
on the hub's own page: who can reach this page must not be able to publish a voice with the login of this
machine.
"""

import json
import shutil
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.speech import ExportModel, PublishModel
from indextts.errors import UserError
from indextts.models.gpt.config import config_with_text_tokens, load_config
from indextts.planning.memory import FLOAT32_BYTES, HALF_BYTES, model_size
from indextts.projects.project import Project, ProjectSettings, read_project
from indextts.projects.stages import plan_stage
from indextts.system.amounts import shown_size, shown_time
from indextts.webui.forms import component_for, fields_from, form_for, project_values
from indextts.webui.language import field_title, t
from indextts.webui.layout import columns, fields
from indextts.webui.listen.saved_models import (
    SavedModel,
    fields_of,
    kept_choice,
    model_or_best,
    speaker_choices,
)
from indextts.webui.listen.scoring import newest_report
from indextts.webui.listen.speaking import watch_speakers
from indextts.webui.markup import empty_html, table_html
from indextts.webui.page import Page, follow_shared_choice
from indextts.webui.running.outlook import LinkedError, Notice, NoticeKind, Outlook, Start
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.routes import exported_files
from indextts.webui.serving.security import download_link
from indextts.webui.view_versions import files_version

STAGE = "export"
FIELDS = ("dtype", "format", "average_last", "self_contained", "page_language", "positions")
PUBLISHED = ("repository", "base_licence", "statement", "samples")
PATHS = ("base_licence", "samples")  # of these
RECORD = "export.json"


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            checkpoint = gr.Dropdown([], label=t("listen.checkpoint"), elem_id="export-checkpoint")
            with fields():
                form = list(form_for(ExportModel, FIELDS).values())
            filled_for = page.fill(
                lambda project, _: project_values(ExportModel, FIELDS, read_project(project).export), form
            )
            files = gr.HTML(elem_id="export-files")
        with side:
            stage = Stage(
                STAGE,
                "listen.export",
                partial(prepare, page),
                [checkpoint, *form],
                onward={"finished": ("#listen/export-files", "listen.open_files")},
                filled_for=filled_for,
            )
            stage_panel(page, stage)
    has_menu = [form[FIELDS.index("page_language")]]  # of languages on its official page
    page.watch(
        lambda project: project.base.name,
        lambda project: gr.Textbox(visible=bool(project.base.trained_languages)),
        has_menu,
    )
    follow_shared_choice(page, "export", speaker_choices, kept_choice, checkpoint)
    watch_speakers(page, [checkpoint])
    page.watch(lambda project: files_version(project.export), exported, [files], result_of=[STAGE])


def prepare(
    page: Page, project: Project, settings: ProjectSettings, checkpoint: str | None, *values: Any
) -> Start:
    """Return the command that exports the checkpoint, else a UserError; a full disk blocks it."""
    model = model_or_best(project, checkpoint)
    given = fields_from(ExportModel, FIELDS, values)
    [planned] = plan_stage(project, settings.with_fields("export", **given), "export").commands
    assert isinstance(planned, ExportModel)
    chosen = fields_of(project, model, None, page.roots)["checkpoint"]
    command = planned.model_copy(update={"checkpoint": chosen})
    facts = [(t("listen.checkpoint"), model.title)]
    facts.append((t("listen.vocabulary"), t("listen.pieces", pieces=model.meta.tokenizer_size)))
    size = None if command.format == "adapter" else weights_bytes(project, model, command)
    blockers = []
    if size is not None:
        facts.append((t("listen.weights"), shown_size(size)))
        free = shutil.disk_usage(project.root).free
        if size > free:
            blockers.append(Notice(t("listen.no_space", size=shown_size(size), free=shown_size(free))))
    facts.append((t("listen.folder"), str(command.output_dir)))
    before = _record(command.output_dir)
    if before is not None:
        facts.append((t("listen.replaces"), t("listen.step", step=before[0])))
    return Start([command], outlook=Outlook(facts, blockers))


def weights_bytes(project: Project, model: SavedModel, command: ExportModel) -> int | None:
    """Return the size of the exported weights; None if the config is missing."""
    try:
        config = config_with_text_tokens(load_config(project.config), model.meta.tokenizer_size)
    except UserError:
        return None
    size = model_size(config, base_size=model.meta.base_size)
    value_bytes = FLOAT32_BYTES if command.dtype == "float32" else HALF_BYTES
    num_files = 2 if command.format == "both" else 1
    return num_files * value_bytes * (size.gpt + size.encoders + size.tables)


def exported(project: Project) -> str:
    """Return the download of the export as one archive, and of each file, which are served in place."""
    found = {path: path.stat().st_size for path in exported_files(project.export)}
    if not found:
        return empty_html(t("listen.nothing_exported"))
    heads = [(t("listen.headers.file"), ""), (t("listen.headers.size"), "number")]
    rows = [
        (download_link(path, path.name, str(path.relative_to(project.export))), shown_size(size))
        for path, size in found.items()
    ]
    archive = escape(t("listen.download_zip", size=shown_size(sum(found.values()))))
    files = escape(t("listen.files", count=len(found)))
    return (
        f"<h3>{escape(_title(project.export))}</h3>"
        f'<p><a href="export/{project.root.name}.zip" download>{archive}</a></p>'
        f"<details><summary>{files}</summary>{table_html(heads, rows)}</details>"
    )


def _title(folder: Path) -> str:
    record = _record(folder)
    if record is None:
        return t("listen.exported_sometime")
    when = shown_time(folder.stat().st_mtime)
    return t("listen.exported", step=record[0], dtype=record[1], when=when)


def _record(folder: Path) -> tuple[int, str] | None:
    """Return step and number type of an export; None without a valid record."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return int(record["step"]), str(record["dtype"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def build_publishing(page: Page) -> None:
    """Build the form and the run panel; the log of a dry run shows all files and the card."""
    with columns() as (main, side):
        with main, fields():
            form = list(form_for(PublishModel, PUBLISHED).values())
            dry_run = component_for(PublishModel, "dry_run", True)
        with side:
            publish = partial(prepare_publishing, page)
            stage_panel(page, Stage("publish", "listen.publish", publish, [*form, dry_run]))


def prepare_publishing(page: Page, project: Project, _settings: ProjectSettings, *values: Any) -> Start:
    """Return the command that publishes the export; `values` are of PUBLISHED, then whether to run dry.

    Raises:
        UserError: nothing is exported, a field is invalid, or a path is outside the allowed folders.
    """
    given = fields_from(PublishModel, PUBLISHED, values[:-1])
    for name in PATHS:
        if name in given:
            given[name] = page.roots.inside(given[name], field_title(PublishModel, name))
    if not (project.export / RECORD).is_file():
        raise LinkedError(Notice(t("listen.nothing_exported"), "#listen/listen-export", kind="missing"))
    if not REPOSITORY_NAME.fullmatch(typed := given.get("repository", "")):
        kind: NoticeKind = "problem" if typed else "unfilled"
        raise LinkedError(Notice(t("listen.no_repository"), "#listen/PublishModel-repository", kind=kind))
    report = newest_report(project)
    scores = {} if report is None else {"evaluation": report}
    given |= {"model_folder": project.export, "run_dir": project.run_dir, "dry_run": bool(values[-1])}
    command = PublishModel(**scores, **given)
    facts = [
        (field_title(PublishModel, "repository"), command.repository),
        (field_title(PublishModel, "model_folder"), str(command.model_folder)),
        (field_title(PublishModel, "evaluation"), str(command.evaluation or "-")),
    ]
    note = Notice(t("listen.sends_nothing" if command.dry_run else "listen.hub_login"))
    return Start([command], outlook=Outlook(facts, notes=[note]))
