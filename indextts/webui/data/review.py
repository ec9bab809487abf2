"""Review section of tab 2: the quality check of imported data, and the manual review.

Every event reads the disk again (review_rows.py). Decisions are appended to the project's review.jsonl
(indextts/data/review.py); the section writes nothing else.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import gradio as gr
import soundfile
from gradio.components import Component

from indextts.commands.base import Command
from indextts.commands.data import CheckData
from indextts.commands.quality_limits import QualityLimits
from indextts.data.review import Decision, add_decision, check_folder, review_file, undo
from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_check
from indextts.webui.data.review_rows import (
    ALL,
    MAX_TEXT_CHARS,
    ROWS_PER_PAGE,
    Row,
    checked_text,
    read_review,
)
from indextts.webui.events import on, then
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import file_address
from indextts.webui.view_versions import files_version, job_version

STAGES = ("data", "check")
LIMITS = tuple(QualityLimits.model_fields)
HEADERS = [
    "data.headers.clip",
    "data.headers.speaker",
    "data.headers.seconds",
    "data.headers.verdict",
    "data.headers.flags",
    "data.headers.text",
]
WIDTHS: list[str | int] = ["14%", "12%", "8%", "12%", "18%", "36%"]

NOT_CHECKED = "data.not_checked"
NO_FLAG = NO_CLIP = "data.none"
MANIFEST_TEXT = "data.manifest_text"
CLIPS_SHOWN = "data.clips_shown"
OUTSIDE = "data.clip_outside"
UNREADABLE = "data.clip_unreadable"
EDITED = "data.edited"
NOTHING_DECIDED = "data.nothing_decided"
HISTOGRAMS = "data.histograms"


def build(page: Page) -> None:
    """Build check and review."""
    gr.Markdown(t("data.check_heading"))
    with gr.Accordion(t("data.limits"), open=False, elem_id="check-limits"):
        limits = list(form_for(CheckData, LIMITS).values())
    stage_panel(page, Stage("check", t("data.check"), check_commands, limits))
    report = gr.Textbox(
        label=t("data.report"), lines=16, max_lines=16, interactive=False, elem_id="check-report"
    )
    histograms = gr.HTML(elem_id="check-histograms")
    gr.Markdown(t("data.review"))
    with gr.Row():
        flag = gr.Dropdown([ALL], value=ALL, label=t("data.show"), elem_id="review-filter")
        number = gr.Number(1, precision=0, minimum=1, label=t("data.page"), elem_id="review-page")
        count = gr.Textbox(label=t("data.clips"), interactive=False, elem_id="review-count")
    table = gr.Dataframe(
        headers=list(map(t, HEADERS)),
        datatype="str",
        interactive=False,
        wrap=True,
        max_height=420,
        column_widths=WIDTHS,
        elem_id="review-table",
    )
    editor = _Editor()

    page.watch(version, lambda name: show_report(page, name), [report, histograms])
    shown, choice = [flag, number, count, table], [page.project, flag, number]
    page.watch(clips_version, lambda *values: show_page_if_idle(page, *values), shown, [flag, number])
    # A click must not be dropped because a timer tick is being answered.
    on([number.change], lambda *values: show_page(page, *values), choice, shown, latest=True)
    on(
        [flag.input],
        lambda name, flag: show_page(page, name, flag, 1),
        [page.project, flag],
        shown,
        latest=True,
    )

    def select(name: str, event: gr.SelectData) -> list[Any]:
        return _Editor.show(page, name, str(event.row_value[0]))

    on([table.select], select, [page.project], editor.outputs, each=True)
    # Another project may have a clip of the same name.
    on([page.project.change], lambda: ["", "", "", None, ""], [], editor.outputs)
    clip = [page.project, editor.clip]
    decided = [
        on([editor.save.click], lambda *v: save_text(page, *v), [*clip, editor.text], editor.outputs),
        on([editor.undo.click], lambda name: undo_last(page, name), [page.project], editor.outputs),
    ]
    verdicts: list[tuple[gr.Button, Literal["keep", "reject"] | None]] = [
        (editor.keep, "keep"),
        (editor.reject, "reject"),
        (editor.as_checked, None),
    ]
    for button, verdict in verdicts:
        handler = _decider(page, verdict)
        decided.append(on([button.click], handler, clip, editor.outputs))
    for event in decided:
        then(event, lambda *values: show_page(page, *values), choice, shown)


def version(project: Project) -> str:
    """Return a version that changes when an import or a check starts or ends."""
    return " ".join(job_version(project, stage) for stage in STAGES)


def clips_version(project: Project) -> str:
    """Return a version that changes with the import, the check and every decision."""
    return f"{version(project)} {files_version(review_file(project.manifest))}"


class _Editor:
    """Components of the clip editor."""

    def __init__(self) -> None:
        with gr.Row():
            self.clip = gr.Textbox(label=t("data.clip"), interactive=False, elem_id="review-clip")
            self.verdict = gr.Textbox(label=t("data.verdict"), interactive=False, elem_id="review-verdict")
        self.flags = gr.Textbox(label=t("data.flags"), interactive=False, lines=2, elem_id="review-flags")
        self.player = gr.Audio(interactive=False, buttons=["download"], elem_id="review-player")
        self.text = gr.Textbox(
            label=t("data.text"), lines=2, max_length=MAX_TEXT_CHARS, elem_id="review-text", interactive=True
        )
        with gr.Row():
            self.save = gr.Button(t("data.save_text"), elem_id="review-save")
            self.keep = gr.Button(t("data.keep"), elem_id="review-keep")
            self.reject = gr.Button(t("data.reject"), elem_id="review-reject")
            self.as_checked = gr.Button(t("data.reset_verdict"), elem_id="review-as-checked")
            self.undo = gr.Button(t("data.undo"), elem_id="review-undo")

    @property
    def outputs(self) -> list[Component]:
        return [self.clip, self.verdict, self.flags, self.player, self.text]

    @staticmethod
    def show(page: Page, name: str, id: str, play: bool = True) -> list[Any]:
        """Return the values of the editor for a clip; the player may stay unchanged."""
        project = page.find_project(name)
        row = read_review(project).find(id)
        flag_lines = "\n".join(flag.description for flag in row.flags) or t(NO_FLAG)
        if row.utterance.text != row.original_text:
            flag_lines += "\n" + t(MANIFEST_TEXT, text=row.original_text)
        player = _player(project, row) if play else gr.skip()
        return [row.utterance.id, t(row.verdict), flag_lines, player, row.utterance.text]


def check_commands(project: Project, settings: ProjectSettings, *values: Any) -> Sequence[Command]:
    """Return the check command of a project with the limits of the form."""
    planned = plan_check(project, settings)
    fields = fields_from(CheckData, LIMITS, values)
    changed = {name: value for name, value in fields.items() if value != CheckData.model_fields[name].default}
    return [CheckData(**{**planned.model_dump(), **changed})]


def show_report(page: Page, name: str) -> Any:
    """Return the report and the histograms of the newest check."""
    project = page.find_project(name)
    if _is_busy(project):
        return gr.skip(), gr.skip()
    folder = check_folder(project.manifest)
    try:
        report = (folder / "report.txt").read_text(encoding="utf-8")
    except OSError:
        return t(NOT_CHECKED), ""
    return report, _picture(folder / "histograms.png")


def show_page_if_idle(page: Page, name: str, flag: str | None, number: float | None) -> list[Any]:
    """Return `show_page`, or no change while an import or a check runs."""
    if _is_busy(page.find_project(name)):
        return [gr.skip()] * 4
    return show_page(page, name, flag, number)


def show_page(page: Page, name: str, flag: str | None, number: float | None) -> list[Any]:
    """Return one page of the table, and the filters."""
    review = read_review(page.find_project(name))
    choices = review.filters()
    flag = flag if flag in [value for _, value in choices] else ALL
    rows = review.chosen(flag or ALL)
    num_pages = max(1, -(-len(rows) // ROWS_PER_PAGE))
    place = min(max(1, int(number or 1)), num_pages)
    first = (place - 1) * ROWS_PER_PAGE
    values = [_cells(row) for row in rows[first : first + ROWS_PER_PAGE]]
    numbers = {"first": first + 1, "last": first + len(values), "count": len(rows)}
    clips_shown = t(CLIPS_SHOWN, **numbers) if values else t(NO_CLIP)
    number_update = gr.skip() if place == number else place
    return [gr.Dropdown(choices=choices, value=flag), number_update, clips_shown, values]


def save_text(page: Page, name: str, id: str, typed: str) -> list[Any]:
    """Store a text for a clip; the text of the manifest removes the stored one."""
    project, row = _find(page, name, id)
    text = checked_text(typed)
    _decide(project, row, text=None if text == row.original_text else text)
    return _Editor.show(page, name, id, play=False)


def undo_last(page: Page, name: str) -> list[Any]:
    """Undo the last decision and show its clip."""
    project = page.find_project(name)
    undone = undo(project.manifest)
    if undone is None:
        raise UserError(t(NOTHING_DECIDED))
    return _Editor.show(page, name, undone.id)


def _decider(page: Page, verdict: Literal["keep", "reject"] | None) -> Any:
    def decide(name: str, id: str) -> list[Any]:
        project, row = _find(page, name, id)
        _decide(project, row, verdict=verdict)
        return _Editor.show(page, name, id, play=False)

    return decide


def _decide(project: Project, row: Row, **changed: Any) -> None:
    """Append the changed decision of a clip; do nothing if nothing changed."""
    before = row.decision or Decision(id=row.utterance.id)
    after = before.model_copy(update=changed)
    if after != before:
        add_decision(project.manifest, after)


def _find(page: Page, name: str, id: str) -> tuple[Project, Row]:
    project = page.find_project(name)
    return project, read_review(project).find(id)


def _player(project: Project, row: Row) -> gr.Audio:
    """Return a player with the clip's samples: a path would be copied to where Gradio serves files from.

    A recording outside the project is never played, because the page may be public.
    """
    label = f"{row.utterance.speaker}: {row.utterance.id}"
    audio = row.utterance.audio.resolve()
    if not audio.is_relative_to(project.root.resolve()):
        return gr.Audio(value=None, label=t(OUTSIDE, clip=label))
    try:
        samples, sample_rate_hz = soundfile.read(audio, dtype="int16")
    except (OSError, soundfile.LibsndfileError):
        return gr.Audio(value=None, label=t(UNREADABLE, clip=label))
    return gr.Audio(value=(sample_rate_hz, samples), label=label)


def _cells(row: Row) -> list[str]:
    utterance = row.utterance
    flags = ", ".join(flag.reason for flag in row.flags)
    return [
        utterance.id,
        utterance.speaker,
        f"{utterance.duration_s:.2f}",
        t(row.verdict),
        flags,
        utterance.text if utterance.text == row.original_text else t(EDITED, text=utterance.text),
    ]


def _picture(path: Path) -> str:
    """Return the picture as HTML; the modification time in its URL makes browsers load a new version."""
    if not path.is_file():
        return ""
    return f'<img alt="{html.escape(t(HISTOGRAMS))}" style="max-width: 100%" src="{file_address(path)}">'


def _is_busy(project: Project) -> bool:
    jobs = [newest_job(project, stage) for stage in STAGES]
    return any(job is not None and job.is_active for job in jobs)
