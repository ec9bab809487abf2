"""Tab 5: prompt and target utterances of one speaker, and how many each speaker has."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import gradio as gr

from indextts.commands import BuildPairs, Command
from indextts.manifest import read_pairs
from indextts.pipeline import plan_stage
from indextts.project import Project, ProjectSettings
from indextts.webui.events import on
from indextts.webui.forms import fields_from, form_for
from indextts.webui.jobs import newest_job
from indextts.webui.page import Page
from indextts.webui.panel import stage_panel

FIELDS = ("pairs_per_target", "max_pairs", "min_text_len", "min_code_len", "seed")


def lay_out(page: Page) -> None:
    with gr.Row():
        form = form_for(BuildPairs, FIELDS)
    panel = stage_panel(page, "pairs", "Build pairs", commands, list(form.values()))
    table = gr.Dataframe(
        headers=["speaker", "pairs to train on", "pairs to validate on"],
        label="Pairs of each speaker",
        interactive=False,
        elem_id="pairs-table",
    )
    # the status changes when the job ends: then the files are there
    events = [page.demo.load, page.project.change, panel.status.change]
    on(events, lambda name: count(page, name), [page.project], [table])


def commands(project: Project, settings: ProjectSettings, *values: Any) -> Sequence[Command]:
    fields = fields_from(BuildPairs, FIELDS, values)
    return plan_stage(project, settings.with_fields("pairs", **fields), "pairs").commands


def count(page: Page, name: str) -> Any:
    """Return the pairs of each speaker in both splits, most first; nothing while there are none."""
    project = page.find_project(name)
    job = newest_job(project, "pairs")
    if job is not None and job.is_active:
        return gr.skip()
    paths = [project.pairs("train"), project.pairs("val")]
    if not all(path.is_file() for path in paths):
        return []
    train, val = (Counter(pair.speaker for pair in read_pairs(path)) for path in paths)
    return [[speaker, number, val[speaker]] for speaker, number in train.most_common(50)]
