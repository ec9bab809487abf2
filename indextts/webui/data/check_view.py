"""Check section of tab 2: the check of the imported data, its report, and the cleaning of what it flagged.

The report has numbers, charts and decisions. Everything comes from the files of the check
(indextts/data/check.py); nothing is computed again here.

Cleaning removes hum: one job cleans the clips and checks the data again. The review plays a
cleaned clip before and after.
"""

import html
import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.data import CheckData, CleanAudio
from indextts.commands.options import RECOGNIZERS_NAME
from indextts.commands.quality_limits import QualityLimits
from indextts.data.cleaned import MAY_HUM, read_cleaned
from indextts.data.quality import ratings
from indextts.data.quality.reasons import REASON_OF
from indextts.data.quality.summary import (
    OVERVIEW_NAME,
    Limit,
    MeasureHistogram,
    Overview,
    ReasonCount,
    read_overview,
)
from indextts.data.review import check_folder, review_file
from indextts.data.review_table import Review
from indextts.data.stored_results import num_stored
from indextts.projects.jobs.records import Job
from indextts.projects.jobs.starting import CHECK_JOB, CLEAN_JOB, DATA_JOBS
from indextts.projects.project import Project, ProjectSettings, read_project, write_project
from indextts.projects.stages import plan_check
from indextts.system.amounts import shown_duration, shown_size, shown_time
from indextts.system.messages import Message
from indextts.system.processes import num_cores
from indextts.webui.data import text_view
from indextts.webui.data.import_outlook import shown_dataset
from indextts.webui.data.review_rows import measure_name, read_review, reason_name
from indextts.webui.devices import chosen_recognizers, device_shown, free_device
from indextts.webui.events import on
from indextts.webui.forms import component_for, fields_from, form_for, project_values
from indextts.webui.language import field_title, shown_hours, t, text_of
from indextts.webui.layout import columns, fields, fold, labelled
from indextts.webui.markup import Tile, empty_html, link_html, remark_html, sent, tiles_html
from indextts.webui.page import SEND_CLICKS, Page, shared_choice, stamped
from indextts.webui.plots import Threshold, histogram_svg, short
from indextts.webui.run_progress import job_bar
from indextts.webui.running.outlook import Notice, Outlook, Start
from indextts.webui.running.panel import CONTINUE, Stage, stage_panel
from indextts.webui.stage_list import overview_since
from indextts.webui.view_versions import files_version, is_running, job_version, utterances_of

LIMITS = tuple(QualityLimits.model_fields)
FIELDS = ("quality", *LIMITS)
REPORT_NAME = "report.txt"
MAX_REPORT_CHARS = 100_000
MAX_NAMED = 3  # reasons
MAX_NAME_CHARS = 100  # of a filter
IMPORT = "#data/upload"
CHECK = "#data/check-start"
REVIEW = "#data/data-tab-review"
CLEAN = "#data/clean-start"
DOING = {"Cleaning": "data.doing.cleaning"}


def build(page: Page) -> None:
    """Build the check, with a link for each reason to its clips in the review."""
    wanted = shared_choice(page, "review")
    with columns() as (main, side):
        with main:
            overview = gr.HTML(elem_id="check-overview", js_on_load=SEND_CLICKS)
            text_view.build(page)
            asr = gr.Textbox(**labelled("data.recognizer", "check-asr"))
            with fields():
                quality = component_for(CheckData, "quality")
            with fold(t("data.limits"), "check-limits"), fields():
                limits = list(form_for(CheckData, LIMITS).values())
            with fold(t("data.report"), "check-report-fold"):
                report = gr.Textbox(
                    **labelled("data.report", "check-report"), show_label=False, lines=16, interactive=False
                )
            build_cleaning(page)
        with side:
            stage = Stage(
                CHECK_JOB,
                "data.check",
                partial(prepare, page),
                [asr, quality, *limits],
                onward=CONTINUE,
                in_words=in_words,
                store_settings=store_limits,
                filled_for=page.fill(kept_limits, [quality, *limits]),
            )
            stage_panel(page, stage)

    def choose(project: Project, event: gr.SelectData) -> Any:
        reason, *is_kept = event.row_value
        if is_kept:
            return keep_all(project, str(reason))
        return stamped(str(reason)[:MAX_NAME_CHARS]), gr.skip()

    on([overview.select], choose, [page.project], [wanted, overview], each=True)
    page.watch(checked_version, show_report, [overview, report], result_of=("data", *DATA_JOBS))


def keep_all(project: Project, reason: str) -> tuple[Any, str]:
    """Keep the clips that only the check rejected for a reason; return what `choose` does."""
    review = read_review(project)
    count = review.keep_all(reason) if review else 0
    gr.Info(t("data.kept_all", count=count, reason=reason_name(reason)))
    return gr.skip(), show_report(project)[0]


