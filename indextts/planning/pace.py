"""Training pace, as measured by this run, by another run of the workspace, or by a benchmark.

The pace is never extrapolated from data sheets: without a matching measurement it is unknown until the first
steps are done.
"""

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.planning.hardware import MachineFacts
from indextts.system.files import read_object
from indextts.system.messages import Message

THIS_PROCESSOR = "planning.this_processor"
THIS_RUN = "planning.this_run"
OTHER_RUN = "planning.other_run"
BENCHMARK = "planning.benchmark"

TAIL_BYTES = 64 << 10
MAX_LINES = 20  # of the last [Train] lines; the first steps of a process are slower
SAME_SETTINGS = ("padding", "grad_checkpointing", "compile")

PUBLISHED_SHAPE = (24, 1280)  # layers, width
SOURCE = "benchmarks/results/gpu_round_h200.md"


@dataclass(frozen=True)
class Measured:
    """A row of a benchmark table: positions per second of a model of the published size."""

    gpu: str
    precision: str
    positions: int  # of a micro-batch
    positions_per_second: int
    padding: str = "none"
    grad_checkpointing: bool = False
    compile: bool = False


# The compiled row of that table measured two graphs per block; the one graph of today has no row yet.
BENCHMARKS = (
    Measured("H200", "bfloat16", 8192, 104_909),
    Measured("H200", "bfloat16", 16384, 116_162),
    Measured("H200", "bfloat16", 32768, 123_562),
    Measured("H200", "bfloat16", 16384, 90_237, grad_checkpointing=True),
    Measured("H200", "float32", 16384, 54_127),
    Measured("H200", "bfloat16", 16384, 58_849, padding="reference"),
)


@dataclass(frozen=True)
class Pace:
    """Sequence positions per second, without validations and saves, and the source of the measurement."""

    positions_per_second: float
    source: Message


def precision_of(command: Train, machine: MachineFacts) -> str:
    """Return the data type of the forward pass, chosen as the trainer does."""
    if not command.amp:
        return "float32"
    if machine.gpu is None:
        return "bfloat16" if machine.has_native_bfloat16 else "float32"
    return "bfloat16" if machine.gpu.has_native_bfloat16 else "float16"


def find_pace(
    command: Train,
    config: GPTConfig,
    machine: MachineFacts,
    *,
    micro_positions: int,
    mean_positions: float,
    other_runs: Iterable[Path],
    num_processes: int = 1,
) -> Pace | None:
    """Return the best known pace of a training run; None if no measurement fits.

    Args:
        micro_positions: positions of a micro-batch.
        mean_positions: mean positions of a sample.
        other_runs: run directories of the workspace.
        num_processes: world size; the pace is the sum over all ranks.
    """
    wanted = (precision_of(command, machine), *_device(machine))
    for run_dir, template in (
        (command.output_dir, THIS_RUN),
        *((run_dir, OTHER_RUN) for run_dir in other_runs if run_dir != command.output_dir),
    ):
        rate = _rate_of_run(run_dir, command, config, wanted, num_processes)
        if rate is not None:
            # a run counts only positions with a loss: all but the prefix and one start
            positions = rate * mean_positions / max(1.0, mean_positions - config.prefix_length - 1)
            values = {"device": wanted[1] if machine.gpu else Message(THIS_PROCESSOR)}
            if template is OTHER_RUN:
                values["project"] = run_dir.parent.name
            return Pace(positions, Message(template, values))
    return None if num_processes > 1 else _benchmark(command, config, machine, micro_positions)


def _device(machine: MachineFacts) -> tuple[str]:
    return (machine.gpu.name if machine.gpu else "cpu",)


