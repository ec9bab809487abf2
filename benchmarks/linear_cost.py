"""Does the cost grow linearly? Processor time per valid token, by utterances in the store and by clip length.

    python -m benchmarks.linear_cost --output benchmarks/results/NAME.md

Two tables, each of one process, its rows measured in turn, pass after pass, the fastest pass of each row
counting:

    store   1,000 to 200,000 utterances of the same lengths in a feature store: what the data loader takes for
            a token (order, reading, packing), and what a whole step of a small model takes
    clips   2 s to 30 s, as many clips as fill one budget of tokens: the step, the attention in it, the rest

Processor time and not time, one thread: it is what others on the machine change least. What is done once is
divided by the tokens of an epoch: the order of each epoch, and opening every shard of the store, with the
digest of its codes, which a run does once. Attention is timed alone, forward and backward, on the same
segments: its products grow with the square of a clip by definition, everything else must not.
"""

import argparse
import gc
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from benchmarks.workload import (
    CODES_PER_SECOND,
    SIZES,
    Sample,
    build_model,
    config_of,
    git_commit,
    machine,
    make_samples,
    num_base_pieces,
    num_positions,
    packed_batch,
    useful_operations,
)
from indextts.data.feature_store import FeatureStore, StoreInfo
from indextts.data.feature_store_writer import (
    CLIPS_PER_SHARD,
    MAX_CODE,
    EncodedUtterance,
    FeatureStoreWriter,
)
from indextts.data.manifest import Pair
from indextts.models.gpt.attention import BLOCKS
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.packed import PackedBatch
from indextts.training.batches import MicroBatch, PairDataset, collate_for, load_batches
from indextts.training.loop import clip_and_step
from indextts.training.losses import packed_sums
from indextts.training.optim import Trained, build_optimizer, select_trained
from indextts.training.order import BatchPlan

CPU = torch.device("cpu")
TEXT_TOKENS_PER_SECOND = 4
NUM_LENGTHS = 500  # different clips; a store holds them over and over


@dataclass
class Cost:
    """Seconds of the processor by what they went into, the least of all passes."""

    seconds: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, seconds: float) -> None:
        self.seconds[name] = min(seconds, self.seconds.get(name, seconds))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linear_cost")
    parser.add_argument("--part", choices=("store", "clips", "both"), default="both")
    parser.add_argument("--utterances", type=int, nargs="+", default=[1000, 10_000, 200_000])
    parser.add_argument("--clips-s", type=float, nargs="+", default=[2, 5, 10, 20, 30])
    parser.add_argument("--store-size", choices=SIZES, default="tiny", help="model of the first table")
    parser.add_argument("--clip-size", choices=SIZES, default="small", help="model of the second")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--batches", type=int, default=40, help="batches in a pass over a store")
    parser.add_argument("--budget", type=int, default=3355, help="tokens of a step of the second table")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the stores are made; 1.5 GB")
    parser.add_argument("--output", type=Path, help="file for the tables")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    lines = [
        "# Is the cost linear?",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, commit {git_commit()}; {machine(CPU)}; load "
        f"{os.getloadavg()[0]:.0f} at the start",
        "",
        "Microseconds of processor time per valid token, the fastest of "
        f"{args.passes} passes; float32, dropout 0.1, one thread.",
        "",
    ]
    if args.part != "clips":
        with tempfile.TemporaryDirectory(dir=args.folder) as folder, mock.patch("os.fsync"):
            lines += by_store(Path(folder), args)
    if args.part != "store":
        lines += by_clip(args)
    print("\n".join(lines))
    if args.output:
        args.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


class Steps:
    """Training steps of a model, at a learning rate of 0."""

    def __init__(self, size: str) -> None:
        self.config = config_of(size, dropout=0.1)
        self.model: UnifiedVoice = build_model(self.config, CPU).train()
        self.trained: Trained = select_trained(self.model, num_base_pieces(self.config))
        self.optimizer = build_optimizer(self.trained, weight_decay=0.01)

    def do(self, batch: PackedBatch) -> None:
        sums = packed_sums(self.model, batch, BLOCKS, num_base_pieces(self.config))
        loss = sums.text_nats / batch.num_text + sums.mel_nats / batch.num_mel
        loss.backward()  # type: ignore[no-untyped-call]
        clip_and_step(self.trained, self.optimizer, 0.0, max_norm=1.0, loss=loss)


