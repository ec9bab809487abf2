"""Scoring section of tab 8: metrics of checkpoints on held-out sentences (tools/evaluate.py).

    NAME/scores/0001/  report.md scores.png summary.jsonl clips.jsonl audio/      one scoring job

The section shows the newest folder with a complete report.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.speech import Evaluate
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.listen.renders import next_folder, numbered
from indextts.webui.listen.saved_models import names
from indextts.webui.listen.speaking import is_training_anywhere
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import download_link, file_address
from indextts.webui.view_versions import files_version, job_version

STAGE = "evaluate"
FIELDS = ("num_clips", "seed", "device", "solver_steps")
REPORT_NAME, PICTURE_NAME = "report.md", "scores.png"
DOWNLOADS = (REPORT_NAME, PICTURE_NAME, "summary.jsonl", "clips.jsonl")
NOT_CHOSEN = "listen.none_to_score"
NOTHING = "listen.none_scored"


def build(page: Page) -> None:
    """Build the choice of checkpoints, the job panel, and the report."""
    gr.Markdown(t("listen.score_checkpoints"))
    with gr.Row():
        chosen = gr.Dropdown(
            [],
            multiselect=True,
            label=t("listen.checkpoints"),
            info=t("listen.checkpoints_help"),
            elem_id="scores-checkpoints",
        )
        asr = gr.Textbox(
            label=t("listen.recognizers"),
            info=t("listen.recognizers_help"),
            lines=2,
            elem_id="scores-asr",
        )
    with gr.Row():
        form = form_for(Evaluate, FIELDS)

    def commands(project: Project, settings: ProjectSettings, *values: Any) -> Sequence[Command]:
        return score_commands(page, project, settings, *values)

    stage_panel(page, Stage(STAGE, t("listen.score"), commands, [chosen, asr, *form.values()]))
    report = gr.Markdown(t(NOTHING), elem_id="scores-report")
    picture = gr.HTML(elem_id="scores-picture")

    page.watch(
        lambda project: files_version(project.run_dir),
        lambda name, now: checkpoints(page, name, now),
        [chosen],
        [chosen],
    )
    page.watch(
        lambda project: f"{job_version(project, STAGE)} {files_version(project.scores)}",
        lambda name: show(page, name),
        [report, picture],
    )


def score_commands(
    page: Page,
    project: Project,
    settings: ProjectSettings,
    chosen: Sequence[str] | None,
    asr: str | None,
    *values: Any,
) -> list[Command]:
    """Return the command that scores the chosen checkpoints on the validation sentences.

    Raises:
        UserError: nothing is chosen, or a recognizer folder is outside the allowed folders.
    """
    known = names(project)
    if not chosen or not all(name in known for name in chosen):
        raise UserError(t(NOT_CHOSEN))
    folders = [page.roots.inside(line, "a recognizer") for line in (asr or "").splitlines() if line.strip()]
    fields: dict[str, Any] = fields_from(Evaluate, FIELDS, values)
    fields = {name: value for name, value in fields.items() if value != Evaluate.model_fields[name].default}
    if fields.get("device", "auto") == "auto" and is_training_anywhere(page.workspace):
        fields["device"] = "cpu"
    return [
        Evaluate(
            checkpoint=[project.run_dir / name for name in chosen],
            manifest=project.utterances("val"),
            output_dir=next_folder(project.scores),
            asr=folders,
            features=project.preprocessed / "features",
            models=settings.base,
            **fields,
        )
    ]


def checkpoints(page: Page, name: str, now: Sequence[str] | None) -> Any:
    """Return the available checkpoints; the selection stays."""
    found = names(page.find_project(name))
    if now and all(one in found for one in now):
        return gr.Dropdown(choices=found, multiselect=True)  # the value may have changed meanwhile
    still = [one for one in now or () if one in found]
    return gr.Dropdown(choices=found, value=still or found[:1], multiselect=True)


def newest_report(project: Project) -> Path | None:
    """Return the folder of the newest complete report."""
    return next((folder for folder in numbered(project.scores) if (folder / PICTURE_NAME).is_file()), None)


def show(page: Page, name: str) -> tuple[str, str]:
    """Return the table of the newest report, and its picture with downloads."""
    project = page.find_project(name)
    folder = newest_report(project)
    if folder is None:
        return t(NOTHING), ""
    report = (folder / REPORT_NAME).read_text(encoding="utf-8").removeprefix("# Evaluation\n")
    links = "<br>".join(filter(None, (download_link(folder / one, one) for one in DOWNLOADS)))
    return report, f'<img src="{file_address(folder / PICTURE_NAME)}" style="max-width:100%"><p>{links}</p>'
