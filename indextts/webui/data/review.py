"""Review section of tab 2: listen to clips, correct their texts, keep or reject them.

Every event reads the disk again (review_rows.py). Decisions are appended to the project's review.jsonl
(indextts/data/review.py); the section writes nothing else.
"""

import html
from typing import Any, Literal

import gradio as gr

from indextts.data.review import Decision, add_decision, review_file, undo
from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project
from indextts.webui.data.review_list import LISTEN, PLAYER, clip_html, list_html
from indextts.webui.data.review_rows import (
    ALL,
    MAX_TEXT_CHARS,
    ROWS_PER_PAGE,
    Row,
    checked_text,
    read_review,
)
from indextts.webui.events import on, then
from indextts.webui.language import t
from indextts.webui.layout import columns
from indextts.webui.markup import empty_html
from indextts.webui.page import Page
from indextts.webui.view_versions import files_version, job_version, once

STAGES = ("data", "check")
MAX_PAGES = 10**6
IMPORT = "#data/upload"

CLIPS_SHOWN = "data.clips_shown"
CHOOSE_ROW = "data.choose_row"
NOTHING_DECIDED = "data.nothing_decided"
NOTHING_IMPORTED = "data.nothing_imported"


def build(page: Page) -> None:
    """Build the list of clips and the editor, and connect their events."""
    with columns() as (main, side):
        with main:
            flag = gr.Dropdown([ALL], value=ALL, label=t("data.show"), elem_id="review-filter")
            clips = gr.HTML(elem_id="review-list", js_on_load=LISTEN)
            with gr.Row(elem_id="review-paging"):
                back = gr.Button(t("data.previous"), size="sm", interactive=False, elem_id="review-back")
                count = gr.HTML(elem_id="review-count")
                forth = gr.Button(t("data.next"), size="sm", interactive=False, elem_id="review-forth")
            number = gr.Number(1, precision=0, minimum=1, visible="hidden", elem_id="review-page")
        with side:
            gr.HTML(PLAYER, elem_id="review-player")
            editor = _Editor()

    wanted, followed = page.shared["review"], page.signal()
    shown = [flag, number, count, clips, back, forth]
    choice = [page.project, flag, number, editor.clip]

    def refresh(name: str, flag: str | None, number: float | None, clip: str, link: str, before: str) -> Any:
        if link != before:  # a link of the check: its clips from the first page on
            return [*show_page(page, name, link.partition(" ")[2], 1, clip), link]
        return [*show_page_if_idle(page, name, flag, number, clip), link]

    links = [wanted, followed]
    page.watch(clips_version, refresh, [*shown, followed], [*choice[1:], *links], also=[wanted.change])
    # A click must not be dropped because a timer tick is being answered.
    on([number.change], lambda *values: show_page(page, *values), choice, shown, latest=True)

    def show_first(name: str, flag: str | None, clip: str) -> list[Any]:
        return show_page(page, name, flag, 1, clip)

    on([flag.input], show_first, [page.project, flag, editor.clip], shown, latest=True)
    on([back.click], lambda number: page_beside(number, -1), [number], [number])
    on([forth.click], lambda number: page_beside(number, 1), [number], [number])

    def select(name: str, event: gr.SelectData) -> list[Any]:
        return editor.show(page, name, str(event.row_value[0]))

    on([clips.select], select, [page.project], editor.outputs, each=True).then(
        None, None, None, js=SHOW_EDITOR
    )
    page.watch(once, lambda _name: editor.empty(), editor.outputs)
    clip = [page.project, editor.project, editor.clip]
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
        decided.append(on([button.click], _decider(page, verdict), clip, editor.outputs))
    for event in decided:
        then(event, lambda *values: show_page(page, *values), choice, shown)


# where the editor follows the list, not stands beside it
SHOW_EDITOR = """() => {
  if (innerWidth < 1100) document.getElementById("review-editor")?.scrollIntoView({ block: "center" });
}"""


def clips_version(project: Project) -> str:
    """Return a version that changes with the import, the check and every decision."""
    jobs = " ".join(job_version(project, stage) for stage in STAGES)
    return f"{jobs} {files_version(project.manifest, review_file(project.manifest))}"


