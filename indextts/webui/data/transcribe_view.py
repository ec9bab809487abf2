"""Transcription section of tab 2: recordings without texts become clips with texts of one or two recognizers.

One job transcribes, imports the result and checks it. What the recognizers disagree on waits in the review.
"""

import shutil
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.data import CheckData, ImportDataset, Transcribe
from indextts.commands.options import RECOGNIZERS_NAME
from indextts.data.importing.items import AUDIO_SUFFIXES
from indextts.data.transcribing.agreement import REPORT_NAME, AgreementReport
from indextts.errors import UserError
from indextts.projects.jobs.starting import TRANSCRIBE_JOB
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_check, plan_transcribed
from indextts.system.amounts import shown_size
from indextts.webui.data.uploads import store_recordings, upload_message
from indextts.webui.devices import chosen_recognizers, device_shown, free_device
from indextts.webui.events import on
from indextts.webui.forms import component_for, fields_from, form_for
from indextts.webui.language import shown_hours, t
from indextts.webui.layout import columns, fields, fold, heading, labelled, small_button
from indextts.webui.markup import Tile, remark_html, table_html, tiles_html
from indextts.webui.page import Page
from indextts.webui.plots import curve_svg
from indextts.webui.run_progress import job_bar
from indextts.webui.running.outlook import LinkedError, Notice, NoticeKind, Outlook, Start, refused
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import files_version, job_version, once

FIELDS = ("min_clip_s", "max_clip_s", "max_disagreement")
FILE, VOICES = "file", "voices"
UPLOAD = "#data/raw-upload"
REVIEW = "#data/data-tab-review"
ONWARD = {"finished": (REVIEW, "data.open_doubtful"), "failed": (REVIEW, "data.open_review")}
DOING = {"Cutting": "data.doing.cutting", "Transcribing": "data.doing.transcribing"}
MAX_LISTED = 20  # recordings in the table
SHOWN_LIMIT = 0.5  # of the curve's axis, at most


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            heading("data.transcribe_heading", "data.transcribe_lead")
            result = gr.HTML(elem_id="agreement")
            files = gr.File(
                **labelled("data.raw_recordings", "raw-upload"), file_count="multiple", height=120
            )
            message = gr.HTML(elem_id="raw-message")
            listed = gr.HTML(elem_id="raw-recordings")
            removal = small_button(
                "data.remove_recordings", "raw-remove", elem_classes="quiet asks", visible=False
            )
            asr = gr.Textbox(**labelled("data.two_recognizers", "transcribe-asr"), lines=2)
            with fields():
                speakers = gr.Dropdown(
                    [(t("data.speaker_of_recording"), FILE), (t("data.speaker_by_voice"), VOICES)],
                    **labelled("data.speakers", "transcribe-speakers"),
                    value=FILE,
                )
                speaker = component_for(Transcribe, "speaker")
                folder = gr.Textbox(**labelled("data.raw_folder", "transcribe-folder"))
            with fold(t("data.clips_and_agreement"), "transcribe-more"), fields():
                more = form_for(Transcribe, FIELDS)
            stored = gr.Textbox(visible="hidden", container=False, show_label=False)
        with side:
            stage = Stage(
                TRANSCRIBE_JOB,
                "data.transcribe",
                partial(prepare, page),
                [folder, asr, speakers, speaker, *more.values()],
                progress=lambda project: job_bar(project, TRANSCRIBE_JOB, DOING),
                onward=ONWARD,
                also_changes=[stored],
            )
            stage_panel(page, stage)

    def received(project: Project, paths: list[str] | None) -> tuple[Any, ...]:
        return None, upload_message(project, paths or [], store_recordings), *_recordings(project)

    def removed(project: Project) -> tuple[Any, ...]:
        shutil.rmtree(project.recordings, ignore_errors=True)
        return "", *_recordings(project)

    outputs = [listed, removal, stored]
    on([files.upload], received, [page.project, files], [files, message, *outputs], each=True)
    on([removal.click], removed, [page.project], [message, *outputs])
    page.project.change(None, None, [message], js="() => ''", api_visibility="private")
    page.watch(once, _recordings, outputs)
    page.watch(
        lambda project: (
            f"{job_version(project, TRANSCRIBE_JOB)} {files_version(project.transcribed / REPORT_NAME)}"
        ),
        lambda project: agreement_html(AgreementReport.read(project.transcribed)),
        [result],
    )


def prepare(page: Page, project: Project, settings: ProjectSettings, *values: Any) -> Start:
    """Return the commands, transcribe, import the result, check, and what is transcribed with what."""
    try:
        transcribe, imported, check = commands(page, project, settings, *values)
    except UserError as error:
        return refused(error, _facts(project))
    facts = [
        *_facts(project, transcribe.source[0]),
        (t("data.facts.recognizers"), ", ".join(Path(name).name for name in transcribe.asr)),
        (t("listen.device"), device_shown(page.workspace, transcribe.device)),
        (t("data.facts.free"), shown_size(shutil.disk_usage(project.root).free)),
    ]
    blockers = []
    if imported.speaker_from == VOICES and not imported.voice_encoder.is_file():
        blockers.append(Notice(t("data.no_voice_encoder", path=imported.voice_encoder), kind="missing"))
    notes = [Notice(t("data.one_recognizer"))] if len(transcribe.asr) == 1 else []
    return Start([transcribe, imported, check], outlook=Outlook(facts, blockers, notes=notes))


