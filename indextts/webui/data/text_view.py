"""Text part of the check in tab 2: forms that need a reading, and texts with two right readings.

Everything comes from texts.json of the last check (indextts/data/text_report.py). "Add a reading" opens the
editor of tab 3 with the form.
"""

import html
from collections.abc import Mapping
from typing import Any

import gradio as gr

from indextts.commands.data import ExtendTokenizer
from indextts.data.review import check_folder
from indextts.data.text_report import (
    TEXTS_NAME,
    AmbiguousOption,
    LeftoverForm,
    TextReport,
    read_text_report,
    use_heard_readings,
)
from indextts.projects.project import Project
from indextts.projects.readings import read_readings
from indextts.text.ambiguity import OPTION_VALUES
from indextts.webui.events import on
from indextts.webui.language import field_title, shown_hours, t
from indextts.webui.markup import link_html, remark_html, sent, table_html
from indextts.webui.page import SEND_CLICKS, Page, shared_choice, stamped
from indextts.webui.view_versions import files_version

EDITOR = "#tokenizer/reading-editor"
OPTIONS = "#tokenizer/normalizer"
MAX_FORMS_SHOWN = 50
MAX_CLIPS_SHOWN = 3
MAX_FORM_CHARS = 200
HEADERS = {"form": "", "kind": "", "texts": "number", "hours": "number", "examples": "wide-only"}

# A click on a link sends its form to the editor of tab 3, which the link opens. A click on a button sends an
# option, whose texts are corrected.


def build(page: Page) -> None:
    wanted = shared_choice(page, "reading")
    report = gr.HTML(elem_id="check-texts", js_on_load=SEND_CLICKS)

    def choose(project: Project, event: gr.SelectData) -> Any:
        form, option = (str(value)[:MAX_FORM_CHARS] for value in [*event.row_value, "", ""][:2])
        if form:
            return stamped(form), gr.skip()
        return gr.skip(), texts_html(project, {option: use_heard(project, option)})

    on([report.select], choose, [page.project], [wanted, report], each=True)

    def version(project: Project) -> str:
        return files_version(check_folder(project.manifest) / TEXTS_NAME, project.readings)

    page.watch(version, texts_html, [report])


def use_heard(project: Project, option: str) -> str:
    """Correct the texts of an option by what was heard; return the note about it."""
    report = read_text_report(check_folder(project.manifest))
    found = [row for row in report.ambiguities if row.option == option] if report else []
    count = sum(use_heard_readings(project.manifest, row) for row in found)
    return t("texts.corrected", count=f"{count:,}")


def texts_html(project: Project, notes: Mapping[str, str] | None = None) -> str:
    """Return the report, "" without a check; `notes`, by option, replace the buttons that correct texts."""
    report = read_text_report(check_folder(project.manifest))
    if report is None:
        return ""
    return f"{_leftovers_html(project, report)}{_ambiguities_html(report, notes or {})}"


def _leftovers_html(project: Project, report: TextReport) -> str:
    title = f"<h2>{html.escape(t('texts.leftovers'))}</h2>"
    if not report.leftovers:
        return f"{title}<p>{html.escape(t('texts.no_leftovers'))}</p>"
    have_readings = {row.written for row in read_readings(project)}
    rows = (
        _form_cells(row, has_reading=not have_readings.isdisjoint((row.form, row.form.lower())))
        for row in report.leftovers[:MAX_FORMS_SHOWN]
    )
    num_more = report.num_leftovers - min(MAX_FORMS_SHOWN, len(report.leftovers))
    more = remark_html(t("texts.more", count=f"{num_more:,}") if num_more else "")
    heads = [*((t(f"texts.headers.{name}"), css) for name, css in HEADERS.items()), ("", "number")]
    lead = f'<p class="lead">{html.escape(t("texts.leftovers_lead"))}</p>'
    return f"{title}{lead}{table_html(heads, rows, 'texts')}{more}"


def _form_cells(row: LeftoverForm, *, has_reading: bool) -> list[str]:
    if has_reading:  # since the check
        action = html.escape(t("texts.has_reading"))
    else:
        action = link_html(EDITOR, t("texts.add_reading"), more=f"{sent(row.form)} ")
    example = html.escape(" ".join(row.examples[0].split())[:80]) if row.examples else ""
    kind, hours = t(f"texts.kind.{row.kind}"), shown_hours(3600 * row.hours)
    form = f"<b>{html.escape(row.form)}</b>"
    return [form, html.escape(kind), f"{row.count:,}", html.escape(hours), example, action]


def _ambiguities_html(report: TextReport, notes: Mapping[str, str]) -> str:
    title = f"<h2>{html.escape(t('texts.ambiguous'))}</h2>"
    if not report.ambiguities:
        return f"{title}<p>{html.escape(t('texts.no_ambiguous'))}</p>"
    return (
        f'{title}<p class="lead">{html.escape(t("texts.ambiguous_lead"))}</p>'
        f"{''.join(_option_html(found, notes.get(found.option, '')) for found in report.ambiguities)}"
    )


def _option_html(found: AmbiguousOption, note: str) -> str:
    other = next(value for value in OPTION_VALUES[found.option] if value != found.value)
    values: dict[str, Any] = {"count": f"{found.count:,}", "hours": shown_hours(3600 * found.hours)}
    summary = t("texts.option", value=found.value, **values)
    heard = ""
    if any(found.num_heard):
        now, others = (f"{count:,}" for count in found.num_heard)
        text = t("texts.heard", value=found.value, now=now, other=other, others=others)
        button = (
            f'<button type="button" class="correct-texts" {sent("", found.option)}>'
            f"{html.escape(t('texts.use_heard'))}</button>"
        )
        action = html.escape(note) or (button if found.num_heard[1] else "")
        heard = f"<p>{html.escape(text)} {action}</p>"
    rows = [
        [html.escape(cell) for cell in (clip.text, *clip.words)] for clip in found.clips[:MAX_CLIPS_SHOWN]
    ]
    heads = [(t("data.headers.text"), ""), (found.value, ""), (other, "")]
    return (
        f"<h3>{html.escape(field_title(ExtendTokenizer, found.option))}</h3>"
        f"<p>{html.escape(summary)} {link_html(OPTIONS, t('texts.open_options'))}</p>{heard}"
        f"{table_html(heads, rows, 'texts')}"
    )
