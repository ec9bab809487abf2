"""Charts of tab 7: two large ones and four in a fold, with smoothing, a range of steps and other runs.

The range is in a hidden component that page_files/charts.js fills: "FIRST LAST", or empty for all steps.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.train import Train
from indextts.projects.project import Project, project_names
from indextts.webui.language import field_title, t
from indextts.webui.layout import fold, labelled
from indextts.webui.markup import empty_html, table_html
from indextts.webui.monitor.charts import (
    MAX_COMPARED,
    DisplayOptions,
    DrawnRun,
    Mark,
    Series,
    chart_html,
    comparable,
    compared,
    curves,
    heard_curves,
    heard_marks,
    language_curves,
    marks,
    run_of,
    runs_version,
    span_of,
)
from indextts.webui.page import Page
from indextts.webui.run_progress import Line, read_run
from indextts.webui.serving.security import download_link
from indextts.webui.training.training_form import run_settings
from indextts.webui.view_versions import throttled_version

LARGE = ("mel_loss", "text_loss")  # metrics
MORE = ("mel_top1", "lr", "grad_norm", "tokens_per_second")
PLOTS = (*LARGE, *MORE)
DRAW = "window.drawChart(element, watch)"  # page_files/charts.js

REDRAWN_EVERY_S = 4.0
SMOOTHING = 0.8  # default: smooths long runs; a run with few points is drawn as it is


def build(page: Page) -> None:
    with gr.Row(elem_id="monitor-display"):
        smoothing = gr.Slider(
            0, 0.99, SMOOTHING, **labelled("monitor.smoothing", "monitor-smoothing"), step=0.01, buttons=[]
        )
        beside = gr.Dropdown(
            [],
            label=t("monitor.compare_with"),
            multiselect=True,
            max_choices=MAX_COMPARED,
            allow_custom_value=True,  # else the selection for another project would be an error
            elem_id="monitor-compare",
        )
        is_log = gr.Checkbox(label=t("monitor.logarithmic_scale"), elem_id="monitor-log")
        notes = gr.HTML(elem_id="monitor-notes")
    zoom = gr.Textbox(visible="hidden", container=False, show_label=False, elem_id="monitor-range")
    with gr.Row(elem_classes="charts"):
        plots = [gr.HTML(elem_id=plot_id(metric), js_on_load=DRAW) for metric in LARGE]
    heard, languages = (gr.HTML(elem_id=f"plot-{name}", js_on_load=DRAW) for name in ("heard", "languages"))
    with fold(t("monitor.more_charts"), "monitor-more"), gr.Row(elem_classes="charts"):
        plots += [gr.HTML(elem_id=plot_id(metric), js_on_load=DRAW) for metric in MORE]
    differing = gr.HTML(elem_id="monitor-differences")
    metrics = gr.HTML(elem_id="monitor-metrics", elem_classes="remark")

    def draw(project: Project, *controls: Any) -> list[str]:
        run_dir = project.run_dir
        lines = read_run(run_dir)
        charts = drawn(lines, display_of(*controls[:3]), compared(page.workspace, project, controls[3]))
        file = run_dir / "metrics.jsonl"
        return [
            note(lines),
            *charts,
            differences_html(page.workspace, project, controls[3]),
            download_link(file, f"{project.root.name}_{file.name}", t("monitor.download_metrics")),
        ]

    controls = [smoothing, is_log, zoom, beside]
    changes = [smoothing.release, is_log.change, zoom.change, beside.change]
    page.watch(version, draw, [notes, *plots, heard, languages, differing, metrics], controls, also=changes)

    def part_version(project: Project) -> str:
        return str(max((line["part"] for line in read_run(project.run_dir)[-1:]), default=0))

    page.watch(part_version, lambda _project: "", [zoom])
    page.watch(
        lambda project: runs_version(page.workspace, project), partial(known_runs, page), [beside], [beside]
    )


def plot_id(metric: str) -> str:
    return f"plot-{metric.replace('_', '-')}"


def version(project: Project) -> str:
    return throttled_version(project.run_dir / "metrics.jsonl", REDRAWN_EVERY_S)


def known_runs(page: Page, project: Project, now: list[str]) -> gr.Dropdown:
    choices = comparable(page.workspace, project)
    kept = [choice for choice in now if choice in [value for _, value in choices]]
    # keep the value if possible, because the user may have changed it meanwhile
    return gr.Dropdown(choices=choices) if kept == now else gr.Dropdown(choices=choices, value=kept)


def differences_html(workspace: Path, project: Project, chosen: Sequence[str] | None) -> str:
    """Return the settings in which the newest runs of these projects differ; "" for a single run."""
    names = [project.root.name, *(str(choice)[:-2] for choice in chosen or () if str(choice).endswith(":0"))]
    known = [Project(workspace / name) for name in names if name in project_names(workspace)]
    runs = {each.root.name: run for each in known[: 1 + MAX_COMPARED] if (run := run_settings(each))}
    if len(runs) < 2:
        return ""
    rows = [
        [escape(text) for text in (field_title(Train, name), *values)]
        for name in Train.model_fields
        if len(set(values := [str(run.get(name, "-")) for run in runs.values()])) > 1
    ]
    heads = [(t("monitor.setting"), ""), *((name, "number") for name in runs)]
    table = table_html(heads, rows) if rows else empty_html(t("monitor.same_settings"))
    return f'<h3>{escape(t("monitor.differences"))}</h3><div class="wide-table">{table}</div>'


def display_of(smoothing: Any, is_log: Any, zoom: Any) -> DisplayOptions:
    """Return the display options; an invalid range of steps sets no limit."""
    weight = min(0.99, max(0.0, float(smoothing or 0)))
    return DisplayOptions(weight, range_of(str(zoom or "")), bool(is_log))


def range_of(text: str) -> tuple[float, float] | None:
    """Return the steps of "FIRST LAST"; None for any other text."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() and len(word) < 16 for word in words):
        return None
    first, last = map(float, words)
    return (first, last) if first < last else None


def drawn(lines: Sequence[Line], display: DisplayOptions, others: Sequence[DrawnRun]) -> list[str]:
    """Return the charts of PLOTS, then what was heard and the losses by language, "" without any."""
    run = run_of(lines)
    runs = [run, *others]
    cut = replace(display, span=span_of(runs, display))

    def chart(name: str, unit: str, series: Sequence[Series], shown: Sequence[Mark], **values: float) -> str:
        title, unit = t(f"monitor.plots.{name}"), t(f"monitor.units.{unit}", **values)
        return chart_html(title, unit, series, shown, cut, is_zoomed=display.span is not None)

    charts = [chart(name, name, curves(runs, name, cut), marks(run, name)) for name in PLOTS]
    heard = ""
    if run.heard:
        cost = {name: run.heard[-1].get(name) or 0 for name in ("seconds", "time_share")}
        heard = chart("heard", "heard", heard_curves(run, cut), heard_marks(run), **cost)
    languages = language_curves(run, cut)
    resumes = [mark for mark in marks(run, "mel_loss") if mark.kind == "resume"]
    by_language = chart("mel_loss_by_language", "mel_loss", languages, resumes) if languages else ""
    return [*charts, heard, by_language]


def note(lines: Sequence[Line]) -> str:
    """Return how to use the charts, and which part of the run they show if there are several."""
    parts = {line["part"] for line in lines}
    words = [t("monitor.drawn_part", part=max(parts))] if len(parts) > 1 else []
    return f'<p class="hint">{escape(" ".join([*words, t("monitor.zoom_hint")]))}</p>'