def commands(
    page: Page,
    project: Project,
    settings: ProjectSettings,
    folder: str | None,
    asr: str | None,
    speakers: str,
    speaker: str | None,
    *more: Any,
) -> tuple[Transcribe, ImportDataset, CheckData]:
    """Return the commands; a UserError without recordings or recognizers, or for a forbidden path."""
    typed, name = (folder or "").strip(), (speaker or "").strip()
    source = Path(page.roots.inside(typed, t("data.raw_folder"))) if typed else project.recordings
    if not _files_in(source):
        raise LinkedError(Notice(t("data.no_recordings"), UPLOAD, t("data.upload_raw"), kind="unfilled"))
    recognizers = chosen_recognizers(page.roots, asr)
    if not 1 <= len(recognizers) <= 2:
        kind: NoticeKind = "problem" if recognizers else "unfilled"
        raise LinkedError(Notice(t("data.name_recognizers"), "#data/transcribe-asr", kind=kind))
    chosen = fields_from(Transcribe, FIELDS, more)
    transcribe = Transcribe(
        source=[source],
        asr=recognizers,
        asr_folder=settings.base / RECOGNIZERS_NAME,
        output_dir=project.transcribed,
        speaker=name,
        language=settings.language,
        device=free_device(page.workspace),
        **chosen,
    )
    speaker_from = VOICES if speakers == VOICES else "data" if name else FILE
    imported = plan_transcribed(project, settings, speaker=name, speaker_from=speaker_from)
    return transcribe, imported, plan_check(project, settings)


def recordings_html(project: Project) -> str:
    found = _files_in(project.recordings)
    if not found:
        return ""
    rows = [(escape(path.name), shown_size(path.stat().st_size)) for path in found[:MAX_LISTED]]
    more = len(found) - MAX_LISTED
    remark = remark_html(t("data.more_recordings", count=more) if more > 0 else "")
    return table_html([(t("data.recording"), ""), (t("data.size"), "number")], rows) + remark


def agreement_html(report: AgreementReport | None) -> str:
    """Return how much of the speech is kept, and what other limits would keep; "" before a transcription."""
    if report is None:
        return ""
    num_doubtful = report.num_clips - report.num_kept
    hours, kept = 3600 * report.hours, 3600 * report.hours_kept
    tiles = [
        Tile(t("data.tiles.transcribed"), shown_hours(hours), t("data.clips_count", count=report.num_clips)),
        Tile(t("data.tiles.to_review"), f"{num_doubtful:,}", t("data.tiles.not_used"), link=REVIEW),
    ]
    if report.limit is None:
        return tiles_html(tiles) + remark_html(t("data.one_recognizer"))
    share = t("data.tiles.of_speech", percent=f"{100 * report.hours_kept / report.hours:.0f}")
    tiles.insert(1, Tile(t("data.tiles.agreed"), shown_hours(kept), share))
    return f"{tiles_html(tiles)}{_curve_html(report)}"


def _curve_html(report: AgreementReport) -> str:
    """Return the curve of yield with the limit, and a few of its points as a table."""
    heads = ("data.yield.limit", "data.yield.hours", "data.yield.clips", "data.yield.differing")
    shown = report.shown_curve()
    rows = (
        (
            f"{100 * each.limit:.1f} %",
            f"{each.hours:.2f}",
            f"{each.num_clips:,}",
            f"{100 * each.differing:.2f} %",
        )
        for each in shown
    )
    chosen = ('class="chosen"' * (each.limit == report.kept_point) for each in shown)
    table = table_html([(t(id), "number") for id in heads], rows, attributes=chosen)
    limit = t(
        "data.yield.chosen" if report.is_chosen else "data.yield.given",
        percent=f"{100 * (report.limit or 0):.1f}",
    )
    remark = t("data.yield.remark", first=report.recognizers[0], second=report.recognizers[-1])
    if report.shared_family:
        remark += " " + t("data.yield.family", family=report.shared_family)
    return (
        f"<h3>{escape(t('data.yield.heading'))}</h3>"
        f'<p class="lead">{escape(limit)} {escape(remark)}</p>'
        f'<div class="yield-curve">{_svg(report)}{table}</div>'
    )


def _svg(report: AgreementReport) -> str:
    shown = [point for point in report.curve if point.limit <= SHOWN_LIMIT]
    if not shown:
        return ""
    right, top = max(point.limit for point in shown) or 0.01, report.hours or 1.0
    points, before = [], 0.0
    for point in shown:
        x, y = point.limit / right, point.hours / top
        points += [(x, before), (x, y)]
        before = y
    axis = ("0 %", t("data.yield.axis"), f"{100 * right:.0f} %")
    return curve_svg(points, t("data.yield.title"), axis, min(report.limit or 0.0, right) / right)


def _facts(project: Project, source: Path | None = None) -> list[tuple[str, str]]:
    found = _files_in(source or project.recordings)
    size = shown_size(sum(path.stat().st_size for path in found))
    text = (
        f"{found[0].name}, {size}" if len(found) == 1 else t("data.facts.size", count=len(found), size=size)
    )
    return [(t("data.facts.recordings"), text)]


def _recordings(project: Project) -> tuple[Any, ...]:
    """Return the table of the recordings, the button to remove them, and a version."""
    html = recordings_html(project)
    return html, gr.Button(visible=bool(html)), files_version(project.recordings)


def _files_in(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    return sorted(
        path for path in source.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file()
    )
