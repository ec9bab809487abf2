"""Run directories written line by line in the trainer's format, for cases that no tiny run covers."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from indextts.runs.schedule import Schedule

GB = 1_000_000_000


@dataclass
class WrittenRun:
    """Metrics of a healthy run, for tests to spoil; `write` creates a run directory."""

    schedule: Schedule = field(default_factory=lambda: Schedule(5e-5, 1_000, 20_000))
    device: str = "NVIDIA L4"
    precision: str = "bfloat16"
    noise: float = 0.02  # of the losses, from line to line
    part: int = 1
    time: float = 1_760_000_000.0
    lines: list[dict[str, Any]] = field(default_factory=list)
    random: Random = field(default_factory=lambda: Random(0))

    def __post_init__(self) -> None:
        self.start()

    def start(self, step: int = 0) -> None:
        self._add("start", step, total_steps=self.schedule.total_steps)

    def train(self, step: int, loss: float | None = None, **changes: Any) -> None:
        """Add a [Train] line; the losses fall as 4 + 2 / (1 + step / 1,000) unless given."""
        fallen = 4 + 2 / (1 + step / 1_000) if loss is None else loss
        noisy = fallen + self.random.gauss(0, self.noise)
        numbers: dict[str, Any] = {
            "text_loss": 1.5 * noisy,
            "mel_loss": noisy,
            "mel_top1": 0.2,
            "new_text_loss": 1.6 * noisy,
            "lr": self.schedule.learning_rate(step),
            "grad_norm": 1.0 + 0.2 * self.random.random(),
            "tokens_per_second": 9_000.0,
            "data_wait": 0.002,
            "num_skipped": 0,
        }
        self._add("train", step, **{**numbers, **changes})

    def train_to(self, last: int, *, first: int = 100, interval: int = 100, **changes: Any) -> None:
        for step in range(first, last + 1, interval):
            self.train(step, **changes)

    def val(self, step: int, loss: float) -> None:
        numbers = {"text_loss": 1.5 * loss, "mel_loss": loss, "mel_top1": 0.2, "new_text_loss": 1.6 * loss}
        self._add("val", step, **numbers)

    def facts(self, step: int, **changes: Any) -> None:
        facts = {"unknown_share": 0.0, "base_rows": "9f86d081884c7d65", "new_rows_moved_lately": 1e-7 * step}
        self._add("facts", step, **{**facts, "new_rows_seen": 0.9, **changes})

    def failed_save(self, step: int, failures: int) -> None:
        self._add("failed_save", step, failures=failures)

    def write(self, folder: Path, **settings: Any) -> Path:
        """Write metrics.jsonl and config.json into `folder`; return it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        config = {
            "command": {"num_workers": 2, "keep_checkpoints": 3, **settings},
            "part": self.part,
            "schedule": asdict(self.schedule),
            "environment": {"device": self.device, "arithmetic": self.precision},
        }
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def _add(self, kind: str, step: int, **numbers: Any) -> None:
        self.time += 30.0
        line = {"kind": kind, "part": self.part, "step": step, "epoch": step // 5_000, **numbers}
        self.lines.append({**line, "time": self.time})


def run_with_problems() -> WrittenRun:
    """Return a run with every health problem that can occur at once, and markup in its numbers."""
    run, another = WrittenRun(), "<b id=planted>another</b>"
    run.facts(0)
    run.train_to(1_000, loss=4.4)
    run.start(1_000)
    run.facts(1_000, base_rows=another, unknown_share=0.2)
    run.train_to(4_000, first=1_100, loss=5.4, data_wait=0.4)
    run.train_to(8_000, first=4_100, loss=5.4, data_wait=0.4, grad_norm=90.0, num_skipped=200)
    for step in (5_000, 6_000, 7_000, 8_000):
        run.val(step, 4.4 + step / 20_000)
    run.facts(8_000, base_rows=another, unknown_share=0.2, new_rows_moved_lately=0.0)
    run.failed_save(8_000, failures=57)
    return run


def fill_the_disk(run_dir: Path) -> None:
    """Write a checkpoint larger than any disk: a sparse file, which takes no space."""
    path = run_dir / "model_step4000.pth"
    path.touch()
    os.truncate(path, 10_000 * GB)
    os.utime(path, (0, 0))  # before all lines
