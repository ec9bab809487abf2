"""Run panel of a stage: outlook, start and stop, status, progress, log and command.

    outlook     what a start would do, what blocks it, what it would discard
    buttons     the primary button, Stop
    status      state or result of the newest job, its progress, and a link that leads on
    log         its last lines, with a filter and a download
    command     folded

One answer of `Stage.prepare` fills the outlook, the button and the command. A click asks again, so that the
server starts only what it has checked itself:

    start in `stage_panel` -> Stage.prepare (of the training: ../training/tab.py)
        -> start_job (projects/jobs/starting.py) -> the runner (projects/jobs/runner.py) -> the program
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.base import Command
from indextts.errors import UserError
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, list_jobs, newest_job, outcome
from indextts.projects.jobs.starting import CHECK_JOB, DATA_JOBS, DEMO_JOB, shell_line, start_job
from indextts.projects.jobs.stopping import kill_job, stop_job, stop_progress
from indextts.projects.names import title_of
from indextts.projects.project import PUBLISHED, Project, ProjectSettings, project_names, read_project
from indextts.projects.readings import apply_edited_readings
from indextts.system.amounts import shown_time
from indextts.webui.events import on
from indextts.webui.language import t, t_or, text_of
from indextts.webui.layout import fold, small_button
from indextts.webui.markup import link_html
from indextts.webui.page import Page
from indextts.webui.running.log_box import LogBox, log_values
from indextts.webui.running.outlook import Start, disk_full, made_by, outlook_html, refused, with_next_step
from indextts.webui.stage_list import BY_NAME, StageState, next_link, stage_states, stages_version
from indextts.webui.view_versions import is_running, jobs_version, project_version, running_version

ERROR = "[Error] "  # prefix of the last line of a failed program
ASIDE = ("download", "clean", "tensorboard", "proof")  # jobs that are never the main button of their tab
CONTINUE = {"finished": ("", "next.continue")}  # to the first stage that is not done, else to tab 8
LAST_LINES = 40  # of a log that are searched for this line
LAUNCHERS_LINES, LINES_A_PROCESS = 40, 10  # that torchrun writes after it


@dataclass(frozen=True)
class Stage:
    """A stage as its tab describes it to `stage_panel`.

    Args:
        name: of the stage; its jobs and the ids of its components carry it.
        button: id of the start button's text; once the stage is done, followed by "again".
        prepares: called with the project, its settings and the values of `inputs`; a UserError is a blocker.
        details: components that the outlook fills too, in one request with the panel.
        progress: returns the progress of the running job as HTML; "" if it is unknown.
        onward: link and text id by the state of the newest job, as {"finished": ("#pairs", ID)}; or CONTINUE.
        in_words: returns what an ended job found and links to what solves it, in place of its end and the
            link of `onward`; "" for a job that ended early.
        result: what the job made, shown below its status; built with render=False.
        store_settings: stores the chosen values at every start.
        filled_for: holds the name of the project whose values are in the form.
        also_changes: components that may change the commands without being an input.
        home_of: returns the project whose folder has the jobs, for a stage that is not of the chosen project.
    """

    name: str
    button: str
    prepares: Callable[..., Start]
    inputs: Sequence[Component] = ()
    details: Sequence[Component] = ()
    progress: Callable[[Project], str] = lambda _project: ""
    onward: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    in_words: Callable[[Project, Job], tuple[str, Sequence[tuple[str, str]]]] = lambda *_: ("", ())
    result: Component | None = None
    store_settings: Callable[[Project, Sequence[Command]], None] | None = None
    filled_for: Component | None = None
    also_changes: Sequence[Component] = ()
    home_of: Callable[[Project], Project] | None = None

    def home(self, chosen: Project) -> Project:
        return self.home_of(chosen) if self.home_of is not None else chosen

    def prepare(self, project: Project, settings: ProjectSettings, *values: Any) -> Start:
        """Return what a start would run and its outlook; an invalid form is a blocker."""
        try:
            return self.prepares(project, settings, *values)
        except UserError as error:
            return refused(error)


class _Panel:
    """Components of a run panel; `confirmed` has the `loss_key` that a first click confirmed."""

    def __init__(self, stage: Stage) -> None:
        name = stage.name
        self.outlook = gr.HTML(elem_id=f"{name}-outlook")
        self.confirmed = gr.Textbox(visible="hidden", container=False, show_label=False)
        with gr.Row(elem_classes=["act", "aside"] if name in ASIDE else "act"):
            kind: Any = "secondary" if name in ASIDE else "primary"
            # of a filled form, after its first outlook, which names what a click does
            self.start = gr.Button(
                t(stage.button), variant=kind, interactive=stage.filled_for is None, elem_id=f"{name}-start"
            )
            self.stop = gr.Button(t("jobs.stop"), elem_id=f"{name}-stop", visible=False)
            self.stop_now = gr.Button(
                t("jobs.stop_now"), variant="stop", visible=False, elem_id=f"{name}-stop-now"
            )
        self.after = gr.Dropdown(
            [(t("jobs.start_now"), "")],
            value="",
            label=t("jobs.start_when"),
            visible=False,
            elem_id=f"{name}-after",
        )
        self.unqueue = small_button("jobs.remove_from_queue", f"{name}-unqueue", visible=False)
        self.status = gr.Textbox(
            label=t("jobs.status"),
            show_label=False,
            container=False,
            interactive=False,
            elem_id=f"{name}-status",
            placeholder=" ",  # for the style sheet, which hides an empty status
            elem_classes="status",
        )
        self.bar, self.onward = gr.HTML(elem_id=f"{name}-bar"), gr.HTML(elem_id=f"{name}-onward")
        if stage.result is not None:
            stage.result.render()  # type: ignore[no-untyped-call]
        whose = f": {t(stage.button)}" if name in ASIDE else ""
        self.log = LogBox(name, whose)
        with fold(f"{t('jobs.show_command')}{whose}", f"{name}-command-fold"):
            self.preview = gr.Textbox(
                label=t("jobs.command"),
                lines=2,
                interactive=False,
                buttons=["copy"],
                elem_id=f"{name}-command",
            )

    @property
    def of_job(self) -> list[Component]:
        buttons = [self.stop, self.stop_now, self.unqueue]
        return [self.status, *buttons, self.bar, self.onward, self.log.source, self.log.note]


def stage_panel(page: Page, stage: Stage) -> gr.Button:
    """Build the run panel of a stage, connect its events and return its start button."""
    panel = _Panel(stage)
    _show_outlook(page, panel, stage)

    def start(chosen: Project, after: str | None, filled: str | None, confirmed: str, *values: Any) -> Any:
        if stage.filled_for is not None and filled != chosen.root.name:
            raise UserError(t("jobs.still_filling"))
        project, settings = stage.home(chosen), read_project(chosen)
        job_before = find_active(page.workspace, after)
        # a job that builds the tokenizer writes it with the readings of its start
        if stage.home_of is None and not is_running(project, "tokenizer"):
            apply_edited_readings(project, settings)  # first: the checks read the tokenizer
        found = stage.prepare(project, settings, *values)
        if found.error:
            raise UserError(found.error)
        losses = found.outlook.loss_key
        if losses and losses != confirmed:
            again = gr.Button(t("outlook.click_again"), elem_classes="amber")
            return [*[gr.skip()] * len(shown), again, losses]
        if job_before is None:  # a job that waits checks at its turn: its files may not be there yet
            found.check()
            if full := disk_full(project.root):
                raise UserError(full[0].text)
        if stage.store_settings is not None:
            stage.store_settings(project, found.commands)
        start_job(project, stage.name, found.commands, after=job_before, launch=found.launch)
        return [*show_job(project, stage, ""), gr.Button(interactive=False), ""]

    def show(chosen: Project, wanted: str) -> Any:
        return show_job(stage.home(chosen), stage, wanted)

    def end(how: Callable[[Job], None], chosen: Project, wanted: str) -> Any:
        how(active_job(stage.home(chosen), stage.name))
        return show(chosen, wanted)

    def leave_the_queue(chosen: Project, wanted: str) -> Any:
        for job in queued_jobs(stage.home(chosen), stage.name)[:1]:
            stop_job(job)
        return show(chosen, wanted)

    shown, wanted = panel.of_job, panel.log.wanted
    starting = [page.project, panel.after, stage.filled_for or page.project, panel.confirmed, *stage.inputs]
    on([panel.start.click], start, starting, [*shown, panel.start, panel.confirmed], waits_for_programs=True)
    on([panel.stop.click], partial(end, stop_job), [page.project, wanted], shown)
    on([panel.stop_now.click], partial(end, kill_job), [page.project, wanted], shown)
    on([panel.unqueue.click], leave_the_queue, [page.project, wanted], shown)

    def version(chosen: Project) -> str:
        home = stage.home(chosen)
        versions = (running_version(home, stage.name), jobs_version(home), _state_version(chosen, stage))
        return " ".join(versions)

    page.watch(version, show, shown, [wanted], also=[wanted.change])
    page.watch(
        lambda _project: " ".join(jobs_version(home) for home in job_homes(page.workspace)),
        lambda _project, now: waiting_choice(page.workspace, now),
        [panel.after],
        [panel.after],
    )
    return panel.start


def describe(job: Job | None) -> str:
    """Return the status of a job, or its result and when it ended; "" without a job."""
    if job is None:
        return ""
    now = time.time()
    stopping = stop_progress(job, now)
    stand = text_of(stopping if stopping else outcome(job, now))
    if job.ended is not None and job.began is not None:
        stand += f" ({shown_time(job.ended)})"
    problem = error_of(job) if job.state == "failed" else ""
    return f"{stand}. {problem}" if problem else stand


def error_of(job: Job) -> str:
    is_alone = job.launch.num_processes == 1
    by_launcher = 0 if is_alone else LAUNCHERS_LINES + LINES_A_PROCESS * job.launch.processes
    lines = tail(job.log, LAST_LINES + by_launcher).splitlines()
    return next((line.removeprefix(ERROR) for line in reversed(lines) if line.startswith(ERROR)), "")


def show_job(project: Project, stage: Stage, wanted: str) -> tuple[Any, ...]:
    """Return status, stop buttons, progress, onward link and log of the newest job of a stage."""
    job, queued = newest_job(project, stage.name), queued_jobs(project, stage.name)
    is_active = job is not None and job.is_active
    is_stopping = job is not None and job.state == "stopping"
    # a check is a part of its stage, the import
    of_stage = replace(stage, name="data") if stage.name == CHECK_JOB else stage
    is_done = not is_active and _is_done(_states(project, stage), of_stage)
    link, text = stage.onward.get("finished" if is_done else job.state if job else "", ("", ""))
    label = t(text) if link else ""
    if text == "next.continue":
        link, label = next_link(project, "export")
    words, links = ("", ()) if job is None or is_active else stage.in_words(project, job)
    if (links and not is_done) or link == f"#{stage.name}":
        link = ""
    state = words or describe(job)
    onward = [link_html(link, label, "primary-link" if is_done else "onward")] if link else []
    return (
        f"{state}. {t('jobs.queued', number=len(queued))}" if queued else state,
        gr.Button(visible=is_active, interactive=not is_stopping),
        gr.Button(visible=is_stopping),
        gr.Button(visible=bool(queued)),
        stage.progress(project) if is_active else "",
        " ".join([*onward, *(link_html(place, text, "onward") for place, text in links)]),
        *log_values(job.log if job else None, wanted),
    )


def queued_jobs(project: Project, stage: str) -> list[Job]:
    """Return the waiting jobs of a stage besides the shown job, newest first."""
    shown = newest_job(project, stage)
    return [job for job in list_jobs(project, stage) if job.state == "waiting" and job != shown]


def active_job(project: Project, stage: str) -> Job:
    """Return the active job of a stage; a UserError without one."""
    job = newest_job(project, stage)
    if job is None or not job.is_active:
        raise UserError(t("jobs.nothing_to_stop"))
    return job


def _show_outlook(page: Page, panel: _Panel, stage: Stage) -> None:
    def look(chosen: Project, filled: str, after: str | None, *values: Any) -> Any:
        if stage.filled_for is not None and filled != chosen.root.name:  # the form has another's values
            return [gr.skip()] * len(outputs)
        project, settings = stage.home(chosen), read_project(chosen)
        states = _states(project, stage)
        found = stage.prepare(project, settings, *values)
        outlook = with_next_step(found.outlook, states, stage.name)
        is_of_demo = stage.name in (*BY_NAME, *DATA_JOBS) and is_running(project, DEMO_JOB)
        if is_of_demo and not outlook.blockers:
            outlook = replace(outlook, blockers=[made_by("project", t("outlook.demo_runs"))])
        if not outlook.blockers:  # which name a full disk themselves, as those of a training
            outlook = replace(outlook, blockers=disk_full(project.root))
        is_stage_done = outlook.is_done or _is_done(states, stage)  # then the link onward is the main button
        is_done = is_stage_done and not outlook.button
        # the job before it may create missing files; the program checks at its turn
        may_start = bool(after) or not (outlook.blockers or is_running(project, stage.name))
        is_main = stage.name not in ASIDE
        button = gr.Button(
            outlook.button or (t("outlook.again", button=t(stage.button)) if is_done else t(stage.button)),
            interactive=may_start,
            variant="secondary" if not is_main or (is_stage_done and not outlook.losses) else "primary",
            elem_classes="amber" if outlook.losses else "",
        )
        details = outlook.details or [gr.skip()] * len(stage.details)
        lines = [shell_line(command, found.launch) for command in found.commands]
        preview = "\n".join(lines) if lines else f"[Error] {found.error}"
        has_main = is_main and not is_stage_done
        html = outlook_html(outlook, is_ready=may_start, is_done=is_done, is_main=has_main)
        return [html, button, "", preview, *details]

    def version(chosen: Project) -> str:
        home = stage.home(chosen)
        return f"{project_version(home)} {jobs_version(home)} {_state_version(chosen, stage)}"

    inputs = [stage.filled_for or page.project, panel.after, *stage.inputs]
    outputs = [panel.outlook, panel.start, panel.confirmed, panel.preview, *stage.details]
    page.watch(version, look, outputs, inputs, also=[page.form_signal(stage.name).change])
    page.report_changes(stage.name, [*inputs, *stage.also_changes])


def _states(project: Project, stage: Stage) -> list[StageState]:
    return stage_states(project) if stage.home_of is None else []


def _is_done(states: Sequence[StageState], stage: Stage) -> bool:
    return any(each.stage.name == stage.name and each.state == "done" for each in states)


def _state_version(project: Project, stage: Stage) -> str:
    return stages_version(project) if stage.home(project) == project else ""


# ---- start time of a job: now, or after an active job of any project


def job_homes(workspace: Path) -> list[Project]:
    """Return all folders with jobs: the projects, and the folder of the published files."""
    return [Project(workspace / name) for name in (*project_names(workspace), PUBLISHED)]


def waiting_choice(workspace: Path, now: str | None) -> gr.Dropdown:
    """Return the dropdown of active jobs, hidden without one; the selection stays while its job is active."""
    found = [(t("jobs.start_now"), "")]
    for name, job in _active_jobs(workspace):
        stage, title = t_or(f"stage.{job.stage}", job.stage), title_of(Project(workspace / name))
        found.append((t("jobs.after", stage=stage, project=title), f"{name}/{job.folder.name}"))
    if now in [choice for _, choice in found]:  # unchanged, because the user may change it meanwhile
        return gr.Dropdown(choices=found, visible=len(found) > 1)
    return gr.Dropdown(choices=found, value="", visible=len(found) > 1)


def find_active(workspace: Path, chosen: str | None) -> Path | None:
    """Return the folder of the chosen job, None for an immediate start; a UserError if it has ended."""
    if not chosen:
        return None
    for name, job in _active_jobs(workspace):
        if chosen == f"{name}/{job.folder.name}":
            return job.folder
    raise UserError(t("jobs.already_ended"))


def _active_jobs(workspace: Path) -> list[tuple[str, Job]]:
    return [
        (home.root.name, job) for home in job_homes(workspace) for job in list_jobs(home) if job.is_active
    ]
