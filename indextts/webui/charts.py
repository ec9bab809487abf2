"""Numbers of a run for people, also while it grows: curves and progress out of metrics.jsonl. No Gradio here.

`indextts/training/metrics.py` draws the lines of kind "train" and "val"; one more says where a process began:

    {"kind": "start", "part": 1, "step": 120, "epoch": 1, "total_steps": 236, "time": 1760000000.0}

A process that began at step S makes the numbers after S once more; what an earlier one wrote there is not
shown.
"""

import json
import math
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from indextts.run_dir import MetricsKey, add_metrics_line

MAX_POINTS = 1_000  # of a series: the browser draws that in under a second
MAX_LINES = 20_000  # of a run in memory, about 12 MB
MAX_RUNS = 3
BLOCK_BYTES = 1 << 20
TAIL_BYTES = 64
STALE_S = 60.0

KINDS = (("train", "training"), ("val", "validation"))
LABELS = {"text_loss": "text loss", "mel_loss": "mel loss", "mel_top1": "mel_top1", "lr": "learning rate"}
RESUMED = "resumed"

Line = dict[str, Any]


class MetricsReader:
    """The lines of one metrics.jsonl as `run_dir.read_metrics` returns them; each byte is read once.

    Past MAX_LINES every second line is forgotten, of each part and kind; `start` lines stay.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # ticks of several browsers come in threads
        self._forget(inode=None)

    def version(self) -> str:
        """Return a word that changes whenever the file does."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return "absent"
        return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"

    def read(self) -> list[Line]:
        """Return all lines in the order of writing; of one step of a part the last counts."""
        with self._lock:
            try:
                with self.path.open("rb") as file:
                    rest = self._follow(file)
            except FileNotFoundError:
                self._forget(inode=None)
                return []
            lines = dict(self._lines)
        _add(lines, rest)  # without its newline it may yet be half a line, so it is not kept
        return list(lines.values())

    def _forget(self, inode: int | None) -> None:
        self._inode, self._offset, self._tail = inode, 0, b""
        self._lines: dict[MetricsKey, Line] = {}

    def _follow(self, file: BinaryIO) -> bytes:
        """Take in what was written since the last call; return what follows the last newline."""
        inode = os.fstat(file.fileno()).st_ino
        file.seek(self._offset - len(self._tail))
        if inode != self._inode or file.read(len(self._tail)) != self._tail:
            self._forget(inode)  # another file, or it was cut: from the beginning
            file.seek(0)
        while b"\n" in (block := file.read(BLOCK_BYTES)) or len(block) == BLOCK_BYTES:
            # a megabyte without a newline holds no line of ours: it is passed over whole
            whole = block[: block.rfind(b"\n") + 1] or block
            for text in whole.splitlines():
                _add(self._lines, text)
            self._offset, self._tail = self._offset + len(whole), whole[-TAIL_BYTES:]
            file.seek(self._offset)
            if len(self._lines) > MAX_LINES:
                self._thin()
        return block

    def _thin(self) -> None:
        seen: Counter[tuple[int, str]] = Counter()
        kept = []
        for key in reversed(self._lines):  # from the end, so that the newest of each kind stays
            part, kind, _ = key
            seen[part, kind] += 1
            if kind == "start" or seen[part, kind] % 2:
                kept.append(key)
        self._lines = {key: self._lines[key] for key in reversed(kept)}


