"""Readings section of tab 3: the table of readings, an editor for a row, and a line to try it out.

The table is the project's readings.tsv (indextts/projects/readings.py); a saved row is at once in the file
and in the tokenizer. Other tabs share a written form that needs a reading (`page.shared["reading"]`).
"""

import html
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.normalizer_options import NormalizerOptions, Reading
from indextts.data.review import overlay_files, read_reviewed_texts
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, read_project
from indextts.projects.readings import read_readings, store_readings
from indextts.text.characters import clean_characters
from indextts.text.normalize import explain, normalize
from indextts.text.readings import (
    MAX_FORM_CHARS,
    ReadingRow,
    find_duplicate,
    parse_row,
    reading_changes,
    readings_for,
    used_readings,
)
from indextts.webui import markup
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.layout import fields, heading, labelled
from indextts.webui.markup import empty_html, remark_html, sent
from indextts.webui.page import SEND_CLICKS, Page
from indextts.webui.view_versions import files_version, is_running, job_version, once

EXAMPLE = "የዶ/ር ሀ/ማርያም 12ኛ መጽሐፍ በBBC ቀረበ።"
MAX_TRIED_CHARS = 2_000
NO_ROW = ""  # the editor has a new row
_STORING = threading.Lock()  # two browsers change the table one after the other

SHOW_EDITOR = """() => document.getElementById("reading-editor")?.scrollIntoView({ block: "center" })"""


def build(page: Page) -> None:
    heading("readings.heading", "readings.lead", id="readings-heading")
    table = gr.HTML(elem_id="readings-table", js_on_load=SEND_CLICKS)
    chosen = gr.Textbox(visible="hidden", container=False, show_label=False, elem_id="reading-chosen")
    with fields("reading-editor"):
        written, spoken = (
            gr.Textbox(**labelled(f"readings.headers.{name}", f"reading-{name}"), max_length=MAX_FORM_CHARS)
            for name in ("written", "spoken")
        )
        matches = [(t(f"readings.match.{match}"), match) for match in MATCHES]
        match = gr.Dropdown(matches, **labelled("readings.headers.match", "reading-match"), value="word")
        language = gr.Textbox(**labelled("readings.headers.language", "reading-language"), max_length=20)
    with gr.Row(elem_classes="reading-buttons"):
        save = gr.Button(t("readings.save"), elem_id="reading-save")
        remove = gr.Button(t("readings.remove"), interactive=False, elem_id="reading-remove")
        clear = gr.Button(t("readings.clear"), elem_id="reading-clear", elem_classes="quiet")
    note = gr.HTML(elem_id="reading-note")
    tried = gr.Textbox(
        EXAMPLE, **labelled("readings.try", "reading-try"), max_length=MAX_TRIED_CHARS, interactive=True
    )
    result = gr.HTML(elem_id="reading-result")
    editor = [chosen, written, spoken, match, language, remove]
    typed = [page.project, chosen, written, spoken, match, language]

    page.watch(readings_version, shown_table, [table], [chosen])
    # Another project has no such row. The texts stay: at a slow start, they may have been typed before this.
    page.watch(once, lambda _project: [NO_ROW, gr.Button(interactive=False)], [chosen, remove])

    def select(project: Project, event: gr.SelectData) -> list[Any]:
        return show_row(project, str(event.row_value[0]))

    on([table.select], select, [page.project], editor, each=True)
    on([clear.click], lambda: [*empty_editor(), ""], [], [*editor, note])
    saved = on([save.click], save_row, typed, [*editor, note])
    removed = on([remove.click], remove_row, [page.project, chosen], [*editor, note])
    for event in (saved, removed):
        on((), shown_table, [page.project, chosen], [table], after=event, latest=True)
    page.watch(
        readings_version,
        try_row,
        [result],
        [tried, *typed[1:]],
        also=[component.change for component in (tried, written, spoken, match, language)],
    )
    wanted = page.shared["reading"]
    event = on([wanted.change], want, [wanted], editor, latest=True)
    event.then(None, None, None, js=SHOW_EDITOR)


