"""Time, processor time and memory from the start of the trainer to its first step, with many pairs.

    python -m benchmarks.start_time --utterances 200000 --pairs 391180 --repeats 2

A cold start has no index beside the pairs files, as after a change of the tokenizer; a warm start has one.
The model and the tokenizer are small ones of IndexTTS-2.0, the texts are made of the demo's sentences, the
features are constant. Files stay in the page cache. Other programs lengthen the wall clock, so their load is
measured too.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, interleaved, process_memory, publish, table
from benchmarks.stored import key
from indextts.commands.terminal import parse, run
from indextts.data.feature_store import StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Pair, write_pairs
from indextts.data.pair_index import index_path

BASE = REPOSITORY / "tests/base_2.0"
READY = re.compile(r"Ready for step \d+ after [\d.]+ s: (.*)")
NUM_SPEAKERS = 500
NUM_VALIDATED = 2_000
CODES_PER_CLIP, CODES_PER_SECOND = 305, 50  # 6.1 s
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class StartTime(Benchmark):
    """Measure the trainer's start with many pairs."""

    program: ClassVar[str] = "benchmarks.start_time"
    utterances: int = Field(200_000, ge=1_000, description="Utterances to train on.")
    pairs: int = Field(391_180, ge=1_000, description="Pairs to train on, up to two per utterance.")
    repeats: int = Field(2, ge=1, description="Cold and warm starts.")
    folder: Path | None = Field(None, description="Folder of the files; a temporary folder by default.")


@dataclass(frozen=True)
class Start:
    """Measurement of a start."""

    wall_s: float
    cpu_s: float  # processor time of the trainer and its ended children
    peak_bytes: int  # resident memory of the trainer, mapped files included
    other_cores: float  # cores that other programs used meanwhile
    parts: str  # of the time, as the trainer logs them


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(StartTime, argv)
    with tempfile.TemporaryDirectory(prefix="start_time_") as temporary:
        folder = command.folder or Path(temporary)
        if not (folder / "val_pairs.jsonl").exists():
            write_files(folder, command.utterances, command.pairs)
        found = interleaved(
            {"cold": lambda number: start(folder, number, is_cold=True), "warm": lambda n: start(folder, n)},
            command.repeats,
        )
        size = index_path(folder / "train_pairs.jsonl").stat().st_size
    rows = [
        [
            f"{name} {number}",
            f"{each.wall_s:.1f}",
            f"{each.cpu_s:.1f}",
            f"{each.peak_bytes / 1e6:.0f}",
            f"{each.other_cores:.1f}",
            each.parts,
        ]
        for name, starts in found.items()
        for number, each in enumerate(starts, 1)
    ]
    header = [
        "start",
        "ready after (s)",
        "processor time (s)",
        "peak memory (MB)",
        "other programs (cores)",
        "parts (s)",
    ]
    title = f"Start of the trainer with {command.utterances:,} utterances and {command.pairs:,} pairs"
    publish(command, title, [*table(header, rows), "", f"Index of the training pairs: {size / 1e6:.0f} MB."])
    return 0


def start(folder: Path, number: int, *, is_cold: bool = False) -> Start:
    """Start a new run and return its measurement at "Ready for step 1"."""
    manifests = [folder / f"{split}_pairs.jsonl" for split in ("train", "val")]
    if is_cold:
        for path in manifests:
            index_path(path).unlink(missing_ok=True)
    argv = [
        sys.executable,
        str(REPOSITORY / "trainers/train_gpt_v2.py"),
        f"--train-manifest={manifests[0]}",
        f"--val-manifest={manifests[1]}",
        f"--tokenizer={folder / 'bpe.model'}",
        f"--config={BASE / 'config.yaml'}",
        f"--base-checkpoint={folder / 'gpt.pth'}",
        f"--output-dir={folder}/run_{'cold' if is_cold else 'warm'}_{number}",
        "--max-steps=1",
        "--max-val-batches=1",
        "--batch-size=8",
        "--allow-cpu",
    ]
    before, started = _busy_s(), time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            if ready := READY.search(line):
                wall_s, process_s = time.monotonic() - started, cpu_s(process.pid)
                others = (_busy_s() - before - process_s) / wall_s
                peak = process_memory(process.pid, "VmHWM")
                found = Start(wall_s, process_s, peak, max(0.0, others), ready[1])
    if process.returncode:
        raise RuntimeError("".join(output))
    print(found, flush=True)
    return found


def write_files(folder: Path, num_utterances: int, num_pairs: int) -> None:
    """Write base model, features and pairs."""
    import torch

    from demo.make_base_checkpoint import random_model
    from indextts.data.encoding import encoders_identity
    from indextts.models.gpt.config import load_config

    folder.mkdir(parents=True, exist_ok=True)
    config = load_config(BASE / "config.yaml")
    model = random_model(config, seed=0)
    torch.save(model.state_dict(), folder / "gpt.pth")
    (folder / "bpe.model").write_bytes((BASE / "bpe.model").read_bytes())
    info = StoreInfo(
        "benchmark", "0", encoders_identity(model), config.model_dim, config.num_latents, "float16"
    )
    writer = FeatureStoreWriter(folder / "features", info)
    condition = np.zeros((config.num_latents, config.model_dim), np.float32)
    codes = np.random.default_rng(0).integers(0, config.start_mel_token, CODES_PER_CLIP)
    for number in range(num_utterances + NUM_VALIDATED):
        writer.add(EncodedUtterance(f"u{number:06d}", key(number), codes, condition, condition[0]))
    writer.flush()
    sentences = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").splitlines()
    words = sorted({word for sentence in sentences for word in sentence.split()})

    def pair(target: int, prompt: int) -> Pair:
        first, second, word = (target // len(sentences) ** n % len(sentences) for n in range(3))
        text = f"{sentences[first]} {sentences[second]} {words[word]}"
        seconds = CODES_PER_CLIP / CODES_PER_SECOND
        return Pair(
            id=f"u{target:06d}__u{prompt:06d}",
            speaker=f"spk{target % NUM_SPEAKERS:03d}",
            prompt_id=f"u{prompt:06d}",
            target_id=f"u{target:06d}",
            target_text=text,
            target_num_codes=CODES_PER_CLIP,
            target_duration_s=seconds,
            prompt_duration_s=seconds,
            features=writer.path,
            prompt_key=key(prompt),
            target_key=key(target),
        )

    train = (
        pair(target, (target + (turn + 1) * NUM_SPEAKERS) % num_utterances)
        for target in range(num_utterances)
        for turn in range(1 + (target < num_pairs - num_utterances))
    )
    write_pairs(folder / "train_pairs.jsonl", train)
    held_out = range(num_utterances, num_utterances + NUM_VALIDATED)
    val = (pair(target, held_out[(target + NUM_SPEAKERS) % NUM_VALIDATED]) for target in held_out)
    write_pairs(folder / "val_pairs.jsonl", val)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_SECOND


def _busy_s() -> float:
    """Return the processor time of all programs since boot."""
    user, nice, system, _idle, _wait, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft) / TICKS_PER_SECOND


if __name__ == "__main__":
    run(main)
