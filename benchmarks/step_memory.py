"""The memory of a training step on the CPU: how it grows with positions and layers.

    python -m benchmarks.step_memory [--output FILE]

Each row is two processes: the peak of resident memory during a second step, with about 4,000 and about 8,000
positions in the micro-batch. The difference over the difference in positions, over the width, is what
`indextts/planning/memory.py` multiplies with layers and width. Linux only.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import torch

from benchmarks.steps import Stepper, Variant
from benchmarks.workload import build_model, config_of, git_commit, groups_within, make_samples, num_positions

REPOSITORY = Path(__file__).resolve().parent.parent
POSITIONS = (4096, 8192)
CASES = [
    (dtype, recomputes, layers)
    for dtype in ("float32", "bfloat16")
    for recomputes in (False, True)
    for layers in (6, 12)
]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_memory")
    parser.add_argument("--output", type=Path, help="file for the table")
    parser.add_argument("--one", help="measure one case as JSON; the program calls itself with this")
    args = parser.parse_args(argv)
    if args.one:
        print(json.dumps(measure(*json.loads(args.one))))
        return 0
    table = "\n".join([*heading(), *(row(*case) for case in CASES), ""])
    print(table)
    if args.output:
        args.output.write_text(table, encoding="utf-8")
    return 0


def heading() -> list[str]:
    return [
        "# Memory of a training step on the CPU",
        "",
        f"{date.today()}, commit {git_commit()}, {os.cpu_count()} cores, torch {torch.__version__}, "
        f"Python {platform.python_version()}; width 512, one thread, dropout 0.1; "
        "`benchmarks/step_memory.py`.",
        "",
        "| arithmetic | blocks computed twice | layers | positions | peak (GB) "
        "| bytes a position and column |",
        "|---|---|---|---|---|---|",
    ]


def row(dtype: str, recomputes: bool, layers: int) -> str:
    measured = []
    for positions in POSITIONS:
        case = json.dumps([dtype, recomputes, layers, positions])
        argv = [sys.executable, "-m", "benchmarks.step_memory", "--one", case]
        answer = subprocess.run(argv, cwd=REPOSITORY, check=True, capture_output=True, text=True)
        measured.append(json.loads(answer.stdout))
    (few, low), (many, high) = measured
    width = config_of("small", 0.1).model_dim
    growth = (high - low) / (many - few) / width
    return (
        f"| {dtype} | {'yes' if recomputes else 'no'} | {layers} | {few:,} and {many:,} | "
        f"{low / 1e9:.2f} and {high / 1e9:.2f} | {growth:.0f} |"
    )


def measure(dtype: str, recomputes: bool, layers: int, positions: int) -> tuple[int, int]:
    """Return the positions of a batch and the peak of memory during its second step, in bytes."""
    torch.set_num_threads(1)
    config = replace(config_of("small", 0.1), layers=layers)
    model = build_model(config, torch.device("cpu"))
    group = groups_within(make_samples(config, positions // 150), config, positions)[0]
    variant = Variant("packed", "packed", getattr(torch, dtype), checkpointing=recomputes)
    stepper = Stepper(variant, model, [group])
    stepper.step(0)  # the optimizer's state is made
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    stepper.step(0)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    return sum(num_positions(sample, config) for sample in group), peak


if __name__ == "__main__":
    sys.exit(main())
