"""Progress of a run, and of another job by the last line of its log. No Gradio here."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project
from indextts.runs.checkpoints import list_checkpoints
from indextts.system.amounts import shown_duration
from indextts.webui.language import t
from indextts.webui.markup import meter_html
from indextts.webui.metrics_reader import Line

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
        silent_s: since the last line.
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
        """The newest saved step in words."""
        return t("monitor.not_saved") if self.saved_step is None else t("monitor.saved", step=self.saved_step)


def epoch_from_one(epoch: int, samples_done: int | None = None) -> int:
    """Return an epoch, counted from 0, for reading; a checkpoint with no samples done ends the one before."""
    return max(1, epoch if samples_done == 0 else epoch + 1)


def progress_of(lines: Sequence[Line], run_dir: Path, now: float) -> Progress:
    """Return the progress of the run with these lines at the time `now`."""
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