def prepare(page: Page, project: Project, settings: ProjectSettings, asr: str | None, *values: Any) -> Start:
    """Return the check with the fields of the form; a UserError for a recognizer that is not allowed."""
    planned = plan_check(project, settings)
    changed = fields_from(CheckData, FIELDS, values)
    recognizers = chosen_recognizers(page.roots, asr)
    if recognizers:
        changed |= {"asr": recognizers[0], "asr_folder": settings.base / RECOGNIZERS_NAME}
        changed["device"] = free_device(page.workspace, planned.device)
    command = CheckData(**{**planned.model_dump(), **changed})
    return Start([command], outlook=_outlook(page, project, command))


def kept_limits(project: Project, _before: str) -> list[Any]:
    return project_values(CheckData, FIELDS, read_project(project).check)


def store_limits(project: Project, planned: Sequence[Command]) -> None:
    """Store the limits in the project's settings: the next import is checked by them too."""
    settings = read_project(project)
    chosen = planned[-1].model_dump(mode="json", include=set(FIELDS), exclude_defaults=True)
    others = {name: value for name, value in settings.check.items() if name not in FIELDS}
    write_project(project, settings.model_copy(update={"check": {**others, **chosen}}))


def in_words(project: Project, job: Job) -> tuple[str, Sequence[tuple[str, str]]]:
    """Return what the check of an ended job found, and links to what changes it."""
    overview = overview_since(project, job.began or job.started)
    if overview is None or job.state not in ("finished", "failed"):
        return "", ()
    clips = _clips(overview.num_utterances)
    hard = [each for each in overview.reasons if (reason := REASON_OF.get(each.name)) and reason.is_hard]
    most = sorted(hard, key=lambda each: -each.count)[:MAX_NAMED]
    reasons = ", ".join(f"{reason_name(each.name)} {each.count:,}" for each in most)
    values = {"clips": clips, "rejected": overview.num_rejected, "reasons": reasons}
    words = t("data.outcome.rejects" if overview.num_rejected else "data.outcome.checked", **values)
    links = [("#project/demo-start", t("demo.run_rest"))] if job.state == "finished" else []
    if overview.num_rejected:
        links += [(REVIEW, t("data.open_review")), ("#data/check-limits", t("data.change_limits"))]
        links += [(CLEAN, t("data.clean"))] if num_flags(project) else []
    return words, links


def _outlook(page: Page, project: Project, command: CheckData) -> Outlook:
    if not project.manifest.is_file():
        nothing = Notice(t("data.nothing_imported"), IMPORT, t("data.import_first"), kind="missing")
        return Outlook(blockers=[nothing])
    is_importing = is_running(project, "data")
    folder = check_folder(project.manifest)
    facts = [
        (t("data.facts.imported"), shown_dataset(project)),
        (t("data.facts.report"), f"{project.root.name}/{folder.relative_to(project.root)}/"),
    ]
    facts.append((t("data.facts.recognizer"), command.asr or t("data.no_recognizer")))
    if command.asr:
        facts.append((t("listen.device"), device_shown(page.workspace, command.device)))
    if command.quality == "full":
        facts.append((t("data.facts.rating"), _rating_time(project)))
    overview, path = read_overview(folder), folder / OVERVIEW_NAME
    if overview is not None:
        checked = shown_time(path.stat().st_mtime)
        text = t("data.facts.checked", count=overview.num_utterances, time=checked)
        facts.append((t("data.facts.last_check"), text))
    blockers = [Notice(t("data.import_runs"), kind="missing")] if is_importing else []
    is_done = overview is not None and _is_current(project, overview)
    return Outlook(facts, blockers=blockers, is_done=is_done and not is_importing)


def _rating_time(project: Project) -> str:
    """Return an estimate of the time that DNSMOS takes for the clips that are not rated yet."""
    utterances = utterances_of(project.manifest)
    num_new = max(0, len(utterances) - num_stored(check_folder(project.manifest), ratings.NAME))
    if not num_new:
        return t("data.facts.all_rated")
    time_s = ratings.expected_s(utterances, num_cores()) * num_new / len(utterances)
    return t("data.facts.rating_time", count=num_new, time=shown_duration(time_s))


def _is_current(project: Project, overview: Overview) -> bool:
    checked = (check_folder(project.manifest) / OVERVIEW_NAME).stat().st_mtime
    is_older = project.manifest.stat().st_mtime <= checked
    return is_older and len(utterances_of(project.manifest)) == overview.num_utterances


def checked_version(project: Project) -> str:
    folder = check_folder(project.manifest)
    files = (project.manifest, review_file(project.manifest), folder / OVERVIEW_NAME, folder / REPORT_NAME)
    return f"{job_version(project, 'check')} {files_version(*files)}"


