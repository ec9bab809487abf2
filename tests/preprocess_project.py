"""Data set of tones and a tiny model, for tests of preprocessing."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import soundfile
import torch
import yaml

from demo.make_base_checkpoint import random_model
from indextts.commands.data import Preprocess
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.preprocess import PreprocessResult, preprocess
from indextts.models.gpt.config import load_config
from tests import killed_program
from tests.tiny_gpt import TINY

TINY_GPT = asdict(
    replace(
        TINY,
        layers=1,
        max_mel_tokens=60,  # 1.2 s
        number_text_tokens=30,
        number_mel_codes=18,
        start_mel_token=16,
        stop_mel_token=17,
        feature_dim=1024,
        pe_length=100,
    )
)


def write_audio(path: Path, duration_s: float, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    times = np.arange(round(duration_s * 24_000)) / 24_000
    tone = np.sin(2 * np.pi * rng.uniform(100, 4000) * times) * rng.uniform(0.1, 0.5)
    soundfile.write(path, tone + rng.normal(0, 0.02, len(times)), 24_000)


def write_dataset(folder: Path, speakers: str, max_duration_s: float = 1.0) -> Path:
    """Write one recording per letter of `speakers`, 0.3 s or longer; return their manifest."""
    lines = []
    for number, speaker in enumerate(speakers):
        duration_s = 0.3 + (max_duration_s - 0.3) * (number % 7) / 7
        write_audio(folder / f"audio/{number}.wav", duration_s, seed=number)
        line = {"id": f"{speaker}{number:03d}", "audio": f"audio/{number}.wav", "text": f"ሰላም {number}"}
        lines.append(
            json.dumps(line | {"speaker": speaker, "duration": duration_s}, ensure_ascii=False) + "\n"
        )
    (folder / "manifest.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "manifest.jsonl"


def write_model(folder: Path, seed: int = 0, **changes: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"gpt": TINY_GPT | changes}))
    model = random_model(load_config(folder / "config.yaml"), seed)
    torch.save(model.state_dict(), folder / "gpt.pth")


def make_project(folder: Path) -> Path:
    """Write a data set of 24 clips by a, b (11 each) and c (2), and a tiny model; return the folder."""
    write_dataset(folder / "data", "ab" * 11 + "cc")
    write_model(folder / "model")
    return folder


def command(project: Path, **changes: object) -> Preprocess:
    settings: dict[str, object] = {
        "manifest": project / "data/manifest.jsonl",
        "output_dir": project / "out",
        "config": project / "model/config.yaml",
        "gpt_checkpoint": project / "model/gpt.pth",
        "latents": "float32",
        "val_ratio": 0.2,
        "device": "cpu",
    }
    return Preprocess.model_validate(settings | changes)


def run(project: Path, **changes: object) -> PreprocessResult:
    return preprocess(command(project, **changes))


def utterances_of(output_dir: Path) -> list[Utterance]:
    """Return the utterances of both manifests that preprocessing wrote."""
    return [u for part in ("train", "val") for u in read_utterances(output_dir / f"{part}_manifest.jsonl")]


def store_of(output_dir: Path) -> FeatureStore:
    features = read_utterances(output_dir / "train_manifest.jsonl")[0].features
    assert features is not None
    return FeatureStore.open(features)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def spoil(project: Path) -> dict[str, str]:
    """Corrupt recordings of the data set in every way; return the code of each, by id."""
    audio = project / "data/audio"
    valid = {number: (audio / f"{number}.wav").read_bytes() for number in range(24)}
    (audio / "0.wav").unlink()
    (audio / "1.wav").write_bytes(b"no audio")
    (audio / "2.wav").write_bytes(b"")
    (audio / "3.wav").write_bytes(valid[3][: len(valid[3]) // 2])
    soundfile.write(audio / "4.wav", np.full(9600, np.nan), 24_000, subtype="FLOAT")
    write_audio(audio / "5.wav", 0.05, seed=5)
    soundfile.write(audio / "6.wav", np.zeros(8_000 * 3600, np.int16), 8_000)
    codes = ("missing", "unreadable", "empty", "truncated", "not_finite", "too_short", "too_long")
    return {f"{'ab'[number % 2]}{number:03d}": code for number, code in enumerate(codes)}


def kill_when(folder: Path, pattern: str, arguments: list[str]) -> None:
    """Run the program and kill it when a file in `folder` matches `pattern`."""
    condition = f"any(Path({str(folder)!r}).glob({pattern!r}))"
    killed_program.kill_when(condition, "tools.preprocess_data", arguments)
