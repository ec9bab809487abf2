"""Training pace, as measured by this run, by another run of the workspace, or by a benchmark.

The pace is never extrapolated from data sheets: without a matching measurement it is unknown until the first
steps are done.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from indextts.errors import UserError
from indextts.models.gpt.config import PUBLISHED_SHAPE, load_config
from indextts.runs.directory import read_metrics
from indextts.system.files import read_object
from indextts.system.messages import Message

MAX_LINES = 20  # of the last [Train] lines; the first steps of a process are slower
SOURCE = "benchmarks/results/gpu_round_h200.md"


@dataclass(frozen=True)
class Conditions:
    """All that the pace of a training step depends on, besides the size of its micro-batches."""

    device: str  # name of the GPU, or "cpu"
    precision: str
    padding: str = "none"
    grad_checkpointing: bool = False
    compile: bool = False
    lora_rank: int = 0
    shape: tuple[int, int] = PUBLISHED_SHAPE  # layers and width of the model
    num_processes: int = 1


@dataclass(frozen=True)
class Measured:
    """A row of a benchmark table; the positions are those of a micro-batch."""

    conditions: Conditions
    positions: int
    positions_per_second: int


H200 = Conditions("H200", "bfloat16")
BENCHMARKS = (
    Measured(H200, 8192, 104_909),
    Measured(H200, 16384, 116_162),
    Measured(H200, 32768, 123_562),
    Measured(replace(H200, grad_checkpointing=True), 16384, 90_237),
    Measured(replace(H200, precision="float32"), 16384, 54_127),
    Measured(replace(H200, padding="reference"), 16384, 58_849),
)


@dataclass(frozen=True)
class Pace:
    """Sequence positions per second, without validations and saves, and the source of the measurement."""

    positions_per_second: float
    source: Message


def find_pace(
    conditions: Conditions,
    run_dir: Path,
    other_runs: Iterable[Path],
    *,
    prefix_length: int,
    micro_positions: int,
    mean_positions: float,
) -> Pace | None:
    """Return the best known pace of a training run; None if no measurement fits.

    Args:
        prefix_length: positions before the text of a sample.
        mean_positions: mean positions of a sample.
    """
    for folder, template in (
        (run_dir, "planning.this_run"),
        *((folder, "planning.other_run") for folder in other_runs if folder != run_dir),
    ):
        if _conditions_of_run(folder) != conditions:
            continue
        if rates := _last_rates(folder / "metrics.jsonl"):
            # a run counts only positions with a loss: all but the prefix and one start
            positions = (
                statistics.median(rates) * mean_positions / max(1.0, mean_positions - prefix_length - 1)
            )
            device = Message("planning.this_processor") if conditions.device == "cpu" else conditions.device
            values: dict[str, object] = {"device": device}
            if template == "planning.other_run":
                values["project"] = folder.parent.name
            return Pace(positions, Message(template, values))
    rows = _benchmarks_of(conditions)
    if not rows:
        return None
    nearest = min(rows, key=lambda row: abs(row.positions - micro_positions))
    values = {"gpu": nearest.conditions.device, "source": SOURCE}
    return Pace(nearest.positions_per_second, Message("planning.benchmark", values))


def _conditions_of_run(run_dir: Path) -> Conditions | None:
    """Return the conditions that a run recorded; None if it recorded none."""
    record = read_object(run_dir / "config.json")
    environment, settings = record.get("environment"), record.get("command")
    if not isinstance(environment, dict) or not isinstance(settings, dict):
        return None
    try:
        config = load_config(Path(str(settings.get("config"))))
        return Conditions(
            device=environment["device"],
            precision=environment["arithmetic"],
            padding=settings["padding"],
            grad_checkpointing=settings["grad_checkpointing"],
            compile=settings["compile"],
            lora_rank=settings["lora_rank"],
            shape=(config.layers, config.model_dim),
            num_processes=environment.get("processes", 1),
        )
    except (UserError, KeyError):
        return None


def _last_rates(metrics: Path) -> list[float]:
    """Return the tokens per second of the last [Train] lines of a process, the newest first."""
    rates: list[float] = []
    for line in reversed(read_metrics(metrics) if metrics.is_file() else []):
        if line.get("kind") == "start" and rates:
            break  # an older process, possibly with other settings
        rate = line.get("tokens_per_second")
        if line.get("kind") == "train" and isinstance(rate, int | float) and rate > 0:
            rates.append(float(rate))
    return rates[:MAX_LINES]


def fixed_share(conditions: Conditions, positions: float) -> float:
    """Return the share of a step of `positions` that does not depend on their number; 0 if it is unknown.

    Weights are cast, updated and clipped once per step. The share follows from the measured steps with the
    fewest and the most positions.
    """
    rows = _benchmarks_of(conditions)
    if len(rows) < 2:
        return 0.0
    ends = min(rows, key=lambda row: row.positions), max(rows, key=lambda row: row.positions)
    (few, fast), (many, slow) = ((row.positions, row.positions / row.positions_per_second) for row in ends)
    per_position = (slow - fast) / (many - few)
    fixed = fast - few * per_position
    return fixed / (fixed + positions * per_position)


def _benchmarks_of(conditions: Conditions) -> list[Measured]:
    """Return the benchmarks under these conditions; the driver's name of a GPU is longer, "NVIDIA H200"."""
    return [
        row
        for row in BENCHMARKS
        if row.conditions.device in conditions.device
        and replace(row.conditions, device=conditions.device) == conditions
    ]