def show_report(project: Project) -> tuple[str, str]:
    folder = check_folder(project.manifest)
    return overview_html(project, folder), _report(folder / REPORT_NAME)


def overview_html(project: Project, folder: Path) -> str:
    """Return tiles, findings, reasons and histograms of a check, or the sentence for none."""
    if not project.manifest.is_file():  # the run panel says it
        return ""
    overview = read_overview(folder)
    if overview is None:
        return empty_html(t("data.not_checked"), CHECK, t("data.check"))
    is_stale = not _is_current(project, overview)
    stale = empty_html(t("data.stale_check"), CHECK, t("data.check")) if is_stale else ""
    return (
        f"{stale}{tiles_html(_tiles(overview))}{_findings_html(overview)}{reasons_html(project, overview)}"
        f"{cleaning_html(project)}"
        f"{histograms_html(overview.histograms)}"
    )


def _tiles(overview: Overview) -> list[Tile]:
    num_problems = len(overview.problems)
    fitness = t("data.tiles.unfit") if num_problems else t("data.tiles.fit")
    rejected, warned = overview.num_rejected, overview.num_warned
    lengths = []
    if overview.length_correlation is not None:
        is_bad = overview.has_misplaced_texts
        verdict = t("data.tiles.misplaced" if is_bad else "data.tiles.right_lengths")
        correlation = f"{overview.length_correlation:.2f}"
        lengths = [Tile(t("data.tiles.lengths"), correlation, verdict, "bad" if is_bad else "")]
    return [
        Tile(t("data.tiles.utterances"), f"{overview.num_utterances:,}"),
        Tile(t("data.tiles.duration"), shown_hours(3600 * overview.hours)),
        Tile(t("data.tiles.speakers"), f"{overview.num_speakers:,}"),
        Tile(t("data.tiles.rejected"), f"{rejected:,}", t("data.tiles.skipped"), "warn" if rejected else ""),
        Tile(t("data.tiles.warned"), f"{warned:,}", t("data.tiles.used")),
        Tile(t("data.tiles.problems"), f"{num_problems:,}", fitness, "bad" if num_problems else ""),
        *lengths,
    ]


def _findings_html(overview: Overview) -> str:
    total = {"total": overview.num_utterances}
    items = [
        ("bad", _text_or(f"data.problems.{each.code}", {"count": each.count, **total}, each.text))
        for each in overview.problems
    ]
    items += [
        ("warn", _text_or(f"data.notices.{each.code}", _named(each.values), each.text))
        for each in overview.notices
    ]
    shown = "".join(f'<li class="{level}">{html.escape(text)}</li>' for level, text in items)
    return f'<ul class="notices">{shown}</ul>' if shown else ""


def _named(values: Mapping[str, float | str]) -> Mapping[str, float | str]:
    """Return the values of a notice, with the names of a limit and its reason as the page has them."""
    if "field" not in values:
        return values
    what = reason_name(str(values["reason"]))
    return {**values, "what": what, "field": field_title(CheckData, str(values["field"]))}


def _text_or(id: str, values: Mapping[str, Any], otherwise: str) -> str:
    """Return a problem or notice as a sentence; one without a code as the report has it."""
    try:
        return text_of(Message(id, values))
    except (KeyError, ValueError):  # a file of another version
        return otherwise


def reasons_html(project: Project, overview: Overview) -> str:
    heading = f"<h2>{html.escape(t('data.to_decide'))}</h2>"
    if not overview.reasons:
        return f"{heading}<p>{html.escape(t('data.nothing_to_decide'))}</p>"
    review = read_review(project) if review_file(project.manifest).is_file() else None
    rows = "".join(_reason_row(each, review) for each in overview.reasons)
    remark = remark_html(t("data.several_reasons"))
    return f'{heading}{remark}<table class="list reasons"><tbody>{rows}</tbody></table>'


def cleaning_html(project: Project) -> str:
    """Return a link to the cleaning of the clips that may hum; "" without any."""
    count = num_flags(project)
    if not count:
        return ""
    heading = f"<h2>{html.escape(t('data.clean_heading'))}</h2>"
    link = link_html(CLEAN, t("data.clean"))
    return f'{heading}<p class="lead">{html.escape(t("data.clean_lead", count=count))} {link}</p>'