def readings_version(project: Project) -> str:
    files = (project.readings, project.manifest, *overlay_files(project.manifest))
    return f"{files_version(*files)} {job_version(project, 'tokenizer')}"


def shown_table(project: Project, chosen: str) -> str:
    return table_html(project, read_project(project), chosen)


def empty_editor(written: str = "") -> list[Any]:
    return [NO_ROW, written, "", "word", "", gr.Button(interactive=False)]


def want(stamped_form: str) -> list[Any]:
    """Return the values of the editor for a written form that another tab shares."""
    return empty_editor(stamped_form.partition(" ")[2][:MAX_FORM_CHARS])


def show_row(project: Project, chosen: str) -> list[Any]:
    for row in read_readings(project):
        if row.key == chosen:
            return [chosen, row.written, row.spoken, row.match, row.language, gr.Button(interactive=True)]
    return empty_editor()


def save_row(project: Project, chosen: str, *cells: str) -> list[Any]:
    """Store the row of the editor, in place of the chosen one."""
    with _STORING:
        before = read_readings(project)
        rows = _with_row(before, chosen, cells)
        if twice := find_duplicate(rows):
            raise UserError(t("readings.duplicate", written=rows[twice[1]].written))
        refuse_while_building(project)
        store_readings(project, rows)
    return [*empty_editor(), _changed(project, before, rows)]


def remove_row(project: Project, chosen: str) -> list[Any]:
    with _STORING:
        before = read_readings(project)
        rows = [row for row in before if row.key != chosen]
        refuse_while_building(project)
        store_readings(project, rows)
    return [*empty_editor(), _changed(project, before, rows)]


def try_row(project: Project, text: str, chosen: str, *cells: str) -> str:
    """Return the spoken form of a text with the saved rows and that of the editor, if it is complete."""
    try:
        rows: Sequence[ReadingRow] = read_readings(project)
        if all(cells[:2]):
            rows = _with_row(rows, chosen, cells)
    except UserError as error:
        return f'<p class="empty">{html.escape(str(error))}</p>'
    return try_html(read_project(project), rows, text[:MAX_TRIED_CHARS])


def _with_row(rows: Sequence[ReadingRow], chosen: str, cells: Sequence[str]) -> list[ReadingRow]:
    """Return the rows with that of the editor, in place of a chosen one; a UserError for a bad cell."""
    try:
        row = parse_row(cells)
    except ValueError as error:
        raise UserError(str(error)) from None
    if not chosen:
        return [*rows, row]
    if all(other.key != chosen for other in rows):
        raise UserError(t("readings.gone"))
    return [row if other.key == chosen else other for other in rows]


def refuse_while_building(project: Project) -> None:
    """Raise a UserError while a job builds the tokenizer, with the readings and options of its start."""
    if is_running(project, "tokenizer"):
        raise UserError(t("readings.tokenizer_runs"))


def _changed(project: Project, before: Sequence[ReadingRow], now: Sequence[ReadingRow]) -> str:
    """Return how many texts the stored rows change, and what carries them."""
    language = read_project(project).language
    old, new = readings_for(before, language), readings_for(now, language)
    texts = read_reviewed_texts(project.manifest) if project.manifest.is_file() else []
    count = sum(reading_changes(text, old, new) for text in texts)
    where = "readings.in_tokenizer" if project.tokenizer.is_file() else "readings.in_table"
    return f"<p>{t('readings.saved', count=f'{count:,}', total=f'{len(texts):,}')} {t(where)}</p>"


NUM_EXAMPLES = 3
MAX_ROWS_SHOWN = 300
EXAMPLE_CHARS = 30  # on each side of the written form
MATCHES = ("word", "prefix", "number")
WIDE = {"match": "wide-only", "language": "wide-only"}
HEADERS = {"written": "", "spoken": "", **WIDE, "texts": "number", "examples": "examples"}


@dataclass(frozen=True)
class Usage:
    num_texts: int
    examples: tuple[str, ...]


