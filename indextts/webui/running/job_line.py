"""Line of active jobs above the tabs, and browser notifications when a job ends."""

import html
import json
import time
from pathlib import Path

import gradio as gr

from indextts.projects.jobs.records import Job, list_jobs, outcome
from indextts.webui.language import stage_name, t, text_of
from indextts.webui.page import EVERY_TAB, Page
from indextts.webui.running.queue_choice import active_version, job_homes

NOTHING = "jobs.none_running"
RUNS = "jobs.runs"
STATES = {
    "running": "jobs.states.running",
    "waiting": "jobs.states.waiting",
    "stopping": "jobs.states.stopping",
}
NOTIFY = "jobs.notify"
ENDED_S = 600.0  # how long an ended job is reported, because a page may have slept

# The page reports once that a job it saw active has ended: as a browser notification if permitted, and in
# the page title.
NOTIFY_JS = """() => {
  const line = document.querySelector('#now [data-jobs]');
  if (!line) return;
  const known = window.knownJobs ?? {};
  window.knownJobs = Object.fromEntries(JSON.parse(line.dataset.jobs).map(job => [job.id, job]));
  for (const job of Object.values(window.knownJobs)) {
    if (job.active || !known[job.id]?.active) continue;
    document.title = job.text;
    if (window.Notification?.permission === 'granted') new Notification(document.title, {tag: job.id});
  }
}"""

# Browsers ask for permission only after a click; the button's text shows the answer.
REQUEST_PERMISSION_JS = """async (asked, allowed, refused) => {
  if (!window.Notification) return refused;
  return await Notification.requestPermission() === 'granted' ? allowed : refused;
}"""


def build(page: Page) -> None:
    """Build the line, which every tab shows."""
    with gr.Row(elem_id="now-row"):
        line = gr.HTML(elem_id="now", padding=False)
        ask = gr.Button(t(NOTIFY), size="sm", scale=0, min_width=220, elem_id="notify")
    page.of_tab(EVERY_TAB).watch(
        lambda _project: active_version(page.workspace),
        lambda _name: now_html(page.workspace, time.time()),
        [line],
    ).then(None, None, None, js=NOTIFY_JS)
    # hidden: they hold the translated texts of the first button after the answer
    allowed = gr.Button(t("jobs.notify_allowed"), visible="hidden")
    refused = gr.Button(t("jobs.notify_refused"), visible="hidden")
    ask.click(None, [ask, allowed, refused], [ask], js=REQUEST_PERMISSION_JS)


def now_html(workspace: Path, now: float) -> str:
    """Return the active jobs of all projects as a line, and recently ended jobs as data for the page."""
    jobs = [(home.root.name, job) for home in job_homes(workspace) for job in list_jobs(home)]
    lately = [(name, job) for name, job in jobs if job.is_active or now - (job.ended or 0.0) < ENDED_S]
    data = json.dumps([_as_data(name, job, now) for name, job in lately], ensure_ascii=False)
    active = [
        t(RUNS, stage=stage_name(job.stage), project=name, state=t(STATES[job.state]))
        for name, job in lately
        if job.is_active
    ]
    text = " · ".join(active) or t(NOTHING)
    return f'<div data-jobs="{html.escape(data, quote=True)}">{html.escape(text)}</div>'


def _as_data(name: str, job: Job, now: float) -> dict[str, str | bool]:
    text = t(RUNS, stage=stage_name(job.stage), project=name, state=text_of(outcome(job, now)))
    return {"id": f"{name}/{job.folder.name}", "active": job.is_active, "text": text}
