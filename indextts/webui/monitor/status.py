"""Top of tab 7: tiles with the progress of the run and the load of the machine, Stop, and the run's health.

Without a run, a sentence and a link to tab 6 replace the whole tab.
"""

import time
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from pathlib import Path

import gradio as gr

from indextts.planning.hardware import find_machine, gpus_for
from indextts.projects.jobs.records import Job, newest_job
from indextts.projects.jobs.stopping import stop_job, stop_progress
from indextts.projects.project import Project
from indextts.runs.health.checks import CHECKS, check_health
from indextts.runs.health.observed import Finding, Level
from indextts.runs.owner import is_training
from indextts.webui.events import on
from indextts.webui.language import t, text_of
from indextts.webui.markup import UNKNOWN, Tile, empty_html, link_html, sent, tiles_html
from indextts.webui.monitor.charts import best_validation, run_of
from indextts.webui.monitor.machine import GB, GpuState, machine_tiles, read_machine
from indextts.webui.page import EVERY_TAB, SEND_CLICKS, Page
from indextts.webui.run_progress import ENDED, Line, Progress, duration, progress_of, read_run
from indextts.webui.running.panel import active_job
from indextts.webui.stage_list import next_link, stages_version
from indextts.webui.view_versions import files_version, is_running, job_version, periodic_version

STAGE = "train"
BODY = "monitor-body"
HIDE_BODY = f"<style>#{BODY} {{ display: none }}</style>"


def build_empty(page: Page) -> None:
    """Build the sentence that replaces the tab before the first run."""
    # a style and not `visible`: the views of components that are not in the page would not be filled
    empty = gr.HTML(HIDE_BODY, elem_id="monitor-empty")
    version = lambda project: f"{has_run(project)} {stages_version(project)}"  # noqa: E731
    page.of_tab(EVERY_TAB).watch(version, empty_tab, [empty])  # known before the tab opens


def build(page: Page) -> None:
    with gr.Row(elem_id="monitor-top"):
        tiles = gr.HTML(elem_id="monitor-summary")
        stop = gr.Button(t("jobs.stop"), visible=False, elem_id="monitor-stop")
    notice = gr.HTML(elem_id="monitor-notice")

    def tiles_now(project: Project) -> str:
        return tiles_html([*run_tiles(project), machine_tile(page.workspace, project), health_tile(project)])

    def version(project: Project) -> str:
        # the time left changes continuously, so the shown texts are their own version
        return f"{run_tiles(project)} {periodic_version(project)}"

    page.watch(version, tiles_now, [tiles], queue=False)
    page.watch(notice_html, notice_html, [notice])
    page.watch(lambda project: job_version(project, STAGE), stop_button, [stop])
    on([stop.click], stop_run, [page.project], [stop])


def build_machine(page: Page) -> None:
    machine = gr.HTML(elem_id="monitor-machine")
    page.watch(
        periodic_version,
        lambda project: tiles_html(machine_tiles(read_machine(page.workspace), gpus_in_training(project))),
        [machine],
        queue=False,
    )


def empty_tab(project: Project) -> str:
    """Return the sentence of a project without a run, which hides the rest of the tab; else nothing."""
    if has_run(project):
        return ""
    return empty_html(t("monitor.no_run"), *next_link(project), "primary-link") + HIDE_BODY


def has_run(project: Project) -> bool:
    return is_running(project, STAGE) or (project.run_dir / "metrics.jsonl").is_file()


def stop_button(project: Project) -> gr.Button:
    """Return the Stop button: hidden without an active training, disabled after a click."""
    job = newest_job(project, STAGE)
    if job is None or not job.is_active:
        return gr.Button(visible=False)
    return gr.Button(visible=True, interactive=job.state != "stopping")


def stop_run(project: Project) -> gr.Button:
    """Ask the training to save and stop, as Stop in tab 6 does; a UserError if none is active."""
    stop_job(active_job(project, STAGE))
    return stop_button(project)


def run_tiles(project: Project) -> list[Tile]:
    lines, now = read_run(project.run_dir), time.time()
    found = progress_of(lines, project.run_dir, now)
    return [
        step_tile(found),
        time_tile(found, newest_job(project, STAGE), is_gone(project, found), now),
        best_tile(lines, now),
        Tile(t("monitor.tiles.speed"), _count(found.tokens_per_second), t("monitor.tokens_a_second")),
    ]


