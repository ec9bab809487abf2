"""Checkpoints of a few bytes, written by the production code."""

from pathlib import Path

import torch

from indextts.models.checkpoint import write_checkpoint
from indextts.runs.directory import CheckpointMeta, FileIdentity

PIECES = ["<s>", "</s>", "<unk>", "ሀ"]


def content(step: int = 3) -> dict:
    return {
        "model": {
            "text_embedding.weight": torch.full((5, 2), float(step)),
            "text_head.weight": torch.ones(5, 2),
            "text_head.bias": torch.zeros(5),
        },
        "optimizer": {
            "state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(2, 2)}},
            "param_groups": [{"params": [0], "param_names": ["text_embedding.weight"]}],
        },
        "epoch": 0,
        "step": step,
        "tokenizer": {"fingerprint": "f", "pieces": PIECES, "base_size": 3},
        "sampler": {"samples_done": 6, "data_order": "d"},
    }


def meta(step: int = 3, serial: int = 1, part: int = 1, *, is_best: bool = False) -> CheckpointMeta:
    return CheckpointMeta(
        step=step,
        epoch=0,
        samples_done=6,
        batch_idx=2,
        serial=serial,
        part=part,
        is_best=is_best,
        tokenizer_fingerprint="f",
        tokenizer_size=4,
        base_size=3,
        gpt_config={},
        data_order="d",
        num_samples=22,
        manifests=[],
        base=FileIdentity(path="gpt.pth", num_bytes=1, mtime_ns=1, digest="b"),
        settings={},
        schedule={},
        environment={},
        losses={"mel_loss": 1.5},
        num_bytes=0,
        digest="",
        pieces=PIECES,
    )


def save(folder: Path, step: int = 3, serial: int = 1, part: int = 1, *, is_best: bool = False) -> Path:
    """Write and commit a checkpoint as a trainer does; return its path."""
    described = meta(step, serial, part, is_best=is_best)
    record = described.model_dump(mode="json", exclude={"num_bytes", "digest"})
    return write_checkpoint(folder, {**content(step), "meta": record}, described)
