"""Numbers of a run: metrics.jsonl first, TensorBoard and the log lines second.

One line of metrics.jsonl:

    {"kind": "train", "part": 1, "step": 100, "epoch": 0, "text_loss": 5.1, "mel_loss": 4.2, "mel_top1": 0.2,
     "new_text_loss": 5.3, "lr": 5e-05, "grad_norm": 0.9, "tokens_per_second": 1200.0, "data_wait": 0.004,
     "num_skipped": 0, "time": 1760000000.0}           of several processes also "imbalance": 1.004
    {"kind": "val", ...}     without lr, grad_norm, tokens_per_second, data_wait, num_skipped; with
                             --ema-decay also averaged_mel_loss and so on: those of the averaged weights
    {"kind": "start", "part": 1, "step": 0, "epoch": 0, "total_steps": 236, "time": ...}   a process began
    {"kind": "facts", "part": 1, "step": 100, "epoch": 0, "unknown_share": 0.001,
     "base_rows": "9f86d081884c7d65", "new_rows_moved": 0.0004, "new_rows_seen": 0.9, "time": ...}
        at the start and with each validation

Losses are nats per token over all steps since the last line; `new_text_loss` is that of the new pieces alone.
`data_wait` is the share of the time in which the device had nothing to do because its data was not there.
`num_skipped` counts the steps of the run that changed nothing since they were not finite, as far as the host
knows. `imbalance` is what the slowest process had to do, over the mean of all. Of the facts, `unknown_share`
is that of the training texts' tokens, `base_rows` a digest of the frozen rows of the text tables; since the
process began, `new_rows_moved` is how far the new rows moved (root mean square of the values, of the table
that moved least) and `new_rows_seen` the share of those in the embedding that changed at all. Without frozen
rows there is `unknown_share` alone.

Where the time from the start of the process to its first step goes.
"""

import json
import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from indextts.runs.health.steps import MUCH_WAITING
from indextts.system.processes import read_stat
from indextts.training.losses import LossMeans
from indextts.training.validate import Validation

logger = logging.getLogger(__name__)

GroupT = TypeVar("GroupT")


class MetricsLog:
    """Writes one run part's numbers; every line is on the disk's way before the next step begins.

    A disk that takes no more lines is said once; the training goes on.
    """

    def __init__(self, run_dir: Path | None, *, part: int, step: int, epoch: int, total_steps: int) -> None:
        """Open the files and say where this process begins: after `step`, towards `total_steps`.

        Args:
            run_dir: None in the processes whose numbers the first one writes.
        """
        self.part = part
        self.is_failing = False
        self.file: TextIO | None = None
        self.board: SummaryWriter | None = None
        if run_dir is None:
            return
        self.file = (run_dir / "metrics.jsonl").open("a", encoding="utf-8")
        if self.file.tell() and not _ends_with_newline(run_dir / "metrics.jsonl"):
            self.file.write("\n")  # a kill left half a line
        self._append(
            {"kind": "start", "part": part, "step": step, "epoch": epoch, "total_steps": total_steps}
        )
        with self._forgiven():
            self.board = SummaryWriter(str(_folder_of_its_own(run_dir / "logs")))

    def train(
        self,
        step: int,
        epoch: int,
        means: LossMeans,
        *,
        lr: float,
        grad_norm: float,
        speed: "Speed",
        num_skipped: int,
        imbalance: float | None = None,
    ) -> None:
        """Write a [Train] line's numbers everywhere; `imbalance` is None where one process does all."""
        norm = grad_norm if math.isfinite(grad_norm) else None  # of a step that was skipped
        rates = {"lr": lr, "grad_norm": norm, **asdict(speed), "num_skipped": num_skipped}
        more = ""
        if imbalance is not None:
            rates["imbalance"] = imbalance
            more = f" imbalance={imbalance:.3f}"
        self._write("train", step, epoch, means, rates)
        logger.info("[Train] %s lr=%.2e%s", _line(step, epoch, means), lr, more)

    def validation(self, step: int, epoch: int, validation: Validation) -> None:
        """Write a [Val] line's numbers everywhere.

        With unseen speakers theirs apart, as unseen_mel_loss; with averaged weights theirs, as
        averaged_mel_loss.
        """
        parts = dict(validation.by_speakers)
        if validation.averaged is not None:
            parts["averaged"] = validation.averaged
        apart = {
            f"{part}_{name}": value for part, means in parts.items() for name, value in asdict(means).items()
        }
        self._write("val", step, epoch, validation.means, apart)
        logger.info("[Val] %s", _line(step, epoch, validation.means))
        for part, means in validation.by_speakers.items():
            logger.info("      %s speakers: %s", part, _losses(means))
        if validation.averaged is not None:
            logger.info("      averaged weights: %s", _losses(validation.averaged))

    def facts(self, step: int, epoch: int, facts: dict[str, Any]) -> None:
        """Write what `TextRowFacts.read` gave; for the screens alone."""
        self._append({"kind": "facts", "part": self.part, "step": step, "epoch": epoch, **facts})

    def audio(self, name: str, step: int, samples: NDArray[np.float32], sample_rate_hz: int) -> None:
        """Show a sound (S,) in TensorBoard."""
        if self.board is not None:
            with self._forgiven():
                self.board.add_audio(name, torch.from_numpy(samples)[None], step, sample_rate_hz)

    def close(self) -> None:
        if self.file is not None:
            with self._forgiven():
                self.file.close()
        if self.board is not None:
            with self._forgiven():
                self.board.close()

    def _write(
        self, kind: str, step: int, epoch: int, means: LossMeans, rates: dict[str, float | None]
    ) -> None:
        numbers: dict[str, Any] = {
            "text_loss": means.text_loss,
            "mel_loss": means.mel_loss,
            "mel_top1": means.mel_top1,
            "new_text_loss": means.new_text_loss,
            **rates,
        }
        self._append({"kind": kind, "part": self.part, "step": step, "epoch": epoch, **numbers})
        if self.board is None:
            return
        with self._forgiven():
            for name, value in numbers.items():
                if value is not None:
                    self.board.add_scalar(f"{kind}/{name}", value, step)
            self.board.flush()

    def _append(self, line: dict[str, Any]) -> None:
        if self.file is None:
            return
        with self._forgiven():
            self.file.write(json.dumps({**line, "time": time.time()}) + "\n")
            self.file.flush()

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        """Say once that the disk takes no numbers, and go on."""
        try:
            yield
        except OSError as error:
            if not self.is_failing:
                logger.warning("The numbers of the run cannot be written (%s); the training goes on", error)
            self.is_failing = True


