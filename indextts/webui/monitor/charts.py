"""Curves of a run: smoothed, cut to a range, and compared with other runs. No Gradio here.

    lines --run_of--> train, val --points_of, smoothed, in_range, decimate--> Series --chart_html--> browser

A run can be compared with its older parts and with runs of other projects. A choice is "PROJECT:PART", part 0
for the newest.

page_files/charts.js draws a chart from its numbers:

    figure.chart
      figcaption    title, unit, a key for each series; while zoomed, a button that shows all steps; one that
                    fills the screen
      div.plot      data-points: span, is_log, series [{name, css, steps, values}], marks [{step, kind, ...}]
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from indextts.projects.project import Project, project_names
from indextts.runs.health.losses import OF_LANGUAGE
from indextts.webui.language import t
from indextts.webui.run_progress import Line, read_run
from indextts.webui.view_versions import files_version

BUCKETS = 300  # across a chart; each keeps its least and its greatest value

MAX_COMPARED = 3  # runs beside that of the open project
CORNERS = '<svg viewBox="0 0 14 14" aria-hidden="true"><path d="M1 5V1h4M9 1h4v4M13 9v4H9M5 13H1V9"/></svg>'
EXACT = ("lr",)  # metrics without noise
FAILURES = ("no_stop", "loops", "silent")

Points = NDArray[np.float64]  # (N, 2): step and value, in the order of steps
Kind = Literal["raw", "training", "validation"]


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    name: str
    points: Points  # within the span, and one beyond each end
    run: int = 1  # from 1; chooses the colour
    kind: Kind = "training"  # "raw" for the unsmoothed values of a smoothed line

    @property
    def css(self) -> str:
        return f"run-{self.run} {self.kind}"


@dataclass(frozen=True)
class Mark:
    """A step to mark, with a dot at `value` if there is one."""

    step: float
    text: str
    kind: Literal["resume", "best"]
    value: float | None = None


@dataclass(frozen=True)
class DisplayOptions:
    """Display options of the curves.

    Args:
        smoothing: weight of the earlier values in a running mean of the training curves, 0 to below 1, after
            one bucket of the chart. The unsmoothed curves are drawn too.
        span: first and last step to draw; None for all.
        is_log: a logarithmic scale; values not above 0 are skipped.
    """

    smoothing: float = 0.0
    span: tuple[float, float] | None = None
    is_log: bool = False


@dataclass(frozen=True)
class DrawnRun:
    """The lines of a run that are drawn; its name is empty for the run of the open project."""

    name: str
    train: Sequence[Line] = ()
    val: Sequence[Line] = ()
    heard: Sequence[Line] = ()
    resumes: Sequence[int] = ()


DEFAULT_DISPLAY = DisplayOptions()


def run_of(lines: Sequence[Line], part: int = 0, name: str = "") -> DrawnRun:
    """Return one part of a run, the newest for 0."""
    part = part or max((line["part"] for line in lines), default=0)
    shown = [line for line in lines if line["part"] == part]
    return DrawnRun(
        name,
        train=[line for line in shown if line["kind"] == "train"],
        val=[line for line in shown if line["kind"] == "val"],
        heard=[line for line in shown if line["kind"] == "listen"],
        resumes=[line["step"] for line in shown if line["kind"] == "start" and line["step"] > 0],
    )


def span_of(runs: Iterable[DrawnRun], display: DisplayOptions = DEFAULT_DISPLAY) -> tuple[float, float]:
    """Return the first and last step to draw, at least one step apart."""
    if display.span:
        return display.span
    steps = [line["step"] for run in runs for lines in (run.train, run.val, run.heard) for line in lines]
    first = min(steps, default=0)
    return float(first), float(max([*steps, first + 1]))


def curves(runs: Sequence[DrawnRun], metric: str, display: DisplayOptions = DEFAULT_DISPLAY) -> list[Series]:
    """Return the lines of a chart; those of the first run last, above the others."""
    first, last = span_of(runs, display)
    found = []
    for number_of_run, run in reversed(list(enumerate(runs, 1))):
        kinds: tuple[tuple[Kind, Sequence[Line], str], ...] = (
            ("training", run.train, "monitor.training"),
            ("validation", run.val, "monitor.validation"),
        )
        for kind, lines, word in kinds:
            points = points_of(lines, metric, display.is_log)
            if not len(points):
                continue
            drawn: list[tuple[Kind, Points]] = [(kind, points)]
            if kind == "training" and display.smoothing and metric not in EXACT:
                smooth = smoothed(points, display.smoothing, (last - first) / BUCKETS)
                drawn = [("raw", points), (kind, smooth)] if number_of_run == 1 else [(kind, smooth)]
            name = t("monitor.of_run", curve=t(word), run=run.name) if run.name else t(word)
            found += [
                Series(name, decimate(in_range(each, first, last)), number_of_run, shown_as)
                for shown_as, each in drawn
            ]
    return found


def language_curves(run: DrawnRun, display: DisplayOptions = DEFAULT_DISPLAY) -> list[Series]:
    """Return a line for the validation loss of each language, named by its code."""
    names = sorted({name for line in run.val for name in line if name.startswith(OF_LANGUAGE)})
    return _named_curves(run, run.val, {name: name.removeprefix(OF_LANGUAGE) for name in names}, display)


def heard_curves(run: DrawnRun, display: DisplayOptions = DEFAULT_DISPLAY) -> list[Series]:
    """Return lines for what was heard: errors, sentences that failed, length and voice."""
    lines = [{**line, "failed": max(line.get(name) or 0 for name in FAILURES)} for line in run.heard]
    score = "cer" if any("cer" in line for line in lines) else "score"
    names = {name: t(f"monitor.heard.{name}") for name in (score, "failed", "length_ratio", "likeness")}
    found = _named_curves(run, lines, names, display)
    return [replace(each, kind="validation") for each in found if len(each.points)]


def _named_curves(
    run: DrawnRun, lines: Sequence[Line], names: Mapping[str, str], display: DisplayOptions
) -> list[Series]:
    """Return a line for each metric in `names`, under its name there."""
    span = span_of([run], display)
    found = [decimate(in_range(points_of(lines, metric, display.is_log), *span)) for metric in names]
    return [
        Series(name, line, number_of_line)
        for number_of_line, (name, line) in enumerate(zip(names.values(), found, strict=True), 1)
    ]


def marks(run: DrawnRun, metric: str) -> list[Mark]:
    """Return the resumes of a run and the step of its best validation, with the value of the metric there."""
    found = [Mark(step, t("monitor.resumed"), "resume") for step in run.resumes]
    best = best_validation(run)
    value = None if best is None else _finite(best.get(metric))
    if best is not None and value is not None:
        label = (
            "monitor.best" if metric == "mel_loss" else "monitor.at_best"
        )  # the mel loss decides which step is the best
        found.append(Mark(best["step"], t(label, value=number(value)), "best", value))
    return found


def heard_marks(run: DrawnRun) -> list[Mark]:
    """Return the resumes of a run and the step that was heard best, the first one of equal scores."""
    found = [mark for mark in marks(run, "mel_loss") if mark.kind == "resume"]
    known = [line for line in run.heard if _finite(line.get("score")) is not None]
    if best := min(known, key=lambda line: float(line["score"]), default=None):
        value = float(best["score"])
        found.append(Mark(best["step"], t("monitor.best", value=number(value)), "best", value))
    return found


def best_validation(run: DrawnRun) -> Line | None:
    """Return the validation after step 0 with the lowest mel loss; the first one of equal losses."""
    known = [line for line in run.val if line["step"] and _finite(line.get("mel_loss")) is not None]
    return min(known, key=lambda line: float(line["mel_loss"]), default=None)


def points_of(lines: Sequence[Line], metric: str, is_log: bool = False) -> Points:
    """Return the finite values of a metric by step; on a logarithmic scale, those above 0."""
    values = np.array([line.get(metric) for line in lines], dtype=np.float64)  # None becomes NaN
    steps = np.array([line["step"] for line in lines], dtype=np.float64)
    is_shown = np.isfinite(values) & ((values > 0) | (not is_log))
    points: Points = np.stack([steps, values], axis=1)[is_shown]
    return points[np.argsort(points[:, 0], kind="stable")]


def smoothed(points: Points, weight: float, unit: float = 1.0) -> Points:
    """Return the exponential moving average that keeps `weight` of the mean after `unit` steps.

    The weight depends on the distance of the points, so few points of a short run are hardly smoothed. The
    average is corrected for its start: a mean that starts at 0 lies below the first points; dividing by the
    sum of the weights so far corrects this, as in Adam (Kingma and Ba, 2015, section 3).
    """
    steps, values = points.T
    kept = weight ** (np.diff(steps, prepend=steps[:1] - unit) / unit)
    mean, sum_of_weights, means = 0.0, 0.0, []
    for before, value in zip(kept.tolist(), values.tolist(), strict=True):
        mean = before * mean + (1 - before) * value
        sum_of_weights = before * sum_of_weights + (1 - before)
        means.append(mean / sum_of_weights)
    return np.stack([steps, np.array(means, dtype=np.float64)], axis=1)


def in_range(points: Points, first: float, last: float) -> Points:
    """Return the points from step `first` to `last` and one beyond each end, so that the line goes on."""
    begin, end = np.searchsorted(points[:, 0], (first, last), side="left")
    is_last = end < len(points) and points[end, 0] == last
    return points[max(0, begin - 1) : end + 1 + int(is_last)]


def decimate(points: Points) -> Points:
    """Return at most 2 * BUCKETS + 2 points: the ends, and the least and greatest value of each bucket."""
    if len(points) <= 2 * BUCKETS:
        return points
    steps, values = points.T
    buckets = ((steps - steps[0]) / (steps[-1] - steps[0]) * BUCKETS).astype(int)
    order = np.lexsort((values, buckets))
    begins = np.flatnonzero(np.diff(buckets[order], prepend=-1))
    ends = np.append(begins[1:], len(order)) - 1
    kept: Points = points[np.unique(np.concatenate([order[begins], order[ends], [0, len(points) - 1]]))]
    return kept


def _finite(value: object) -> float | None:
    """Return a number of metrics.jsonl; None for anything else."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def comparable(workspace: Path, project: Project) -> list[tuple[str, str]]:
    """Return label and choice of each run that can be compared with that of the project."""
    name = project.root.name
    parts = sorted({line["part"] for line in read_run(project.run_dir)})
    older = [(t("monitor.part", part=part), f"{name}:{part}") for part in parts[:-1]]
    others = [
        (other, f"{other}:0")
        for other in project_names(workspace)
        if other != name and (Project(workspace / other).run_dir / "metrics.jsonl").is_file()
    ]
    return older + others


