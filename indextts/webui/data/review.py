"""Review section of tab 2: listen to clips, correct their texts, keep or reject them.

    filters -> show_page -> one page of rows, and what the browser then shows: {"project", "ids", "revision"}
    key or button in a row (page_files/review.js) -> act -> the row of the clip, and the totals
    decisions of other browsers -> follow -> the rows of the page that changed, and the totals

Decisions are appended to the project's review.jsonl (indextts/data/review.py). The export writes the clips to
use as a manifest.
"""

import html
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr

from indextts.data.manifest import write_utterances
from indextts.data.review import read_reviewed, review_file
from indextts.data.review_table import DOUBTFUL, Filter, Review
from indextts.errors import UserError
from indextts.projects.jobs.starting import DATA_JOBS
from indextts.projects.project import Project
from indextts.system.files import count_lines
from indextts.webui.data.review_list import PLAYER, help_html, list_html, row_html, totals_html
from indextts.webui.data.review_rows import (
    ROWS_PER_PAGE,
    Row,
    checked_text,
    find_place,
    list_choices,
    measure_choices,
    other_reading,
    page_of,
    page_to_decide,
    read_review,
    row_of,
    speaker_choices,
)
from indextts.webui.events import on
from indextts.webui.forms import with_choices
from indextts.webui.language import t
from indextts.webui.layout import fields, labelled, small_button
from indextts.webui.markup import empty_html
from indextts.webui.page import Page
from indextts.webui.serving.security import download_link
from indextts.webui.view_versions import files_version, is_running, job_version, once

MAX_PAGES = 10**6
WRITERS = ("data", *DATA_JOBS)  # jobs of what is reviewed: the list stays while one is active
IMPORT = "#data/upload"
# js_on_load of the choice to play each clip that is reached
RESTORE_AUTOPLAY = "element.querySelector('#review-autoplay').checked = !!localStorage.autoplay"
EXPORT_NAME = "reviewed_manifest.jsonl"
CHANGES: dict[str, dict[str, str | None]] = {
    "keep": {"verdict": "keep"},
    "reject": {"verdict": "reject"},
    "reset": {"verdict": None},
}


def build(page: Page) -> None:
    totals = gr.HTML(elem_id="review-totals")
    with fields("review-filters"):
        show = gr.Dropdown([DOUBTFUL], value=DOUBTFUL, label=t("data.show"), elem_id="review-filter")
        speaker = gr.Dropdown(
            [""], **labelled("data.speaker", "review-speaker"), value="", allow_custom_value=True
        )
        measure = gr.Dropdown([""], value="", label=t("data.measure"), elem_id="review-measure")
        low = gr.Textbox("", label=t("data.at_least"), max_length=20, visible=False, elem_id="review-low")
        high = gr.Textbox("", label=t("data.at_most"), max_length=20, visible=False, elem_id="review-high")
    clips = gr.HTML(elem_id="review-list", js_on_load="window.reviewList(element, trigger, watch)")
    with gr.Row(elem_id="review-paging"):
        gr.HTML(PLAYER, elem_id="review-player")
        count = gr.HTML(elem_id="review-count")
        back = small_button("data.previous", "review-back", interactive=False)
        forth = small_button("data.next", "review-forth", interactive=False)
        seek = small_button("data.next_undecided", "review-seek")
    gr.HTML(help_html(), elem_id="review-keys", js_on_load=RESTORE_AUTOPLAY)
    export = small_button("data.export_manifest", "review-export")
    exported = gr.HTML(elem_id="review-exported")
    number = gr.Number(0, precision=0, minimum=0, visible="hidden", elem_id="review-page")
    shown, answer, followed = (gr.Textbox(visible="hidden", container=False, show_label=False) for _ in "123")

    chosen = [show, speaker, measure, low, high]
    inputs = [page.project, number, *chosen]
    outputs = [show, number, count, clips, back, forth, shown, totals]
    wanted, link = page.shared["review"], page.signal()

    filled = [show.input, speaker.input, measure.input, low.submit, low.blur, high.submit, high.blur]
    # one handler for all of them: its last answer has the newest filters
    page.watch(
        refresh_version,
        refresh,
        [*outputs, *chosen[1:], link],
        [*inputs[1:], wanted, link, shown],
        [wanted.change, *filled],
    )
    # a click must not be dropped because a timer tick is being answered
    on([measure.input], lambda measure: _limits(measure, "", ""), [measure], [low, high], latest=True)
    for button, step in ((back, -1), (forth, 1), (seek, 0)):
        on([button.click], partial(move, step), inputs, outputs, latest=True)

    def decide(project: Project, measure: str, event: gr.SelectData) -> list[str]:
        serial, values = event.index[0], [str(value) for value in event.row_value]
        return act(project, measure or "", serial, values)

    decided = on([clips.select], decide, [page.project, measure], [answer, totals], each=True, queue=False)
    decided.then(None, [answer], None, js="answer => window.reviewAnswered(answer)")
    on([export.click], export_manifest, [page.project], [exported])
    page.watch(once, lambda _project: "", [exported])

    def version(project: Project) -> str:
        return files_version(review_file(project.manifest))

    event = page.watch(version, follow, [followed, totals], [measure, shown, followed], queue=False)
    event.then(None, [followed], None, js="answer => window.reviewFollowed(answer)")


