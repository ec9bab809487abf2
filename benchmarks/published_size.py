"""From recordings to optimizer steps with files of the published names, shapes and sizes: memory and time.

    python -m benchmarks.published_size --folder DIR [--size published] [--steps 3] [--output FILE]

    DIR/size_*/                      removed at the end; 15 GB at the published size
      IndexTTS-2/                    config.yaml gpt.pth bpe.model wav2vec2bert_stats.pt w2v-bert-2.0/
                                     semantic_codec/model.safetensors: seeded random weights
      recordings/                    manifest.jsonl and noise of 3 to 36 s, the longest that the model takes
      preprocessed/ run/             what the real programs write, each a process of its own

Memory is looked at in /proc 20 times a second, over all processes of a program: `own` is what they have
allocated, `with mapped files` adds the pages of weights that the system could drop.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import numpy as np
import soundfile
import torch
import yaml
from safetensors.torch import save_file
from torch import nn
from transformers import SeamlessM4TFeatureExtractor, Wav2Vec2BertModel

from benchmarks.resume_time import memory, write_tokenizer
from benchmarks.speech_models import PUBLISHED_LAYERS, SIZES, SpeechSize, filled, on_meta
from benchmarks.workload import git_commit
from indextts.features.semantic_codec import SemanticCodec
from indextts.models.gpt.encoders import PositionTable, sinusoids
from indextts.models.gpt.model import UnifiedVoice
from indextts.system.processes import session_members

REPOSITORY = Path(__file__).resolve().parent.parent
RATE_HZ = 24_000
DURATIONS_S = {  # of one speaker's recordings; a quarter of them is for validation
    "tiny": (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0),
    "small": (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 36.0),
    "published": (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 36.0),
}
SECONDS_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True)
class Stage:
    """What a program took: seconds, and the peaks of its processes' memory in bytes."""

    name: str
    took_s: float
    own: int
    resident: int


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published_size")
    parser.add_argument("--size", choices=SIZES, default="published")
    parser.add_argument("--folder", type=Path, required=True, help="where everything is made")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--output", type=Path, help="file for the table")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="size_", dir=args.folder) as folder:
        table = measure(Path(folder), args.size, args.steps)
    print(table)
    if args.output:
        args.output.write_text(table, encoding="utf-8")
    return 0


def measure(folder: Path, size: str, steps: int) -> str:
    """Make all files, run the programs, and return the table."""
    started = time.perf_counter()
    base = folder / "IndexTTS-2"
    write_base(base, SIZES[size])
    write_tokenizer(folder / "tokenizer.model", 2 * SIZES[size].gpt.number_text_tokens)
    write_recordings(folder / "recordings", DURATIONS_S[size])
    num_bytes = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    made_s = time.perf_counter() - started
    print(f"made files of {num_bytes / 1e9:.2f} GB in {made_s:.0f} s", flush=True)
    stages = [run(*program) for program in programs(folder, base, steps)]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    lines = [
        f"# From recordings to {steps} optimizer steps, {size} size",
        "",
        f"{date.today()}, commit {git_commit()}, {os.cpu_count()} cores, {device}, torch "
        f"{torch.__version__}, Python {platform.python_version()}; {len(DURATIONS_S[size])} recordings of "
        f"{min(DURATIONS_S[size]):.0f} to {max(DURATIONS_S[size]):.0f} s; weights of "
        f"{num_bytes / 1e9:.2f} GB.",
        "",
        "| program | seconds | own memory, peak (GB) | with mapped files (GB) |",
        "|---|---|---|---|",
        *(
            f"| {stage.name} | {stage.took_s:.1f} | {stage.own / 1e9:.2f} | {stage.resident / 1e9:.2f} |"
            for stage in stages
        ),
        "",
    ]
    return "\n".join(lines)


def write_base(folder: Path, size: SpeechSize) -> None:
    """Write the published layout; one model after the other is in memory, once."""
    (folder / "semantic_codec").mkdir(parents=True)
    content = {"gpt": asdict(size.gpt), "semantic_codec": asdict(size.codec)}
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    write_tokenizer(folder / "bpe.model", size.gpt.number_text_tokens)
    torch.save(_made(UnifiedVoice, size.gpt).state_dict(), folder / "gpt.pth")
    save_file(_made(SemanticCodec, size.codec).state_dict(), folder / "semantic_codec/model.safetensors")
    config = size.encoder_config(PUBLISHED_LAYERS)
    config.mask_time_prob = 0.05  # as published: the file has a weight for what is hidden in a training
    (folder / "w2v-bert-2.0").mkdir()
    save_file(_made(Wav2Vec2BertModel, config).state_dict(), folder / "w2v-bert-2.0/model.safetensors")
    config.save_pretrained(folder / "w2v-bert-2.0")
    extractor = SeamlessM4TFeatureExtractor(padding_value=1)  # type: ignore[no-untyped-call]
    extractor.save_pretrained(folder / "w2v-bert-2.0")
    dim = size.codec.hidden_size
    torch.save({"mean": torch.zeros(dim), "var": torch.ones(dim)}, folder / "wav2vec2bert_stats.pt")


def _made(kind: type[nn.Module], config: object) -> nn.Module:
    """Return a model with random weights and true position tables, without a second copy."""
    model = filled(on_meta(lambda: kind(config)).to_empty(device="cpu"), seed=0)
    for module in model.modules():
        if isinstance(module, PositionTable):
            module.pe.copy_(sinusoids(*module.pe.shape[1:])[None])
    return model


def write_recordings(folder: Path, durations_s: Sequence[float]) -> None:
    """Write noise with the loudness of syllables, and its manifest with sentences of the demo."""
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
            f"--max-steps={steps}",
            "--log-interval=1",
            "--keep-checkpoints=1",
            "--allow-cpu",
        ],
    )


def run(program: str, flags: Sequence[str]) -> Stage:
    """Run a program to its end and return what it took.

    Raises:
        SystemExit: it failed; with the end of what it said.
    """
    started = time.perf_counter()
    own = resident = 0
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, str(REPOSITORY / program), *flags],
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that its own processes are found
            env={**os.environ, "PYTHONPATH": path},
        )
        while process.poll() is None:
            members = [member.pid for member in session_members(process.pid)]
            own = max(own, sum(memory(pid, "RssAnon") for pid in members))
            resident = max(resident, sum(memory(pid, "VmRSS") for pid in members))
            time.sleep(SECONDS_BETWEEN_LOOKS)
        took_s = time.perf_counter() - started
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{program} ended with {process.returncode}:\n{text[-3000:]}")
    print(f"{program}: {took_s:.1f} s, {own / 1e9:.2f} GB: {text.strip().splitlines()[-1]}", flush=True)
    return Stage(f"`{program}`", took_s, own, resident)


if __name__ == "__main__":
    sys.exit(main())
