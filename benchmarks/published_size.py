"""Memory and time from recordings to optimizer steps, with files of the published names, shapes and sizes.

    python -m benchmarks.published_size --folder DIR [--size published] [--steps 3]

    DIR/size_*/                      removed at the end; 15 GB at the published size
      IndexTTS-2/                    config.yaml gpt.pth bpe.model wav2vec2bert_stats.pt w2v-bert-2.0/
                                     semantic_codec/model.safetensors: seeded random weights
      recordings/                    manifest.jsonl and noise of 3 to 36 s, the longest that the model accepts
      preprocessed/ run/             output of the project's programs, each in its own process

The memory of all processes of a program is read from /proc 20 times a second: `own` is their anonymous
memory, `with mapped files` adds the pages of weights, which the kernel can drop.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import soundfile
import torch
import yaml
from pydantic import Field
from safetensors.torch import save_file
from torch import nn
from transformers import SeamlessM4TFeatureExtractor, Wav2Vec2BertModel

from benchmarks.frame import REPOSITORY, Benchmark, process_memory, publish, table, timed
from benchmarks.speech_models import PUBLISHED_LAYERS, SIZES, SpeechSize, filled, on_meta
from benchmarks.stored import write_tokenizer
from benchmarks.trainer_process import FIXED_FLAGS
from indextts.commands.terminal import parse, run
from indextts.features.semantic_codec import SemanticCodec
from indextts.models.gpt.encoders import PositionTable, sinusoids
from indextts.models.gpt.weights import empty_model
from indextts.system.processes import session_members

RATE_HZ = 24_000
DURATIONS_S = {  # of the recordings of one speaker; a quarter is for validation
    "tiny": (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0),
    "small": (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 36.0),
    "published": (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 36.0),
}
SAMPLING_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Stage:
    """Cost of a program: time in seconds, peak memory of all its processes in bytes.

    Attributes:
        own: anonymous memory.
        resident: anonymous memory and mapped files.
    """

    name: str
    wall_s: float
    cpu_s: float
    own: int
    resident: int


class PublishedSize(Benchmark):
    """Measure preprocessing, pairing and training at a published size."""

    program: ClassVar[str] = "benchmarks.published_size"
    size: Literal["tiny", "small", "published"] = Field("published", description="Size of all models.")
    folder: Path = Field(description="Folder for all files.")
    steps: int = Field(3, ge=1, description="Optimizer steps.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(PublishedSize, argv)
    command.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="size_", dir=command.folder) as folder:
        lines = measure(Path(folder), command.size, command.steps)
    publish(command, f"From recordings to {command.steps} optimizer steps, {command.size} size", lines)
    return 0


def measure(folder: Path, size: str, steps: int) -> list[str]:
    """Create all files, run the programs, and return the table."""
    base = folder / "IndexTTS-2"
    _, took = timed(lambda: write_inputs(folder, base, size))
    num_bytes = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    print(f"created files of {num_bytes / 1e9:.2f} GB in {took.wall_s:.0f} s", flush=True)
    stages = [run_program(*program) for program in programs(folder, base, steps)]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    header = ["program", "seconds", "own memory, peak (GB)", "with mapped files (GB)", "processor time (s)"]
    rows = [
        [
            f"`{stage.name}`",
            f"{stage.wall_s:.1f}",
            f"{stage.own / 1e9:.2f}",
            f"{stage.resident / 1e9:.2f}",
            f"{stage.cpu_s:.1f}",
        ]
        for stage in stages
    ]
    durations_s = DURATIONS_S[size]
    return [
        f"{len(durations_s)} recordings of {min(durations_s):.0f} to {max(durations_s):.0f} s; weights of "
        f"{num_bytes / 1e9:.2f} GB; {device}.",
        "",
        *table(header, rows),
    ]


def write_inputs(folder: Path, base: Path, size: str) -> None:
    write_base(base, SIZES[size])
    write_tokenizer(folder / "tokenizer.model", 2 * SIZES[size].gpt.number_text_tokens)
    write_recordings(folder / "recordings", DURATIONS_S[size])


def write_base(folder: Path, size: SpeechSize) -> None:
    """Write the published layout; one model at a time is in memory."""
    (folder / "semantic_codec").mkdir(parents=True)
    content = {"gpt": asdict(size.gpt), "semantic_codec": asdict(size.codec)}
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    write_tokenizer(folder / "bpe.model", size.gpt.number_text_tokens)
    torch.save(_built(empty_model, size.gpt).state_dict(), folder / "gpt.pth")
    save_file(_built(SemanticCodec, size.codec).state_dict(), folder / "semantic_codec/model.safetensors")
    config = size.encoder_config(PUBLISHED_LAYERS)
    config.mask_time_prob = 0.05  # as published: the file contains the embedding of masked frames
    (folder / "w2v-bert-2.0").mkdir()
    save_file(_built(Wav2Vec2BertModel, config).state_dict(), folder / "w2v-bert-2.0/model.safetensors")
    config.save_pretrained(folder / "w2v-bert-2.0")
    extractor = SeamlessM4TFeatureExtractor(padding_value=1)  # type: ignore[no-untyped-call]
    extractor.save_pretrained(folder / "w2v-bert-2.0")
    dim = size.codec.hidden_size
    torch.save({"mean": torch.zeros(dim), "var": torch.ones(dim)}, folder / "wav2vec2bert_stats.pt")


def _built(kind: Callable[[Any], nn.Module], config: object) -> nn.Module:
    """Return a model with random weights and correct position tables, without a second copy."""
    model = filled(on_meta(lambda: kind(config)).to_empty(device="cpu"), seed=0)
    for module in model.modules():
        if isinstance(module, PositionTable):
            module.pe.copy_(sinusoids(*module.pe.shape[1:])[None])
    return model


def write_recordings(folder: Path, durations_s: Sequence[float]) -> None:
    """Write noise with the amplitude envelope of syllables, and a manifest with sentences of the demo."""
    (folder / "audio").mkdir(parents=True)
    sentences = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").splitlines()
    random = np.random.default_rng(0)
    with (folder / "manifest.jsonl").open("w", encoding="utf-8") as manifest:
        for number, duration_s in enumerate(durations_s):
            times = np.arange(round(duration_s * RATE_HZ)) / RATE_HZ
            loudness = 0.05 + 0.1 * np.sin(np.pi * 4 * times) ** 2
            soundfile.write(
                folder / f"audio/{number}.wav", random.standard_normal(len(times)) * loudness, RATE_HZ
            )
            line = {
                "id": f"rec_{number}",
                "audio": f"audio/{number}.wav",
                "text": sentences[number],
                "speaker": "a",
                "duration": duration_s,
            }
            manifest.write(json.dumps(line, ensure_ascii=False) + "\n")


def programs(folder: Path, base: Path, steps: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the programs with their flags, in order."""
    preprocessed = folder / "preprocessed"
    yield (
        "tools/preprocess_data.py",
        [
            f"--manifest={folder}/recordings/manifest.jsonl",
            f"--output-dir={preprocessed}",
            f"--config={base}/config.yaml",
            f"--gpt-checkpoint={base}/gpt.pth",
            "--backend=indextts2",
            f"--speech-encoder={base}/w2v-bert-2.0",
            f"--semantic-codec={base}/semantic_codec/model.safetensors",
            f"--stats={base}/wav2vec2bert_stats.pt",
            "--val-ratio=0.25",
        ],
    )
    for split in ("train", "val"):
        yield (
            "tools/build_gpt_prompt_pairs.py",
            [
                f"--manifest={preprocessed}/{split}_manifest.jsonl",
                f"--output={preprocessed}/{split}_pairs.jsonl",
            ],
        )
    yield (
        "trainers/train_gpt_v2.py",
        [
            f"--train-manifest={preprocessed}/train_pairs.jsonl",
            f"--val-manifest={preprocessed}/val_pairs.jsonl",
            f"--tokenizer={folder}/tokenizer.model",
            f"--config={base}/config.yaml",
            f"--base-checkpoint={base}/gpt.pth",
            f"--output-dir={folder}/run",
            "--batch-size=2",
            *FIXED_FLAGS,
            f"--max-steps={steps}",
            "--log-interval=1",
            "--keep-checkpoints=1",
            "--allow-cpu",
        ],
    )


def run_program(program: str, flags: Sequence[str]) -> Stage:
    """Run a program to its end and return its cost.

    Raises:
        SystemExit: it failed; with the end of its output.
    """
    own = resident = 0
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    before = os.times()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, str(REPOSITORY / program), *flags],
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that `session_members` finds its child processes
            env={**os.environ, "PYTHONPATH": path},
        )
        while process.poll() is None:
            members = [member.pid for member in session_members(process.pid)]
            own = max(own, sum(process_memory(pid, "RssAnon") for pid in members))
            resident = max(resident, sum(process_memory(pid, "VmRSS") for pid in members))
            time.sleep(SAMPLING_INTERVAL_S)
        after = os.times()
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{program} exited with status {process.returncode}:\n{text[-3000:]}")
    wall_s = after.elapsed - before.elapsed
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{program}: {wall_s:.1f} s, {own / 1e9:.2f} GB: {text.strip().splitlines()[-1]}", flush=True)
    return Stage(program, wall_s, cpu_s, own, resident)


if __name__ == "__main__":
    run(main)