def step_tile(found: Progress) -> Tile:
    if found.step is None:
        return Tile(t("monitor.headers.step"), UNKNOWN)
    value = f"{found.step:,}"
    if found.total_steps:
        value = t("monitor.of_total", step=found.step, total=found.total_steps)
    return Tile(
        t("monitor.headers.step"),
        value,
        t("monitor.separator").join([t("monitor.epoch", epoch=found.epoch), found.saved_text]),
    )


def time_tile(found: Progress, job: Job | None, gone: bool, now: float) -> Tile:
    """Return the time left, or why there is none."""
    title = t("monitor.tiles.time_left")
    stopping = stop_progress(job, now) if job is not None else None
    if stopping is not None:
        return Tile(title, t("jobs.states.stopping"), text_of(stopping), "warn")
    if job is not None and job.is_active and (found.step is None or found.ended is not None):
        return Tile(title, t("monitor.starting"))
    if found.ended is not None:
        title = t("jobs.status")
        return Tile(title, t(ENDED[found.ended]) if found.ended in ENDED else found.ended)
    if gone:
        return Tile(title, t("monitor.not_training"), level="bad")
    if found.seconds_left is None:
        return Tile(title, UNKNOWN)
    if found.total_steps and found.step == found.total_steps:
        return Tile(title, t("monitor.saving_last"))
    if found.is_stale:
        return Tile(title, UNKNOWN, t("monitor.no_new_metrics", time=duration(found.silent_s)), "warn")
    end = time.strftime("%H:%M", time.localtime(now + found.seconds_left))
    is_today = found.seconds_left < 12 * 3600
    return Tile(title, duration(found.seconds_left), t("monitor.ends_at", time=end) if is_today else "")


def best_tile(lines: list[Line], now: float) -> Tile:
    best = best_validation(run_of(lines))
    if best is None:
        return Tile(t("monitor.tiles.best"), UNKNOWN)
    age = duration(max(0.0, now - best["time"]))
    when = [t("monitor.at_step", step=best["step"]), t("monitor.ago", time=age)]
    return Tile(t("monitor.tiles.best"), f"{best['mel_loss']:.3f}", t("monitor.separator").join(when))


def machine_tile(workspace: Path, project: Project) -> Tile:
    """Return the load of the GPUs and their memory; without a GPU, of the processors."""
    machine, numbers = read_machine(workspace), gpus_in_training(project)
    gpus = [gpu for gpu in machine.gpus if gpu.number in numbers] or list(machine.gpus)
    if gpus:
        return gpu_tile(gpus)
    remark = t("monitor.memory", used=machine.used_bytes / GB, total=machine.memory_bytes / GB)
    return Tile(t("monitor.parts.processor"), f"{machine.busy_percent:.0f} %", remark)


def gpu_tile(gpus: list[GpuState]) -> Tile:
    busy = [gpu.percent for gpu in gpus if gpu.percent is not None]
    value = f"{sum(busy) / len(busy):.0f} %" if busy else UNKNOWN
    used, total = sum(gpu.used_bytes for gpu in gpus), sum(gpu.total_bytes for gpu in gpus)
    remark = t("monitor.gpu_memory", used=used / GB, total=total / GB)
    if len(gpus) > 1:
        remark = t("monitor.separator").join([t("monitor.num_gpus", number=len(gpus)), remark])
    return Tile(t("monitor.parts.gpu"), value, remark)


def gpus_in_training(project: Project) -> list[int]:
    """Return the numbers of the GPUs of the project's running training; empty if none runs."""
    job = newest_job(project, STAGE)
    if job is None or job.state not in ("running", "stopping"):
        return []
    return [gpu.number for gpu in gpus_for(find_machine(), job.launch)]


def is_gone(project: Project, found: Progress) -> bool:
    """Return whether the trainer ended without writing its exit status."""
    return found.step is not None and found.ended is None and not is_training(project.run_dir)


