"""Sub-tab Score of tab 8: metrics of checkpoints on held-out sentences (tools/evaluate.py).

    NAME/scores/0001/  report.md scores.png summary.jsonl clips.jsonl audio/      one scoring job

The sub-tab shows the newest folder with a complete report: the rows of summary.jsonl, the notes of report.md.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from pydantic import BaseModel, ValidationError

from indextts.commands.options import RECOGNIZERS_NAME
from indextts.commands.speech import Evaluate
from indextts.errors import UserError
from indextts.projects.jobs.records import list_jobs
from indextts.projects.project import Project, ProjectSettings
from indextts.webui.devices import chosen_recognizers, device_shown, free_device
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.layout import columns, fields, fold, labelled
from indextts.webui.listen.renders import next_folder, numbered
from indextts.webui.listen.saved_models import find_model, models
from indextts.webui.listen.speaking import watch_checkpoints
from indextts.webui.markup import empty_html, table_html
from indextts.webui.page import Page
from indextts.webui.running.outlook import LinkedError, Notice, Outlook, Start, made_by, missing
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import download_link, file_address
from indextts.webui.view_versions import files_version, job_version, utterances_of

STAGE = "evaluate"
FIELDS = ("num_clips", "seed", "device", "solver_steps")
REPORT_NAME, SUMMARY_NAME, PICTURE_NAME = "report.md", "summary.jsonl", "scores.png"
DOWNLOADS = (REPORT_NAME, PICTURE_NAME, SUMMARY_NAME, "clips.jsonl")
RECORDINGS = "recordings"  # the name of the first row


class Score(BaseModel):
    """A line of summary.jsonl: `Row` of indextts/speech/evaluation/report.py, which needs torch."""

    name: str
    step: int | None
    num_clips: int
    cer: dict[str, float]
    likeness: float | None
    syllables_per_s: float
    length_ratio: float
    no_stop: float | None
    loops: float | None
    silent: float


SCORES = ("likeness", "rate", "length", "no_stop", "loops", "silent")  # as in `_cells`, after the error rates


def build(page: Page) -> None:
    """Build the form, the run panel and the report."""
    with columns() as (main, side):
        with main:
            chosen = gr.Dropdown([], **labelled("listen.checkpoints", "scores-checkpoints"), multiselect=True)
            with fields():
                form = list(form_for(Evaluate, FIELDS).values())
            with fold(t("listen.recognizers_fold"), "scores-recognizers"):
                asr = gr.Textbox(**labelled("listen.recognizers", "scores-asr"), lines=2)
            report = gr.HTML(elem_id="scores-report")
            picture = gr.HTML(elem_id="scores-picture")
        with side:
            stage = Stage(
                STAGE,
                "listen.score",
                partial(prepare, page),
                [chosen, asr, *form],
                onward={"finished": ("#listen/scores-report", "listen.open_report")},
            )
            stage_panel(page, stage)

    watch_checkpoints(page, chosen)
    page.watch(
        lambda project: f"{job_version(project, STAGE)} {files_version(project.scores)}",
        show,
        [report, picture],
    )


def prepare(
    page: Page,
    project: Project,
    settings: ProjectSettings,
    chosen: Sequence[str] | None,
    asr: str | None,
    *values: Any,
) -> Start:
    """Return the command that scores the chosen checkpoints; it is blocked without validation sentences.

    Raises:
        UserError: nothing is chosen, or a recognizer folder is outside the allowed folders.
    """
    usable = [find_model(project, name) for name in chosen or ()]
    if not usable:
        if not models(project):
            find_model(project, None)  # its error leads to the training
        raise LinkedError(Notice(t("listen.none_to_score"), "#listen/scores-checkpoints"))
    given: dict[str, Any] = fields_from(Evaluate, FIELDS, values)
    given = {name: value for name, value in given.items() if value != Evaluate.model_fields[name].default}
    given["device"] = free_device(page.workspace, given.get("device", "auto"))
    held_out, titles = project.utterances("val"), {model.name: model.title for model in usable}
    command = Evaluate(
        checkpoint=[project.run_dir / name for name in titles],
        manifest=held_out,
        output_dir=next_folder(project.scores, list_jobs(project, STAGE)),
        asr=chosen_recognizers(page.roots, asr),
        asr_folder=settings.base / RECOGNIZERS_NAME,
        features=project.preprocessed / "features",
        models=settings.base,
        **given,
    )
    try:
        num_held_out = len(utterances_of(held_out))
    except UserError:
        num_held_out = 0
    num_sentences = min(command.num_clips or num_held_out, num_held_out)
    amounts = {"sentences": num_sentences, "models": len(titles), "total": num_sentences * len(titles)}
    facts = [(t("listen.checkpoints"), ", ".join(titles.values()))]
    facts.append((t("listen.sentences"), t("listen.sentences_of_models", **amounts)))
    facts.append((t("listen.recognizers_fold"), str(len(command.asr) or t("listen.no_recognizer"))))
    facts.append((t("listen.device"), device_shown(page.workspace, command.device)))
    facts.append((t("listen.folder"), str(command.output_dir)))
    blockers = missing(held_out, "listen.none_held_out", "preprocess")
    if not num_held_out and not blockers:  # a split without validation
        blockers = [replace(made_by("preprocess", t("listen.none_held_out")), kind="problem")]
    return Start([command], outlook=Outlook(facts, blockers))


def newest_report(project: Project) -> Path | None:
    """Return the folder of the newest complete report."""
    return next((folder for folder in numbered(project.scores) if (folder / PICTURE_NAME).is_file()), None)


def show(project: Project) -> tuple[str, str]:
    """Return the table of the newest report, and its picture with downloads."""
    folder = newest_report(project)
    if folder is None:
        return empty_html(t("listen.none_scored")), ""
    links = " ".join(filter(None, (download_link(folder / one, one) for one in DOWNLOADS)))
    picture = f'<img src="{file_address(folder / PICTURE_NAME)}" alt="{escape(t("listen.curves"))}">'
    return report_html(folder), f"{picture}<p>{links}</p>"


def report_html(folder: Path) -> str:
    """Return the scores of a report as a table, and the settings of the measurement."""
    scores = read_scores(folder / SUMMARY_NAME)
    table = scores_html(scores) if scores else ""
    try:
        lines = (folder / REPORT_NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    notes = [escape(line.removeprefix("* ")) for line in lines if line.startswith("* ")]
    return f'{table}<ul class="notes">{"".join(f"<li>{note}</li>" for note in notes)}</ul>'


def read_scores(path: Path) -> list[Score]:
    """Return the scores of a summary, the recordings first; empty if it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Score.model_validate(json.loads(line)) for line in lines]
    except (OSError, ValueError, ValidationError):
        return []


