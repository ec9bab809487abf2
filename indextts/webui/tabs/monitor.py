"""Tab 7: the curves of the running training, or of the last one, drawn while they grow."""

import time
from typing import Any

import gradio as gr

from indextts.project import Project
from indextts.webui import sample_players
from indextts.webui.charts import (
    RESUMED,
    Line,
    MetricsReaders,
    curves,
    for_plot,
    progress_of,
    resumes,
    series_name,
)
from indextts.webui.page import Page

PLOTS = {  # metric: title, format of the axis
    "text_loss": ("Text loss (nats per token)", ".3~g"),
    "mel_loss": ("Mel loss (nats per code)", ".3~g"),
    "mel_top1": ("mel_top1 (share of codes guessed first)", ".3~g"),
    "lr": ("Learning rate", ".1e"),
}
COLOURS = {"training": "#2563eb", "validation": "#ea580c", RESUMED: "#9ca3af"}


def lay_out(page: Page) -> None:
    """Lay out the tab and tie it to the clock."""
    readers = MetricsReaders()
    summary = gr.Textbox(label="Progress", elem_id="monitor-summary", interactive=False)
    plots = []
    for row in (("text_loss", "mel_loss"), ("mel_top1", "lr")):
        with gr.Row():
            plots += [_plot(metric) for metric in row]
    notes = gr.Markdown(elem_id="monitor-resumes")

    def draw(name: str) -> list[Any]:
        lines = readers.of(page.find_project(name).run_dir).read()
        return [*[_frame(lines, metric) for metric in PLOTS], _notes(lines)]

    page.watch(lambda project: readers.of(project.run_dir).version(), draw, [*plots, notes])

    def stand(project: Project) -> str:
        return str(progress_of(readers.of(project.run_dir).read(), project.run_dir, time.time()))

    page.watch(stand, lambda name: stand(page.find_project(name)), [summary])
    sample_players.lay_out(page)


def _plot(metric: str) -> gr.LinePlot:
    title, y_format = PLOTS[metric]
    return gr.LinePlot(
        _frame([], metric),
        x="step",
        y="value",
        color="series",
        color_map=_colour_map(metric),
        title=title,  # a label would take the place of the legend below
        x_title="step",
        x_axis_format=",~f",
        y_title=" ",
        color_title=" ",
        y_axis_format=y_format,
        height=340,
        buttons=["fullscreen", "export"],
        elem_id=f"plot-{metric.replace('_', '-')}",
    )


def _frame(lines: list[Line], metric: str) -> Any:
    return for_plot(curves(lines, (metric,)), _colour_map(metric), resumes(lines))


def _colour_map(metric: str) -> dict[str, str]:
    """Return the colour of each series of a plot; a validation has no learning rate."""
    words = ("training",) if metric == "lr" else ("training", "validation")
    return {series_name(word, metric): COLOURS[word] for word in words} | {RESUMED: COLOURS[RESUMED]}


def _notes(lines: list[Line]) -> str:
    """Return the line below the plots: resumes, and which part of the run is drawn."""
    steps = resumes(lines)
    notes = [f"Resumed at step {', '.join(f'{step:,}' for step in steps)}."] if steps else []
    parts = {line["part"] for line in lines}
    if len(parts) > 1:
        notes.append(f"Part {max(parts)} of the run is drawn; earlier parts are in metrics.jsonl.")
    return " ".join(notes)
