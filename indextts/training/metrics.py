"""Metrics of a run: metrics.jsonl first, then TensorBoard, tracker and log; speed and start-up times.

One line of metrics.jsonl:

    {"kind": "train", "part": 1, "step": 100, "epoch": 0, "text_loss": 5.1, "mel_loss": 4.2, "mel_top1": 0.2,
     "new_text_loss": 5.3, "lr": 5e-05, "grad_norm": 0.9, "tokens_per_second": 1200.0, "data_wait": 0.004,
     "num_skipped": 0, "time": 1760000000.0}           with several ranks also "imbalance": 1.004
    {"kind": "val", ...}     without lr, grad_norm, tokens_per_second, data_wait, num_skipped; with
                             --ema-decay also averaged_mel_loss and so on, those of the averaged weights;
                             with several languages also mel_loss_am, mel_loss_en and so on
    {"kind": "listen", "part": 1, "step": 1000, "epoch": 0, "score": 0.31, "cer": 0.31, "length_ratio": 1.02,
     "no_stop": 0.0, "loops": 0.04, "silent": 0.0, "likeness": 0.66, "seconds": 31.2, "time_share": 0.03,
     "time": ...}             without a recognizer no cer; time_share is that of all listenings of the process
    {"kind": "start", "part": 1, "step": 0, "epoch": 0, "total_steps": 236, "time": ...}   a process started
    {"kind": "facts", "part": 1, "step": 100, "epoch": 0, "unknown_share": 0.001,
     "base_rows": "9f86d081884c7d65", "new_rows_moved": 0.0004, "new_rows_moved_lately": 0.0001,
     "new_rows_seen": 0.9, "time": ...}
        at the start and with each validation
    {"kind": "failed_save", "part": 1, "step": 100, "epoch": 0, "failures": 3, "time": ...}   in a row

Losses are nats per token over all steps since the last line; `new_text_loss` covers only the new pieces.
`data_wait` is the share of time in which the device was idle because its data was not ready. `num_skipped`
counts the steps of the run that were skipped because loss or gradient was not finite, as far as the host
knows. `imbalance` is the largest load of a rank over the mean load.

Of the facts, `unknown_share` is the share of unknown tokens in the training texts and `base_rows` a digest of
the frozen rows of the text tables. Since the part of the run started, `new_rows_moved` is how far the new
rows moved (root mean square of 16 values of each row, of the table that moved least) and `new_rows_seen` the
share of new embedding rows that changed at all; `new_rows_moved_lately` counts since the process started.
Without frozen rows there is only `unknown_share`.
"""

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from indextts.runs.health.checks import MAX_WAIT_SHARE
from indextts.system.files import first_free
from indextts.system.processes import read_stat
from indextts.training.losses import LossMeans
from indextts.training.tracking import Tracker
from indextts.training.validate import Validation

logger = logging.getLogger(__name__)

GroupT = TypeVar("GroupT")

MAX_WAITING_LINES = 10_000


