"""Tab 1: the demo and a new project at a first visit; later the stages, runs, jobs, next step and machine.

Both visits have the same components. The class of #visit, set from the disk, decides which are shown and
where (page_files/project.css):

    first    nothing has run and there is only the demo: its stages and its start beside the new project
    demo     the demo was started as one job and is not complete: its start is the primary button
    rest     a project with data: one button runs the stages that remain, as one job that can be stopped
    (none)   stages and runs beside the next step, machine and base model

The demo, which is in every workspace, runs all its stages as one job, and so does what remains of another
project.
"""

import os
import shlex
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Literal

import gradio as gr

from indextts.commands.app import RunPipeline
from indextts.commands.base import Command
from indextts.commands.speech import Synthesize
from indextts.data.manifest import read_utterances
from indextts.data.pair_summary import PairSummary, summary_path
from indextts.errors import UserError
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import Job, clock, job_folders, list_jobs, newest_job, outcome, read_job
from indextts.projects.jobs.starting import DEMO_JOB, script
from indextts.projects.pipeline import current_stage
from indextts.projects.project import (
    DEMO_NAME,
    Project,
    ProjectSettings,
    project_names,
    read_project,
    write_project,
)
from indextts.system.amounts import shown_size
from indextts.system.yaml_files import read_if_valid
from indextts.text.bases import load_tokenizer
from indextts.webui.data.check_view import in_words
from indextts.webui.data.import_outlook import shown_dataset
from indextts.webui.events import on
from indextts.webui.forms import with_drafts
from indextts.webui.language import shown_hours, t, text_of
from indextts.webui.layout import columns, fold
from indextts.webui.markup import link_html, meter_html, sent, sound_html, table_html, tiles_html
from indextts.webui.monitor.machine import machine_tiles, read_machine
from indextts.webui.page import SEND_CLICKS, Page
from indextts.webui.project import creating
from indextts.webui.project.runs import best_point, mel_losses, run_rows, runs_html, runs_version, sparkline
from indextts.webui.run_progress import duration, progress_of, read_run
from indextts.webui.running.job_chip import progress_of_job
from indextts.webui.running.outlook import LEAST_FREE_BYTES, Notice, Outlook, Start
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import download_link, file_address
from indextts.webui.stage_list import (
    BY_NAME,
    StageState,
    overview_since,
    stage_states,
    stages_html,
    stages_version,
    step_to_take,
)
from indextts.webui.view_versions import (
    files_version,
    is_running,
    jobs_version,
    num_lines,
    periodic_version,
    throttled_version,
    utterances_of,
)

RUN_EVERY_S = 10.0
Offer = Literal["first", "demo", "rest", ""]
SOUND_NAME = "demo"  # folder in listen/ with what the demo speaks at its end
DEMOS = ("first", "demo")  # offers of the demo, as `offer` returns them
JOB_HEADERS = ("job", "duration", "status", "command")
MAX_JOBS = 500
MAX_COMMAND_CHARS = 100
LAST_LINES = 40  # of a job's log


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            sound = gr.HTML(elem_id="demo-sound")
            way = gr.HTML(elem_id="way")
            with gr.Column(elem_id="demo-panel"):
                build_demo(page)
            runs = gr.HTML(elem_id="runs")
            build_jobs(page)
        with side:
            next_step = gr.HTML(elem_id="next-step")
            machine = gr.HTML(elem_id="hardware")
            with gr.Column(elem_id="base-part"):
                creating.build_base(page)
            with gr.Column(elem_id="new-part"):
                creating.build(page)

    def version(project: Project) -> str:
        return f"{offer(page, project)} {stages_version(project)}"

    page.watch(lambda project: f"{version(project)} {facts_version(project)}", partial(way_html, page), [way])
    page.watch(lambda project: files_version(project.listen / SOUND_NAME), demo_sound_html, [sound])
    page.watch(version, partial(next_html, page), [next_step])
    page.watch(runs_version, lambda project: runs_html(run_rows(project)), [runs])

    def machine_html(_project: Project) -> str:
        tiles = tiles_html(machine_tiles(read_machine(page.workspace)))
        return f"<h3>{escape(t('project.this_machine'))}</h3>{tiles}"

    page.watch(periodic_version, machine_html, [machine], queue=False)


