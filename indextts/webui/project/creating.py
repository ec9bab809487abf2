"""Base models and new projects in tab 1: published files with their download, and the form of a project."""

from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

import gradio as gr

from indextts.commands.bases import BASES, PROPOSED, Base
from indextts.commands.data import DownloadCheckpoints
from indextts.errors import UserError
from indextts.features.published_files import missing_bytes, table
from indextts.projects.names import folder_name, titled_projects
from indextts.projects.pipeline import copy_base_files
from indextts.projects.project import (
    DEMO,
    MAX_TITLE_CHARS,
    NAME_RULE,
    PUBLISHED,
    PUBLISHED_FOLDERS,
    TITLE_RULE,
    Project,
    ProjectSettings,
    is_folder_name,
    is_title,
    make_settings,
    project_names,
    read_settings,
)
from indextts.system.amounts import shown_size
from indextts.text.languages import AMHARIC, known_languages
from indextts.webui.events import on
from indextts.webui.forms import component_for, fields_from
from indextts.webui.language import t
from indextts.webui.layout import fields, fold, heading, labelled
from indextts.webui.markup import table_html
from indextts.webui.page import Page
from indextts.webui.running.outlook import Start
from indextts.webui.running.panel import Stage, stage_panel

DEMO_BASE = "demo"  # a choice of the base: the small model of the demo, which needs no download
OPEN_DATA = "() => { location.hash = 'data'; }"


def build(page: Page) -> None:
    """Build the form; it creates a project, selects it and opens tab 2."""
    published = [(t("project.published_model", name=base.title), base.folder) for base in bases()]
    published.append((t("project.demo_base"), DEMO_BASE))
    with fold(t("project.new"), "new-project"):
        heading("project.new", "project.new_lead", "new-heading")
        with fields():
            title = gr.Textbox(  # the style sheet asks whether the placeholder is shown
                **labelled("project.title", "new-title"), max_length=MAX_TITLE_CHARS, placeholder=" "
            )
            base = gr.Dropdown(published, **labelled("project.base_model", "new-base"), value=PROPOSED.folder)
            language = gr.Dropdown(
                language_choices(), **labelled("project.language", "new-language"), value=AMHARIC
            )
        with fold(t("project.more"), "new-more"), fields():
            folder = gr.Textbox(**labelled("project.folder", "new-folder"))
            other = gr.Textbox(**labelled("project.other_base", "new-other-base"))
        button = gr.Button(t("project.create"), elem_id="project-start")
    form: list[Any] = [title, base, language, folder, other]
    created = on([button.click], partial(create, page), form, [page.project])
    created.success(None, None, None, js=OPEN_DATA)


def language_choices() -> list[tuple[str, str]]:
    """Return all languages with their own names, Amharic first."""
    known = sorted(known_languages(), key=lambda language: language.code != AMHARIC)
    return [
        (each.name if each.name == each.autonym else f"{each.name} ({each.autonym})", each.code)
        for each in known
    ]


def create(
    page: Page, title: str, base_folder: str | None, language: str | None, folder: str, other_base: str
) -> gr.Dropdown:
    """Create a project and select it; a UserError for a value that is missing, wrong or taken.

    Args:
        base_folder: of a published model in the workspace, or DEMO_BASE; `other_base` replaces it.
        folder: "" derives it from the title.
    """
    title = " ".join(title.split())
    if not is_title(title):
        raise UserError(t(TITLE_RULE, max=MAX_TITLE_CHARS))
    name = folder.strip() or folder_name(title, page.workspace)
    _check_name(page, title, name)
    chosen, train = other_base.strip() or base_folder, {}
    if chosen == DEMO_BASE:
        demo = read_settings(DEMO)
        base, train = demo.base, demo.train  # the trainer's own settings suit large models
    else:
        base = page.roots.inside(chosen, t("project.base_model"))
    root = page.roots.inside(name, t("project.folder"))  # refuses a symlink that leads outside
    for published in BASES.values():
        files = ("config.yaml", published.tokenizer_file, "gpt.pth")
        is_chosen = base == page.workspace / published.folder
        if is_chosen and not all((base / file).is_file() for file in files):
            raise UserError(t("project.no_base", name=published.title))
    settings = make_settings(name=name, title=title, language=language, base=base, train=train)
    copy_base_files(Project(root), settings)
    return gr.Dropdown(choices=titled_projects(page.workspace), value=name)


def _check_name(page: Page, title: str, name: str) -> None:
    if not is_folder_name(name):
        raise UserError(t(NAME_RULE, name=repr(name)))
    if name in PUBLISHED_FOLDERS:
        raise UserError(t("project.reserved", folder=name))
    if name in project_names(page.workspace):
        raise UserError(t("project.name_taken", name=name))
    if title in [shown for shown, _ in titled_projects(page.workspace)]:
        raise UserError(t("project.name_taken", name=title))


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


def build_base(page: Page) -> None:
    line = gr.HTML(elem_id="base-model")
    with fold(t("project.published_files"), "published"):
        base = component_for(DownloadCheckpoints, "base", PROPOSED.name)
        what = component_for(DownloadCheckpoints, "what")
        stage = Stage(
            "download",
            "project.download",
            download,
            [base, what],
            home_of=lambda _chosen: Project(page.workspace / PUBLISHED),
        )
        stage_panel(page, stage)
        published = gr.HTML(elem_id="published-files")
    page.watch(lambda _project: summary_html(page), lambda _project: summary_html(page), [line])

    def published_html(_project: Project) -> str:
        title = t("project.published_in", folder=page.workspace)
        return _table(title, ("base_model", "state", "file", "size", "purpose"), published_rows(page))

    # the rows are cheap enough to be their own version
    page.watch(lambda _project: str(published_rows(page)), published_html, [published])


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = ([escape(cell) for cell in row] for row in rows)
    return f"<h3>{escape(title)}</h3>{table_html([(t(f'project.{head}'), '') for head in heads], cells)}"


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
            size, id = (
                shown_size(missing_bytes(folder, base)),
                "project.some_files" if present else "project.no_files",
            )
            text = t(id, name=base.title, present=present, total=len(rows), size=size)
        lines.append(f'<p class="lead">{escape(text)}</p>')
    lines.append(f'<p class="lead">{escape(t("project.demo_needs_none"))}</p>')
    return f"<h3>{escape(t('project.published_models'))}</h3>{''.join(lines)}"


def published_rows(page: Page) -> list[list[str]]:
    return [
        [base.title, t(STATES[state]) if state in STATES else state, place, size, t(PURPOSES[purpose])]
        for base in bases()
        for purpose, place, size, state in table(page.workspace / base.folder, base)
    ]


def download(home: Project, _settings: ProjectSettings, *values: Any) -> Start:
    fields = fields_from(DownloadCheckpoints, ("base", "what"), values)
    folder = home.root.parent / BASES[fields["base"]].folder
    return Start([DownloadCheckpoints(output_dir=folder, **fields)])