def refresh_version(project: Project) -> str:
    jobs = (job_version(project, stage) for stage in WRITERS)
    return " ".join([files_version(project.manifest), *jobs])


def refresh(project: Project, number: float | None, *values: Any) -> list[Any]:
    """Return what `show_page` does and the menus, without values that the user may have changed meanwhile.

    Args:
        values: the filters, the link of the check, the link that was followed last, what the browser shows.
    """
    *filters, link, before, shown = values
    is_linked = link != before  # a link of the check: its clips from the first one to decide on
    if is_linked:
        filters = [link.partition(" ")[2], "", "", "", ""]
    is_same = not is_linked and _shown(shown)[:2] == (project.root.name, filters)
    if is_same and is_running(project, *WRITERS):
        return [gr.skip()] * 14
    review = read_review(project)
    page = show_page(project, number if is_same else 0, *filters)
    menus = [list_choices(review), speaker_choices(review), measure_choices(review)]
    shows, *others = [
        gr.Dropdown(choices=choices, value=value) if is_linked else with_choices(choices, value)
        for choices, value in zip(menus, filters, strict=False)
    ]
    limits = _limits(*filters[2:]) if is_linked else [gr.skip(), gr.skip()]
    return [shows, *page[1:], *others, *limits, link]


def show_page(project: Project, number: float | None, *filters: Any) -> list[Any]:
    """Return one page of the list, the lists to choose from, and the totals.

    Args:
        number: of the page, from 1; 0 for the first page with a clip to decide.
        filters: list or reason, speaker, measure, its lowest and highest value.
    """
    review = read_review(project)
    choices = list_choices(review)
    chosen = _filter(choices, *filters)
    if review is None:
        nothing = empty_html(t("data.nothing_imported"), IMPORT, t("data.import_first"), "primary-link")
        off = gr.Button(interactive=False)
        return [gr.Dropdown(choices=choices, value=chosen.show), 0, "", nothing, off, off, "", ""]
    places = review.select(chosen)
    shown, num_pages = page_of(review, places, _whole(number))
    first = (shown - 1) * ROWS_PER_PAGE
    rows = [row_of(review, int(place), chosen.measure) for place in places[first : first + ROWS_PER_PAGE]]
    numbers = {"first": first + 1, "last": first + len(rows), "count": len(places)}
    ids = [row.utterance.id for row in rows]
    return [
        gr.Dropdown(choices=choices, value=chosen.show),
        shown,
        f'<span class="number">{html.escape(t("data.clips_shown", **numbers))}</span>' if ids else "",
        list_html(project, rows, str(chosen)),
        gr.Button(interactive=shown > 1),
        gr.Button(interactive=shown < num_pages),
        json.dumps(
            {"project": project.root.name, "filters": filters, "ids": ids, "revision": review.revision}
        ),
        totals_html(review.totals()),
    ]


def act(project: Project, measure: str, serial: int, values: Sequence[str]) -> list[str]:
    """Decide on a clip or undo a decision; return the answer for the browser and the totals.

    Args:
        measure: whose value the rows have.
        serial: of the request, returned in the answer.
        values: the project of the list, the action, the id of the clip, and the text or the key to undo.
    """
    if len(values) != 4 or values[0] != project.root.name:  # another project may have a clip of the same id
        raise UserError(t("data.choose_row"))
    _, action, id, value = values
    review = read_review(project)
    if action == "undo":
        made = None if review is None else review.undo(value)
        if made is None:
            raise UserError(t("data.nothing_decided"))
        id = made.id
        place = find_place(review, id)
    else:
        place = find_place(review, id)
        assert review is not None
        if action == "swap":
            changed: dict[str, str | None] = {"verdict": "keep", "text": other_reading(review, place)}
        else:
            changed = _changed(action, value, review.table.utterances[place].text)
        made = review.decide(place, changed)
    assert review is not None
    row = row_of(review, place, measure)
    key = made.key if made and action != "undo" else ""
    said = t("data.undone", clip=id) if action == "undo" else f"{id}: {t(row.verdict)}"
    answer = {"serial": serial, "id": id, "key": key, "said": said, **_rows(project, review, [row])}
    return [json.dumps(answer), totals_html(review.totals())]


