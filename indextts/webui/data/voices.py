"""Groups of clips with similar voices: a table with samples to play, and a form to name the speakers."""

from html import escape
from typing import Any

import gradio as gr

from indextts.data.importing.voices import RECORD_NAME, TABLE_NAME, VoiceRow, read_rows, rename_voice
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.data.review_list import playable
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.layout import fields
from indextts.webui.markup import sound_html, table_html
from indextts.webui.page import Page
from indextts.webui.serving.security import file_address
from indextts.webui.view_versions import files_version

MAX_ROWS = 50  # those with the most clips
HEADS = (
    ("data.voices.voice", ""),
    ("data.voices.name", ""),
    ("data.voices.clips", "number"),
    ("data.voices.minutes", "number"),
    ("data.voices.closest", ""),
    ("data.voices.listen", ""),
)


def build(page: Page) -> None:
    """Build the table and the form below it; both are hidden without groups of voices."""
    with gr.Column(visible=False, elem_id="voices") as section:
        table = gr.HTML(elem_id="voices-table")
        with fields("voices-fields"):
            voice = gr.Dropdown([], label=t("data.voices.voice"), elem_id="voices-voice")
            name = gr.Textbox(label=t("data.voices.name"), max_length=64, elem_id="voices-name")
        button = gr.Button(t("data.voices.rename"), size="sm", elem_id="voices-rename")
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
    """Return a version that changes with the groups and their names."""
    return files_version(project.dataset / RECORD_NAME, project.dataset / TABLE_NAME)


def voices_html(project: Project, rows: list[VoiceRow]) -> str:
    """Return the groups with most clips as a table, with a typical and the farthest clip of each."""
    if not rows:
        return ""
    rows_html = [_row(project, row) for row in rows[:MAX_ROWS]]
    more = t("data.voices.more", count=len(rows) - MAX_ROWS) if len(rows) > MAX_ROWS else ""
    return (
        f"<h3>{escape(t('data.voices.heading'))}</h3><p>{escape(t('data.voices.lead'))}</p>"
        f"{table_html([(t(id), css) for id, css in HEADS], rows_html, 'voices')}"
        f'<p class="remark">{escape(more)}</p>'
    )


def _row(project: Project, row: VoiceRow) -> list[str]:
    closest = f"{row.closest} ({row.distance:.2f})" if row.closest and row.distance is not None else ""
    files = (project.dataset / file for file in (row.sample_1, row.farthest) if file)
    players = "".join(sound_html(file_address(path)) for file in files if (path := playable(project, file)))
    cells = [row.voice, row.speaker, f"{row.clips:,}", f"{row.minutes:.1f}", closest]
    return [*map(escape, cells), players]
