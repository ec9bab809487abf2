"""TensorBoard section of tab 7: its run panel, and the embedded TensorBoard."""

import html

import gradio as gr

from indextts.commands.app import ServeTensorboard
from indextts.errors import UserError
from indextts.projects.jobs.starting import TENSORBOARD_JOB
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.tensorboard import live_port
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import files_version

FRAME = (
    '<iframe src="tensorboard/{project}/" title="TensorBoard" id="tensorboard-frame" loading="lazy"></iframe>'
)


def build(page: Page) -> None:
    stage = Stage(
        TENSORBOARD_JOB,
        "monitor.start_tensorboard",
        commands,
        outlook_version=lambda project: files_version(project.run_dir),
    )
    stage_panel(page, stage)
    frame = gr.HTML(t("monitor.tensorboard_help"), elem_id="tensorboard-page")
    # separate from the status, because reloading the frame loses its settings
    page.watch(port_version, frame_of, [frame])


def commands(project: Project, _settings: ProjectSettings | None = None) -> list[ServeTensorboard]:
    """Return the command that serves the event files of the project's run.

    Raises:
        UserError: there are no event files yet.
    """
    folder = project.run_dir / "logs"
    if not folder.is_dir():
        raise UserError(t("monitor.no_events", folder=folder))
    prefix = f"/tensorboard/{project.root.name}"
    return [ServeTensorboard(logdir=folder, address_file=project.tensorboard_address, path_prefix=prefix)]


def frame_of(project: Project) -> str:
    """Return the frame while TensorBoard runs, else instructions."""
    if live_port(project.tensorboard_address) is None:
        return t("monitor.tensorboard_help")
    return FRAME.format(project=html.escape(project.root.name))


def port_version(project: Project) -> str:
    """Return a version that changes when the frame must change."""
    return str(live_port(project.tensorboard_address))
