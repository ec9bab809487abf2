"""Where the time of a training step goes on the CPU, the predecessor's and ours, and what the limit is.

    python -m benchmarks.profile_step --size small --batch 8 --output benchmarks/results/NAME.md

Both steps run in one process, in turn, on the same parameters and samples, each with `torch.profiler`; the
time of an operator without those it calls is put under one of the headings of `HEADINGS`. The profiler reads
a clock, so what else runs on the machine is in the seconds of the table; the operations per second are by
processor time. The limit is what this core does of nothing but matrix products, of a shape of the blocks,
measured in between.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.steps import Stepper, Variant
from benchmarks.workload import (
    SIZES,
    Sample,
    build_model,
    config_of,
    git_commit,
    groups_of,
    machine,
    make_samples,
    num_padded,
    num_positions,
    useful_operations,
)
from indextts.models.gpt.config import GPTConfig

CPU = torch.device("cpu")

# In this order; the first with a word that the operator's name begins with counts. What an optimizer calls is
# the optimizer's, whatever it is.
OPTIMIZER = "optimizer and clipping"
HEADINGS = {
    OPTIMIZER: ("Optimizer.", "_fused_adamw", "linalg_vector_norm", "_foreach"),
    "losses": ("_log_softmax", "nll_loss", "cross_entropy", "argmax", "logsumexp"),
    "matrix products": ("addmm", "mm", "linear"),
    "attention": ("bmm", "baddbmm", "_softmax", "_scaled_dot_product", "_BlockAttention"),
    "norms": ("native_layer_norm", "layer_norm"),
    "GELU, sums and products, value by value": (
        *("gelu", "tanh", "pow", "mul", "add", "sub", "div", "sum", "sqrt", "neg", "where", "max"),
    ),
    "drawing of dropout": ("bernoulli", "native_dropout", "random_", "ge"),
    "copies and memory": (
        *("copy_", "fill_", "zero", "cat", "index", "embedding", "clone", "gather", "scatter", "empty"),
    ),
}
OTHER = "other"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_step")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--passes", type=int, default=3, help="profiled steps of each; the fastest counts")
    parser.add_argument("--output", type=Path, help="file for the tables")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    dtype = getattr(torch, args.dtype)
    config = config_of(args.size, dropout=0.1)
    groups = groups_of(make_samples(config, args.batch), args.batch)
    model = build_model(config, CPU).train()
    variants = {
        "before": Variant("reference", "reference", dtype, checkpointing=True),
        "after": Variant("packed", "packed", dtype),
    }
    steppers = {name: Stepper(variant, model, groups) for name, variant in variants.items()}
    for stepper in steppers.values():
        stepper.step(0)  # makes the optimizer's state
    profiles: dict[str, list[Profile]] = {name: [] for name in steppers}
    peaks = [matrix_peak(config, dtype)]
    for _ in range(args.passes):
        for name, stepper in steppers.items():
            profiles[name].append(profiled(stepper))
            peaks.append(matrix_peak(config, dtype))
    lines = report(args, config, groups[0], profiles, peaks)
    print("\n".join(lines))
    if args.output:
        args.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


@dataclass(frozen=True)
class Profile:
    """A step: seconds of the clock by heading, and processor time of the whole."""

    by_heading: dict[str, float]
    cpu_seconds: float

    @property
    def seconds(self) -> float:
        return sum(self.by_heading.values())


def profiled(stepper: Stepper) -> Profile:
    began = time.process_time()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        stepper.step(0)
        cpu_seconds = time.process_time() - began
    return Profile(by_heading(found.events() or []), cpu_seconds)


def by_heading(events: Iterable[Any]) -> dict[str, float]:
    """Return the seconds of operators, each without those that it calls, by heading."""
    seconds = dict.fromkeys([*HEADINGS, OTHER], 0.0)
    for event in events:
        heading = OPTIMIZER if is_of_optimizer(event) else heading_of(event.name)
        seconds[heading] += event.self_cpu_time_total / 1e6
    return seconds


def is_of_optimizer(event: Any) -> bool:
    while event is not None:
        if event.name.startswith("Optimizer."):
            return True
        event = event.cpu_parent
    return False


def heading_of(operator: str) -> str:
    name = operator.removeprefix("aten::")
    return next((heading for heading, words in HEADINGS.items() if name.startswith(words)), OTHER)


def matrix_peak(config: GPTConfig, dtype: torch.dtype, rows: int = 2048, turns: int = 3) -> float:
    """Return the operations per second of the fastest of a few products with a block's widest weight."""
    dim = config.model_dim
    left, right = torch.randn(rows, dim, dtype=dtype), torch.randn(dim, 4 * dim, dtype=dtype)
    out = torch.empty(rows, 4 * dim, dtype=dtype)
    seconds = []
    for _ in range(turns):
        began = time.process_time()
        torch.mm(left, right, out=out)
        seconds.append(time.process_time() - began)
    return 2 * rows * dim * 4 * dim / min(seconds)


def report(
    args: argparse.Namespace,
    config: GPTConfig,
    group: Sequence[Sample],
    profiles: dict[str, list[Profile]],
    peaks: Sequence[float],
) -> list[str]:
    valid, padded = sum(num_positions(sample, config) for sample in group), num_padded(group, config)
    # the fastest: the others had more of the machine's other work in them
    fastest = {name: min(found, key=lambda each: each.seconds) for name, found in profiles.items()}
    before, after = fastest["before"].by_heading, fastest["after"].by_heading
    totals = fastest["before"].seconds, fastest["after"].seconds
    busy = {name: min(each.cpu_seconds for each in found) for name, found in profiles.items()}
    lines = [
        f"# Where the time of a step goes: {args.size}, batch {args.batch}, {args.dtype}, one thread",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, commit {git_commit()}; {machine(CPU)}; load {os.getloadavg()[0]:.0f}",
        "",
        f"`python -m benchmarks.profile_step --size {args.size} --batch {args.batch} --dtype {args.dtype}`: "
        f"{valid} valid and {padded} padded positions, dropout 0.1; of {args.passes} profiled steps of each, "
        "in turn, the fastest.",
        "",
        "| | before, s | share | after, s | share | before / after |",
        "|---|---|---|---|---|---|",
    ]
    for heading in [*HEADINGS, OTHER]:
        ratio = f"{before[heading] / after[heading]:.1f}" if after[heading] > 0.001 * totals[1] else "-"
        lines.append(
            f"| {heading} | {before[heading]:.3f} | {before[heading] / totals[0]:.1%} | "
            f"{after[heading]:.3f} | {after[heading] / totals[1]:.1%} | {ratio} |"
        )
    lines.append(f"| **all** | {totals[0]:.3f} | | {totals[1]:.3f} | | {totals[0] / totals[1]:.1f} |")
    lines.append(
        f"| **processor time of the step** | {busy['before']:.3f} | | {busy['after']:.3f} | | "
        f"{busy['before'] / busy['after']:.1f} |"
    )
    operations, peak = useful_operations(group, config), max(peaks)
    return [
        *lines,
        "",
        "| useful operations of the step | G |",
        "|---|---|",
        f"| in all | {operations / 1e9:.0f} |",
        f"| a second, before | {operations / busy['before'] / 1e9:.1f} |",
        f"| a second, after | {operations / busy['after'] / 1e9:.1f} |",
        f"| a second, nothing but products, the best of {len(peaks)} | {peak / 1e9:.1f} |",
        f"| the same, their median | {statistics.median(peaks) / 1e9:.1f} |",
        f"| the step at that best, s | {operations / peak:.3f} |",
    ]


if __name__ == "__main__":
    sys.exit(main())