def way_html(page: Page, project: Project) -> str:
    """Return the stages with their facts, under the offer of the demo or a heading."""
    offered, found = offer(page, project), stage_states(project)
    facts = [stage_fact(project, each.stage.name) for each in found]
    title, lead, of_demo = t("project.stages"), "", offered in DEMOS
    if of_demo:
        title, lead = t("demo.heading"), t("demo.lead")
    return (
        f'<div id="visit" class="{offered}"><h2>{escape(title)}</h2>'
        f"{f'<p>{escape(lead)}</p>' if lead else ''}{stages_html(found, facts, is_way=not of_demo)}</div>"
    )


def next_html(page: Page, project: Project) -> str:
    """Return the next step with the one link that leads there; "" while the demo is offered."""
    offered = offer(page, project)
    css = "onward" if offered else "primary-link"
    return "" if offered in DEMOS else step_html(stage_states(project), css)


def step_html(found: Sequence[StageState], css: str) -> str:
    """Return the running stage, else the next step, with a link to its tab; if all are done, to tab 8."""
    step = step_to_take(found)
    title, text, tab, label = t("next.done_title"), t("next.done"), "listen", t("next.listen")
    if step is not None:
        is_training = (step.stage.name, step.state) == ("train", "running")
        title = t("next.running_title") if step.state == "running" else t("next.title")
        text = step.text if step.state == "next" else f"{t(step.stage.title)}: {step.text}"
        tab = "monitor" if is_training else step.stage.tab
        label = t("next.open", tab=t("tab.monitor") if is_training else t(step.stage.title))
    link = link_html(f"#{tab}", label, css)
    return f"<h3>{escape(title)}</h3><p>{escape(text)}</p>{link}"


def stage_fact(project: Project, stage: str) -> str:
    """Return the fact of a stage, "" without files or with corrupt ones."""
    try:
        return FACTS[stage](project)
    except (UserError, OSError, ValueError, KeyError, TypeError):
        return ""


def facts_version(project: Project) -> str:
    paths = [project.manifest, project.tokenizer, project.utterances("train"), project.pairs("train")]
    run = throttled_version(project.run_dir / "metrics.jsonl", RUN_EVERY_S)
    return f"{files_version(*paths, project.export)} {run}"


def _tokenizer(project: Project) -> str:
    return t("facts.tokenizer", count=_num_pieces(project.tokenizer, files_version(project.tokenizer)))


def _preprocess(project: Project) -> str:
    return _split_sizes("facts.preprocess", project.utterances)


def _data(project: Project) -> str:
    overview, data = overview_since(project, 0), shown_dataset(project)
    is_rejected = overview is not None and overview.num_rejected
    return t("facts.rejected", data=data, count=overview.num_rejected) if overview and is_rejected else data


def _pairs(project: Project) -> str:
    summary = read_if_valid(PairSummary, summary_path(project.pairs("train")))
    if summary is None:
        return _split_sizes("facts.pairs", project.pairs)
    return _split_sizes(
        "facts.pairs_hours", project.pairs, hours=shown_hours(3600 * summary.numbers["hours"])
    )


def _train(project: Project) -> str:
    lines = read_run(project.run_dir)
    if not lines:
        return ""
    found, best = progress_of(lines, project.run_dir, time.time()), best_point(mel_losses(lines, "val"))
    step = t("facts.step", step=found.step, total=found.total_steps)
    return step if best is None else t("facts.train", step=step, best=best[0], loss=best[1])


def _export(project: Project) -> str:
    files = sorted(project.export.iterdir())
    return t("facts.export", size=shown_size(sum(path.stat().st_size for path in files))) if files else ""


FACTS: dict[str, Callable[[Project], str]] = {
    "data": _data,
    "tokenizer": _tokenizer,
    "preprocess": _preprocess,
    "pairs": _pairs,
    "train": _train,
    "export": _export,
}