# --- by the number of utterances in the store ---


def by_store(folder: Path, args: argparse.Namespace) -> list[str]:
    """Return the first table."""
    steps = Steps(args.store_size)
    datasets = [make_dataset(folder / str(count), steps.config, count) for count in args.utterances]
    costs = [Cost() for _ in datasets]
    for dataset, cost in zip(datasets, costs, strict=True):
        cost.note("opening", open_all_shards(dataset) / float(dataset.lengths.sum()))
    for turn in range(args.passes):
        for dataset, cost in zip(datasets, costs, strict=True):
            measure_store(dataset, steps, args, turn, cost)
    lines = [
        f"{args.store_size} model, batches of {args.batch}, {args.batches} a pass, in the order of an epoch.",
        "",
        "| utterances | tokens of an epoch | data | ratio | step and data | ratio | order of the epoch "
        "| opening, once a run |",
        "|---" * 8 + "|",
    ]
    first = costs[0].seconds
    for dataset, cost in zip(datasets, costs, strict=True):
        found = cost.seconds
        cells = [f"{len(dataset):,}", f"{dataset.lengths.sum():,}"]
        for name in ("data", "step"):
            cells += [f"{1e6 * found[name]:.2f}", f"{found[name] / first[name]:.3f}"]
        cells += [f"{1e6 * found[name]:.3f}" for name in ("order", "opening")]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def make_dataset(folder: Path, config: GPTConfig, count: int) -> PairDataset:
    """Return `count` pairs of a store of as many utterances, each prompted by another."""
    info = StoreInfo("benchmark", "0", "0", config.model_dim, config.num_latents, "float16")
    writer = FeatureStoreWriter(folder, info)
    clips = make_samples(config, min(count, NUM_LENGTHS))
    for number in range(count):
        clip = clips[number % len(clips)]
        condition, emo_vec = clip.condition.numpy(), clip.emo_vec.numpy()
        writer.add(EncodedUtterance(f"u{number}", key(number), clip.codes, condition, emo_vec))
    writer.flush()
    pairs = [pair(number, (number + 1) % count, writer.path) for number in range(count)]
    text_ids = [clips[number % len(clips)].text_ids for number in range(count)]
    return PairDataset(pairs, text_ids, {writer.path: FeatureStore.open(writer.path)})


def pair(target: int, prompt: int, features: Path) -> Pair:
    return Pair(
        id=f"u{target}__u{prompt}",
        speaker="s",
        prompt_id=f"u{prompt}",
        target_id=f"u{target}",
        target_text="",  # its tokens are given
        target_num_codes=1,
        target_duration_s=1.0,
        prompt_duration_s=1.0,
        features=features,
        prompt_key=key(prompt),
        target_key=key(target),
    )


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def measure_store(
    dataset: PairDataset, steps: Steps, args: argparse.Namespace, turn: int, cost: Cost
) -> None:
    """Note what a token takes in one pass, in the order of epoch `turn`."""
    batches = batches_of(dataset, steps.config, args.batch, turn)
    began = time.process_time()
    next(batches)  # makes the order
    of_epoch = (time.process_time() - began) / float(dataset.lengths.sum())
    cost.note("order", of_epoch)
    taken = list(timed(islice(batches, args.batches)))
    tokens = sum(sum(batch.lengths) for _, batch in taken)
    data = sum(seconds for seconds, _ in taken) / tokens + of_epoch
    cost.note("data", data)
    gc.collect()
    began = time.process_time()
    for _, batch in taken:
        steps.do(batch)
    cost.note("step", data + (time.process_time() - began) / tokens)


def open_all_shards(dataset: PairDataset) -> float:
    """Return the seconds that it takes to use every shard of the store for the first time."""
    [store] = dataset.stores.values()
    began = time.process_time()
    store.with_codes_from(MAX_CODE)  # as a run does when it starts
    for first in store.keys[::CLIPS_PER_SHARD]:
        store.condition(first)
        store.emo_vec(first)
    return time.process_time() - began


