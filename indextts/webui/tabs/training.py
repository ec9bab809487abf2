"""Tab 6: the trainer's flags as a form, the restore plan, Start, Stop, and how it goes."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import gradio as gr

from indextts.commands import Command, Train, to_argv
from indextts.errors import UserError
from indextts.pipeline import REPOSITORY, plan_stage
from indextts.project import Project, ProjectSettings
from indextts.restore.meta_plan import plan_command
from indextts.webui.charts import progress
from indextts.webui.events import on
from indextts.webui.forms import as_shown, fields_from, form_for
from indextts.webui.page import Page
from indextts.webui.panel import stage_panel
from indextts.webui.versions import once

PATHS = ("train_manifest", "val_manifest", "tokenizer", "config", "base_checkpoint", "output_dir")
MAIN = ("epochs", "max_steps", "batch_size", "grad_accumulation", "learning_rate", "warmup_steps", "amp")
NO_FORM = ("resume", "plan")  # they have a place of their own
ADVANCED = tuple(name for name in Train.model_fields if name not in (*PATHS, *MAIN, *NO_FORM))
FIELDS = (*MAIN, *ADVANCED, *PATHS)
PLAN_TIMEOUT_S = 300


def lay_out(page: Page) -> None:
    with gr.Row():
        form = form_for(Train, MAIN)
    with gr.Accordion("Advanced", open=False, elem_id="train-advanced"):
        with gr.Row():
            form |= form_for(Train, ADVANCED)
        form |= form_for(Train, PATHS)
    with gr.Row():
        resume = gr.Checkbox(label="Resume from checkpoint", elem_id="train-resume")
        path = gr.Textbox(
            label="Resume Checkpoint Path (optional)",
            placeholder="Leave empty for auto-resume from output_dir/latest.pth",
            elem_id="train-resume-path",
        )
    plan = gr.Textbox(
        label="What a start would do", lines=2, max_lines=30, interactive=False, elem_id="train-plan"
    )
    ask = gr.Button("Show the restore plan", elem_id="train-plan-start")
    inputs = [resume, path, *form.values()]

    def commands(
        project: Project, settings: ProjectSettings, is_resume: bool, typed: str, *values: Any
    ) -> Sequence[Command]:
        fields = fields_from(Train, FIELDS, values)
        for field in PATHS:
            if field in fields:
                fields[field] = checked(page, field, fields[field])
        planned = plan_stage(project, settings.with_fields("train", **fields), "train").commands
        resumed = resume_value(page, is_resume, typed)
        return [command.model_copy(update={"resume": resumed}) for command in planned]

    def show_plan(name: str, *values: Any) -> str:
        [command] = commands(page.find_project(name), page.find_settings(name), *values)
        return restore_plan(command)

    page.watch(once, lambda name: own_values(page, name), list(form.values()))
    on([ask.click], show_plan, [page.project, *inputs], [plan])
    pace = gr.Textbox(label="Progress", interactive=False, elem_id="train-progress")
    stage_panel(page, "train", "Start training", commands, inputs, before_start=require_plan)
    page.watch(show_progress, lambda name: show_progress(page.find_project(name)), [pace])


def own_values(page: Page, name: str) -> list[Any]:
    """Return what the project asks for, the trainer's defaults for the rest."""
    [command] = plan_stage(page.find_project(name), page.find_settings(name), "train").commands
    return [as_shown(getattr(command, field)) for field in FIELDS]


def checked(page: Page, field: str, value: Any) -> Any:
    """Return typed paths resolved, inside the folders that the page may use."""
    what = field.replace("_", " ")
    if isinstance(value, list):
        return [page.roots.inside(path, what) for path in value]
    return page.roots.inside(value, what)


def resume_value(page: Page, is_resume: bool, typed: str) -> str:
    """Return the trainer's --resume for the checkbox and the path as typed."""
    if not is_resume:
        return ""
    if not typed.strip():
        return "auto"
    return str(page.roots.inside(typed.strip(), "Resume Checkpoint Path"))


def restore_plan(command: Command) -> str:
    """Return what this start would do, by the function that the trainer's --plan prints from.

    Where that needs a look at weights, the trainer is asked in a process of its own: the page never loads
    what opens them.

    Raises:
        UserError: the start is refused; with the trainer's own sentence.
    """
    at_once = plan_command(command) if isinstance(command, Train) else None
    return ask_trainer(command) if at_once is None else at_once


def ask_trainer(command: Command) -> str:
    """Return what the trainer's --plan prints."""
    argv = [sys.executable, str(REPOSITORY / command.program), *to_argv(command), "--plan"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer, tempfile.TemporaryFile("w+") as problem:
        status = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=answer, stderr=problem, timeout=PLAN_TIMEOUT_S, check=False
        ).returncode
        answer.seek(0)
        problem.seek(0)
        said, wrong = answer.read().strip().splitlines(), problem.read().strip().splitlines()
    if status:
        raise UserError(wrong[-1].removeprefix("[Error] ") if wrong else f"the trainer ended with {status}")
    return "\n".join(line for line in said if not line.startswith("["))  # without the log


def require_plan(_project: Project, commands: Sequence[Command]) -> None:
    """Refuse to start what the trainer would refuse."""
    for command in commands:
        restore_plan(command)


def show_progress(project: Project) -> str:
    """Return step, speed and time left of the newest run."""
    return str(progress(project.run_dir, time.time()))
