"""Curves of a run: smoothed, cut to a range, on a logarithmic scale, and compared with other runs.

    lines --points--> step, value --smoothed, in_range, log10--> --decimate--> at most MAX_POINTS a series

A plot draws a table with the columns step, value and series; each series has a colour and a legend entry.

A run can be compared with its older parts and with runs of other projects. A choice is "PROJECT:PART", part 0
for the newest. No Gradio here.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from indextts.projects.project import Project, project_names
from indextts.webui.language import t
from indextts.webui.monitor.metrics_reader import RUNS, Line
from indextts.webui.view_versions import files_version

MAX_POINTS = 500  # of a series, about the width of a plot in pixels

TRAINING = "monitor.training"
VALIDATION = "monitor.validation"
KINDS = (("train", TRAINING), ("val", VALIDATION))
EXACT = ("lr",)  # metrics without noise
RESUMED = "monitor.resumed"
AS_LOGGED = "monitor.as_logged"

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class DisplayOptions:
    """Display options of the curves.

    Args:
        smoothing: weight of earlier values in a running mean of the training curves, 0 to below 1. The
            unsmoothed curves are drawn too.
        first, last: the steps to draw; None for no limit.
        is_log: draw the decimal logarithm of each value; values not above 0 are skipped.
    """

    smoothing: float = 0.0
    first: float | None = None
    last: float | None = None
    is_log: bool = False


@dataclass(frozen=True)
class ComparedRun:
    """Another run, or another part of this run; the newest part in `lines` is drawn."""

    name: str
    lines: Sequence[Line]


DEFAULT_DISPLAY = DisplayOptions()


def curves(
    lines: Iterable[Line],
    metric: str,
    *,
    display: DisplayOptions = DEFAULT_DISPLAY,
    compared: Sequence[ComparedRun] = (),
) -> pd.DataFrame:
    """Return the columns step, value and series, a row for each point; a series has at most MAX_POINTS.

    The series of the newest part are "training" and "validation"; if the training series is smoothed, the
    unsmoothed one is AS_LOGGED. A compared run's series end in its name.
    """
    weight = 0.0 if metric in EXACT else display.smoothing
    series: list[tuple[str, Points]] = []
    for name, run_lines in (("", lines), *((run.name, run.lines) for run in compared)):
        groups = _newest_part(run_lines)
        for kind, word in KINDS:
            points = _points(groups[kind], metric)
            drawn = [(series_name(word, name), points)]
            if weight and kind == "train":
                drawn = [(series_name(word, name), smoothed(points, weight))]
                if not name:
                    drawn.insert(0, (t(AS_LOGGED), points))
            series += [(label, _shown_as(each, display)) for label, each in drawn]
    return _frame([(step, value, name) for name, points in series for step, value in points])


def series_name(word: str, run: str = "") -> str:
    """Return the name of a curve; `word` is TRAINING or VALIDATION, `run` another run's name."""
    return f"{t(word)}, {run}" if run else t(word)


def part_of(lines: Iterable[Line], part: int) -> list[Line]:
    """Return the lines of one part of a run."""
    return [line for line in lines if line["part"] == part]


def smoothed(points: Points, weight: float) -> Points:
    """Return the exponential moving average with `weight`, corrected for its start.

    Without the correction a mean that starts at 0 lies below the first points; dividing by the sum of the
    weights so far corrects this, as in Adam (Kingma and Ba, 2015, section 3).
    """
    mean, sum_of_weights, result = 0.0, 0.0, []
    for step, value in points:
        mean = weight * mean + (1 - weight) * value
        sum_of_weights = weight * sum_of_weights + (1 - weight)
        result.append((step, mean / sum_of_weights))
    return result


def in_range(points: Points, first: float | None, last: float | None) -> Points:
    """Return the points from step `first` to `last`; None for no limit."""
    low, high = -math.inf if first is None else first, math.inf if last is None else last
    return [point for point in points if low <= point[0] <= high]


def log10(points: Points) -> Points:
    """Return the logarithms of the positive values."""
    return [(step, math.log10(value)) for step, value in points if value > 0]


def decimate(points: Sequence[tuple[float, float]]) -> Points:
    """Return at most MAX_POINTS points: the first, the last, and means of neighbours between them."""
    if len(points) <= MAX_POINTS:
        return list(points)
    inner = np.array(points[1:-1])  # (N, 2)
    edges = np.linspace(0, len(inner), MAX_POINTS - 1).astype(int)  # of the MAX_POINTS - 2 groups
    means = np.add.reduceat(inner, edges[:-1]) / np.diff(edges)[:, None]
    return [points[0], *((float(step), float(value)) for step, value in means), points[-1]]


