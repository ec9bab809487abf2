"""Tokens per second of a training on one process and on several of this machine, one core each.

    python -m benchmarks.processes [--processes 1 2] [--rounds 2] [--steps 6] [--output FILE]

The trainer itself runs under torchrun, over gloo, with the same batch of all processes together; each of them
has one thread and is pinned to a core of its own. The numbers are those of its metrics, without the first
step of each start. Starts alternate, so that a machine that grows busier slows all of them.

Processes of one machine share its memory's bandwidth and caches, and gradients travel through that memory:
what several machines or cards do does not follow from it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import yaml

from benchmarks.resume_time import key, pair, write_tokenizer
from benchmarks.workload import (
    CODES_PER_SECOND,
    NUM_BASE_PIECES,
    SIZES,
    config_of,
    git_commit,
    machine,
    make_samples,
)
from indextts.data.encoding import encoders_identity
from indextts.data.feature_store import StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import write_pairs
from indextts.models.gpt.weights import random_model
from indextts.system.log_lines import log_to_stdout
from trainers.train_gpt_v2 import main as train

NUM_VAL = 2
AS_TRAINER = "--as-trainer"


@dataclass(frozen=True)
class Measured:
    """What one start gave: of each step but the first its tokens per second; the shares' imbalance."""

    tokens_per_second: list[float]
    imbalance: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.processes", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--batch", type=int, default=16, help="samples of a step, of all processes")
    parser.add_argument("--steps", type=int, default=6, help="of each start, the first not counted")
    parser.add_argument("--rounds", type=int, default=2, help="starts of each number of processes")
    parser.add_argument("--output", type=Path, help="file for the table")
    args = parser.parse_args(argv)
    cores = sorted(os.sched_getaffinity(0))
    if max(args.processes) > len(cores) or any(args.batch % number for number in args.processes):
        parser.error(
            f"the batch must be a multiple of each number of processes, at most {len(cores)} of them"
        )
    found: dict[int, list[Measured]] = {number: [] for number in args.processes}
    with tempfile.TemporaryDirectory() as folder:
        flags = make_run(Path(folder), args.size, args.batch * args.steps)
        for turn in range(args.rounds):
            for number in args.processes:
                run_dir = Path(folder) / f"run_{number}_{turn}"
                found[number].append(measure(run_dir, flags, number, args.batch // number, args.steps))
                print(f"{number} processes: {found[number][-1]}", flush=True)
    table = report(args, found)
    print(table)
    if args.output:
        args.output.write_text(table, encoding="utf-8")
    return 0


def make_run(folder: Path, size: str, num_train: int) -> list[str]:
    """Write all inputs of a training on realistic lengths; return the trainer's flags."""
    config = replace(config_of(size, dropout=0.1), number_text_tokens=NUM_BASE_PIECES)
    samples = make_samples(config, num_train + NUM_VAL)
    base, features = folder / "base", folder / "features"
    base.mkdir()
    features.mkdir()
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(config)}))
    write_tokenizer(base / "bpe.model", NUM_BASE_PIECES)
    write_tokenizer(folder / "tokenizer.model", 2 * NUM_BASE_PIECES)
    model = random_model(config, seed=0)
    torch.save(model.state_dict(), base / "gpt.pth")
    info = StoreInfo("benchmark", "random", encoders_identity(model), config.model_dim, config.num_latents)
    writer = FeatureStoreWriter(features, info)
    for number, sample in enumerate(samples):
        condition, emo_vec = sample.condition.numpy(), sample.emo_vec.numpy()
        writer.add(EncodedUtterance(f"u{number}", key(number), sample.codes, condition, emo_vec))
    writer.flush()
    random = np.random.default_rng(0)
    pairs = [
        replace(
            pair(writer.path, number),
            # one token each: pieces that `write_tokenizer` made up
            target_text=" ".join(f"q{word}x" for word in random.integers(0, 10_000, len(sample.text_ids))),
            target_num_codes=len(sample.codes),
            target_duration_s=len(sample.codes) / CODES_PER_SECOND,
        )
        for number, sample in enumerate(samples)
    ]
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
    ]


def measure(run_dir: Path, flags: Sequence[str], num_processes: int, batch: int, steps: int) -> Measured:
    """Train under torchrun and return what its metrics say."""
    own = [f"--output-dir={run_dir}", f"--batch-size={batch}", f"--max-steps={steps}"]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    ended = subprocess.run(
        [sys.executable, *launcher, "-m", "benchmarks.processes", AS_TRAINER, *flags, *own],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    if ended.returncode:
        raise SystemExit(f"the training ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"][1:]
    shares = [line.get("imbalance", 1.0) for line in trained]
    return Measured([line["tokens_per_second"] for line in trained], statistics.mean(shares))


def as_trainer(flags: Sequence[str]) -> int:
    """Be one of the processes: take a core, and train."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"])]})
    log_to_stdout()
    return train(flags)


def report(args: argparse.Namespace, found: dict[int, list[Measured]]) -> str:
    """Return the measurement as Markdown."""
    speeds = {
        number: statistics.median(speed for start in starts for speed in start.tokens_per_second)
        for number, starts in found.items()
    }
    first = speeds[args.processes[0]]
    rows = [
        f"| {number} | {args.batch // number} | {speeds[number]:.0f} | {speeds[number] / first:.2f} | "
        f"{min(min(s.tokens_per_second) for s in starts):.0f} to "
        f"{max(max(s.tokens_per_second) for s in starts):.0f} | "
        f"{statistics.mean(s.imbalance for s in starts):.3f} |"
        for number, starts in found.items()
    ]
    lines = [
        "# Tokens per second on several processes of one machine",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, commit {git_commit()}; {machine(torch.device('cpu'))}",
        "",
        f"The {args.size} model in float32, dropout 0.1, {args.batch} samples a step of all processes "
        "together; under torchrun over gloo, each process with one thread on a core of its own. "
        f"{args.rounds} starts of {args.steps} steps each, in turn, the first step of each not counted.",
        "",
        "| processes | batch of each | tokens/s, median | ratio | of single steps | slowest share / mean |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "The processes share the memory's bandwidth and the caches, and their gradients travel through that "
        "memory: what several machines or cards do does not follow from it.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    if AS_TRAINER in sys.argv[1:2]:
        sys.exit(as_trainer(sys.argv[2:]))
    sys.exit(main())