def _split_sizes(id: str, file_of: Callable[[str], Path], **values: str) -> str:
    train, val = (num_lines(file_of(split)) for split in ("train", "val"))
    return "" if train is None or val is None else t(id, train=train, val=val, **values)


@lru_cache(maxsize=16)
def _num_pieces(model: Path, _version: str) -> int:
    return load_tokenizer(model).size


def build_demo(page: Page) -> None:
    def prepare(project: Project, _settings: ProjectSettings) -> Start:
        if is_demo(project):
            all_stages = RunPipeline(workspace=page.workspace, demo=True)
            return Start([all_stages, *sound_commands(project)], outlook=outlook(project))
        step = step_to_take(stage_states(project))
        config, first = project.root / "project.json", step.stage.name if step else "export"
        command = RunPipeline(workspace=page.workspace, config=config, first=first)
        return Start([command], outlook=outlook(project))

    def failed_check(project: Project, job: Job) -> tuple[str, Sequence[tuple[str, str]]]:
        is_of_data = current_stage(project, job.began or job.started) == "data"
        return in_words(project, job) if job.state == "failed" and is_of_data else ("", ())

    def store_drafts(project: Project, _planned: Sequence[Command]) -> None:
        if not is_demo(project):
            write_project(project, with_drafts(project, read_project(project)))

    stage = Stage(
        DEMO_JOB,
        "demo.start",
        prepare,
        progress=progress_html,
        onward={"finished": ("#listen", "demo.listen")},
        in_words=failed_check,
        store_settings=store_drafts,
        home_of=lambda chosen: chosen,
    )
    stage_panel(page, stage)


def sound_commands(project: Project) -> list[Synthesize]:
    """Return the commands with which the fine-tuned model and the base speak the demo's first sentence."""
    settings = read_project(project)
    assert settings.manifest is not None
    sentence, *others = read_utterances(settings.manifest)
    voice = next(other for other in others if other.speaker == sentence.speaker)
    models = {"tuned": project.run_dir / "best.pth", "base": project.config.parent}
    return [
        Synthesize(
            checkpoint=model,
            text=[sentence.text],
            voice=str(voice.audio),
            features=project.preprocessed / "features",
            models=settings.base,
            output=project.listen / SOUND_NAME / f"{name}.wav",
        )
        for name, model in models.items()
    ]


def demo_sound_html(project: Project) -> str:
    """Return what the finished demo sounds like: base, fine-tuned model and recording; "" before."""
    sounds = {name: project.listen / SOUND_NAME / f"{name}.wav" for name in ("base", "tuned")}
    if not all(path.is_file() for path in sounds.values()):
        return ""
    sentence = utterances_of(project.manifest)[0]  # as in `sound_commands`
    sounds["recording"] = sentence.audio
    players = "".join(
        f"<figure><figcaption>{escape(t(f'demo.sound_of.{name}'))}</figcaption>"
        f"{sound_html(file_address(path), 'metadata')}</figure>"
        for name, path in sounds.items()
    )
    return (
        f'<h2>{escape(t("demo.sound"))}</h2><p class="lead">{escape(sentence.text)}</p><div>{players}</div>'
    )


def is_demo(project: Project) -> bool:
    return project.root.name == DEMO_NAME and read_project(project).is_demo


def offer(page: Page, project: Project) -> Offer:
    """Return what tab 1 offers to run: the demo ("first" if it is alone in the workspace), or what remains.

    If its stages were started one by one, it is shown like any other project.
    """
    jobs = list_jobs(project)
    found = stage_states(project)
    num_done = sum(each.state == "done" for each in found)
    is_untouched = all(job.stage == DEMO_JOB for job in jobs) and (jobs or not num_done)
    if not (is_demo(project) and is_untouched):
        settings = read_project(project)
        is_begun = project.manifest.is_file() or project.uploaded() or settings.manifest or settings.data
        return "rest" if is_running(project, DEMO_JOB) or (is_begun and len(found) - num_done > 1) else ""
    if num_done == len(found) and not is_running(project, DEMO_JOB):
        return ""
    return "first" if project_names(page.workspace) == [DEMO_NAME] else "demo"


