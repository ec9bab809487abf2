"""The demo in tab 1: all its stages as one job, and when it is offered.

Each base has a demo project of its own. That of IndexTTS-2.0 is in every workspace; choosing another base
creates its demo and selects it.
"""

import time
from collections.abc import Sequence
from typing import Literal

import gradio as gr

from indextts.commands.app import RunPipeline
from indextts.commands.base import Command
from indextts.commands.bases import BASES
from indextts.errors import UserError
from indextts.projects.jobs.records import list_jobs, newest_job
from indextts.projects.jobs.starting import DEMO_JOB
from indextts.projects.names import titled_projects
from indextts.projects.pipeline import copy_base_files, current_stage
from indextts.projects.project import (
    DEMO,
    REPOSITORY,
    Project,
    ProjectSettings,
    demo_names,
    project_names,
    read_project,
    read_settings,
)
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.layout import labelled
from indextts.webui.markup import meter_html
from indextts.webui.page import Page
from indextts.webui.run_progress import duration
from indextts.webui.running.job_chip import progress_of_job
from indextts.webui.running.outlook import Notice, Outlook
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.stage_list import BY_NAME, stage_states, stages_version
from indextts.webui.view_versions import is_running, jobs_version

Offer = Literal["first", "demo", ""]
NUM_GB = 0.3  # of the finished demo, measured


def build(page: Page) -> None:
    """Build the choice of the base and the run panel of the demo."""
    base = gr.Radio(
        [(base.title, base.name) for base in BASES.values()], **labelled("demo.base", "demo-base")
    )
    on([base.input], lambda name: choose(page, name), [base], [page.project])
    page.watch(lambda project: project.root.name, lambda project: demo_of(page, project).base.name, [base])

    def commands(demo: Project, _settings: ProjectSettings) -> Sequence[Command]:
        return [RunPipeline(workspace=page.workspace, demo=True, base=demo.base.name)]

    stage = Stage(
        DEMO_JOB,
        "demo.start",
        commands,
        outlook=lambda project, *_: outlook(project),
        outlook_version=lambda project: outlook_version(demo_of(page, project)),
        progress=progress_html,
        onward={"finished": ("#listen", "demo.listen")},
        home_of=lambda chosen: demo_of(page, chosen),
    )
    stage_panel(page, stage)


def demo_project(page: Page) -> Project:
    """Return the demo that every workspace has."""
    return Project(page.workspace / read_settings(DEMO).name)


def demo_of(page: Page, chosen: Project) -> Project:
    """Return the chosen project if it is a demo, else the demo that every workspace has."""
    return chosen if chosen.root.name in demo_names().values() else demo_project(page)


def choose(page: Page, base_name: str) -> gr.Dropdown:
    """Select the demo of a base; create it if the workspace lacks it.

    Raises:
        UserError: there is no such base, or the project cannot be written.
    """
    base = next((base for base in BASES.values() if base.name == base_name), None)
    if base is None:
        raise UserError(f"no base {base_name}; choose {' or '.join(BASES)}")
    settings = read_settings(REPOSITORY / base.demo)
    if settings.name not in project_names(page.workspace):
        copy_base_files(Project(page.workspace / settings.name), settings)
    return gr.Dropdown(choices=titled_projects(page.workspace), value=settings.name)


def outlook_version(demo: Project) -> str:
    return f"{stages_version(demo)} {jobs_version(demo)}"


def offer(page: Page, project: Project) -> Offer:
    """Return the offer of a demo: "first" if nothing else is in the workspace, "" if it is not offered.

    A demo whose stages were started one by one is shown like any other project.
    """
    if project != demo_of(page, project) or not read_project(project).is_demo:
        return ""
    jobs = list_jobs(project)
    states = {each.state for each in stage_states(project)}
    if any(job.stage != DEMO_JOB for job in jobs) or states == {"done"} or (not jobs and "done" in states):
        return ""
    others = [name for name in project_names(page.workspace) if name != project.root.name]
    is_new = all(
        name in demo_names().values() and not list_jobs(Project(page.workspace / name)) for name in others
    )
    return "first" if is_new else "demo"


def outlook(demo: Project) -> Outlook:
    """Return the outlook of the demo; a running job of one of its stages blocks it."""
    found = stage_states(demo)
    done = sum(each.state == "done" for each in found)
    facts = [
        (t("demo.stages"), t("demo.stages_done", done=done, total=len(found))),
        (t("demo.time"), t("demo.few_minutes")),
        (t("demo.disk"), f"{NUM_GB} GB"),
    ]
    job, is_at_it = newest_job(demo, DEMO_JOB), is_running(demo, DEMO_JOB)
    running = [each for each in found if each.state == "running" and not is_at_it]
    blockers = [
        Notice(t("demo.stage_runs", stage=t(each.stage.title)), f"#{each.stage.tab}") for each in running
    ]
    return Outlook(facts, blockers, button=t("demo.resume") if job is not None else "")


def progress_html(demo: Project) -> str:
    """Return the progress of the running demo as a bar."""
    job, now = newest_job(demo, DEMO_JOB), time.time()
    if job is None or job.began is None:
        return ""
    share, left = progress_of_job(demo, job, now)
    name = current_stage(demo, job.began)
    title = next((t(stage.title) for stage in BY_NAME.values() if stage.name == name), t("demo.begins"))
    words = [title] if left is None else [title, t("jobs.time_left", time=duration(left))]
    return meter_html(share or 0.0, " · ".join(words))
