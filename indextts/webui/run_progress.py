"""Progress of a run by its metrics.jsonl, and of another job by the last line of its log. No Gradio here.

`indextts/training/metrics.py` draws the lines. A process that starts at step S repeats the steps
after S; lines of an earlier process for these steps are not returned.
"""

import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project
from indextts.runs.checkpoints import list_checkpoints
from indextts.runs.directory import MetricsKey, add_metrics_line
from indextts.system.amounts import shown_duration
from indextts.webui.language import t
from indextts.webui.markup import meter_html

MAX_LINES = 20_000  # of a run, about 12 MB in memory
MAX_RUNS = 24  # the runs of all open pages: of their projects, their tables of runs and their comparisons
BLOCK_BYTES = 1 << 20
TAIL_BYTES = 64

Line = dict[str, Any]


class MetricsReader:
    """The lines of one metrics.jsonl as `run_dir.read_metrics` returns them; each byte is read once.

    Above MAX_LINES, every second line of each part and kind is dropped; `start` lines stay.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # the ticks of several browsers run in threads
        self._forget(inode=None)

    def read(self) -> list[Line]:
        """Return all lines in the order of writing; for repeated steps of a part, the last line counts."""
        with self._lock:
            try:
                with self.path.open("rb") as file:
                    rest = self._follow(file)
            except FileNotFoundError:
                self._forget(inode=None)
                return []
            lines = dict(self._lines)
        _add(lines, rest)  # a line without its newline may be incomplete, so it is not stored
        return list(lines.values())

    def _forget(self, inode: int | None) -> None:
        self._inode, self._offset, self._tail = inode, 0, b""
        self._lines: dict[MetricsKey, Line] = {}

    def _follow(self, file: BinaryIO) -> bytes:
        """Read the new lines since the last call; return the text after the last newline."""
        inode = os.fstat(file.fileno()).st_ino
        file.seek(self._offset - len(self._tail))
        if inode != self._inode or file.read(len(self._tail)) != self._tail:
            self._forget(inode)  # another file, or a truncated one: start over
            file.seek(0)
        while b"\n" in (block := file.read(BLOCK_BYTES)) or len(block) == BLOCK_BYTES:
            # a megabyte without a newline contains no valid line, so it is skipped
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


def read_run(run_dir: Path) -> list[Line]:
    """Return the lines of a run; one reader serves the whole page, so that no run is in memory twice."""
    return _reader(run_dir).read()


@lru_cache(maxsize=MAX_RUNS)
def _reader(run_dir: Path) -> MetricsReader:
    return MetricsReader(run_dir / "metrics.jsonl")


def _add(lines: dict[MetricsKey, Line], text: bytes) -> None:
    """Append one line of the file to `lines`; an incomplete line is skipped."""
    try:
        parsed = json.loads(text.decode())
        line = {sys.intern(name): value for name, value in parsed.items()}
        line["part"], line["step"], line["kind"] = line["part"], line["step"], sys.intern(line["kind"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    add_metrics_line(lines, line)


STALE_S = 60.0

ENDED = {"finished": "monitor.ended.finished", "stopped": "monitor.ended.stopped"}  # in exit.json


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Args:
        step: of the last line, or saved after it at the end of the run; None before the first line.
        total_steps: the last step of the schedule, None if no `start` line contains it.
        epoch: from 1; the log and the checkpoints count from 0.
        saved_step: of the newest complete checkpoint, None without one: what a resume would continue.
        ended: the reason in exit.json, None while the process may be running.
        is_stale: no line for much longer than usual, and no exit.json either.
    """

    step: int | None = None
    total_steps: int | None = None
    epoch: int = 1
    saved_step: int | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    ended: str | None = None
    silent_s: float = 0.0
    is_stale: bool = False

    @property
    def saved_text(self) -> str:
        return t("monitor.not_saved") if self.saved_step is None else t("monitor.saved", step=self.saved_step)


def epoch_from_one(epoch: int, samples_done: int | None = None) -> int:
    """Return an epoch, counted from 0, for reading; a checkpoint with no samples done ends the one before."""
    return max(1, epoch if samples_done == 0 else epoch + 1)


def progress_of(lines: Sequence[Line], run_dir: Path, now: float) -> Progress:
    if not lines:
        return Progress()
    starts = (index for index in reversed(range(len(lines))) if lines[index]["kind"] == "start")
    process = lines[next(starts, 0) :]
    start, last = process[0], process[-1]
    trained = next((line for line in reversed(process) if line["kind"] == "train"), {})
    seconds_a_line = (last["time"] - start["time"]) / max(1, len(process) - 1)
    silent_s = max(0.0, now - last["time"])
    ended = _reason_of_end(run_dir, last["time"])
    part = (each for each in list_checkpoints(run_dir) if each.is_complete and each.part == last["part"])
    saved_step = next((each.step for each in part), None)
    total_steps = start.get("total_steps")
    return Progress(
        step=max(last["step"], saved_step or 0) if ended else last["step"],
        total_steps=total_steps,
        epoch=epoch_from_one(last.get("epoch", 0)),
        saved_step=saved_step,
        tokens_per_second=trained.get("tokens_per_second"),
        seconds_left=None if ended or total_steps is None else _seconds_left(process, total_steps, now),
        ended=ended,
        silent_s=silent_s,
        is_stale=ended is None and silent_s > max(STALE_S, 5 * seconds_a_line),
    )


def duration(seconds: float) -> str:
    """Return a duration in words: "40 s", "12 min", "3 h 20 min", "4 days"."""
    days = round(seconds / 60) // (24 * 60)
    return t("monitor.days", days=days) if days >= 2 else shown_duration(seconds)


def _seconds_left(process: Sequence[Line], total_steps: int, now: float) -> float | None:
    """Return the time to the last step at the speed of this process, None before the speed is known."""
    last = process[-1]
    # the first line after `start` if possible, to exclude the loading time
    for first in (*process[1:2], process[0]):
        steps, seconds = last["step"] - first["step"], last["time"] - first["time"]
        if steps > 0 and seconds > 0:
            left = (total_steps - last["step"]) * seconds / steps
            return float(max(0.0, left - max(0.0, now - last["time"])))
    return None


def _reason_of_end(run_dir: Path, last_time: float) -> str | None:
    """Return the reason why the process of the last line ended; an older exit.json is ignored."""
    try:
        content = json.loads((run_dir / "exit.json").read_bytes())
        return str(content["reason"]) if content["time"] >= last_time else None
    except (OSError, ValueError, KeyError, TypeError):  # absent or incomplete
        return None


LINE = re.compile(r"([A-Z][a-z ]+): (\d+)/(\d+) \w+, (.*)")  # Encoding: 120/900 clips, 31.5 clips/s, ...


def job_bar(project: Project, stage: str, texts: Mapping[str, str]) -> str:
    """Return the progress of a stage's newest job as HTML, "" before its first line; `texts` by activity."""
    job = newest_job(project, stage)
    return bar_of(tail(job.log), texts) if job is not None else ""


def bar_of(log: str, texts: Mapping[str, str]) -> str:
    """Return the progress at the end of a log as HTML; "" without a line of one of the activities."""
    found = [line.groups() for line in LINE.finditer(log) if line[1] in texts]
    if not found:
        return ""
    doing, done, total, pace = found[-1]
    return meter_html(int(done) / max(1, int(total)), t(texts[doing], done=done, total=total, pace=pace))
