"""Seconds and memory from the start of the trainer to its first resumed step.

    python -m benchmarks.resume_time [--size published] [--repeats 3] [--folder DIR] [--output FILE]

A base checkpoint of the stated size with random weights, a tokenizer of twice its pieces and a few features
are made; the real trainer takes one step and saves; then it resumes, as often as asked. It is the trainer
itself that says where the time goes (`Ready for step ...`). Memory is read from /proc while it starts:
anonymous pages are the process's own, pages of the mapped checkpoint belong to the system's cache.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from sentencepiece import sentencepiece_model_pb2

from benchmarks.workload import PUBLISHED
from indextts.data.encoding import encoders_identity
from indextts.data.feature_store import StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Pair, write_pairs
from indextts.models.gpt.config import ConditionModuleConfig, GPTConfig
from indextts.models.gpt.weights import random_model

REPOSITORY = Path(__file__).resolve().parent.parent
NUM_TRAIN, NUM_VAL = 4, 4
SECONDS_PER_CLIP = 5
SMALL_MODULE = ConditionModuleConfig(64, 128, 2, 1, "conv2d2", 2)
CONFIGS = {
    "published": PUBLISHED,
    "small": replace(
        PUBLISHED,
        model_dim=256,
        layers=4,
        heads=4,
        condition_module=SMALL_MODULE,
        emo_condition_module=SMALL_MODULE,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=CONFIGS, default="published")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the run is made; 20 GB at the published size")
    parser.add_argument("--output", type=Path, help="file for the table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        table = measure(Path(folder), args.size, args.repeats)
    print(table)
    if args.output:
        args.output.write_text(table, encoding="utf-8")
    return 0


def measure(folder: Path, size: str, repeats: int) -> str:
    began = time.perf_counter()
    flags = make_run(folder, CONFIGS[size])
    print(f"made the run in {time.perf_counter() - began:.1f} s", flush=True)
    first = start(folder, [*flags, "--max-steps=1"])
    saved = (folder / "run/model_step1.pth").stat().st_size
    rows = [start(folder, [*flags, f"--max-steps={step}", "--resume=auto"]) for step in range(2, 2 + repeats)]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    lines = [
        f"# From start to first resumed step, {size} size",
        "",
        f"{date.today()}, {os.cpu_count()} cores, {device}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, "
        f"{'bfloat16' if torch.cuda.is_available() else 'float32'}; "
        f"checkpoint of {saved / 1e9:.2f} GB in the page cache.",
        "",
        "| start | ready after (s) | first step after (s) | own memory, peak (GB) | with mapped files (GB) |",
        "|---|---|---|---|---|",
        *(
            row_of(name, row)
            for name, row in zip(("new run", *["resume"] * repeats), (first, *rows), strict=True)
        ),
        "",
        "Where the time goes, as the trainer says it:",
        "",
        *(f"- {name}: {row['parts']}" for name, row in (("new run", first), ("resume", rows[-1]))),
        "",
        "Saves: " + "; ".join(dict.fromkeys(said for row in (first, *rows) for said in row["saves"])) + ".",
        "",
    ]
    return "\n".join(lines)


def row_of(name: str, row: dict[str, Any]) -> str:
    return (
        f"| {name} | {row['ready']:.1f} | {row['first_step']:.1f} | {row['anonymous'] / 1e9:.2f} "
        f"| {row['resident'] / 1e9:.2f} |"
    )


def make_run(folder: Path, config: GPTConfig) -> list[str]:
    """Write all inputs of a run; return the trainer's flags."""
    base = folder / "base"
    base.mkdir()
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(config)}))
    write_tokenizer(base / "bpe.model", config.number_text_tokens)
    write_tokenizer(folder / "tokenizer.model", 2 * config.number_text_tokens)
    model = random_model(config, seed=0)
    torch.save(model.state_dict(), base / "gpt.pth")
    features = write_features(folder / "features", config, encoders_identity(model))
    for name, numbers in (("train", range(NUM_TRAIN)), ("val", range(NUM_TRAIN, NUM_TRAIN + NUM_VAL))):
        write_pairs(folder / f"{name}.jsonl", [pair(features, number) for number in numbers])
    flags = {
        "train-manifest": folder / "train.jsonl",
        "val-manifest": folder / "val.jsonl",
        "tokenizer": folder / "tokenizer.model",
        "config": base / "config.yaml",
        "base-checkpoint": base / "gpt.pth",
        "output-dir": folder / "run",
        "batch-size": 1,
        "log-interval": 1,
        "keep-checkpoints": 1,
    }
    arithmetic = ["--amp"] if torch.cuda.is_available() else []  # as one trains on a card
    return [f"--{name}={value}" for name, value in flags.items()] + arithmetic


