"""Sub-tab Score of tab 8: metrics of checkpoints on held-out sentences (tools/evaluate.py).

    NAME/scores/0001/  report.md scores.png summary.jsonl clips.jsonl audio/      one scoring job

The sub-tab shows the newest folder with a complete report: the rows of summary.jsonl, the notes of report.md.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.options import RECOGNIZERS_NAME
from indextts.commands.speech import Evaluate
from indextts.errors import UserError
from indextts.projects.jobs.records import list_jobs
from indextts.projects.project import Project, ProjectSettings
from indextts.speech.evaluation.scores import (
    DIFFERENCES_NAME,
    GROUPS_NAME,
    RECORDINGS,
    SHARES,
    SUMMARY_NAME,
    Row,
    read_rows,
    score_cells,
)
from indextts.webui.devices import chosen_recognizers, device_shown, free_device
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.layout import columns, fields, fold, labelled
from indextts.webui.listen.renders import next_folder, numbered
from indextts.webui.listen.saved_models import fields_of, find_model, models
from indextts.webui.listen.speaking import strength_field, watch_speakers
from indextts.webui.markup import empty_html, table_html
from indextts.webui.page import Page
from indextts.webui.running.outlook import LinkedError, Notice, Outlook, Start, made_by, missing
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import download_link, file_address
from indextts.webui.view_versions import files_version, job_version, utterances_of

STAGE = "evaluate"
FIELDS = ("num_clips", "seeds", "seed", "device", "solver_steps")
REPORT_NAME, PICTURE_NAME = "report.md", "scores.png"
DOWNLOADS = (REPORT_NAME, PICTURE_NAME, SUMMARY_NAME, GROUPS_NAME, DIFFERENCES_NAME, "clips.jsonl")
SCORES = ("likeness", "rate", "length", *SHARES)  # as in `score_cells`, after the error rates
GROUPS = ("all", "short", "numbers", "questions", "foreign")  # with a translation


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            chosen = gr.Dropdown([], **labelled("listen.checkpoints", "scores-checkpoints"), multiselect=True)
            strength = strength_field(page, chosen, "scores-strength")
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
                [chosen, strength, asr, *form],
                onward={"finished": ("#listen/scores-report", "listen.open_report")},
            )
            stage_panel(page, stage)

    watch_speakers(page, [chosen])
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
    strength: float | None,
    asr: str | None,
    *values: Any,
) -> Start:
    """Return the command that scores the checkpoints, LoRAs at `strength`; a UserError without any."""
    found = [find_model(project, name) for name in chosen or ()]
    usable = {model.name: model for model in found}  # two names may be of the same file
    if not usable:
        if not models(project):
            find_model(project, None)  # its error leads to the training
        raise LinkedError(Notice(t("listen.none_to_score"), "#listen/scores-checkpoints", kind="unfilled"))
    given: dict[str, Any] = fields_from(Evaluate, FIELDS, values)
    given = {name: value for name, value in given.items() if value != Evaluate.model_fields[name].default}
    given["device"] = free_device(page.workspace, given.get("device", "auto"))
    if strength is not None and any(model.has_strength for model in usable.values()):
        given["adapter_strength"] = strength
    held_out = project.utterances("val")
    command = Evaluate(
        checkpoint=[fields_of(project, model, None, page.roots)["checkpoint"] for model in usable.values()],
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
    amounts = {"sentences": num_sentences, "seeds": command.seeds, "models": len(usable)}
    amounts["total"] = math.prod(amounts.values())
    facts = [(t("listen.checkpoints"), ", ".join(model.title for model in usable.values()))]
    facts.append((t("listen.sentences"), t("listen.sentences_of_models", **amounts)))
    facts.append((t("listen.recognizers_fold"), str(len(command.asr) or t("listen.no_recognizer"))))
    facts.append((t("listen.device"), device_shown(page.workspace, command.device)))
    facts.append((t("listen.folder"), str(command.output_dir)))
    blockers = missing(held_out, "listen.none_held_out", "preprocess")
    if not num_held_out and not blockers:  # a split without validation
        blockers = [replace(made_by("preprocess", t("listen.none_held_out")), kind="problem")]
    return Start([command], outlook=Outlook(facts, blockers))


def newest_report(project: Project) -> Path | None:
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
    table = ""
    with suppress(UserError):
        table = scores_html(read_rows(folder))
    try:
        lines = (folder / REPORT_NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    notes = [escape(line.removeprefix("* ")) for line in lines if line.startswith("* ")]
    return f'{table}<ul class="notes">{"".join(f"<li>{note}</li>" for note in notes)}</ul>'


def scores_html(rows: Sequence[Row]) -> str:
    titles = [
        *(t(f"listen.scores.{name}") for name in ("step", "clips")),
        *(t(f"listen.scores.{id}", name=name) for id in ("cer", "times") for name in rows[0].cer),
        *(t(f"listen.scores.{name}") for name in SCORES),
    ]
    heads = [(t("listen.checkpoint"), ""), (t("listen.group"), ""), *((title, "number") for title in titles)]
    cells = [
        [
            escape(t("listen.the_recordings") if name == RECORDINGS else name),
            escape(t(f"listen.groups.{group}") if group in GROUPS else group),
            *map(escape, scores),
        ]
        for name, group, *scores in score_cells(rows)
    ]
    return f'<div class="wide-table">{table_html(heads, cells)}</div>'
