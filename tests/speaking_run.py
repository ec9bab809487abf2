"""A run that can speak: a tiny model trained for two steps on real built-in features of demo clips."""

from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
import yaml

from indextts.commands import Preprocess
from indextts.data.pairs import build_pairs
from indextts.data.preprocess import preprocess
from indextts.gpt.initialise import random_model
from indextts.manifest import Utterance, read_utterances, write_pairs, write_utterances
from tests.tiny_gpt import TINY
from tests.tiny_run import BASE_SIZE, BASE_TOKENIZER, REPOSITORY, write_tokenizer
from trainers.train_gpt_v2 import main

NUM_CODES = 24
CONFIG = replace(
    TINY,
    feature_dim=1024,
    number_text_tokens=BASE_SIZE,
    max_text_tokens=60,
    max_mel_tokens=200,
    number_mel_codes=NUM_CODES + 2,
    start_mel_token=NUM_CODES,
    stop_mel_token=NUM_CODES + 1,
    pe_length=800,
)
CLIPS_OF_A_SPEAKER = 6


@dataclass(frozen=True)
class SpeakingRun:
    """The files of the run."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "run/latest.pth"

    @property
    def features(self) -> Path:
        return self.folder / "data/features"

    @property
    def clips(self) -> list[Utterance]:
        return read_utterances(self.folder / "manifest.jsonl")


def make_speaking_run(folder: Path) -> SpeakingRun:
    """Preprocess twelve clips of two speakers, pair them, train two steps."""
    base, data = folder / "base", folder / "data"
    base.mkdir(parents=True)
    (base / "config.yaml").write_text(yaml.safe_dump({"gpt": asdict(CONFIG)}))
    (base / "bpe.model").write_bytes(BASE_TOKENIZER.read_bytes())
    torch.save(random_model(CONFIG, seed=0).state_dict(), base / "gpt.pth")
    write_tokenizer(folder / "tokenizer.model", num_appended=320)
    write_utterances(folder / "manifest.jsonl", demo_clips())
    preprocess(
        Preprocess(
            manifest=folder / "manifest.jsonl",
            output_dir=data,
            config=base / "config.yaml",
            gpt_checkpoint=base / "gpt.pth",
            val_ratio=0.34,
            device="cpu",
            num_workers=1,
        )
    )
    for split in ("train", "val"):
        pairs = build_pairs(read_utterances(data / f"{split}_manifest.jsonl"), 1, seed=0).pairs
        write_pairs(data / f"{split}_pairs.jsonl", pairs)
    flags = {
        "train-manifest": data / "train_pairs.jsonl",
        "val-manifest": data / "val_pairs.jsonl",
        "tokenizer": folder / "tokenizer.model",
        "config": base / "config.yaml",
        "base-checkpoint": base / "gpt.pth",
        "output-dir": folder / "run",
        "max-steps": 2,
        "batch-size": 2,
        "save-interval": 1,
    }
    assert main([*(f"--{name}={value}" for name, value in flags.items()), "--allow-cpu"]) == 0
    return SpeakingRun(folder)


def demo_clips() -> list[Utterance]:
    """Return some clips of the demo's first two speakers."""
    found = sorted(read_utterances(REPOSITORY / "demo/manifest.jsonl"), key=lambda clip: clip.speaker)
    speakers = [list(clips)[:CLIPS_OF_A_SPEAKER] for _, clips in groupby(found, lambda clip: clip.speaker)]
    return [clip for clips in speakers[:2] for clip in clips]
