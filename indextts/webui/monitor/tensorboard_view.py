"""TensorBoard section of tab 7: start, stop, and the embedded TensorBoard."""

import html

import gradio as gr

from indextts.commands.app import ServeTensorboard
from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.jobs.starting import TENSORBOARD_JOB, start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project
from indextts.projects.tensorboard import live_port
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.running.panel import describe
from indextts.webui.view_versions import running_version

STAGE = TENSORBOARD_JOB
HELP = "monitor.tensorboard_help"
FRAME = (
    '<iframe src="tensorboard/{project}/" title="TensorBoard" id="tensorboard-frame" loading="lazy"></iframe>'
)


def build(page: Page) -> None:
    with gr.Row(elem_id="tensorboard-row"):
        start_button = gr.Button(t("monitor.start_tensorboard"), elem_id="tensorboard-start")
        stop_button = gr.Button(t("jobs.stop"), elem_id="tensorboard-stop")
        status = gr.Textbox(
            label=t("monitor.status"),
            show_label=False,
            container=False,
            interactive=False,
            elem_id="tensorboard-status",
            elem_classes="status",
        )
    frame = gr.HTML(t(HELP), elem_id="tensorboard-page")

    page.watch(lambda project: running_version(project, STAGE), lambda name: status_of(page, name), [status])
    # separate from the status, because reloading the frame loses its settings
    page.watch(port_version, lambda name: frame_of(page.find_project(name)), [frame])
    on([start_button.click], lambda name: start(page.find_project(name)), [page.project], [status])
    on([stop_button.click], lambda name: stop(page.find_project(name)), [page.project], [status])


def command_for(project: Project) -> ServeTensorboard:
    """Return the command that serves the event files of the project's run."""
    return ServeTensorboard(
        logdir=project.run_dir / "logs",
        address_file=project.tensorboard_address,
        path_prefix=f"/tensorboard/{project.root.name}",
    )


def start(project: Project) -> str:
    """Start TensorBoard as a job and return its status.

    Raises:
        UserError: it already runs, or there are no event files yet.
    """
    command = command_for(project)
    if not command.logdir.is_dir():
        raise UserError(t("monitor.no_events", folder=command.logdir))
    return describe(start_job(project, STAGE, [command]))


def stop(project: Project) -> str:
    """Stop the job and return its status."""
    job = newest_job(project, STAGE)
    if job is None or not job.is_active:
        raise UserError(t("monitor.not_running"))
    stop_job(job)
    return describe(newest_job(project, STAGE))


def frame_of(project: Project) -> str:
    """Return the frame while TensorBoard runs, else instructions."""
    if live_port(project.tensorboard_address) is None:
        return t(HELP)
    return FRAME.format(project=html.escape(project.root.name))


def status_of(page: Page, name: str) -> str:
    """Return the status of the job."""
    return describe(newest_job(page.find_project(name), STAGE))


def port_version(project: Project) -> str:
    """Return a version that changes when the frame must change."""
    return str(live_port(project.tensorboard_address))
