"""Tab 2: import recordings, transcribe those without texts, check and review them, each in its own tab."""

from collections.abc import Callable
from functools import partial

import gradio as gr

from indextts.projects.project import Project
from indextts.webui.data import check_view, review, transcribe_view, voices
from indextts.webui.data.import_form import import_commands, import_form, store_settings
from indextts.webui.data.import_outlook import import_outlook, invalid_import, outlook_version
from indextts.webui.language import shown_hours, t
from indextts.webui.layout import columns
from indextts.webui.markup import Tile, empty_html, tiles_html
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import files_version, job_version, utterances_of

ONWARD = {
    "finished": ("#tokenizer", "data.open_tokenizer"),
    "failed": ("#data/data-tab-check", "data.open_report"),
}


def build(page: Page) -> None:
    with gr.Tabs(elem_classes="sub-tabs", elem_id="data-tabs"):
        for id, section in SECTIONS.items():
            with gr.Tab(t(f"data.tab_{id}"), id=id, elem_id=f"data-tab-{id}", render_children=True):
                section(page)


def build_import(page: Page) -> None:
    with columns() as (main, side):
        with main:
            numbers = gr.HTML(elem_id="data-numbers")
            form = import_form(page)
            voices.build(page)
        with side:
            stage = Stage(
                "data",
                "data.import_and_check",
                partial(import_commands, page),
                form.inputs,
                outlook=lambda project, _settings, planned: import_outlook(project, planned),
                invalid=invalid_import,
                outlook_version=outlook_version,
                onward=ONWARD,
                store_settings=store_settings,
                filled_for=form.filled_for,
                also_changes=[form.uploads],
            )
            stage_panel(page, stage)

    def version(project: Project) -> str:
        return f"{job_version(project, 'data')} {files_version(project.manifest)}"

    page.watch(version, numbers_html, [numbers])


def numbers_html(project: Project) -> str:
    """Return the imported data as tiles."""
    if not project.manifest.is_file():
        return empty_html(f"{t('data.nothing_imported')} {t('data.import_lead')}")
    durations = sorted(utterance.duration_s for utterance in utterances_of(project.manifest))
    speakers = {utterance.speaker for utterance in utterances_of(project.manifest)}
    median = t("data.tiles.median", seconds=durations[len(durations) // 2]) if durations else ""
    return tiles_html(
        [
            Tile(t("data.tiles.utterances"), f"{len(durations):,}"),
            Tile(t("data.tiles.duration"), shown_hours(sum(durations)), median),
            Tile(t("data.tiles.speakers"), f"{len(speakers):,}"),
        ]
    )


SECTIONS: dict[str, Callable[[Page], None]] = {
    "import": build_import,
    "transcribe": transcribe_view.build,
    "check": check_view.build,
    "review": review.build,
}
