"""Tab 4: encode recordings as features, with a progress bar."""

import html
import re
from collections.abc import Sequence
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.data import Preprocess as PreprocessCommand
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_stage
from indextts.webui.forms import fields_from, form_for, project_values
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel

FIELDS = ("backend", "val_ratio", "val_speakers", "seed", "device")
# log lines of indextts/data/progress.py, and the last line of tools/preprocess_data.py
PROGRESS = re.compile(
    r"((?:Checking|Comparing) recordings|Encoding): (\d+)/(\d+) clips(.*)|"
    r"\d+ for validation; (\d+ encoded, \d+ kept, \d+ rejected.*)"
)
DOING = {
    "Checking recordings": "preprocess.doing.checking_recordings",
    "Comparing recordings": "preprocess.doing.comparing_recordings",
    "Encoding": "preprocess.doing.encoding",
}


def build(page: Page) -> None:
    with gr.Row():
        form = form_for(PreprocessCommand, FIELDS)
    inputs = list(form.values())
    filled_for = page.fill(
        lambda name, _before: project_values(PreprocessCommand, FIELDS, page.find_settings(name).preprocess),
        inputs,
    )
    stage = Stage("preprocess", t("preprocess.preprocess"), commands, inputs, filled_for=filled_for)
    stage_panel(page, stage)
    bar = gr.HTML(elem_id="preprocess-bar")
    page.watch(show_bar, lambda name: show_bar(page.find_project(name)), [bar])


def commands(project: Project, settings: ProjectSettings, *values: Any) -> Sequence[Command]:
    fields = fields_from(PreprocessCommand, FIELDS, values)
    return plan_stage(project, settings.with_fields("preprocess", **fields), "preprocess").commands


def show_bar(project: Project) -> str:
    """Return a progress bar or the result, from the last progress line of the log."""
    job = newest_job(project, "preprocess")
    found = list(PROGRESS.finditer(tail(job.log))) if job else []
    return bar(found[-1]) if found else ""


def bar(line: re.Match[str]) -> str:
    doing, done, total, speed, result = line.groups()
    if result:
        return f"<div>{html.escape(result)}</div>"
    text = html.escape(t(DOING[doing], done=done, total=total, speed=speed))
    return f'<progress value="{done}" max="{total}" style="width:100%"></progress><div>{text}</div>'