def outlook(demo: Project) -> Outlook:
    """Return the outlook of the demo or of what remains; a running job of one of the stages blocks it."""
    found = stage_states(demo)
    done = sum(each.state == "done" for each in found)
    facts = [(t("demo.stages"), t("demo.stages_done", done=done, total=len(found)))]
    if is_demo(demo):
        facts += [(t("demo.time"), t("demo.few_minutes")), (t("demo.disk"), shown_size(LEAST_FREE_BYTES))]
    else:
        left = [t(each.stage.title) for each in found if each.state != "done"]
        facts.append((t("demo.next_stages"), ", ".join(left)))
    job, is_at_it = newest_job(demo, DEMO_JOB), is_running(demo, DEMO_JOB)
    running = [each for each in found if each.state == "running" and not is_at_it]
    blockers = [
        Notice(t("demo.stage_runs", stage=t(each.stage.title)), f"#{each.stage.tab}") for each in running
    ]
    button = t("demo.run_rest" if not is_demo(demo) else "demo.resume" if job else "demo.start")
    return Outlook(facts, blockers, button=button)


def progress_html(project: Project) -> str:
    """Return the progress of the running stages as a bar, with the loss while they train."""
    job, now = newest_job(project, DEMO_JOB), time.time()
    if job is None or job.began is None:
        return ""
    share, left = progress_of_job(project, job, now)
    name = current_stage(project, job.began)
    title = next(
        (t(stage.title) for stage in BY_NAME.values() if stage.name == name),
        t("demo.sound" if name else "demo.begins"),
    )
    words = [title] if left is None else [title, t("jobs.time_left", time=duration(left))]
    curve = loss_curve(project) if name == "train" else ""
    return meter_html(share or 0.0, " · ".join(words)) + curve


def loss_curve(project: Project) -> str:
    """Return the mel loss of the run as a small curve with both ends; "" before it has two values."""
    points = mel_losses(read_run(project.run_dir), "train")
    if len(points) < 2:
        return ""
    name = t("monitor.plots.mel_loss")
    words = f"{name}: {points[0][1]:.2f} → {points[-1][1]:.2f}"
    return f'<div class="loss-curve">{sparkline(points, name)}<p class="lead">{escape(words)}</p></div>'


def build_jobs(page: Page) -> None:
    with fold(t("jobs.all_jobs"), "all-jobs"):
        table = gr.HTML(elem_id="jobs", js_on_load=SEND_CLICKS)
        details = gr.HTML(elem_id="job-details")
    page.watch(jobs_version, jobs_html, [table])
    # once a job is shown, only another project hides it
    page.watch(lambda project: str(any(job_folders(project))), jobs_hint, [details])

    def select(project: Project, event: gr.SelectData) -> str:
        return job_html(find_job(project, str(event.row_value[0])))

    on([table.select], select, [page.project], [details], each=True)


def jobs_html(project: Project) -> str:
    """Return the newest jobs as a table, an active one without a duration; a click on a row shows the job."""
    now, rows, clicks = time.time(), [], []
    for job in list_jobs(project)[:MAX_JOBS]:
        duration = "" if job.is_active or job.ended is None else clock(job.seconds(now))
        cells = (job.folder.name, duration, text_of(outcome(job, now)), _command(job))
        rows.append([escape(cell) for cell in cells])
        clicks.append(f'{sent(job.folder.name)} tabindex="0"')
    return table_html([(t(f"jobs.headers.{name}"), "") for name in JOB_HEADERS], rows, attributes=clicks)


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


def jobs_hint(project: Project) -> str:
    return escape(t("jobs.choose" if any(job_folders(project)) else "jobs.none_yet"))


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
        f"<p><b>{escape(job.folder.name)}</b> {escape(versions)} {' '.join(links)}</p>",
        f'<pre class="log-view">{escape(commands)}</pre>' if commands else "",
        f'<pre class="log-view">{escape(tail(job.log, LAST_LINES))}</pre>',
    ]
    return "".join(parts)