def _reason_row(found: ReasonCount, review: Review | None) -> str:
    reason = REASON_OF.get(found.name)
    is_hard = reason is not None and reason.is_hard
    kind = t("data.rejects") if is_hard else t("data.warns")
    link = link_html(REVIEW, t("data.listen_to_them"), more=f"{sent(found.name)} ")
    num_left = len(review.rejected_for(found.name)) if review else found.count
    if is_hard and num_left:
        button = html.escape(t("data.keep_all", count=num_left))
        more = f'{sent(found.name, "keep")} data-question="{button}?"'
        link = f'<button type="button" class="quiet" {more}>{button}</button> {link}'
    elif is_hard:
        kind = t("data.decided_by_hand")
    return (
        f'<tr><td>{html.escape(reason_name(found.name))}</td><td class="{"bad" if is_hard else "warn"}">'
        f'{html.escape(kind)}</td><td class="number">{html.escape(_clips(found.count))}</td>'
        f'<td class="number">{html.escape(shown_hours(3600 * found.hours))}</td>'
        f'<td class="number">{link}</td></tr>'
    )


def _clips(count: int) -> str:
    return t("data.one_clip") if count == 1 else t("data.clips_count", count=count)


def histograms_html(histograms: Sequence[MeasureHistogram]) -> str:
    """Return the histograms with the limits of their reasons, and a slider for each that rejects."""
    charts = "".join(map(_histogram, histograms))
    link = link_html(CHECK, t("data.check"))
    return (
        f"<h2>{html.escape(t('data.measures_heading'))}</h2>"
        f'<p class="lead">{html.escape(t("data.legend"))} {link}</p><div class="plots">{charts}</div>'
    )


def _histogram(found: MeasureHistogram) -> str:
    thresholds = [
        Threshold(each.value, "bad" if each.is_hard else "warn", each.field) for each in found.limits
    ]
    remarks = [
        t(text, limits=", ".join(limits))
        for text, is_hard in (("data.limit_text.reject", True), ("data.limit_text.warn", False))
        if (
            limits := [
                f"{'<' if each.side == 'below' else '>'} {short(each.value)}"
                for each in found.limits
                if each.is_hard == is_hard
            ]
        )
    ]
    name = measure_name(found.measure)
    chart = histogram_svg(found.counts, found.edges, thresholds, name=name, remark="; ".join(remarks))
    sliders = "".join(_slider(each, found.edges) for each in found.limits if each.choices)
    return f"<div>{chart}{sliders}</div>"


def _slider(limit: Limit, edges: Sequence[float]) -> str:
    """Return a slider that sets a field of the limits, for which page_files/page.js reads the choices."""
    total = max(kept for _, kept in limit.choices)
    texts = [
        (value, t("data.limit_keeps", limit=short(value), kept=kept, total=total))
        for value, kept in limit.choices
    ]
    title = html.escape(field_title(CheckData, limit.field))
    choices = html.escape(json.dumps(texts, ensure_ascii=False))
    return (
        f'<label class="limit-slider">{title}<input type="range" step="any" min="{edges[0]}" '
        f'max="{edges[-1]}" value="{limit.value}" data-field="{limit.field}" data-choices="{choices}">'
        f"<output>{html.escape(dict(texts)[limit.value])}</output></label>"
    )


def _report(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:MAX_REPORT_CHARS]
    except OSError:
        return ""


def build_cleaning(page: Page) -> None:
    with fold(t("data.clean_heading"), "check-clean"):
        stage = Stage(
            CLEAN_JOB,
            "data.clean",
            partial(prepare_cleaning, page),
            progress=lambda project: job_bar(project, CLEAN_JOB, DOING),
            onward={"finished": (REVIEW, "data.open_cleaned")},
        )
        stage_panel(page, stage)


def num_flags(project: Project) -> int | None:
    """Return the number of flags that cleaning may remove; None before a check."""
    overview = read_overview(check_folder(project.manifest))
    if overview is None:
        return None
    return sum(reason.count for reason in overview.reasons if reason.name in MAY_HUM)


def prepare_cleaning(page: Page, project: Project, settings: ProjectSettings) -> Start:
    """Return the commands, clean the flagged clips and check again, with the number of flags."""
    clean = CleanAudio(manifest=project.manifest, device=free_device(page.workspace))
    commands, count = [clean, plan_check(project, settings)], num_flags(project)
    if count is None:
        unchecked = Notice(t("data.not_checked"), CHECK, t("data.check"), kind="missing")
        return Start(commands, outlook=Outlook(blockers=[unchecked]))
    cleaned = read_cleaned(project.manifest).values()
    num_used = sum(bool(record["is_used"]) for record in cleaned)
    facts = [
        (t("data.facts.flags"), f"{count:,}"),
        (t("data.facts.cleaned"), t("data.facts.cleaned_of", count=num_used, total=len(cleaned))),
        (t("listen.device"), device_shown(page.workspace, clean.device)),
        (t("data.facts.free"), shown_size(shutil.disk_usage(project.root).free)),
    ]
    blockers = [] if count else [Notice(t("data.nothing_to_clean"), kind="finished")]
    return Start(commands, outlook=Outlook(facts, blockers))
