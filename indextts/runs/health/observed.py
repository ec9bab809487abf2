"""Input and output of the health checks: `Observed`, the state of a run, and `Finding`.

`read_observed` is the only function that reads files; each check is a pure function of its result.
"""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from indextts.runs.directory import LINKS, read_metrics
from indextts.runs.schedule import Schedule
from indextts.system.files import read_object
from indextts.system.messages import Message

Line = dict[str, Any]


@dataclass(frozen=True)
class Observed:
    """State of a run, as read from its directory.

    Args:
        lines: the metrics.jsonl lines of the newest run part, in order, without those of replayed steps.
        schedule: schedule of the newest process; None without a valid config.json.
        device, precision: "cpu" or the GPU's name; "float32", "bfloat16" or "float16"; empty if unknown.
        end_reason: the reason in exit.json; None while the newest process may be running.
        checkpoint_bytes: size of the largest of them; 0 if there are none.
        saved_time: Unix time of the newest of them; 0 if there are none.
    """

    lines: Sequence[Line]
    schedule: Schedule | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    device: str = ""
    precision: str = ""
    end_reason: str | None = None
    num_checkpoints: int = 0
    checkpoint_bytes: int = 0
    saved_time: float = 0.0
    free_bytes: int = 0

    def of_kind(self, kind: str) -> list[Line]:
        """Return the lines of a kind, sorted by step."""
        return sorted((line for line in self.lines if line["kind"] == kind), key=lambda line: line["step"])

    def curve(self, kind: str, metric: str) -> list[tuple[int, float]]:
        """Return step and value of each line of a kind with a finite value."""
        lines = (line for line in self.of_kind(kind) if is_number(line.get(metric)))
        return [(line["step"], line[metric]) for line in lines]

    @property
    def newest_process(self) -> list[Line]:
        """Lines of the newest process, including its start line."""
        indices = (i for i in reversed(range(len(self.lines))) if self.lines[i]["kind"] == "start")
        return list(self.lines[next(indices, 0) :])


def read_observed(run_dir: Path, lines: Sequence[Line] | None = None) -> Observed:
    """Return the state of the run in `run_dir`; fields from missing or invalid files keep their defaults.

    Args:
        lines: the result of `read_metrics`, if the metrics are already read.
    """
    if lines is None:
        lines = read_metrics(run_dir / "metrics.jsonl") if (run_dir / "metrics.jsonl").is_file() else []
    newest = max((line["part"] for line in lines), default=0)
    shown = [line for line in lines if line["part"] == newest]
    config, ended = read_object(run_dir / "config.json"), read_object(run_dir / "exit.json")
    environment = config.get("environment") or {}
    files = [path.stat() for path in run_dir.glob("model_step*.pth") if path.name not in LINKS]
    is_over = bool(shown) and ended.get("time", 0) >= shown[-1].get("time", 0)
    return Observed(
        lines=shown,
        schedule=_schedule(config.get("schedule")),
        settings=config.get("command") or {},
        device=str(environment.get("device", "")),
        precision=str(environment.get("arithmetic", "")),
        end_reason=str(ended["reason"]) if is_over and "reason" in ended else None,
        num_checkpoints=len(files),
        checkpoint_bytes=max((file.st_size for file in files), default=0),
        saved_time=max((file.st_mtime for file in files), default=0.0),
        free_bytes=shutil.disk_usage(run_dir).free if run_dir.is_dir() else 0,
    )


def is_number(value: Any) -> bool:
    """Return whether a metric is present and finite."""
    return isinstance(value, int | float) and math.isfinite(value)


def _schedule(fields: Any) -> Schedule | None:
    try:
        return Schedule(**fields)
    except TypeError:
        return None


Level = Literal["problem", "warning"]


@dataclass(frozen=True)
class Finding:
    """Result of a check that found something wrong.

    Its texts have the ids health.CHECK (the problem), health.CHECK_evidence (the numbers and steps that show
    it) and health.CHECK_advice (the solution), and take `values`.
    """

    check: str  # the stable name of the check, such as "plateau"
    level: Level  # "problem" if the training run is useless without action, else "warning"
    values: dict[str, int | float | str]
    what: str = ""  # the id of the problem, where a check finds several

    @property
    def texts(self) -> list[Message]:
        """The problem, the evidence and the advice."""
        id = f"health.{self.check}"
        return [Message(each, self.values) for each in (self.what or id, f"{id}_evidence", f"{id}_advice")]

    def __str__(self) -> str:
        return " ".join(map(str, self.texts))


def found(check: str, level: Level, what: str = "", /, **values: int | float | str) -> Finding:
    """Return a finding with these values."""
    return Finding(check, level, values, what)
