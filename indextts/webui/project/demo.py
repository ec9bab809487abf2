"""The demo in tab 1: all its stages as one job, and when it is offered."""

import time
from collections.abc import Sequence
from typing import Literal

from indextts.commands.app import RunPipeline
from indextts.commands.base import Command
from indextts.projects.jobs.records import list_jobs, newest_job
from indextts.projects.jobs.starting import DEMO_JOB
from indextts.projects.pipeline import current_stage
from indextts.projects.project import (
    DEMO,
    Project,
    ProjectSettings,
    project_names,
    read_project,
    read_settings,
)
from indextts.webui.language import t
from indextts.webui.markup import meter_html
from indextts.webui.monitor.progress import duration
from indextts.webui.page import Page
from indextts.webui.running import history
from indextts.webui.running.job_chip import LEFT, progress_of_job
from indextts.webui.running.outlook import Notice, Outlook
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.stage_list import BY_NAME, stage_states, stages_version

Offer = Literal["first", "demo", ""]
NUM_GB = 0.3  # of the finished demo, measured


def build(page: Page) -> None:
    """Build the run panel of the demo."""
    home = demo_project(page)

    def commands(_project: Project, _settings: ProjectSettings) -> Sequence[Command]:
        return [RunPipeline(workspace=page.workspace, demo=True)]

    stage_panel(
        page,
        Stage(
            DEMO_JOB,
            "demo.start",
            commands,
            outlook=lambda project, _settings: outlook(project),
            outlook_version=lambda _project: f"{stages_version(home)} {history.version(home)}",
            progress=progress_html,
            onward={"finished": ("#listen", "demo.listen")},
            home=home,
        ),
    )


def demo_project(page: Page) -> Project:
    return Project(page.workspace / read_settings(DEMO).name)


def offer(page: Page, project: Project) -> Offer:
    """Return the offer of the demo: "first" if it is the only project, "" if it is not offered.

    A demo whose stages were started one by one is shown like any other project.
    """
    if project != demo_project(page) or not read_project(project).is_demo:
        return ""
    jobs = list_jobs(project)
    states = {each.state for each in stage_states(project)}
    if any(job.stage != DEMO_JOB for job in jobs) or states == {"done"} or (not jobs and "done" in states):
        return ""
    return "first" if project_names(page.workspace) == [project.root.name] else "demo"


def outlook(demo: Project) -> Outlook:
    """Return the outlook of the demo; a running job of one of its stages blocks it."""
    found = stage_states(demo)
    done = sum(each.state == "done" for each in found)
    facts = [
        (t("demo.stages"), t("demo.stages_done", done=done, total=len(found))),
        (t("demo.time"), t("demo.few_minutes")),
        (t("demo.disk"), f"{NUM_GB} GB"),
    ]
    job = newest_job(demo, DEMO_JOB)
    is_at_it = job is not None and job.is_active
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
    words = [title] if left is None else [title, t(LEFT, time=duration(left))]
    return meter_html(share or 0.0, " · ".join(words))
