"""Job history in tab 1: every job of the project, with command, status and log of the chosen job."""

import html
import os
import shlex
import time

import gradio as gr

from indextts.errors import UserError
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, clock, job_folders, list_jobs, outcome, read_job
from indextts.projects.jobs.starting import script
from indextts.projects.project import Project
from indextts.webui.events import on
from indextts.webui.language import t, text_of
from indextts.webui.layout import fold
from indextts.webui.markup import sent, table_html
from indextts.webui.page import SEND_CLICKS, Page
from indextts.webui.serving.security import download_link
from indextts.webui.view_versions import jobs_version

HEADERS = ["jobs.headers.job", "jobs.headers.duration", "jobs.headers.status", "jobs.headers.command"]
MAX_ROWS = 500
MAX_COMMAND_CHARS = 100
LAST_LINES = 40


def build(page: Page) -> None:
    with fold(t("jobs.all_jobs"), "all-jobs"):
        table = gr.HTML(elem_id="jobs", js_on_load=SEND_CLICKS)
        details = gr.HTML(elem_id="job-details")
    page.watch(jobs_version, jobs_html, [table])
    # once a job is shown, only another project hides it
    page.watch(lambda project: str(any(job_folders(project))), hint, [details])

    def select(project: Project, event: gr.SelectData) -> str:
        return job_html(find_job(project, str(event.row_value[0])))

    on([table.select], select, [page.project], [details], each=True)


def jobs_html(project: Project) -> str:
    """Return the newest jobs as a table, an active one without a duration; a click on a row shows the job."""
    now, rows, clicks = time.time(), [], []
    for job in list_jobs(project)[:MAX_ROWS]:
        duration = "" if job.is_active or job.ended is None else clock(job.seconds(now))
        cells = (job.folder.name, duration, text_of(outcome(job, now)), _command(job))
        rows.append([html.escape(cell) for cell in cells])
        clicks.append(f'{sent(job.folder.name)} tabindex="0"')
    return table_html([(t(id), "") for id in HEADERS], rows, attributes=clicks)


def _command(job: Job) -> str:
    """Return the first command without the folders of its paths, which are the same in every row."""
    words = [_last_part(word) for word in job.argvs[0]] if job.argvs else []
    command = shlex.join(words)
    if len(command) > MAX_COMMAND_CHARS:
        command = command[: MAX_COMMAND_CHARS - 1] + "…"
    return t("jobs.and_more", command=command, count=len(job.argvs) - 1) if len(job.argvs) > 1 else command


def _last_part(word: str) -> str:
    flag, equals, value = word.partition("=")
    return f"{flag}={os.path.basename(value)}" if equals and value.startswith("/") else word  # noqa: PTH119


def hint(project: Project) -> str:
    return html.escape(t("jobs.choose" if any(job_folders(project)) else "jobs.none_yet"))


def find_job(project: Project, name: str) -> Job:
    """Return the job of this name; a UserError if the project has none."""
    folder = next((folder for folder in job_folders(project) if folder.name == name), None)
    job = read_job(folder) if folder else None
    if job is None:
        raise UserError(t("jobs.no_job", name=name, project=project.root.name))
    return job


def job_html(job: Job) -> str:
    """Return commands, versions, links and the last log lines of a job, all escaped."""
    commands = script(job).read_text(encoding="utf-8") if script(job).is_file() else ""
    versions = ", ".join(f"{name} {version}" for name, version in job.versions.items())
    links = [download_link(job.log, f"{job.folder.name}.log"), download_link(script(job), "command.sh")]
    parts = [
        f"<p><b>{html.escape(job.folder.name)}</b> {html.escape(versions)} {' '.join(links)}</p>",
        f'<pre class="log-view">{html.escape(commands)}</pre>' if commands else "",
        f'<pre class="log-view">{html.escape(tail(job.log, LAST_LINES))}</pre>',
    ]
    return "".join(parts)
