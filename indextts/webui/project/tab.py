"""Tab 1: the demo and a new project at a first visit; later the stages, the runs, the next step, the machine.

Both visits have the same components. The class of #visit, set from the disk, decides which are shown and
where (page_files/project.css):

    first    nothing has run and there is only the demo: its stages and its start beside the new project
    demo     the demo was started as one job and is not complete: its start is the primary button
    (none)   stages and runs beside the next step, machine and base model
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from html import escape
from pathlib import Path

import gradio as gr
from google.protobuf.message import DecodeError

from indextts.commands.app import Stage
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.system.amounts import shown_size
from indextts.text.tokenizer import parse_model
from indextts.webui.data.import_outlook import shown_dataset
from indextts.webui.language import t
from indextts.webui.layout import columns
from indextts.webui.markup import link_html, tiles_html
from indextts.webui.metrics_reader import read_run
from indextts.webui.monitor.machine import machine_tiles, read_machine
from indextts.webui.page import Page
from indextts.webui.project import base_model, creating, demo
from indextts.webui.project.runs import best_loss, run_rows, runs_html, runs_version, validations
from indextts.webui.running import all_jobs
from indextts.webui.stage_list import StageState, stage_states, stages_html, stages_version, step_to_take
from indextts.webui.view_versions import files_version, num_lines, periodic_version, throttled_version

RUN_EVERY_S = 10.0


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            way = gr.HTML(elem_id="way")
            with gr.Column(elem_id="demo-panel"):
                demo.build(page)
            runs = gr.HTML(elem_id="runs")
            all_jobs.build(page)
        with side:
            next_step = gr.HTML(elem_id="next-step")
            machine = gr.HTML(elem_id="hardware")
            with gr.Column(elem_id="base-part"):
                base_model.build(page)
            with gr.Column(elem_id="new-part"):
                creating.build(page)

    def version(project: Project) -> str:
        return f"{demo.offer(page, project)} {stages_version(project)}"

    page.watch(lambda project: f"{version(project)} {facts_version(project)}", partial(way_html, page), [way])
    page.watch(version, partial(next_html, page), [next_step])
    page.watch(runs_version, lambda project: runs_html(run_rows(project)), [runs])
    page.watch(periodic_version, lambda _project: machine_html(page), [machine], queue=False)


def way_html(page: Page, project: Project) -> str:
    """Return the stages with their facts, under the offer of the demo or a heading."""
    offer, found = demo.offer(page, project), stage_states(project)
    facts = [stage_fact(project, each.stage.name) for each in found]
    title, lead = t("project.stages"), ""
    if offer:
        title, lead = t("demo.heading"), t("demo.lead")
    return (
        f'<div id="visit" class="{offer}"><h2>{escape(title)}</h2>'
        f"{f'<p>{escape(lead)}</p>' if lead else ''}{stages_html(found, facts, is_way=not offer)}</div>"
    )


def next_html(page: Page, project: Project) -> str:
    """Return the next step with the one link that leads there; "" while the demo is offered."""
    return "" if demo.offer(page, project) else step_html(stage_states(project))


def step_html(found: Sequence[StageState]) -> str:
    """Return the running stage, else the next step, with a link to its tab; if all are done, to tab 8."""
    step = step_to_take(found)
    title, text, tab, label = t("next.done_title"), t("next.done"), "listen", t("next.listen")
    if step is not None:
        is_training = (step.stage.name, step.state) == ("train", "running")
        title = t("next.running_title") if step.state == "running" else t("next.title")
        text = step.text if step.state == "next" else f"{t(step.stage.title)}: {step.text}"
        tab = "monitor" if is_training else step.stage.tab
        label = t("next.open", tab=t("tab.monitor") if is_training else t(step.stage.title))
    link = link_html(f"#{tab}", label, "primary-link")
    return f"<h3>{escape(title)}</h3><p>{escape(text)}</p>{link}"


def machine_html(page: Page) -> str:
    """Return the state of the machine as tiles."""
    tiles = tiles_html(machine_tiles(read_machine(page.workspace)))
    return f"<h3>{escape(t('project.this_machine'))}</h3>{tiles}"


def stage_fact(project: Project, stage: Stage) -> str:
    """Return the fact of a stage, "" without files or with corrupt ones."""
    try:
        return FACTS[stage](project)
    except (UserError, OSError, ValueError, DecodeError, KeyError, TypeError):
        return ""


def facts_version(project: Project) -> str:
    """Return a version that changes with the facts; during training, every RUN_EVERY_S seconds."""
    paths = [project.manifest, project.tokenizer, project.utterances("train"), project.pairs("train")]
    run = throttled_version(project.run_dir / "metrics.jsonl", RUN_EVERY_S)
    return f"{files_version(*paths, project.export)} {run}"


def _tokenizer(project: Project) -> str:
    return t("facts.tokenizer", count=_num_pieces(project.tokenizer, files_version(project.tokenizer)))


def _preprocess(project: Project) -> str:
    return _split_sizes("facts.preprocess", project.utterances)


def _pairs(project: Project) -> str:
    return _split_sizes("facts.pairs", project.pairs)


def _train(project: Project) -> str:
    lines = read_run(project.run_dir)
    if not lines:
        return ""
    best = best_loss(validations(lines))
    step = max(int(line["step"]) for line in lines if line["part"] == lines[-1]["part"])
    return t("facts.step", step=step) if best is None else t("facts.train", step=step, loss=best)


def _export(project: Project) -> str:
    files = sorted(project.export.iterdir())
    return t("facts.export", size=shown_size(sum(path.stat().st_size for path in files))) if files else ""


FACTS: dict[Stage, Callable[[Project], str]] = {
    "data": shown_dataset,
    "tokenizer": _tokenizer,
    "preprocess": _preprocess,
    "pairs": _pairs,
    "train": _train,
    "export": _export,
}


def _split_sizes(id: str, file_of: Callable[[str], Path]) -> str:
    train, val = (num_lines(file_of(split)) for split in ("train", "val"))
    return "" if train is None or val is None else t(id, train=train, val=val)


@lru_cache(maxsize=16)
def _num_pieces(model: Path, _version: str) -> int:
    return len(parse_model(model.read_bytes()).pieces)