def resumes(lines: Iterable[Line]) -> list[int]:
    """Return the steps after 0 at which a process of the newest part started."""
    shown = _shown(lines)
    newest = max((line["part"] for line in shown), default=0)
    return [
        line["step"]
        for line in shown
        if line["kind"] == "start" and line["part"] == newest and line["step"] > 0
    ]


def for_plot(frame: pd.DataFrame, series: Iterable[str], steps: Iterable[int]) -> pd.DataFrame:
    """Return `frame` after an empty row for each of `series` and before a vertical line at each of `steps`.

    A plot takes its colours from its first frame, so that frame names every possible series. The vertical
    lines are the series RESUMED, with gaps between them.
    """
    low, high = float(frame["value"].min()), float(frame["value"].max())
    names = [(math.nan, math.nan, name) for name in series]
    marks = [(step, value, t(RESUMED)) for step in steps for value in (low, high, math.nan)]
    return pd.concat([_frame(names), frame, _frame(marks)], ignore_index=True)


def _shown_as(points: Points, display: DisplayOptions) -> Points:
    limited = in_range(points, display.first, display.last)
    return decimate(log10(limited) if display.is_log else limited)


def _newest_part(lines: Iterable[Line]) -> defaultdict[str, list[Line]]:
    """Return the lines of the newest part by their kind."""
    shown = _shown(lines)
    newest = max((line["part"] for line in shown), default=0)
    groups: defaultdict[str, list[Line]] = defaultdict(list)
    for line in shown:
        if line["part"] == newest:
            groups[line["kind"]].append(line)
    return groups


def _frame(points: Sequence[tuple[float, float, str]]) -> pd.DataFrame:
    frame = pd.DataFrame(points, columns=["step", "value", "series"])
    return frame.astype({"step": float, "value": float, "series": str})


def _points(lines: Iterable[Line], metric: str) -> Points:
    pairs = ((line["step"], line.get(metric)) for line in lines)
    return sorted((float(step), value) for step, value in pairs if value is not None and math.isfinite(value))


def _shown(lines: Iterable[Line]) -> list[Line]:
    """Return the lines that no later process of their part replaced by starting before them."""
    begins: dict[int, int] = {}  # part: the earliest step at which a process started after this line
    kept = []
    for line in reversed(list(lines)):
        part, step = line["part"], line["step"]
        if step <= begins.get(part, step):
            kept.append(line)
            if line["kind"] == "start":
                begins[part] = step
    return kept[::-1]


MAX_COMPARED = 3
PART = "monitor.part"


def comparable(workspace: Path, name: str) -> list[tuple[str, str]]:
    """Return label and choice of each run that can be compared with that of the project `name`."""
    parts = sorted({line["part"] for line in RUNS.of(Project(workspace / name).run_dir).read()})
    older = [(t(PART, part=part), f"{name}:{part}") for part in parts[:-1]]
    others = [
        (other, f"{other}:0")
        for other in project_names(workspace)
        if other != name and (Project(workspace / other).run_dir / "metrics.jsonl").is_file()
    ]
    return older + others


def runs_version(workspace: Path, project: Project) -> str:
    """Return a version that changes when a run starts in any project, or a new part in this project."""
    runs = (Project(workspace / name).run_dir / "config.json" for name in project_names(workspace))
    lines = RUNS.of(project.run_dir).read()
    return f"{files_version(*runs)} {lines[-1]['part'] if lines else 0}"


def compared(workspace: Path, name: str, chosen: Sequence[str] | None) -> list[ComparedRun]:
    """Return the chosen runs, named as `comparable` names them, at most MAX_COMPARED.

    Unknown choices are skipped: after a change of project, the page sends its old selection once.
    """
    labels = {choice: label for label, choice in comparable(workspace, name)} if chosen else {}
    found = []
    for choice in [choice for choice in chosen or [] if choice in labels][:MAX_COMPARED]:
        project, part = choice.rsplit(":", 1)
        lines = RUNS.of(Project(workspace / project).run_dir).read()
        found.append(ComparedRun(labels[choice], part_of(lines, int(part)) if part != "0" else lines))
    return found
