"""Status section of tab 7: progress of the run and load of the machine."""

import time
from html import escape

import gradio as gr

from indextts.planning.hardware import find_machine, gpus_for
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project
from indextts.runs.owner import is_training
from indextts.webui.language import t
from indextts.webui.monitor.machine import read_machine
from indextts.webui.monitor.metrics_reader import RUNS
from indextts.webui.monitor.progress import Progress, progress_of
from indextts.webui.page import Page
from indextts.webui.view_versions import periodic_version

TRAINER_GONE = "monitor.trainer_gone"


def build(page: Page) -> None:
    with gr.Row(elem_id="monitor-status"):
        bar = gr.HTML(elem_id="monitor-summary")
        machine = gr.HTML(elem_id="monitor-machine")
    # the time left changes continuously, so the shown text is its own version
    page.watch(bar_html, lambda name: bar_html(page.find_project(name)), [bar])

    def machine_now(name: str) -> str:
        in_training = gpus_in_training(page.find_project(name))
        return machine_html(read_machine(page.workspace).rows(in_training))

    page.watch(periodic_version, machine_now, [machine])


def gpus_in_training(project: Project) -> list[int]:
    """Return the numbers of the GPUs of the project's running training; empty if none runs."""
    job = newest_job(project, "train")
    if job is None or job.state not in ("running", "stopping"):
        return []
    return [gpu.number for gpu in gpus_for(find_machine(), job.launch)]


def run_status(project: Project) -> tuple[Progress, str]:
    """Return the progress of the run, and a warning if the trainer is gone."""
    now = progress_of(RUNS.of(project.run_dir).read(), project.run_dir, time.time())
    is_gone = now.step is not None and now.ended is None and not is_training(project.run_dir)
    return now, t(TRAINER_GONE) if is_gone else ""


def bar_html(project: Project) -> str:
    """Return the progress as a bar above its words."""
    now, warning = run_status(project)
    words = f"<p>{escape(str(now))}</p>" + (f"<p><strong>{escape(warning)}</strong></p>" if warning else "")
    if now.step is None or not now.total_steps:
        return words
    share = f'max="{now.total_steps}" value="{min(now.step, now.total_steps)}"'
    percent = min(100, 100 * now.step // now.total_steps)
    return f'<progress class="steps" {share} aria-label="{percent} %"></progress>{words}'


def machine_html(rows: list[list[str]]) -> str:
    """Return the state of the machine as a table."""
    lines = (f"<tr><th>{escape(what)}</th><td>{escape(state)}</td></tr>" for what, state in rows)
    return f'<table class="machine">{"".join(lines)}</table>'
