"""Chip of the running job in the top bar, and browser notifications when a job ends."""

import html
import json
import time
from pathlib import Path
from urllib.parse import quote

import gradio as gr

from indextts.projects.jobs.records import Job, list_jobs, outcome
from indextts.projects.jobs.starting import CHECK_JOB, CLEAN_JOB, DEMO_JOB, TENSORBOARD_JOB, TRANSCRIBE_JOB
from indextts.projects.names import title_of
from indextts.projects.pipeline import ENDED, current_stage
from indextts.projects.project import PUBLISHED, Project
from indextts.webui.language import t, t_or, text_of
from indextts.webui.page import EVERY_TAB, Page
from indextts.webui.run_progress import duration, progress_of, read_run
from indextts.webui.running.panel import job_homes
from indextts.webui.stage_list import STAGES

TAB_OF_STAGE = {stage.name: stage.tab for stage in STAGES} | {
    "proof": "training/proof-start",
    "train": "monitor",
    "listen": "listen/listen-speak",
    "compare": "listen/listen-compare",
    "evaluate": "listen/listen-score",
    "export": "listen/listen-export",
    "publish": "listen/listen-publish",
    "serve": "listen/listen-serve",
    CHECK_JOB: "data/data-tab-check",
    CLEAN_JOB: "data/clean-start",
    TRANSCRIBE_JOB: "data/data-tab-transcribe",
    TENSORBOARD_JOB: "monitor/tensorboard",
    DEMO_JOB: "project",
}
# of the time of a demo; after the export it speaks
DEMO_SHARES = {"data": 1, "tokenizer": 1, "preprocess": 1, "pairs": 1, "train": 12, "export": 1, ENDED: 1}
ENDED_S = 600.0  # how long an ended job is reported, because a page may have slept

# Browsers ask for permission only after a click; the button's text shows the answer.
REQUEST_PERMISSION_JS = """async (asked, allowed, refused) => {
  if (!window.Notification) return refused;
  return await Notification.requestPermission() === 'granted' ? allowed : refused;
}"""


def build(page: Page) -> None:
    """Build the chip and the button for notifications, which every tab shows."""
    chip = gr.HTML(elem_id="now", padding=False, js_on_load="watch('value', window.reportEndedJobs)")
    ask = gr.Button(t("jobs.notify"), size="sm", elem_id="notify", elem_classes="quiet")

    def shown(_project: Project) -> str:
        return chip_html(page.workspace, time.time())

    page.of_tab(EVERY_TAB).watch(shown, shown, [chip])  # its text is its version
    # hidden: they hold the translated texts of the first button after the answer
    allowed = gr.Button(t("jobs.notify_allowed"), visible="hidden")
    refused = gr.Button(t("jobs.notify_refused"), visible="hidden")
    ask.click(None, [ask, allowed, refused], [ask], js=REQUEST_PERMISSION_JS)


def chip_html(workspace: Path, now: float) -> str:
    """Return the first active job, except TensorBoard, which never ends, as a link; ended ones as data."""
    jobs = [(home, job) for home in job_homes(workspace) for job in list_jobs(home)]
    lately = [(home, job) for home, job in jobs if job.is_active or now - (job.ended or 0.0) < ENDED_S]
    listed = [_as_data(home, job, now) for home, job in lately]
    data = html.escape(json.dumps(listed, ensure_ascii=False), quote=True)
    active = [(home, job) for home, job in lately if job.is_active and job.stage != TENSORBOARD_JOB]
    if not active:
        nothing = html.escape(t("jobs.none_running"))
        return f'<div data-jobs="{data}"><span class="chip idle">{nothing}</span></div>'
    home, job = min(active, key=lambda each: each[1].state == "waiting")
    more = f" +{len(active) - 1}" if len(active) > 1 else ""
    brief, ring, details = t(f"jobs.states.{job.state}"), "", []
    text = _text(home, job, brief)
    share, left = progress_of_job(home, job, now)
    if share is not None:  # short, because it is the title of the browser's tab too
        brief = f"{100 * share:.0f} %"
        text = f"{t(f'jobs.stages.{job.stage}')} {brief}"
        ring, details = f'<i class="ring" style="--share:{100 * share:.0f}"></i>', [title_of(home)]
    details += [] if left is None else [t("jobs.time_left", time=duration(left))]
    link = f"?project={quote(home.root.name)}#{TAB_OF_STAGE.get(job.stage, 'project')}"
    if home.root.name == PUBLISHED:
        link = "#project"
    details_html = f"<span>{html.escape(' · '.join(details))}</span>" if details else ""
    before = f"<span>{html.escape(text.removesuffix(brief))}</span>"  # a phone shows the rest
    inside = f"{ring}{before} {html.escape(brief + more)} {details_html}"
    chip = f'<a class="chip" href="{html.escape(link)}">{inside}</a>'
    return f'<div data-jobs="{data}" data-title="{html.escape(text)}">{chip}</div>'


def progress_of_job(project: Project, job: Job, now: float) -> tuple[float | None, float | None]:
    """Return the finished share of a training or demo job and the seconds left; None if they are unknown."""
    if job.stage == DEMO_JOB and job.began is not None:
        stage = current_stage(project, job.began)
        before = sum(list(DEMO_SHARES.values())[: list(DEMO_SHARES).index(stage)]) if stage else 0
        share, left = _training(project, now) if stage == "train" else (None, None)
        return (before + DEMO_SHARES.get(stage, 0) * (share or 0.0)) / sum(DEMO_SHARES.values()), left
    return _training(project, now) if job.stage == "train" and job.state != "waiting" else (None, None)


def _training(project: Project, now: float) -> tuple[float | None, float | None]:
    found = progress_of(read_run(project.run_dir), project.run_dir, now)
    if found.step is None or not found.total_steps or found.ended is not None:
        return None, None
    return min(1.0, found.step / found.total_steps), found.seconds_left


def _text(home: Project, job: Job, state: str) -> str:
    return t("jobs.runs", stage=t_or(f"stage.{job.stage}", job.stage), project=title_of(home), state=state)


def _as_data(home: Project, job: Job, now: float) -> dict[str, str | bool]:
    text = _text(home, job, text_of(outcome(job, now)))
    return {"id": f"{home.root.name}/{job.folder.name}", "active": job.is_active, "text": text}