def batches_of(dataset: PairDataset, config: GPTConfig, size: int, epoch: int) -> Iterator[MicroBatch]:
    """Return what the trainer's loader gives, in the trainer's own process."""
    plan = BatchPlan(dataset.lengths, 0, size, batch_tokens=0, epoch=epoch, samples_done=0)
    return iter(load_batches(dataset, plan, 0, collate_for("none", config)))


def timed(batches: Iterator[MicroBatch]) -> Iterator[tuple[float, PackedBatch]]:
    """Yield each batch with the seconds it took to make."""
    while True:
        began = time.process_time()
        found = next(batches, None)
        seconds = time.process_time() - began
        if found is None:
            return
        assert isinstance(found.batch, PackedBatch)
        yield seconds, found.batch


# --- by the length of the clips ---


def by_clip(args: argparse.Namespace) -> list[str]:
    """Return the second table."""
    steps = Steps(args.clip_size)
    groups = [clips_of(steps.config, seconds, args.budget) for seconds in args.clips_s]
    batches = [packed_batch(group, steps.config) for group in groups]
    costs = [Cost() for _ in groups]
    steps.do(batches[0])  # warm
    for _ in range(args.passes):
        for batch, cost in zip(batches, costs, strict=True):
            tokens = sum(batch.lengths)
            cost.note("attention", attention_alone(batch, steps.config) / tokens)
            began = time.process_time()
            steps.do(batch)
            cost.note("step", (time.process_time() - began) / tokens)
    lines = [
        f"{args.clip_size} model; as many clips of one length as fill {args.budget:,} tokens. Operations are "
        "those of `benchmarks/workload.py`: a longer clip has more positions with a loss for one prefix.",
        "",
        "| clips of | in a step | tokens each | step | ratio | attention alone | the rest | ratio "
        "| operations of the rest, ratio |",
        "|---" * 9 + "|",
    ]
    linear = [linear_operations(group, steps.config) for group in groups]
    rests = [cost.seconds["step"] - cost.seconds["attention"] for cost in costs]
    for number, (group, cost) in enumerate(zip(groups, costs, strict=True)):
        found = cost.seconds
        cells = [f"{args.clips_s[number]:g} s", str(len(group)), str(num_positions(group[0], steps.config))]
        cells += [f"{1e6 * found['step']:.1f}", f"{found['step'] / costs[0].seconds['step']:.3f}"]
        cells += [f"{1e6 * found['attention']:.1f}", f"{1e6 * rests[number]:.1f}"]
        cells += [f"{rests[number] / rests[0]:.3f}", f"{linear[number] / linear[0]:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def clips_of(config: GPTConfig, duration_s: float, budget: int) -> list[Sample]:
    """Return as many clips of `duration_s` as fit into `budget` tokens, at least one."""
    random = np.random.default_rng(0)
    num_text, num_codes = round(duration_s * TEXT_TOKENS_PER_SECOND), round(duration_s * CODES_PER_SECOND)

    def clip() -> Sample:
        return Sample(
            random.integers(2, config.number_text_tokens, num_text),
            random.integers(0, config.start_mel_token, num_codes),
            torch.zeros(config.num_latents, config.model_dim),
            torch.zeros(config.model_dim),
        )

    one = clip()
    return [one, *(clip() for _ in range(budget // num_positions(one, config) - 1))]


def attention_alone(batch: PackedBatch, config: GPTConfig) -> float:
    """Return the seconds of all layers' attention, forward and backward."""
    shape = (sum(batch.lengths), config.heads, config.model_dim // config.heads)
    q, k, v, gradient = (torch.randn(shape) for _ in range(4))
    for each in (q, k, v):
        each.requires_grad_()
    attend = BLOCKS.bind(batch.segments)
    began = time.process_time()
    for _ in range(config.layers):
        attend(q, k, v, config.dropout).backward(gradient)  # type: ignore[no-untyped-call]
    return time.process_time() - began


def linear_operations(group: Sequence[Sample], config: GPTConfig) -> float:
    """Return the operations per token without those of attention."""
    lengths = [num_positions(sample, config) for sample in group]
    attention = sum(3.5 * 2 * n**2 * config.model_dim * config.layers for n in lengths)
    return (useful_operations(group, config) - attention) / sum(lengths)


if __name__ == "__main__":
    sys.exit(main())