class MetricsLog:
    """Writer of the metrics of one part of a run; each line is on its way to the disk before the next step.

    If the disk refuses lines, that is logged once and training continues; they are written when it accepts
    lines again. Every write opens its file: a drive that returns does not know the files opened before.
    """

    def __init__(
        self,
        run_dir: Path | None,
        *,
        part: int,
        step: int,
        epoch: int,
        total_steps: int,
        tracker: Tracker | None = None,
        language: str = "",
    ) -> None:
        """Open the files and write the start line: after `step`, of `total_steps`.

        Args:
            run_dir: None on ranks that write nothing.
            language: ISO 639 code of the run's language.
        """
        self.part, self.tracker, self.language = part, tracker, language
        self.failing: set[str] = set()  # what the disk refused last
        self.board: SummaryWriter | None = None
        self._run_dir = run_dir
        self._lines: deque[str] = deque(maxlen=MAX_WAITING_LINES)  # not on the disk yet
        self._append(
            {"kind": "start", "part": part, "step": step, "epoch": epoch, "total_steps": total_steps}
        )
        self._report = threading.excepthook
        threading.excepthook = self._report_other_than_tensorboard
        self._open_board()

    def train(self, step: int, epoch: int, means: LossMeans, numbers: Mapping[str, float | None]) -> None:
        """Write a [Train] line to the log, metrics.jsonl and TensorBoard."""
        self._write("train", step, epoch, {**asdict(means), **numbers})
        suffix = f" imbalance={numbers['imbalance']:.3f}" if "imbalance" in numbers else ""
        logger.info("[Train] %s lr=%.2e%s", _line(step, epoch, means), numbers["lr"], suffix)

    def validation(self, step: int, epoch: int, validation: Validation) -> None:
        """Write a [Val] line to the log, metrics.jsonl and TensorBoard.

        The losses of unseen speakers and of averaged weights get a prefix, as in unseen_mel_loss; those of a
        language get its code, as in mel_loss_en, and end the [Val] line.
        """
        groups = dict(validation.by_speakers)
        if validation.averaged is not None:
            groups["averaged"] = validation.averaged
        numbers = {
            f"{group}_{name}": value
            for group, means in groups.items()
            for name, value in asdict(means).items()
        }
        languages = {code or self.language: means for code, means in sorted(validation.by_language.items())}
        numbers |= {
            f"{name}_{code}": value
            for code, means in languages.items()
            for name, value in asdict(means).items()
        }
        self._write("val", step, epoch, {**asdict(validation.means), **numbers})
        more = "".join(f" mel_loss_{code}={means.mel_loss:.4f}" for code, means in languages.items())
        logger.info("[Val] %s%s", _line(step, epoch, validation.means), more)
        for group, means in validation.by_speakers.items():
            logger.info("      %s speakers: %s", group, _losses(means))
        if validation.averaged is not None:
            logger.info("      averaged weights: %s", _losses(validation.averaged))

    def heard(self, step: int, epoch: int, numbers: Mapping[str, float | None]) -> None:
        """Write a [Listen] line to the log, metrics.jsonl and TensorBoard."""
        self._write("listen", step, epoch, numbers)
        shown = " ".join(f"{name}={value:.4g}" for name, value in numbers.items() if value is not None)
        logger.info("[Listen] epoch=%d step=%d %s", epoch, step, shown)

    def facts(self, step: int, epoch: int, facts: dict[str, Any]) -> None:
        """Write the result of `TextRowFacts.read` to metrics.jsonl."""
        self._append({"kind": "facts", "part": self.part, "step": step, "epoch": epoch, **facts})

    def failed_save(self, step: int, epoch: int, failures: int) -> None:
        """Write that this many saves in a row failed: tab 7 knows it from here."""
        self._append(
            {"kind": "failed_save", "part": self.part, "step": step, "epoch": epoch, "failures": failures}
        )

    def audio(self, name: str, step: int, samples: NDArray[np.float32], sample_rate_hz: int) -> None:
        """Write a sound (S,) to TensorBoard."""
        with self._logging_errors("TensorBoard"):
            if self.board is not None:
                self.board.add_audio(name, torch.from_numpy(samples)[None], step, sample_rate_hz)

    def close(self) -> None:
        self._close_board()
        threading.excepthook = self._report
        if self.tracker is not None:
            self.tracker.close()

    def _report_other_than_tensorboard(self, failure: threading.ExceptHookArgs) -> None:
        """Report an error of a thread; TensorBoard raises its own again at the next write, which logs it."""
        if not type(failure.thread).__module__.startswith("tensorboard."):
            self._report(failure)

    def _write(self, kind: str, step: int, epoch: int, numbers: Mapping[str, float | None]) -> None:
        self._append({"kind": kind, "part": self.part, "step": step, "epoch": epoch, **numbers})
        if self.tracker is not None:
            self.tracker.log(kind, step, dict(numbers))
        if "TensorBoard" in self.failing:
            self._close_board()  # its thread has ended with the error
            self._open_board()
        with self._logging_errors("TensorBoard"):
            if self.board is None:
                return
            for name, value in numbers.items():
                if value is not None:
                    self.board.add_scalar(f"{kind}/{name}", value, step)
            self.board.flush()

    def _open_board(self) -> None:
        with self._logging_errors("TensorBoard"):
            if self._run_dir is not None:
                self.board = SummaryWriter(str(_new_log_folder(self._run_dir / "logs")))

    def _close_board(self) -> None:
        board, self.board = self.board, None
        with suppress(OSError):
            if board is not None:
                board.close()

    def _append(self, line: dict[str, Any]) -> None:
        if self._run_dir is None:
            return
        self._lines.append(json.dumps({**line, "time": time.time()}) + "\n")
        with self._logging_errors("metrics.jsonl"), (self._run_dir / "metrics.jsonl").open("a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":  # left open by a kill, or by a disk that was full
                    file.write(b"\n")
            file.write("".join(self._lines).encode())
            file.flush()
            self._lines.clear()

    @contextmanager
    def _logging_errors(self, target: str) -> Iterator[None]:
        """Log the first of a row of errors of the disk and continue."""
        try:
            yield
        except OSError as error:
            if not self.failing:
                logger.warning("Cannot write the metrics (%s); training continues without them", error)
            self.failing.add(target)
        else:
            self.failing.discard(target)


class SpeedMeter:
    """Speed of training, time lost waiting for data, and imbalance; without validations and saves."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last_work: torch.cuda.Event | None = None
        self._is_warned = False
        self._reset()

    def add(self, num_tokens: int, loads: Sequence[float] = ()) -> None:
        """Add a step.

        Args:
            num_tokens: tokens that count in the loss.
            loads: of the ranks, all of which wait for the slowest; empty in a single process.
        """
        self._tokens += num_tokens
        if loads:
            self._slowest += max(loads)
            self._mean += sum(loads) / len(loads)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time spent in this context."""
        started = time.perf_counter()
        yield
        self._excluded += time.perf_counter() - started

    def mark_submitted(self) -> None:
        """Record that the work of a step was submitted to the device."""
        if self._device.type == "cuda":
            self._last_work = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._last_work.record()

    def next_group(self, groups: Iterator[GroupT]) -> GroupT:
        """Return the next group, and record an upper bound of the time that the device was idle meanwhile.

        A GPU that is still busy with submitted work was not idle at all.
        """
        started = time.perf_counter()
        group = next(groups)
        if self._last_work is None or self._last_work.query():  # type: ignore[no-untyped-call]
            self._waited += time.perf_counter() - started
        return group

    def read(self) -> dict[str, float]:
        """Return the numbers since the last reading by name; call when the device has finished its work."""
        seconds = time.perf_counter() - self._started - self._excluded
        found = {"tokens_per_second": self._tokens / seconds, "data_wait": self._waited / seconds}
        if self._mean:
            found["imbalance"] = self._slowest / self._mean
        if self._last_work is not None and found["data_wait"] > MAX_WAIT_SHARE and not self._is_warned:
            logger.warning(
                "The GPU waits for data %.0f %% of the time: raise --num-workers, or move the features to a "
                "faster disk",
                100 * found["data_wait"],
            )
            self._is_warned = True
        self._reset()
        return found

    def _reset(self) -> None:
        self._tokens, self._waited, self._excluded, self._started = 0, 0.0, 0.0, time.perf_counter()
        self._slowest = self._mean = 0.0


class StartupTimes:
    """Seconds of each part of the start-up, in order; the first part ends when this object is created."""

    def __init__(self, first: str) -> None:
        self._parts = [(first, seconds_since_process_start())]
        self._last = time.perf_counter()

    def mark(self, part: str) -> None:
        """Record that `part` ends now."""
        now = time.perf_counter()
        self._parts.append((part, now - self._last))
        self._last = now

    def log(self, step: int) -> None:
        total = sum(seconds for _, seconds in self._parts)
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self._parts)
        logger.info("Ready for step %d after %.1f s: %s", step, total, parts)


def seconds_since_process_start() -> float:
    """Return the age of this process, including interpreter start and imports."""
    stat = read_stat(os.getpid())
    assert stat is not None
    started = stat.start_ticks / os.sysconf("SC_CLK_TCK")  # since boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


def _line(step: int, epoch: int, means: LossMeans) -> str:
    return f"epoch={epoch} step={step} {_losses(means)}"


def _losses(means: LossMeans) -> str:
    return f"text_loss={means.text_loss:.4f} mel_loss={means.mel_loss:.4f} mel_top1={means.mel_top1:.4f}"


def _new_log_folder(logs: Path) -> Path:
    """Return a new folder for this process, so that steps repeated after a resume are a separate curve.

    The number tells processes of the same second apart, as when daylight saving time ends.
    """
    name = f"run_{datetime.now():%Y%m%d_%H%M%S}"
    return first_free(lambda n: logs / (name if n == 1 else f"{name}_{n}"))