def scores_html(scores: Sequence[Score]) -> str:
    """Return a row for each checkpoint, the recordings first."""
    recordings = scores[0]
    heads = [(t("listen.checkpoint"), ""), *((title, "number") for title in _titles(recordings))]
    names = [t("listen.the_recordings") if score.name == RECORDINGS else score.name for score in scores]
    rows = [
        [escape(cell) for cell in (name, *_cells(score, recordings))]
        for name, score in zip(names, scores, strict=True)
    ]
    return f'<div class="wide-table">{table_html(heads, rows)}</div>'


def _titles(recordings: Score) -> list[str]:
    return [
        *(t(f"listen.scores.{name}") for name in ("step", "clips")),
        *(t(f"listen.scores.{id}", name=name) for id in ("cer", "times") for name in recordings.cer),
        *(t(f"listen.scores.{name}") for name in SCORES),
    ]


def _cells(score: Score, recordings: Score) -> list[str]:
    rates = {name: score.cer.get(name) for name in recordings.cer}
    floors = recordings.cer.values()
    times = [
        rate / floor if rate is not None and floor else None
        for rate, floor in zip(rates.values(), floors, strict=True)
    ]
    return [
        _shown(score.step, ",d"),
        f"{score.num_clips:,}",
        *(_shown(rate, ".1%") for rate in rates.values()),
        *(_shown(time, ".2f") for time in times),
        _shown(score.likeness, ".3f"),
        f"{score.syllables_per_s:.1f}",
        f"{score.length_ratio:.2f}",
        _shown(score.no_stop, ".0%"),
        _shown(score.loops, ".0%"),
        f"{score.silent:.0%}",
    ]


def _shown(value: float | None, format: str) -> str:
    return "-" if value is None else f"{value:{format}}"