def notice_html(project: Project) -> str:
    """Return what to do once the run has ended: listen or resume, with a notice if it was killed; else ""."""
    found = progress_of(read_run(project.run_dir), project.run_dir, time.time())
    if is_running(project, STAGE) or is_training(project.run_dir):
        return ""
    if found.ended == "finished":
        return link_html("#listen", t("training.open_listen"), "primary-link")
    if found.ended is not None:
        return link_html("#training", t("monitor.resume"), "primary-link")
    if not is_gone(project, found):
        return ""
    text, link = escape(t("monitor.trainer_gone")), link_html("#training", t("monitor.open_training"))
    return f'<ul class="notices" aria-live="polite"><li class="bad">{text} {link}</li></ul>'


def _count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


SECTION = "monitor-health"
WORDS: dict[Level, str] = {"problem": "monitor.severity.problem", "warning": "monitor.severity.warning"}
FOUND: dict[Level, str] = {"problem": "monitor.problems", "warning": "monitor.warnings"}
DISK_INTERVAL_S = 60
SOLVED_AT = {  # by check
    "disk": "#monitor/checkpoint-table",
    "saves": "#monitor/checkpoint-table",
    "plateau": "#data/data-tab-review",
    "unknown": "#tokenizer",
    "language_forgotten": "#training/Train-train_manifest",
    "data_wait": "#training/Train-num_workers",
}


def build_health(page: Page) -> gr.HTML:
    """Build a card for each problem and warning; its Listen is sent like that of a checkpoint."""
    cards = gr.HTML(elem_id=SECTION, js_on_load=SEND_CLICKS)
    page.watch(version, lambda project: cards_html(project, findings(project)), [cards])
    return cards


def version(project: Project) -> str:
    """Return a version that changes with metrics and settings, and every minute for the disk."""
    files = [project.run_dir / name for name in ("metrics.jsonl", "config.json", "exit.json")]
    return f"{files_version(*files)} {time.time() // DISK_INTERVAL_S}"


def findings(project: Project) -> Sequence[Finding]:
    """Return the findings of a project's run, problems first; only new lines are read."""
    return _checked(project, version(project))


@lru_cache(maxsize=8)  # the tile and the cards of several open pages show the same
def _checked(project: Project, _version: str) -> Sequence[Finding]:
    lines = read_run(project.run_dir)
    return tuple(check_health(project.run_dir, lines)) if lines else ()


def health_tile(project: Project) -> Tile:
    found = findings(project)
    numbers = {level: sum(each.level == level for each in found) for level in FOUND}
    words = [t(FOUND[level], number=number) for level, number in numbers.items() if number]
    if not words and not read_run(project.run_dir):
        return Tile(t("monitor.tiles.health"), UNKNOWN)  # nothing is checked before the first line
    if not words:
        return Tile(
            t("monitor.tiles.health"), t("monitor.all_well"), t("monitor.num_checks", number=len(CHECKS))
        )
    value, remark = words[0], " ".join(words[1:])
    return Tile(
        t("monitor.tiles.health"),
        value,
        remark,
        "bad" if numbers["problem"] else "warn",
        f"#monitor/{SECTION}",
    )


def cards_html(project: Project, found: Sequence[Finding]) -> str:
    cards = "".join(card_html(project, finding) for finding in found)
    return f'<div class="cards">{cards}</div>' if found else ""


def card_html(project: Project, finding: Finding) -> str:
    """Return a finding as HTML; its values come from files of the run, so everything is escaped."""
    act, link = "", SOLVED_AT.get(finding.check, "")
    if link:
        tab = link[1:].partition("/")[0]
        title = "monitor.checkpoints" if tab == "monitor" else f"tab.{tab}"
        act = link_html(link, t("outlook.open_tab", tab=t(title)))
    elif finding.check == "validation_rising":
        clicked = sent("listen", project.root.name, "best.pth")
        text = escape(t("monitor.listen_to_step", step=int(finding.values["best_step"])))
        act = f'<button type="button" class="quiet" {clicked}>{text}</button>'
    what, evidence, advice = (escape(text_of(text)) for text in finding.texts)
    return (
        f'<div class="health {finding.level}" data-check="{escape(finding.check)}">'
        f"<p><strong>{escape(t(WORDS[finding.level]))}: {what}</strong></p>"
        f"<p>{evidence}</p><p><strong>{escape(t('monitor.recommended_action'))}</strong> {advice} {act}</p>"
        "</div>"
    )
