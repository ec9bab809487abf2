"""The panel of a stage: the command as it will run, Start, Stop, how it goes, the end of its log.

The command is built from the form by the same function for the preview and for the start.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands import Command
from indextts.errors import UserError
from indextts.project import Project, ProjectSettings
from indextts.webui.events import on
from indextts.webui.jobs import Job, newest_job, shell_line, start_job, stop_job, tail
from indextts.webui.page import Page
from indextts.webui.versions import running_version

# Follows the end of the log, and stays where it is while somebody has scrolled up.
FOLLOW_LOGS = """() => document.querySelectorAll('.log textarea').forEach(box => {
  if (!box.dataset.seen) {
    box.dataset.seen = 1;
    box.addEventListener('scroll', () => {
      box.dataset.free = box.scrollHeight - box.scrollTop - box.clientHeight > 40 ? '1' : '';
    });
  }
  if (!box.dataset.free) box.scrollTop = box.scrollHeight;
})"""

CommandBuilder = Callable[..., Sequence[Command]]


@dataclass(frozen=True)
class Panel:
    """The components of a stage's panel, for tabs that add to it."""

    preview: gr.Textbox
    start: gr.Button
    stop: gr.Button
    status: gr.Textbox
    log: gr.Textbox


def stage_panel(
    page: Page,
    stage: str,
    button: str,
    commands: CommandBuilder,
    inputs: Sequence[Component] = (),
    before_start: Callable[[Project, Sequence[Command]], None] | None = None,
    home: Project | None = None,
    also_changes: Sequence[Component] = (),
) -> Panel:
    """Lay out the panel of `stage` and tie its events.

    Args:
        commands: called with the project, its settings and the values of `inputs`; returns what to run.
        before_start: is called before a start; a UserError of it prevents that.
        also_changes: components whose change may change the commands too, without being an input.
        home: takes the chosen project's place in a stage of the whole workspace; its folder has the jobs.
    """
    panel = _components(stage, button)

    def find_project(name: str) -> Project:
        return home or page.find_project(name)

    _show_command(page, panel, commands, inputs, also_changes, find_project)

    def start(name: str, *values: Any) -> tuple[str, str]:
        project = find_project(name)
        planned = commands(project, page.find_settings(name), *values)
        if before_start is not None:
            before_start(project, planned)
        job = start_job(project, stage, planned)
        return describe(job), ""

    def stop(name: str) -> str:
        job = newest_job(find_project(name), stage)
        if job is None or not job.is_active:
            raise UserError("nothing is running")
        stop_job(job)
        return "asked to stop: it ends its step and saves"

    on([panel.start.click], start, [page.project, *inputs], [panel.status, panel.log])
    on([panel.stop.click], stop, [page.project], [panel.status])
    page.watch(
        lambda chosen: running_version(home or chosen, stage),
        lambda name: show_job(find_project(name), stage),
        [panel.status, panel.log, panel.stop],
    ).then(None, None, None, js=FOLLOW_LOGS)
    return panel


def describe(job: Job | None) -> str:
    """Return how a job stands, in a few words."""
    if job is None:
        return "not started yet"
    seconds = (job.ended or time.time()) - job.started
    if job.state in ("running", "stopping"):
        return f"{job.state} for {seconds:.0f} s"
    status = "" if job.exit_status in (None, 0) else f" with status {job.exit_status}"
    return f"{job.state}{status} after {seconds:.0f} s"


def _components(stage: str, button: str) -> Panel:
    preview = gr.Textbox(
        label="Command", lines=2, interactive=False, buttons=["copy"], elem_id=f"{stage}-command"
    )
    with gr.Row():
        start = gr.Button(button, variant="primary", elem_id=f"{stage}-start")
        stop = gr.Button("Stop", elem_id=f"{stage}-stop")
    status = gr.Textbox(label="Status", interactive=False, elem_id=f"{stage}-status")
    log = gr.Textbox(
        label="Log", lines=14, max_lines=14, interactive=False, elem_id=f"{stage}-log", elem_classes="log"
    )
    return Panel(preview, start, stop, status, log)


def _show_command(
    page: Page,
    panel: Panel,
    commands: CommandBuilder,
    inputs: Sequence[Component],
    also_changes: Sequence[Component],
    find_project: Callable[[str], Project],
) -> None:
    def preview(name: str, *values: Any) -> str:
        try:
            settings: ProjectSettings = page.find_settings(name)
            planned = commands(find_project(name), settings, *values)
        except UserError as error:
            return f"[Error] {error}"
        return "\n".join(shell_line(command) for command in planned)

    shown_again = [page.project, *inputs, *also_changes]
    changes = [page.demo.load, *(component.change for component in shown_again)]  # type: ignore[attr-defined]
    on(changes, preview, [page.project, *inputs], [panel.preview], latest=True)


def show_job(project: Project, stage: str) -> tuple[Any, Any, Any]:
    """Return status, log and Stop of the newest job of a stage."""
    job = newest_job(project, stage)
    log = tail(job.log) if job else ""
    return describe(job), log, gr.Button(interactive=job is not None and job.is_active)
