"""Tokens per second of a training on one and on several processes of this machine, one core each.

    python -m benchmarks.processes [--processes 1 --processes 2] [--rounds 2] [--steps 6]

The trainer runs under torchrun over gloo, with the same global batch; each process has one thread and is
pinned to its own core. The numbers come from the trainer's metrics, without the first step of each start.
Starts alternate, so that a change in the machine's load affects all.

Processes of one machine share the bandwidth of its memory and its caches, and gradients travel through that
memory: the result does not predict several machines or GPUs.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
import yaml
from pydantic import Field

from benchmarks.frame import Benchmark, interleaved, publish, table
from benchmarks.stored import own_pair, write_store, write_tokenizer
from benchmarks.trainer_process import FIXED_FLAGS
from benchmarks.workload import NUM_BASE_PIECES, config_of, make_samples
from indextts.commands.terminal import parse, run
from indextts.data.encoding import encoders_identity
from indextts.data.manifest import write_pairs
from indextts.errors import UserError
from indextts.models.gpt.weights import random_model
from indextts.system.log_lines import log_to_stdout
from trainers.train_gpt_v2 import main as train

NUM_VAL = 2
PROCESSES = [1, 2]
AS_TRAINER = "--as-trainer"


@dataclass(frozen=True)
class Measured:
    """Result of a start: tokens per second of each step but the first, and the imbalance of the ranks."""

    tokens_per_second: list[float]
    imbalance: float


class Processes(Benchmark):
    """Compare trainings on several processes."""

    program: ClassVar[str] = "benchmarks.processes"
    processes: list[int] = Field([], description="Number of processes; 1 and 2 by default.")
    size: Literal["tiny", "small", "published"] = Field("small", description="Size of the model.")
    batch: int = Field(16, ge=1, description="Samples of a step over all processes.")
    steps: int = Field(6, ge=2, description="Steps of each start; the first is not counted.")
    rounds: int = Field(2, ge=1, description="Starts of each number of processes.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Processes, argv)
    processes = command.processes or PROCESSES
    cores = len(os.sched_getaffinity(0))
    if max(processes) > cores or any(command.batch % number for number in processes):
        raise UserError(
            f"--batch {command.batch} must be a multiple of each of --processes {processes}, which "
            f"must not exceed the {cores} cores"
        )
    with tempfile.TemporaryDirectory() as folder:
        flags = make_run(Path(folder), command.size, command.batch * command.steps)

        def start(number: int, turn: int) -> Measured:
            run_dir = Path(folder) / f"run_{number}_{turn}"
            found = measure(run_dir, flags, number, command.batch // number, command.steps)
            print(f"{number} processes: {found}", flush=True)
            return found

        cases = {str(number): partial(start, number) for number in processes}
        found = interleaved(cases, command.rounds)
    publish(command, "Tokens per second on several processes of one machine", report(command, found))
    return 0


def make_run(folder: Path, size: str, num_train: int) -> list[str]:
    """Write all inputs of a training with realistic lengths; return the trainer's flags."""
    config = replace(config_of(size, dropout=0.1), number_text_tokens=NUM_BASE_PIECES)
    samples = make_samples(config, num_train + NUM_VAL)
    base = folder / "base"
    base.mkdir()
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(config)}))
    write_tokenizer(base / "bpe.model", NUM_BASE_PIECES)
    write_tokenizer(folder / "tokenizer.model", 2 * NUM_BASE_PIECES)
    model = random_model(config, seed=0)
    torch.save(model.state_dict(), base / "gpt.pth")
    store = write_store(folder / "features", samples, encoders_identity(model))
    random = np.random.default_rng(0)
    pairs = []
    for number, sample in enumerate(samples):
        words = random.integers(
            0, 10_000, len(sample.text_ids)
        )  # one token each: pieces of `write_tokenizer`
        text = " ".join(f"q{word}x" for word in words)
        pairs.append(own_pair(store, number, len(sample.codes), text))
    write_pairs(folder / "train.jsonl", pairs[:num_train])
    write_pairs(folder / "val.jsonl", pairs[num_train:])
    return [
        f"--train-manifest={folder / 'train.jsonl'}",
        f"--val-manifest={folder / 'val.jsonl'}",
        f"--tokenizer={folder / 'tokenizer.model'}",
        f"--config={base / 'config.yaml'}",
        f"--base-checkpoint={base / 'gpt.pth'}",
        "--epochs=1",
        "--log-interval=1",
        "--val-interval=1000000",
        "--save-interval=1000000",
        "--allow-cpu",
        *FIXED_FLAGS,
    ]


def measure(run_dir: Path, flags: Sequence[str], num_processes: int, batch: int, steps: int) -> Measured:
    """Train under torchrun and return its metrics."""
    own = [f"--output-dir={run_dir}", f"--batch-size={batch}", f"--max-steps={steps}"]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    ended = subprocess.run(
        [sys.executable, *launcher, "-m", "benchmarks.processes", AS_TRAINER, *flags, *own],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    if ended.returncode:
        raise SystemExit(
            f"the training exited with status {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
        )
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"][1:]
    shares = [line.get("imbalance", 1.0) for line in trained]
    return Measured([line["tokens_per_second"] for line in trained], statistics.mean(shares))


def as_trainer(flags: Sequence[str]) -> int:
    """Run a rank: pin it to a core and train."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"])]})
    log_to_stdout()
    return train(flags)


def report(command: Processes, found: dict[str, list[Measured]]) -> list[str]:
    """Return the measurement as Markdown."""
    speeds = {
        number: [speed for start in starts for speed in start.tokens_per_second]
        for number, starts in found.items()
    }
    first = statistics.median(next(iter(speeds.values())))
    rows = [
        [
            number,
            str(command.batch // int(number)),
            f"{statistics.median(speeds[number]):.0f}",
            f"{statistics.median(speeds[number]) / first:.2f}",
            f"{min(speeds[number]):.0f} to {max(speeds[number]):.0f}",
            f"{statistics.mean(start.imbalance for start in starts):.3f}",
        ]
        for number, starts in found.items()
    ]
    header = [
        "processes",
        "batch of each",
        "tokens/s, median",
        "ratio",
        "of single steps",
        "slowest share / mean",
    ]
    return [
        f"The {command.size} model in float32, dropout 0.1, {command.batch} samples of a step over all "
        f"processes; torchrun over gloo, each process with one thread on its own core. Starts: "
        f"{command.rounds} of {command.steps} steps each, in turn; the first step of each is not counted.",
        "",
        *table(header, rows),
        "",
        "The processes share the bandwidth of the memory and the caches, and their gradients travel through "
        "that memory: the result does not predict several machines or GPUs.",
    ]


if __name__ == "__main__":
    if AS_TRAINER in sys.argv[1:2]:
        sys.exit(as_trainer(sys.argv[2:]))
    run(main)