def usage_of(project: Project, readings: Sequence[Reading]) -> dict[Reading, Usage]:
    """Return the usage of each reading in the texts of a project; unused ones are absent."""
    files = (project.manifest, *overlay_files(project.manifest))
    if not project.manifest.is_file() or not readings:
        return {}
    return _usage(project.manifest, files_version(*files), tuple(readings))


@lru_cache(maxsize=4)  # a second for 20,000 texts
def _usage(manifest: Path, _version: str, readings: tuple[Reading, ...]) -> dict[Reading, Usage]:
    counts: dict[Reading, int] = {}
    examples: dict[Reading, list[str]] = {}
    for text in read_reviewed_texts(manifest):
        for reading in dict.fromkeys(used_readings(clean_characters(text), readings)):
            counts[reading] = counts.get(reading, 0) + 1
            if len(shown := examples.setdefault(reading, [])) < NUM_EXAMPLES and text not in shown:
                shown.append(text)
    return {reading: Usage(count, tuple(examples[reading])) for reading, count in counts.items()}


def table_html(project: Project, settings: ProjectSettings, chosen: str = "") -> str:
    """Return the table, or why there is none; `chosen` is the key of the row in the editor."""
    try:
        rows = read_readings(project)
    except UserError as error:
        return f'<p class="empty bad">{html.escape(str(error))}</p>'
    if not rows:
        return empty_html(t("readings.none"))
    usage = usage_of(project, readings_for(rows, settings.language))
    shown = rows[:MAX_ROWS_SHOWN]
    clicks = (f'{sent(row.key)} tabindex="0" class="{"chosen" * (row.key == chosen)}"' for row in shown)
    cells = (_cells(row, usage.get(row.reading)) for row in shown)
    num_more = len(rows) - MAX_ROWS_SHOWN
    more = remark_html(t("readings.more", count=num_more) if num_more > 0 else "")
    heads = [(t(f"readings.headers.{name}"), css) for name, css in HEADERS.items()]
    return markup.table_html(heads, cells, "readings", clicks) + more


def _cells(row: ReadingRow, usage: Usage | None) -> list[str]:
    examples = (
        "".join(f"<span>{_example(text, row.written)}</span>" for text in usage.examples) if usage else ""
    )
    match, count = html.escape(t(f"readings.match.{row.match}")), usage.num_texts if usage else 0
    written, spoken, language = map(html.escape, (row.written, row.spoken, row.language))
    return [f"<b>{written}</b>", spoken, match, language, f"{count:,}", f"{examples}"]


def _example(text: str, written: str) -> str:
    """Return the part of a text around a written form, with the form in bold where it is found."""
    text = " ".join(text.split())
    place = text.find(written)
    if place < 0:  # of a pattern with a number
        return html.escape(text[: 2 * EXAMPLE_CHARS]) + ("…" if len(text) > 2 * EXAMPLE_CHARS else "")
    start, end = max(0, place - EXAMPLE_CHARS), place + len(written) + EXAMPLE_CHARS
    before, after = text[start:place], text[place + len(written) : end]
    return (
        f"{'…' if start else ''}{html.escape(before)}<b>{html.escape(written)}</b>{html.escape(after)}"
        f"{'…' if end < len(text) else ''}"
    )


def try_html(settings: ProjectSettings, rows: Sequence[ReadingRow], text: str) -> str:
    """Return the spoken form of a text and the changes that lead to it."""
    readings = readings_for(rows, settings.language)
    options = NormalizerOptions(**settings.normalizer, language=settings.language, readings=readings)
    own = t("readings.heading")
    changes = "".join(
        f"<tr><td>{html.escape(own if change.rule == 'readings' else change.rule)}</td>"
        f"<td>{html.escape(change.before)}</td>"
        f"<td>{html.escape(change.after)}</td></tr>"
        for change in explain(text, options)
        if change.before.strip() or change.after.strip()
    )
    spoken = (
        f"<p><b>{html.escape(t('tokenizer.spoken_form'))}</b>: {html.escape(normalize(text, options))}</p>"
    )
    return f'{spoken}<table class="list changes"><tbody>{changes}</tbody></table>' if changes else spoken
