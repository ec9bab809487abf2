"""Time, memory and rounding of an export in published size, with random weights.

python -m benchmarks.export                    once for each type; takes 8 GB of disk and 11 of memory
python -m benchmarks.export --size small       a few seconds, to see that it works
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
import yaml
from pydantic import Field

from benchmarks.speech_models import SIZES
from indextts.commands.base import Command
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.weights import random_model
from indextts.text.extend import extend

BASE = Path(__file__).resolve().parent.parent / "demo/checkpoints/bpe.model"
SENTENCES = BASE.parent.parent / "sentences.txt"
NUM_PIECES = 720


class ExportBenchmark(Command):
    """Measure exports of a model with random weights."""

    program: ClassVar[str] = "benchmarks/export.py"
    size: Literal["small", "published"] = Field("published", description="Size of the model.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(ExportBenchmark, argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        num_bytes = write_checkpoint(folder, replace(SIZES[command.size].gpt, number_text_tokens=NUM_PIECES))
        print(f"{command.size}: a model of {num_bytes / 1e9:.2f} GB in float32, torch {torch.__version__}\n")
        print("| type | CPU (s) | peak memory (GB) | logits differ by |\n|---|---|---|---|")
        for dtype in ("float32", "float16", "bfloat16"):
            print(f"| {dtype} | {measure(folder, dtype)} |", flush=True)
    return 0


def write_checkpoint(folder: Path, config: GPTConfig) -> int:
    """Write what an export reads; return the bytes of the weights."""
    tokenizer = extend(BASE, SENTENCES.read_text("utf-8").splitlines(), NUM_PIECES)
    weights = random_model(config, seed=0).state_dict()
    torch.save({"model": weights, "tokenizer": {"model": tokenizer}}, folder / "checkpoint.pth")
    (folder / "base").mkdir()
    (folder / "base/config.yaml").write_text(yaml.safe_dump({"gpt": asdict(config)}))
    return sum(tensor.nbytes for tensor in weights.values())


def measure(folder: Path, dtype: str) -> str:
    """Export in a process of its own; return CPU seconds, peak memory and the difference of the logits."""
    flags = {"checkpoint": "checkpoint.pth", "config": "base/config.yaml", "output-dir": "model"}
    argv = [f"--{name}={folder / value}" for name, value in flags.items()]
    program = Path(__file__).resolve().parent.parent / "tools/export_gpt.py"
    process = subprocess.Popen(
        [sys.executable, program, *argv, f"--dtype={dtype}"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        said = output.read()
    _, status, used = os.wait4(process.pid, 0)  # of this one alone, not the largest of all
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"the export failed: {said}")
    difference = said.partition("logits differ by ")[2].partition(" ")[0]
    return f"{used.ru_utime + used.ru_stime:.1f} | {used.ru_maxrss / 1e6:.2f} | {difference}"


if __name__ == "__main__":
    run(main)