def runs_version(workspace: Path, project: Project) -> str:
    """Return a version that changes when a run starts in any project, or a new part in this project."""
    runs = (Project(workspace / name).run_dir / "config.json" for name in project_names(workspace))
    lines = read_run(project.run_dir)
    return f"{files_version(*runs)} {lines[-1]['part'] if lines else 0}"


def compared(workspace: Path, project: Project, chosen: Sequence[str] | None) -> list[DrawnRun]:
    """Return the chosen runs, named as `comparable` names them, at most MAX_COMPARED.

    Unknown choices are skipped: after a change of project, the page sends its old selection once.
    """
    labels = {choice: label for label, choice in comparable(workspace, project)} if chosen else {}
    found = []
    # a request can hold values of any type, also of those that a dict cannot look up
    known = [choice for choice in chosen or [] if isinstance(choice, str) and choice in labels]
    for choice in known[:MAX_COMPARED]:
        name, part = choice.rsplit(":", 1)
        lines = read_run(Project(workspace / name).run_dir)
        found.append(run_of(lines, int(part), labels[choice]))
    return found


def chart_html(
    title: str,
    unit: str,
    series: Sequence[Series],
    marks: Sequence[Mark],
    display: DisplayOptions,
    *,
    is_zoomed: bool = False,
) -> str:
    """Return a chart of `display.span`, which is a part of the run if `is_zoomed`."""
    keys = {each.name: each.css for each in series if each.kind != "raw"}
    legend = "".join(f'<span class="key {css}">{escape(name)}</span>' for name, css in keys.items())
    head = f'<b>{escape(title)}</b> <span>{escape(unit)}</span><span class="keys">{legend}</span>'
    if is_zoomed:
        head += f'<button type="button" class="quiet" data-show-all>{escape(t("monitor.show_all"))}</button>'
    head += (
        f'<button type="button" data-full aria-label="{escape(t("monitor.full_screen"))}">{CORNERS}</button>'
    )
    css = "chart" if any(each.kind == "validation" for each in series) else "chart alone"
    body = f'<p class="empty">{escape(t("monitor.no_values"))}</p>'
    if drawn := [each for each in series if len(each.points)]:
        about = escape(f"{title}. {t('monitor.read_by_keys')}")
        data = escape(_numbers(drawn, marks, display))
        body = f'<div class="plot" tabindex="0" role="img" aria-label="{about}" data-points="{data}"></div>'
    return f'<figure class="{css}"><figcaption>{head}</figcaption>{body}</figure>'


def _numbers(series: Sequence[Series], marks: Sequence[Mark], display: DisplayOptions) -> str:
    lines = [
        {
            "name": each.name,
            "css": each.css,
            "steps": each.points[:, 0].astype(int).tolist(),
            "values": [float(f"{value:.5g}") for value in each.points[:, 1].tolist()],
        }
        for each in series
    ]
    found = {
        "span": display.span,
        "is_log": display.is_log,
        "step": t("monitor.headers.step"),
        "series": lines,
        "marks": [asdict(mark) for mark in marks],
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def number(value: float) -> str:
    """Return a value for reading: "0", "5e-5", "0.25", "1.642", "1,480"."""
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
