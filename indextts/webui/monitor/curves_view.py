"""Charts of tab 7: six plots with smoothing, a range of steps, a logarithmic scale and other runs."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from indextts.projects.project import Project
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.monitor.charts import (
    AS_LOGGED,
    EXACT,
    MAX_COMPARED,
    RESUMED,
    TRAINING,
    VALIDATION,
    ComparedRun,
    DisplayOptions,
    comparable,
    compared,
    curves,
    for_plot,
    resumes,
    runs_version,
    series_name,
)
from indextts.webui.monitor.metrics_reader import RUNS, Line
from indextts.webui.page import Page
from indextts.webui.view_versions import throttled_version

PLOTS = {  # metric: title, format of the axis
    "text_loss": ("monitor.plots.text_loss", ".3~g"),
    "mel_loss": ("monitor.plots.mel_loss", ".3~g"),
    "mel_top1": ("monitor.plots.mel_top1", ".3~g"),
    "lr": ("monitor.plots.lr", ".1e"),
    "grad_norm": ("monitor.plots.grad_norm", ".3~g"),
    "tokens_per_second": ("monitor.plots.tokens_per_second", ",.4~g"),
}
TRAINING_ONLY = ("lr", "grad_norm", "tokens_per_second")  # a validation has none
COLOURS = {TRAINING: "#2563eb", VALIDATION: "#ea580c", RESUMED: "#9ca3af"}
PALE = "#bfd3f8"
COMPARED_COLOURS = (("#16a34a", "#86d6a4"), ("#9333ea", "#cfa3f5"), ("#0891b2", "#84cfdf"))

NO_CURVES = "monitor.no_curves"
RESUMED_AT = "monitor.resumed_at"
DRAWN_PART = "monitor.drawn_part"
LOGARITHM = "monitor.logarithm"
REDRAWN_EVERY_S = 4.0
SMOOTHING = 0.0  # default: a log line already averages many steps

# Gradio 6.31 builds the legend from the previous series of a plot; a title that differs in blanks only makes
# it rebuild the legend.
NEW_LEGENDS = f"""() => {{
  window.legends = (window.legends ?? 0) + 1;
  return Array({len(PLOTS)}).fill({{__type__: "update", color_title: " ".repeat(1 + window.legends % 2)}});
}}"""


def build(page: Page) -> None:
    """Build the controls and the plots; before the first log line a sentence replaces them."""
    notes = gr.Markdown(elem_id="monitor-notes")
    with gr.Column(visible=False) as body:
        with gr.Row(elem_id="monitor-display"):
            smoothing = gr.Slider(
                0, 0.99, SMOOTHING, step=0.01, label=t("monitor.smoothing"), elem_id="monitor-smoothing"
            )
            first = gr.Number(label=t("monitor.from_step"), minimum=0, precision=0, elem_id="monitor-first")
            last = gr.Number(label=t("monitor.to_step"), minimum=0, precision=0, elem_id="monitor-last")
            is_log = gr.Checkbox(label=t("monitor.logarithmic_scale"), elem_id="monitor-log")
            beside = gr.Dropdown(
                [],
                label=t("monitor.compare_with"),
                multiselect=True,
                max_choices=MAX_COMPARED,
                allow_custom_value=True,  # else the selection for another project would be an error
                elem_id="monitor-compare",
            )
        plots = []
        for row in (("text_loss", "mel_loss"), ("mel_top1", "lr"), ("grad_norm", "tokens_per_second")):
            with gr.Row():
                plots += [_plot(metric) for metric in row]

    def with_plots(draw: Callable[..., Any], name: str, controls: Sequence[Any]) -> list[Any]:
        lines = RUNS.of(page.find_project(name).run_dir).read()
        if not lines:
            return [t(NO_CURVES), gr.Column(visible=False), *[gr.skip()] * len(PLOTS)]
        chosen, others = display_of(*controls[:4]), compared(page.workspace, name, controls[4])
        plots = [draw(lines, metric, chosen, others) for metric in PLOTS]
        return [_notes(lines), gr.Column(visible=True), *plots]

    def refresh(name: str, *values: Any) -> list[Any]:
        return with_plots(_frame, name, values)

    def redraw(name: str, *values: Any) -> list[Any]:
        return with_plots(_drawn, name, values)

    def known_runs(name: str, now: list[str]) -> Any:
        page.find_project(name)
        choices = comparable(page.workspace, name)
        kept = [choice for choice in now if choice in [value for _, value in choices]]
        # keep the value if possible, because the user may have changed it meanwhile
        return gr.Dropdown(choices=choices) if kept == now else gr.Dropdown(choices=choices, value=kept)

    controls, drawn = [smoothing, first, last, is_log, beside], [notes, body, *plots]
    page.watch(version, refresh, drawn, controls)
    page.watch(lambda project: runs_version(page.workspace, project), known_runs, [beside], [beside])
    changes = [smoothing.release, first.change, last.change, is_log.change, beside.change]
    changed = on(changes, redraw, [page.project, *controls], drawn, latest=True)
    changed.then(None, None, plots, js=NEW_LEGENDS)


def version(project: Project) -> str:
    """Return a version that changes with the metrics, but not more often than a browser can draw them."""
    return throttled_version(project.run_dir / "metrics.jsonl", REDRAWN_EVERY_S)


def display_of(smoothing: Any, first: Any, last: Any, is_log: Any) -> DisplayOptions:
    """Return the display options; an empty step, or a last step of 0, sets no limit."""
    weight = min(0.99, max(0.0, float(smoothing or 0)))
    return DisplayOptions(
        weight, float(first) if first else None, float(last) if last else None, bool(is_log)
    )


def _plot(metric: str) -> gr.LinePlot:
    title, y_format = PLOTS[metric]
    return gr.LinePlot(
        _frame([], metric, DisplayOptions(SMOOTHING), []),
        x="step",
        y="value",
        color="series",
        color_map=_colour_map(metric, DisplayOptions(SMOOTHING), []),
        title=t(title),  # a label would replace the legend below
        x_title=t("monitor.headers.step"),
        x_axis_format=",~f",
        y_title=" ",
        color_title=" ",
        y_axis_format=y_format,
        height=340,
        buttons=["fullscreen", "export"],
        elem_id=f"plot-{metric.replace('_', '-')}",
    )


def _drawn(lines: list[Line], metric: str, display: DisplayOptions, others: Sequence[ComparedRun]) -> Any:
    """Return the plot with axes and colours, which the browser then rebuilds.

    If they are unchanged, only `_frame` is sent, and the browser updates the points.
    """
    return gr.LinePlot(
        _frame(lines, metric, display, others),
        color_map=_colour_map(metric, display, others),
        y_title=t(LOGARITHM) if display.is_log else " ",
        y_axis_format=".3~g" if display.is_log else PLOTS[metric][1],
    )


def _frame(lines: list[Line], metric: str, display: DisplayOptions, others: Sequence[ComparedRun]) -> Any:
    found = curves(lines, metric, display=display, compared=others)
    steps = [step for step in resumes(lines) if (display.first or 0) <= step <= (display.last or step)]
    return for_plot(found, _colour_map(metric, display, others), steps)


def _colour_map(metric: str, display: DisplayOptions, others: Sequence[ComparedRun]) -> dict[str, str]:
    """Return the colour of each series of a plot, in the order of the legend."""
    words = (TRAINING,) if metric in TRAINING_ONLY else (TRAINING, VALIDATION)
    colours = {t(AS_LOGGED): PALE} if display.smoothing and metric not in EXACT else {}
    colours |= {series_name(word): COLOURS[word] for word in words}
    for other, pair in zip(others, COMPARED_COLOURS, strict=False):
        colours |= {series_name(word, other.name): c for word, c in zip(words, pair, strict=False)}
    return colours | {t(RESUMED): COLOURS[RESUMED]}


def _notes(lines: list[Line]) -> str:
    """Return the note above the plots: resumes, and the part of the run that is drawn."""
    steps = resumes(lines)
    notes = [t(RESUMED_AT, steps=", ".join(f"{step:,}" for step in steps))] if steps else []
    parts = {line["part"] for line in lines}
    if len(parts) > 1:
        notes.append(t(DRAWN_PART, part=max(parts)))
    return " ".join(notes)