def follow(project: Project, measure: str, shown: str, followed: str) -> list[str]:
    """Return the rows that decisions changed since `followed`, the last answer, and the totals."""
    review = read_review(project)
    if review is None:
        return ["", ""]
    project_name, _, ids, known = _shown(shown)
    if project_name == _shown(followed)[0]:
        known = max(known, _shown(followed)[3])
    changed = set(review.changed_since(known if known <= review.revision else 0))
    places = [place for id in ids if (place := review.table.place_of.get(id)) in changed]
    rows = [row_of(review, place, measure or "") for place in places if place is not None]
    if project_name != project.root.name:
        rows = []
    answer = {"project": project.root.name, "filters": [], "ids": [], **_rows(project, review, rows)}
    return [json.dumps(answer), totals_html(review.totals())]


def export_manifest(project: Project) -> str:
    """Write the manifest of the clips to use, and return a link to it; a UserError if there are none."""
    if not project.manifest.is_file():
        raise UserError(f"{t('data.nothing_imported')} {t('data.import_lead')}")
    output = project.dataset / EXPORT_NAME
    kept = [utterance for _, utterance in read_reviewed(project.manifest)]
    write_utterances(output, kept, keeps_links=True)
    text = t("data.exported_manifest", count=len(kept), total=count_lines(project.manifest))
    link = download_link(output, output.name)
    return f'<p class="is-ready" role="status">{html.escape(text)} {link}</p>'


def _rows(project: Project, review: Review, rows: Sequence[Row]) -> dict[str, Any]:
    htmls = {row.utterance.id: row_html(project, row) for row in rows}
    return {"rows": htmls, "revision": review.revision}


def _changed(action: str, typed: str, original: str) -> dict[str, str | None]:
    """Return what an action changes; the text of the manifest removes a stored one."""
    if action == "text":
        text = checked_text(typed)
        return {"text": None if text == original else text}
    if action not in CHANGES:
        raise UserError(t("data.choose_row"))
    return CHANGES[action]


def _shown(text: str) -> tuple[str, list[Any], list[str], int]:
    """Return project, filters, ids and revision of what the browser has; nothing for other texts."""
    try:
        found = json.loads(text)
        ids = [str(id) for id in found["ids"]]
        return str(found["project"]), list(found["filters"]), ids, int(found["revision"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return "", [], [], 0


def move(step: int, project: Project, number: float | None, *filters: Any) -> list[Any]:
    """Return the page `step` pages on; with 0, the next page with a clip to decide."""
    place = _whole(number)
    if step:
        return show_page(project, max(1, place + step), *filters)
    review = read_review(project)
    if review is not None:
        places = review.select(_filter(list_choices(review), *filters))
        place = page_to_decide(review, places, place)
    return show_page(project, place, *filters)


def _filter(choices: Sequence[tuple[str, str]], *filters: Any) -> Filter:
    """Return the filter of the form; a list that no longer exists becomes the first."""
    show, speaker, measure, low, high = filters
    names = [value for _, value in choices]
    return Filter(
        show=show if show in names else names[0],
        speaker=str(speaker or ""),
        measure=str(measure or ""),
        at_least=_number(low),
        at_most=_number(high),
    )


def _limits(measure: str | None, low: str, high: str) -> list[Any]:
    return [gr.Textbox(value, visible=bool(measure)) for value in (low, high)]


def _number(typed: str) -> float | None:
    """Return a number as typed, None for an empty field; a UserError if it is no number."""
    if not typed.strip():
        return None
    try:
        return float(typed.replace(",", "."))
    except ValueError:
        raise UserError(t("data.no_number", typed=typed)) from None


def _whole(number: float | None) -> int:
    """Return a number of a page as typed, within bounds."""
    return int(min(max(0, number or 0), MAX_PAGES)) if number == number else 0
