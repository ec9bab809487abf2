"""Tab 2: import recordings, check them, and listen to them."""

import random
from functools import partial
from typing import Any

import gradio as gr
import numpy as np
import pandas as pd
import soundfile

from indextts.data.manifest import Utterance, read_utterances
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project
from indextts.webui.data import review
from indextts.webui.data.import_form import import_commands, import_form
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import files_version, job_version, once

NUM_BINS = 20
NUM_CLIPS = 3

NOTHING = "data.nothing_imported"
NUMBERS = "data.numbers"


def build(page: Page) -> None:
    manifest = gr.Textbox(label=t("data.manifest"), interactive=False, elem_id="data-manifest")
    form = import_form(page)

    stage_panel(
        page,
        Stage(
            "data",
            t("data.import_and_check"),
            partial(import_commands, page),
            form.inputs,
            also_changes=[form.uploads],
        ),
    )
    numbers = gr.Textbox(label=t("data.project_data"), interactive=False, elem_id="data-numbers")
    histogram = gr.BarPlot(
        x="seconds",
        y="utterances",
        title=t("data.durations"),
        x_title=t("data.headers.seconds"),
        y_title=t("data.utterances"),
        height=260,
        elem_id="data-histogram",
    )
    button = gr.Button(t("data.other_clips"), elem_id="data-clips")
    clips = [gr.Audio(interactive=False, buttons=["download"], elem_id=f"clip-{n}") for n in range(NUM_CLIPS)]
    page.watch(once, lambda name: str(page.find_settings(name).manifest or ""), [manifest])
    page.watch(imported_version, lambda name: summarise(page, name), [numbers, histogram])
    page.watch(imported_version, lambda name: play(page, name), clips)
    on([button.click], lambda name: play(page, name), [page.project], clips)
    review.build(page)


def imported_version(project: Project) -> str:
    """Return a version that changes with imports and their output."""
    return f"{job_version(project, 'data')} {files_version(project.manifest)}"


def summarise(page: Page, name: str) -> Any:
    """Return the summary of the data set and the histogram of its durations."""
    utterances = imported(page, name)
    if utterances is None:
        return gr.skip(), gr.skip()
    if not utterances:
        return t(NOTHING), pd.DataFrame({"seconds": [], "utterances": []})
    durations = [utterance.duration_s for utterance in utterances]
    speakers = len({utterance.speaker for utterance in utterances})
    text = t(NUMBERS, utterances=len(utterances), minutes=sum(durations) / 60, speakers=speakers)
    counts, edges = np.histogram(durations, bins=NUM_BINS)
    return text, pd.DataFrame({"seconds": (edges[:-1] + edges[1:]) / 2, "utterances": counts})


def play(page: Page, name: str) -> Any:
    """Return players for a few random clips, with speaker and text."""
    utterances = imported(page, name)
    if utterances is None:
        return [gr.skip()] * NUM_CLIPS
    chosen = random.sample(utterances, min(NUM_CLIPS, len(utterances)))
    players = [player(utterance) for utterance in chosen]
    return players + [gr.Audio(value=None, label="")] * (NUM_CLIPS - len(players))


def player(utterance: Utterance) -> gr.Audio:
    """Return a player with the clip's samples: a path would be copied to where Gradio serves files from."""
    samples, sample_rate_hz = soundfile.read(utterance.audio, dtype="int16")
    return gr.Audio(value=(sample_rate_hz, samples), label=f"{utterance.speaker}: {utterance.text}")


def imported(page: Page, name: str) -> list[Utterance] | None:
    """Return the project's utterances, none before the import, None while it runs."""
    project = page.find_project(name)
    job = newest_job(project, "data")
    if job is not None and job.is_active:
        return None
    return read_utterances(project.manifest) if project.manifest.is_file() else []