def _rate_of_run(
    run_dir: Path, command: Train, config: GPTConfig, wanted: tuple[str, str], num_processes: int
) -> float | None:
    """Return the tokens per second of a run with the same settings, device type and world size."""
    record = read_object(run_dir / "config.json")
    environment, settings = record.get("environment"), record.get("command")
    if not isinstance(environment, dict) or not isinstance(settings, dict):
        return None
    if (environment.get("arithmetic"), environment.get("device")) != wanted:
        return None
    if environment.get("processes", 1) != num_processes:
        return None
    if any(settings.get(name) != getattr(command, name) for name in SAME_SETTINGS):
        return None
    if settings.get("lora_rank", 0) != command.lora_rank:
        return None
    try:
        other = load_config(Path(str(settings.get("config"))))
    except UserError:
        return None
    if (other.layers, other.model_dim) != (config.layers, config.model_dim):
        return None
    rates = _last_rates(run_dir / "metrics.jsonl")
    return statistics.median(rates) if rates else None


def _last_rates(metrics: Path) -> list[float]:
    """Return the tokens per second of the last [Train] lines; reads at most the last 64 KiB."""
    try:
        with metrics.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return []
    rates: list[float] = []
    for text in reversed(lines):
        try:
            line = json.loads(text)
        except ValueError:  # truncated at the start of the block, or by a kill
            continue
        if not isinstance(line, dict) or line.get("kind") == "start":
            if rates:
                break  # an older process, possibly with other settings
            continue
        rate = line.get("tokens_per_second")
        if line.get("kind") == "train" and isinstance(rate, int | float) and rate > 0:
            rates.append(float(rate))
    return rates[:MAX_LINES]


def compiled_is_faster(command: Train, config: GPTConfig, machine: MachineFacts) -> bool:
    """Return whether a benchmark on this GPU measured these settings to be faster with --compile."""
    if machine.gpu is None or (config.layers, config.model_dim) != PUBLISHED_SHAPE:
        return False
    rates = {
        (row.positions, row.compile): row.positions_per_second
        for row in BENCHMARKS
        if row.gpu in machine.gpu.name
        and row.precision == precision_of(command, machine)
        and (row.padding, row.grad_checkpointing) == (command.padding, command.grad_checkpointing)
    }
    return any(
        is_compiled and rate > rates.get((positions, False), rate)
        for (positions, is_compiled), rate in rates.items()
    )


def fixed_share(command: Train, config: GPTConfig, machine: MachineFacts, positions: float) -> float:
    """Return the share of a step of `positions` that does not depend on their number; 0 if it is unknown.

    Weights are cast, updated and clipped once per step. The share follows from the measured steps with the
    fewest and the most positions.
    """
    rows = _rows_for(command, config, machine)
    if len(rows) < 2:
        return 0.0
    ends = min(rows, key=lambda row: row.positions), max(rows, key=lambda row: row.positions)
    (few, fast), (many, slow) = ((row.positions, row.positions / row.positions_per_second) for row in ends)
    per_position = (slow - fast) / (many - few)
    fixed = fast - few * per_position
    return fixed / (fixed + positions * per_position)


def _benchmark(command: Train, config: GPTConfig, machine: MachineFacts, positions: int) -> Pace | None:
    rows = _rows_for(command, config, machine)
    if not rows:
        return None
    nearest = min(rows, key=lambda row: abs(row.positions - positions))
    return Pace(nearest.positions_per_second, Message(BENCHMARK, {"gpu": nearest.gpu, "source": SOURCE}))


def _rows_for(command: Train, config: GPTConfig, machine: MachineFacts) -> list[Measured]:
    """Return the benchmarks of this GPU with the settings of `command`."""
    is_other = command.lora_rank or (config.layers, config.model_dim) != PUBLISHED_SHAPE
    if machine.gpu is None or is_other:
        return []
    precision = precision_of(command, machine)
    return [
        row
        for row in BENCHMARKS
        if row.gpu in machine.gpu.name
        and row.precision == precision
        and all(getattr(row, name) == getattr(command, name) for name in SAME_SETTINGS)
    ]
