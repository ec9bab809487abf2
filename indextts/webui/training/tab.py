"""Tab 6: resume card and settings on the left, the run panel with the outlook of a start on the right."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.launching import Launch
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.hardware import find_machine
from indextts.planning.preflight import Preflight, Problem, run_preflight
from indextts.planning.resume_table import ResumeRow, resume_rows
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project, ProjectSettings, project_names
from indextts.projects.stages import plan_stage
from indextts.runs.directory import checkpoint_files
from indextts.runs.owner import is_training
from indextts.webui.events import on
from indextts.webui.language import t, text_of
from indextts.webui.layout import columns
from indextts.webui.markup import meter_html
from indextts.webui.metrics_reader import RUNS
from indextts.webui.page import Page
from indextts.webui.run_progress import duration, progress_of
from indextts.webui.running.outlook import Outlook
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.training.launch_group import foreign_machines, other_nodes, require_allowed
from indextts.webui.training.restore_rows import refused_row
from indextts.webui.training.resume_card import card_values, plan_text_html, resume_card, running_values
from indextts.webui.training.settings_form import (
    connect_settings,
    marks_html,
    settings_form,
)
from indextts.webui.training.trainer_plan import restore_plan
from indextts.webui.training.training_form import (
    RESUME,
    chosen_resume,
    command_of,
    element_of,
    launch_in,
    store_resume,
)
from indextts.webui.training.training_outlook import (
    invalid_outlook,
    is_unknown,
    outlook_of,
    plan_rows,
    preflight_version,
    running_outlook,
)

MONITOR = ("#monitor", "training.open_monitor")
ONWARD = {
    "running": MONITOR,
    "stopping": MONITOR,
    "stopped": MONITOR,
    "failed": MONITOR,
    "finished": ("#listen", "training.open_listen"),
}
STEP_OF, STEPS_LEFT = "training.at_step_of", "jobs.time_left"


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            card = resume_card()
            form = settings_form(page)
        inputs = [card.resume, card.path, *form.fields.values(), *form.launch.values()]

        def commands(
            project: Project, settings: ProjectSettings, is_resume: bool, typed: str, *values: Any
        ) -> Sequence[Train]:
            return [command_of(page.roots, project, settings, is_resume, typed, values)]

        def launch(_project: Project, _settings: ProjectSettings, *values: Any) -> Launch:
            return launch_in(values[len(RESUME) :])

        def launched(name: str, *values: Any) -> tuple[Train, Launch]:
            project, settings = page.find_project(name), page.find_settings(name)
            return commands(project, settings, *values)[0], launch(project, settings, *values)

        def outlook(project: Project, settings: ProjectSettings, *values: Any) -> Outlook:
            [command] = commands(project, settings, *values)
            wanted = launch(project, settings, *values)
            nodes = gr.Textbox(other_nodes(command, wanted), visible=wanted.nodes > 1)
            if is_active(project) or is_training(command.output_dir):  # by the demo or from a terminal
                return replace(running_outlook(), details=[*running_values(), nodes, ""])
            found = preflight_of(page, command, wanted)
            if not_allowed := foreign_machines(settings, wanted):
                found = replace(found, problems=(*found.problems, Problem("launch", not_allowed)))
            card_now = card_values(
                resume_rows(command),
                command.resume,
                found,
                plan_rows(command, found),
                can_read=is_unknown(command, found),
            )
            chosen = found.estimate.command if found.estimate else None
            marks = marks_html(command, chosen, is_resume=found.resumed is not None)
            return replace(outlook_of(command, found), details=[*card_now, nodes, marks])

        def invalid(
            project: Project, settings: ProjectSettings, error: UserError, is_resume: bool, *values: Any
        ) -> Outlook:
            rows = known_checkpoints(page, project, settings, values)
            resume = str(values[0] or "auto") if is_resume else ""
            plan = [] if element_of(str(error)) else [refused_row(str(error))]
            card_now = card_values(rows, resume, None, plan, can_read=False)
            nodes, marks = gr.Textbox(visible=False), marks_html(None, None, error)
            return replace(invalid_outlook(error), details=[*card_now, nodes, marks])

        filled_for = connect_settings(page, form, inputs, launched)
        with side:
            stage_panel(
                page,
                Stage(
                    "train",
                    "training.start_training",
                    commands,
                    inputs,
                    launch=launch,
                    outlook=outlook,
                    invalid=invalid,
                    details=[*card.shown, form.other_nodes, form.marks],
                    outlook_version=preflight_version,
                    progress=progress_bar,
                    onward=ONWARD,
                    allowed=require_allowed,
                    before_start=lambda _, planned, wanted: require_ready(page, planned, wanted),
                    filled_for=filled_for,
                ),
            )

    def read_plan(name: str, *values: Any) -> str:
        command, wanted = launched(name, *values)
        return plan_text_html(restore_plan(command, wanted.num_processes))

    def tick_resume(name: str) -> Any:
        return resume_update(page.find_project(name))

    def choose_resume(name: str, filled: str, is_resume: bool) -> None:
        if filled == name:  # else a later filling of the form would take it for the project's
            store_resume(page.find_project(name), page.find_settings(name), is_resume)

    on([card.resume.input], choose_resume, [page.project, filled_for, card.resume], [], latest=True)
    on(
        [card.menu.input],
        lambda name, filled: choose_resume(name, filled, True),
        [page.project, filled_for],
        [],
        latest=True,
    )
    on([card.read.click], read_plan, [page.project, *inputs], [card.plan], waits_for_programs=True)
    page.watch(lambda project: str(bool(checkpoint_files(project.run_dir))), tick_resume, [card.resume])


def is_active(project: Project) -> bool:
    """Return whether a training job of the project runs."""
    job = newest_job(project, "train")
    return job is not None and job.is_active and job.state != "waiting"


def resume_update(project: Project) -> Any:
    """Return an update that ticks the resume once there are checkpoints, unless the user unticked it."""
    is_there = bool(checkpoint_files(project.run_dir))
    return gr.Checkbox(value=True) if is_there and chosen_resume(project) is None else gr.skip()


def known_checkpoints(
    page: Page, project: Project, settings: ProjectSettings, values: Sequence[Any]
) -> list[ResumeRow]:
    """Return the checkpoints of a form with an invalid value: those of the project's own run directory.

    Args:
        values: the path of the resume, then those of FIELDS and LAUNCH.
    """
    with suppress(UserError):
        return resume_rows(command_of(page.roots, project, settings, False, "", values[1:]))
    with suppress(UserError):
        [command] = plan_stage(project, settings, "train").commands
        assert isinstance(command, Train)
        return resume_rows(command)
    return []


def preflight_of(page: Page, command: Train, launch: Launch) -> Preflight:
    """Return the readiness and estimate of a start on this machine, with the speeds of all projects."""
    runs = [Project(page.workspace / name).run_dir for name in project_names(page.workspace)]
    return run_preflight(command, find_machine(), runs, launch)


def require_ready(page: Page, commands: Sequence[Command], launch: Launch) -> None:
    """Raise a UserError if a check blocks the start or the trainer would refuse it."""
    for command in commands:
        assert isinstance(command, Train)
        problems = preflight_of(page, command, launch).problems
        if problems:
            raise UserError(" ".join(f"{text_of(problem.message)}." for problem in problems))
        restore_plan(command, launch.num_processes)


def progress_bar(project: Project) -> str:
    """Return step and time left of the running training as a bar; "" before its first line."""
    found = progress_of(RUNS.of(project.run_dir).read(), project.run_dir, time.time())
    if found.step is None or not found.total_steps or found.ended is not None:
        return ""
    words = [t(STEP_OF, step=f"{found.step:,}", total=f"{found.total_steps:,}")]
    if found.seconds_left is not None:
        words.append(t(STEPS_LEFT, time=duration(found.seconds_left)))
    return meter_html(found.step / found.total_steps, ", ".join(words))
