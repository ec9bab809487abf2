"""Last runs in tab 1: best validation loss and a sparkline of each. No Gradio here.

A run that restarted from step 0 has a row for each of its parts.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from pathlib import Path

from indextts.projects.project import Project
from indextts.runs.owner import is_training
from indextts.system.amounts import shown_time
from indextts.webui.language import t
from indextts.webui.markup import table_html
from indextts.webui.run_progress import ENDED, Line, progress_of, read_run
from indextts.webui.stage_list import changed_at
from indextts.webui.view_versions import throttled_version

MAX_ROWS = 5
MAX_POINTS = 60
WIDTH, HEIGHT, MARGIN = 108, 24, 3  # of a sparkline, in pixels
EVERY_S = 10.0
HEADERS = {"run": "", "validation": "", "best": "number", "step": "number", "state": ""}


@dataclass(frozen=True)
class RunRow:
    """A part of a run."""

    name: str
    part: int
    points: Sequence[tuple[int, float]]  # step and validation mel loss, in order
    step: int
    state: str  # t("runs.replaced") for a part before the newest
    ended: float  # Unix time of its last line


def run_dirs(project: Project) -> list[Path]:
    """Return the run directories of a project, the last changed first."""
    root = project.root.resolve()
    found = [path for path in project.root.glob("*/metrics.jsonl") if path.resolve().is_relative_to(root)]
    return [path.parent for path in sorted(found, key=changed_at, reverse=True)[:MAX_ROWS]]


def runs_version(project: Project) -> str:
    folders = run_dirs(project)
    states = (f"{is_training(folder)} {(folder / 'exit.json').exists()}" for folder in folders)
    return " ".join(
        f"{throttled_version(folder / 'metrics.jsonl', EVERY_S)} {state}"
        for folder, state in zip(folders, states, strict=True)
    )


def run_rows(project: Project) -> list[RunRow]:
    """Return the last runs of a project, the newest first."""
    rows = [row for folder in run_dirs(project) for row in _rows(folder)]
    return sorted(rows, key=lambda row: row.ended, reverse=True)[:MAX_ROWS]


def mel_losses(lines: Sequence[Line], kind: str) -> list[tuple[int, float]]:
    """Return step and mel loss of each line of a kind; a loss that is not a number is left out."""
    found = [(line["step"], line.get("mel_loss")) for line in lines if line["kind"] == kind]
    return [
        (int(step), float(loss)) for step, loss in found if isinstance(loss, int | float) and isfinite(loss)
    ]


def best_point(points: Sequence[tuple[int, float]]) -> tuple[int, float] | None:
    """Return the point with the lowest loss; as for the trainer, step 0 never counts as the best."""
    return min((point for point in points if point[0]), key=lambda point: point[1], default=None)


def runs_html(rows: Sequence[RunRow]) -> str:
    if not rows:
        return ""
    table = table_html([(t(f"runs.{name}"), css) for name, css in HEADERS.items()], map(_cells, rows))
    return f'<h2>{escape(t("runs.heading"))}</h2><div class="scrolled">{table}</div>'


def sparkline(points: Sequence[tuple[int, float]], label: str) -> str:
    """Return a line of values over steps as a small SVG, a dot at the best; "" without a second point."""
    if len(points) < 2:
        return ""
    stride = -(-len(points) // MAX_POINTS)
    lowest = best_point(points) or points[-1]
    kept = sorted({*points[::stride], points[-1], lowest})
    (first, last), losses = (kept[0][0], kept[-1][0]), [loss for _, loss in kept]
    width, height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(point: tuple[int, float]) -> tuple[float, float]:
        across = (point[0] - first) / ((last - first) or 1)
        down = (max(losses) - point[1]) / ((max(losses) - min(losses)) or 1)
        return round(MARGIN + width * across, 1), round(MARGIN + height * down, 1)

    path = " ".join(f"{x},{y}" for x, y in map(place, kept))
    x, y = place(lowest)
    return (
        f'<svg class="spark" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(label)}"><polyline points="{path}"/><path d="M{x},{y}h0"/></svg>'
    )


def _rows(folder: Path) -> Iterator[RunRow]:
    parts: dict[int, list[Line]] = defaultdict(list)
    for line in read_run(folder):
        parts[line["part"]].append(line)
    newest = max(parts, default=0)
    for part, lines in parts.items():
        last = max(lines, key=lambda line: line["time"])
        found = progress_of(lines, folder, time.time())
        state = _state(folder, found.ended) if part == newest else t("runs.replaced")
        yield RunRow(folder.name, part, mel_losses(lines, "val"), found.step or 0, state, last["time"])


def _state(folder: Path, ended: str | None) -> str:
    if is_training(folder):
        return t("runs.running")
    return t(ENDED[ended]) if ended in ENDED else t("runs.interrupted")


def _cells(row: RunRow) -> tuple[str, ...]:
    name = row.name if row.part == 1 else t("runs.part", run=row.name, part=row.part)
    best = best_point(row.points)
    shown = "" if best is None else f"{best[1]:.3f}"
    at_step = "" if best is None else f" <small>{t('monitor.at_step', step=best[0])}</small>"
    when = shown_time(row.ended)
    state = f"{escape(row.state)} <small>{when}</small>"
    return escape(name), sparkline(row.points, shown), shown + at_step, f"{row.step:,}", state
