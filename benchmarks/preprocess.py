"""Clips per second and hours of audio per hour of preprocessing, by stage and as a whole.

    python -m benchmarks.preprocess [--size published] [--device cuda] [--clips 200]

preprocess_stages.py defines the stages. At the published size on a CPU this takes 5 GB of memory. Every
process that reads recordings imports this module, and its start is measured: it must not import torch.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from benchmarks.frame import Benchmark, publish
from indextts.commands.terminal import parse, run


class PreprocessBenchmark(Benchmark):
    """Measure the throughput of preprocessing."""

    program: ClassVar[str] = "benchmarks.preprocess"
    size: Literal["tiny", "small", "published"] = Field("small", description="Size of all models.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Device.")
    clips: int = Field(100, ge=1, description="Number of recordings.")


def main(argv: Sequence[str] | None = None) -> int:
    from benchmarks.preprocess_stages import measure  # imports torch

    command = parse(PreprocessBenchmark, argv)
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(Path(folder), command.size, command.device, command.clips)
    publish(command, f"Preprocessing, {command.size} size", lines, command.device)
    return 0


if __name__ == "__main__":
    run(main)