@dataclass(frozen=True)
class Speed:
    """How fast a training went.

    Args:
        tokens_per_second: that count in the loss.
        data_wait: share of the time in which the device had nothing to do for want of data.
    """

    tokens_per_second: float
    data_wait: float


class SpeedMeter:
    """The speed of training and of waiting for its data, without validations and saves."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last_work: torch.cuda.Event | None = None
        self._is_warned = False
        self._begin()

    def add(self, num_tokens: int) -> None:
        self._tokens += num_tokens

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what is done within."""
        started = time.perf_counter()
        yield
        self._left_out += time.perf_counter() - started

    def mark_submitted(self) -> None:
        """Note that the work of a step was handed to the device."""
        if self._device.type == "cuda":
            self._last_work = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._last_work.record()

    def next_group(self, groups: Iterator[GroupT]) -> GroupT:
        """Return the next group, and note how long the device had nothing to do meanwhile, at most.

        A card that is still busy with what it was given before has not waited at all.
        """
        started = time.perf_counter()
        group = next(groups)
        if self._last_work is None or self._last_work.query():  # type: ignore[no-untyped-call]
            self._waited += time.perf_counter() - started
        return group

    def read(self) -> Speed:
        """Return the speed since the last reading; call when the device has done its work."""
        seconds = time.perf_counter() - self._started - self._left_out
        speed = Speed(self._tokens / seconds, self._waited / seconds)
        if self._last_work is not None and speed.data_wait > MUCH_WAITING and not self._is_warned:
            logger.warning(
                "The card waits for its data %.0f %% of the time: give more --num-workers, or keep the "
                "features on a faster disk",
                100 * speed.data_wait,
            )
            self._is_warned = True
        self._begin()
        return speed

    def _begin(self) -> None:
        self._tokens, self._waited, self._left_out, self._started = 0, 0.0, 0.0, time.perf_counter()


def _line(step: int, epoch: int, means: LossMeans) -> str:
    return f"epoch={epoch} step={step} {_losses(means)}"


def _losses(means: LossMeans) -> str:
    return f"text_loss={means.text_loss:.4f} mel_loss={means.mel_loss:.4f} mel_top1={means.mel_top1:.4f}"


def _folder_of_its_own(logs: Path) -> Path:
    """Return a new folder for this process: a step done again after a resume is a point of another curve.

    Two processes can begin at the same second, by the clock that people set back every autumn.
    """
    name = f"run_{datetime.now():%Y%m%d_%H%M%S}"
    folder, number = logs / name, 1
    while folder.exists():
        number += 1
        folder = logs / f"{name}_{number}"
    return folder


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() == b"\n"


class StartupTimes:
    """Seconds of each part of the start, in order; the first is all that came before this was made."""

    def __init__(self, first: str) -> None:
        self._parts = [(first, seconds_since_process_start())]
        self._last = time.perf_counter()

    def mark(self, part: str) -> None:
        """Note that `part` is done now."""
        now = time.perf_counter()
        self._parts.append((part, now - self._last))
        self._last = now

    def log(self, step: int) -> None:
        total = sum(seconds for _, seconds in self._parts)
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self._parts)
        logger.info("Ready for step %d after %.1f s: %s", step, total, parts)


def seconds_since_process_start() -> float:
    """Return the age of this process, interpreter start and imports included."""
    stat = read_stat(os.getpid())
    assert stat is not None
    started = stat.start_ticks / os.sysconf("SC_CLK_TCK")  # since boot
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