class MetricsReaders:
    """A reader for each run directory that was looked at last: a cache of the disk, at most MAX_RUNS."""

    def __init__(self) -> None:
        self._readers: dict[Path, MetricsReader] = {}
        self._lock = threading.Lock()

    def of(self, run_dir: Path) -> MetricsReader:
        with self._lock:
            reader = self._readers.pop(run_dir, None) or MetricsReader(run_dir / "metrics.jsonl")
            self._readers[run_dir] = reader
            if len(self._readers) > MAX_RUNS:
                del self._readers[next(iter(self._readers))]
        return reader


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Args:
        step: None while there is no line.
        total_steps: the last step of the schedule, None where no `start` line says it.
        ended: the reason in exit.json, None while the process may be running.
        silent_s: since the last line.
        is_stale: no line for much longer than usual, and no exit.json either.
    """

    step: int | None = None
    total_steps: int | None = None
    epoch: int = 0
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    text_loss: float | None = None
    mel_loss: float | None = None
    ended: str | None = None
    silent_s: float = 0.0
    is_stale: bool = False

    def __str__(self) -> str:
        if self.step is None:
            return "no numbers yet; they come with the first steps of a training"
        total = "" if self.total_steps is None else f" of {self.total_steps:,}"
        words = [f"step {self.step:,}{total}", f"epoch {self.epoch}"]
        if self.tokens_per_second is not None:
            words.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.ended is not None:
            words.append(self.ended)
        elif self.is_stale:
            words.append(f"nothing new for {duration(self.silent_s)}")
        elif self.seconds_left is not None:
            words.append(f"about {duration(self.seconds_left)} left")
        return ", ".join(words)


def progress(run_dir: Path, now: float) -> Progress:
    """Return where the run stands at the time `now`; reads the whole of metrics.jsonl."""
    return progress_of(MetricsReader(run_dir / "metrics.jsonl").read(), run_dir, now)


def progress_of(lines: Sequence[Line], run_dir: Path, now: float) -> Progress:
    """Return where the run of these lines stands at the time `now`."""
    if not lines:
        return Progress()
    process = _newest_process(lines)
    start, last = process[0], process[-1]
    trained = next((line for line in reversed(process) if line["kind"] == "train"), {})
    seconds_a_line = (last["time"] - start["time"]) / max(1, len(process) - 1)
    silent_s = max(0.0, now - last["time"])
    ended = _reason_of_end(run_dir, last["time"])
    total_steps = start.get("total_steps")
    return Progress(
        step=last["step"],
        total_steps=total_steps,
        epoch=last.get("epoch", 0),
        tokens_per_second=trained.get("tokens_per_second"),
        seconds_left=None if ended or total_steps is None else _seconds_left(process, total_steps, now),
        text_loss=trained.get("text_loss"),
        mel_loss=trained.get("mel_loss"),
        ended=ended,
        silent_s=silent_s,
        is_stale=ended is None and silent_s > max(STALE_S, 5 * seconds_a_line),
    )


def duration(seconds: float) -> str:
    """Return a time span as people say it: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s" if seconds < 10 else f"{10 * round(seconds / 10)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def loss_frame(run_dir: Path, metrics: tuple[str, ...], *, all_parts: bool = False) -> pd.DataFrame:
    """Return the curves of a run, as `curves` does; reads the whole of metrics.jsonl."""
    return curves(MetricsReader(run_dir / "metrics.jsonl").read(), metrics, all_parts=all_parts)


def curves(lines: Iterable[Line], metrics: tuple[str, ...], *, all_parts: bool = False) -> pd.DataFrame:
    """Return the columns step, value and series, a row for each point; a series has at most MAX_POINTS.

    The series of the newest part are "training text loss" and so on; those of older parts, where asked for,
    end in "(part 1)".
    """
    groups: defaultdict[tuple[int, str], list[Line]] = defaultdict(list)
    for line in _shown(lines):
        groups[line["part"], line["kind"]].append(line)
    parts = sorted({part for part, _ in groups}, reverse=True)
    points: list[tuple[float, float, str]] = []
    for part in parts if all_parts else parts[:1]:
        ending = "" if part == parts[0] else f" (part {part})"
        for metric in metrics:
            for kind, word in KINDS:
                curve = decimate(_points(groups[part, kind], metric))
                name = series_name(word, metric) + ending
                points += [(step, value, name) for step, value in curve]
    return _frame(points)


def series_name(word: str, metric: str) -> str:
    """Return the name of a curve; `word` is "training" or "validation"."""
    return f"{word} {LABELS[metric]}"


def decimate(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MAX_POINTS points: the first, the last, and means of neighbours between them."""
    if len(points) <= MAX_POINTS:
        return list(points)
    inner = np.array(points[1:-1])  # (N, 2)
    edges = np.linspace(0, len(inner), MAX_POINTS - 1).astype(int)  # of the MAX_POINTS - 2 groups
    means = np.add.reduceat(inner, edges[:-1]) / np.diff(edges)[:, None]
    return [points[0], *((float(step), float(value)) for step, value in means), points[-1]]


def resumes(lines: Iterable[Line]) -> list[int]:
    """Return the steps after 0 at which a process of the newest part began."""
    shown = _shown(lines)
    newest = max((line["part"] for line in shown), default=0)
    return [
        line["step"]
        for line in shown
        if line["kind"] == "start" and line["part"] == newest and line["step"] > 0
    ]


def for_plot(frame: pd.DataFrame, series: Iterable[str], steps: Iterable[int]) -> pd.DataFrame:
    """Return `frame` between a row of nothing for each of `series` and an upright line at each of `steps`.

    A plot learns its colours from the first frame it gets, so that one names all series that may come. The
    upright lines are the series RESUMED, with gaps between them.
    """
    low, high = float(frame["value"].min()), float(frame["value"].max())
    names = [(math.nan, math.nan, name) for name in series]
    marks = [(step, value, RESUMED) for step in steps for value in (low, high, math.nan)]
    return pd.concat([_frame(names), frame, _frame(marks)], ignore_index=True)


def _frame(points: Sequence[tuple[float, float, str]]) -> pd.DataFrame:
    frame = pd.DataFrame(points, columns=["step", "value", "series"])
    return frame.astype({"step": float, "value": float, "series": str})


def _points(lines: Iterable[Line], metric: str) -> list[tuple[float, float]]:
    pairs = ((line["step"], line.get(metric)) for line in lines)
    return sorted((float(step), value) for step, value in pairs if value is not None and math.isfinite(value))


def _shown(lines: Iterable[Line]) -> list[Line]:
    """Return the lines that no later process of their part replaced by beginning before them."""
    begins: dict[int, int] = {}  # part: the earliest step at which a process began after this line
    kept = []
    for line in reversed(list(lines)):
        part, step = line["part"], line["step"]
        if step <= begins.get(part, step):
            kept.append(line)
            if line["kind"] == "start":
                begins[part] = step
    return kept[::-1]


def _newest_process(lines: Sequence[Line]) -> Sequence[Line]:
    starts = (index for index in reversed(range(len(lines))) if lines[index]["kind"] == "start")
    return lines[next(starts, 0) :]


def _seconds_left(process: Sequence[Line], total_steps: int, now: float) -> float | None:
    """Return the time to the last step at the pace of this process, None before there is a pace."""
    last = process[-1]
    # the first line after `start` where possible: loading is not the pace
    for first in (*process[1:2], process[0]):
        steps, seconds = last["step"] - first["step"], last["time"] - first["time"]
        if steps > 0 and seconds > 0:
            left = (total_steps - last["step"]) * seconds / steps
            return float(max(0.0, left - max(0.0, now - last["time"])))
    return None


def _reason_of_end(run_dir: Path, last_time: float) -> str | None:
    """Return how the process of the last line ended; an exit.json from before it is another's."""
    try:
        content = json.loads((run_dir / "exit.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return str(content["reason"]) if content["time"] >= last_time else None


def _add(lines: dict[MetricsKey, Line], text: bytes) -> None:
    """Put one line of the file at the end of `lines`; what a kill cut in half is skipped."""
    try:
        parsed = json.loads(text.decode())
        line = {sys.intern(name): value for name, value in parsed.items()}
        line["part"], line["step"], line["kind"] = line["part"], line["step"], sys.intern(line["kind"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    add_metrics_line(lines, line)