def start(folder: Path, flags: list[str]) -> dict[str, Any]:
    """Run the trainer to its end; return seconds to its lines, and its memory's peaks until it was ready."""
    began = time.perf_counter()
    log = folder / "output.log"
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    with log.open("w") as output:
        trainer = subprocess.Popen(
            [sys.executable, "trainers/train_gpt_v2.py", *flags],
            cwd=REPOSITORY,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
        )
    seen: dict[str, Any] = {"anonymous": 0, "resident": 0}
    while trainer.poll() is None:
        text = log.read_text(encoding="utf-8")
        for key, sign in (("ready", "Ready for step"), ("first_step", "[Train]")):
            if key not in seen and sign in text:
                seen[key] = time.perf_counter() - began
        if "ready" not in seen:
            for key, field in (("anonymous", "RssAnon"), ("resident", "VmRSS")):
                seen[key] = max(seen[key], memory(trainer.pid, field))
        time.sleep(0.02)
    text = log.read_text(encoding="utf-8")
    if trainer.returncode or "first_step" not in seen:
        raise SystemExit(f"the trainer ended with {trainer.returncode}:\n{text[-3000:]}")
    print(f"{flags[-1]}: {time.perf_counter() - began:.1f} s in all", flush=True)
    seen["parts"] = re.findall(r"Ready for step .*", text)[0]
    held_up = re.findall(r"held up for [\d.]+ s", text)
    written = re.findall(r"\(([\d.]+ s) in the background", text)
    seen["saves"] = [f"{held}, written in {seconds}" for held, seconds in zip(held_up, written, strict=False)]
    return seen


def memory(pid: int, field: str) -> int:
    """Return a field of /proc/PID/status in bytes, 0 if the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def write_tokenizer(path: Path, size: int) -> None:
    """Write the demo's tokenizer with made-up pieces behind its own, `size` in all."""
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString((REPOSITORY / "demo/checkpoints/bpe.model").read_bytes())
    for number in range(size - len(model.pieces)):
        model.pieces.add(piece=f"▁q{number}x", score=-1000.0 - number)
    model.trainer_spec.vocab_size = size
    path.write_bytes(model.SerializeToString())


def write_features(folder: Path, config: GPTConfig, encoders: str) -> Path:
    random = np.random.default_rng(0)
    folder.mkdir()
    info = StoreInfo("benchmark", "random", encoders, config.model_dim, config.num_latents)
    writer = FeatureStoreWriter(folder, info)
    for number in range(NUM_TRAIN + NUM_VAL):
        writer.add(
            EncodedUtterance(
                id=f"u{number}",
                key=key(number),
                codes=random.integers(0, config.start_mel_token, SECONDS_PER_CLIP * 50),
                condition=random.standard_normal((config.num_latents, config.model_dim), dtype=np.float32),
                emo_vec=random.standard_normal(config.model_dim, dtype=np.float32),
            )
        )
    writer.flush()
    return writer.path


def pair(features: Path, number: int) -> Pair:
    return Pair(
        id=f"u{number}__u{number}",
        speaker="s",
        prompt_id=f"u{number}",
        target_id=f"u{number}",
        target_text="ሰላም ለዓለም",
        target_num_codes=SECONDS_PER_CLIP * 50,
        target_duration_s=float(SECONDS_PER_CLIP),
        prompt_duration_s=float(SECONDS_PER_CLIP),
        features=features,
        prompt_key=key(number),
        target_key=key(number),
    )


def key(number: int) -> str:
    return f"{number:064x}"


if __name__ == "__main__":
    sys.exit(main())
