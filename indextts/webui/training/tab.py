"""Tab 6: training form, estimate, readiness checks, start, stop and progress."""

import time
from collections.abc import Sequence
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.launching import Launch
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.hardware import find_machine
from indextts.planning.preflight import Preflight, Problem, run_preflight
from indextts.projects.project import Project, ProjectSettings, project_names
from indextts.system.messages import as_is
from indextts.webui.events import on
from indextts.webui.forms import form_for
from indextts.webui.language import t, text_of
from indextts.webui.monitor.progress import progress
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.training.field_search import field_search
from indextts.webui.training.launch_group import (
    foreign_machines,
    launch_group,
    other_nodes,
    require_allowed,
)
from indextts.webui.training.training_form import (
    ADVANCED,
    FIELDS,
    MAIN,
    NAMES,
    PATHS,
    RESUME,
    command_of,
    connect_fill_buttons,
    fill_buttons,
    filled,
    launch_in,
    store_draft,
)
from indextts.webui.training.training_outlook import (
    HEADERS,
    checkpoint_of_row,
    checkpoint_rows,
    estimate_html,
    plan_of,
    preflight_version,
    problems_html,
    restore_plan,
)

WIDTHS: list[str | int] = [230, 70, 70, 150, 110, 160, 240]  # in pixels: a phone scrolls sideways


def build(page: Page) -> None:
    buttons, source = fill_buttons()
    search_place = gr.Row()
    with gr.Row():
        form = form_for(Train, MAIN)
    with gr.Accordion(t("training.advanced"), open=False, elem_id="train-advanced") as advanced:
        with gr.Row():
            form |= form_for(Train, ADVANCED)
        form |= form_for(Train, PATHS)
    launch_form, others = launch_group(page)
    with search_place:
        field_search(Train, FIELDS, advanced)
    resume, path, table, plan, ask = _resume_part()
    estimate = gr.HTML(elem_id="train-estimate", padding=False)
    problems = gr.HTML(elem_id="train-problems", padding=False)
    inputs = [resume, path, *form.values(), *launch_form.values()]

    def commands(
        project: Project, settings: ProjectSettings, is_resume: bool, typed: str, *values: Any
    ) -> Sequence[Train]:
        return [command_of(page.roots, project, settings, is_resume, typed, values)]

    def launch(_project: Project, _settings: ProjectSettings, *values: Any) -> Launch:
        return launch_in(values[len(RESUME) :])

    def launched(name: str, *values: Any) -> tuple[Train, Launch]:
        project, settings = page.find_project(name), page.find_settings(name)
        return commands(project, settings, *values)[0], launch(project, settings, *values)

    def command(name: str, *values: Any) -> Train:
        return launched(name, *values)[0]

    def refresh(name: str, filled_for: str, after: str | None, *values: Any) -> list[Any]:
        project, settings = page.find_project(name), page.find_settings(name)
        if filled_for != name:  # the form still has the values of another project
            values = tuple(filled(project, settings).values())
        try:
            [wanted] = commands(project, settings, *values)
            requested_launch = launch(project, settings, *values)
        except UserError as error:
            unusable = problems_html([Problem("settings", as_is(str(error)))])
            return ["", [], "", unusable, gr.Textbox(visible=False), gr.Button(interactive=False)]
        preflight = preflight_of(page, wanted, requested_launch)
        not_allowed = foreign_machines(settings, requested_launch)
        forbidden = [Problem("launch", not_allowed)] if not_allowed else []
        answers: list[Any] = [plan_of(wanted, preflight), checkpoint_rows(wanted)]
        answers += [estimate_html(preflight.estimate), problems_html([*preflight.problems, *forbidden])]
        answers.append(gr.Textbox(other_nodes(wanted, requested_launch), visible=requested_launch.nodes > 1))
        # the previous job may create missing files; the trainer checks at its turn
        return [*answers, gr.Button(interactive=not forbidden and (bool(after) or not preflight.problems))]

    def changed(name: str, filled_for: str, after: str | None, *values: Any) -> list[Any]:
        if filled_for == name:
            store_draft(
                page.find_project(name), page.find_settings(name), dict(zip(NAMES, values, strict=True))
            )
        return refresh(name, filled_for, after, *values)

    def chosen(event: gr.SelectData, name: str, *values: Any) -> list[Any]:
        row = event.row_value  # as sent by the browser
        first = str(row[0]) if isinstance(row, list) and row else ""
        return [True, str(checkpoint_of_row(command(name, *values), first))]

    def show_plan(name: str, *values: Any) -> str:
        wanted, requested_launch = launched(name, *values)
        return restore_plan(wanted, requested_launch.num_processes)

    pace = gr.Textbox(label=t("training.progress"), interactive=False, elem_id="train-progress")
    filled_for = connect_fill_buttons(page, buttons, source, inputs, launched)
    panel = stage_panel(
        page,
        Stage(
            "train",
            t("training.start_training"),
            commands,
            inputs,
            allowed=require_allowed,
            before_start=lambda _, planned, requested_launch: require_ready(page, planned, requested_launch),
            filled_for=filled_for,
            launch=launch,
        ),
    )
    outlook = [plan, table, estimate, problems, others, panel.start]
    given = [page.project, *inputs]
    refresh_inputs = [filled_for, panel.after, *inputs]
    page.watch(preflight_version, refresh, outlook, refresh_inputs)
    changes = [component.change for component in (panel.after, *inputs)]  # type: ignore[attr-defined]
    on(changes, changed, [page.project, *refresh_inputs], outlook, latest=True)
    on([table.select], chosen, given, [resume, path], each=True)
    on([ask.click], show_plan, given, [plan], waits_for_programs=True)
    page.watch(show_progress, lambda name: show_progress(page.find_project(name)), [pace])


def _resume_part() -> tuple[gr.Checkbox, gr.Textbox, gr.Dataframe, gr.Textbox, gr.Button]:
    """Build the resume section."""
    with gr.Row():
        resume = gr.Checkbox(label=t("training.resume"), elem_id="train-resume")
        path = gr.Textbox(
            label=t("training.resume_path"),
            placeholder=t("training.resume_path_help"),
            elem_id="train-resume-path",
        )
    table = gr.Dataframe(
        headers=list(map(t, HEADERS)),
        datatype="str",
        interactive=False,
        wrap=True,
        max_height=320,
        column_widths=WIDTHS,
        label=t("training.checkpoints"),
        elem_id="train-checkpoints",
    )
    plan = gr.Textbox(
        label=t("training.restore_plan"), lines=2, max_lines=30, interactive=False, elem_id="train-plan"
    )
    return (
        resume,
        path,
        table,
        plan,
        gr.Button(t("training.show_restore_plan"), elem_id="train-plan-start"),
    )


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


def show_progress(project: Project) -> str:
    """Return step, speed and time left of the newest run."""
    return str(progress(project.run_dir, time.time()))