class _Editor:
    """Components of the clip editor."""

    def __init__(self) -> None:
        self.project = gr.Textbox(visible="hidden", container=False, show_label=False)
        self.nothing = gr.HTML(elem_id="review-nothing")
        self.clip = gr.Textbox(visible="hidden", container=False, show_label=False, elem_id="review-clip")
        with gr.Column(visible=False, elem_id="review-editor") as self.group:
            self.facts = gr.HTML(elem_id="review-facts")
            self.text = gr.Textbox(
                label=t("data.text"),
                lines=3,
                max_length=MAX_TEXT_CHARS,
                elem_id="review-text",
                interactive=True,
            )
            with gr.Row(elem_classes="act"):
                self.keep = gr.Button(t("data.keep"), variant="primary", elem_id="review-keep")
                self.reject = gr.Button(t("data.reject"), elem_id="review-reject")
                self.save = gr.Button(t("data.save_text"), elem_id="review-save")
            self.as_checked = gr.Button(
                t("data.reset_verdict"), size="sm", elem_id="review-as-checked", elem_classes="quiet"
            )
        self.undo = gr.Button(t("data.undo"), size="sm", elem_id="review-undo", elem_classes="quiet")

    @property
    def outputs(self) -> list[Any]:
        return [self.project, self.clip, self.nothing, self.group, self.facts, self.text]

    @staticmethod
    def empty() -> list[Any]:
        """Return the values of the editor without a clip."""
        return ["", "", empty_html(t(CHOOSE_ROW)), gr.Column(visible=False), "", ""]

    @staticmethod
    def show(page: Page, name: str, id: str) -> list[Any]:
        """Return the values of the editor for a clip."""
        row = read_review(page.find_project(name)).find(id)
        return [name, row.utterance.id, "", gr.Column(visible=True), clip_html(row), row.utterance.text]


def show_page_if_idle(
    page: Page, name: str, flag: str | None, number: float | None, clip: str = ""
) -> list[Any]:
    """Return `show_page`, or no change while an import or a check runs."""
    jobs = [newest_job(page.find_project(name), stage) for stage in STAGES]
    if any(job is not None and job.is_active for job in jobs):
        return [gr.skip()] * 6
    return show_page(page, name, flag, number, clip)


def show_page(page: Page, name: str, flag: str | None, number: float | None, clip: str = "") -> list[Any]:
    """Return one page of the list, and the filters.

    Args:
        clip: id of the clip in the editor.
    """
    project = page.find_project(name)
    review = read_review(project)
    choices = review.filters()
    flag = flag if flag in [value for _, value in choices] else ALL
    rows = review.chosen(flag or ALL)
    num_pages = max(1, -(-len(rows) // ROWS_PER_PAGE))
    place = int(min(max(1, number or 1), num_pages))
    first = (place - 1) * ROWS_PER_PAGE
    shown = rows[first : first + ROWS_PER_PAGE]
    numbers = {"first": first + 1, "last": first + len(shown), "count": len(rows)}
    clips = list_html(project, shown, clip)
    if not review.rows:
        clips = empty_html(t(NOTHING_IMPORTED), IMPORT, t("data.import_first"))
    return [
        gr.Dropdown(choices=choices, value=flag),
        gr.skip() if place == number else place,
        f'<span class="number">{html.escape(t(CLIPS_SHOWN, **numbers))}</span>' if shown else "",
        clips,
        gr.Button(interactive=place > 1),
        gr.Button(interactive=place < num_pages),
    ]


def page_beside(number: float | None, step: int) -> int:
    """Return the number of the page before or after; `show_page` corrects it at the end."""
    return int(min(max(1, (number or 1) + step), MAX_PAGES))


def save_text(page: Page, name: str, shown_in: str, id: str, typed: str) -> list[Any]:
    """Store a text for a clip; the text of the manifest removes the stored one."""
    project, row = _find(page, name, shown_in, id)
    text = checked_text(typed)
    _decide(project, row, text=None if text == row.original_text else text)
    return _Editor.show(page, name, id)


def undo_last(page: Page, name: str) -> list[Any]:
    """Undo the last decision and show its clip."""
    project = page.find_project(name)
    undone = undo(project.manifest)
    if undone is None:
        raise UserError(t(NOTHING_DECIDED))
    return _Editor.show(page, name, undone.id)


def _decider(page: Page, verdict: Literal["keep", "reject"] | None) -> Any:
    def decide(name: str, shown_in: str, id: str) -> list[Any]:
        project, row = _find(page, name, shown_in, id)
        _decide(project, row, verdict=verdict)
        return [*_Editor.show(page, name, id)[:-1], gr.skip()]  # a typed text stays

    return decide


def _decide(project: Project, row: Row, **changed: Any) -> None:
    """Append the changed decision of a clip; do nothing if nothing changed."""
    before = row.decision or Decision(id=row.utterance.id)
    after = before.model_copy(update=changed)
    if after != before:
        add_decision(project.manifest, after)


def _find(page: Page, name: str, shown_in: str, id: str) -> tuple[Project, Row]:
    """Return a clip of the project.

    Args:
        shown_in: the project of the clip in the editor; another one may have a clip of the same id.

    Raises:
        UserError: the clip is of another project, or no longer exists.
    """
    project = page.find_project(name)
    if shown_in != name:
        raise UserError(t(CHOOSE_ROW))
    return project, read_review(project).find(id)
