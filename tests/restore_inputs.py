"""Facts of a checkpoint and of a run for the restore plan, without files."""

from dataclasses import asdict

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.runs.directory import CheckpointMeta, FileIdentity
from indextts.runs.restore_facts import REQUIRED_KEYS, CheckpointFacts, RunFacts
from indextts.runs.schedule import EpochSize, Schedule
from indextts.text.vocabulary import Vocabulary
from tests.tiny_gpt import TINY

BASE = ("<s>", "</s>", "<unk>", "▁A")
REQUIRED = ["--train-manifest=t.jsonl", "--val-manifest=v.jsonl", "--tokenizer=bpe.model"]
# 2,000 samples, 4 of them in a step: 500 steps an epoch, 5,000 in all; 2 epochs and 200 steps are done
FLAGS = ["--learning-rate=5e-5", "--warmup-steps=400", "--epochs=10", "--batch-size=4", "--seed=7"]
STORED = Schedule(5e-5, 400, 5000)
STEP = 1200


def vocabulary(*appended: str, scores: str = "") -> Vocabulary:
    pieces = (*BASE, *appended)
    return Vocabulary(pieces, fingerprint="|".join(pieces) + scores)


PIECES = vocabulary("ሰ", "ላ")


def shapes(vocabulary: Vocabulary) -> dict[str, tuple[int, ...]]:
    """Return the trained parameters of a model for `vocabulary`: new rows, the spare one, and a body."""
    return {"text_embedding.weight": (vocabulary.size + 1 - len(BASE), 8), "gpt.ln_f.weight": (8,)}


def identity(name: str, content: str | None = None, num_bytes: int = 10) -> FileIdentity:
    return FileIdentity(path=name, num_bytes=num_bytes, mtime_ns=1, digest=content or f"digest of {name}")


def meta(pieces: Vocabulary = PIECES, **changes: object) -> CheckpointMeta:
    fields = {
        "step": STEP,
        "epoch": 2,
        "samples_done": 800,
        "batch_idx": 200,
        "serial": 3,
        "part": 1,
        "is_best": True,
        "tokenizer_fingerprint": pieces.fingerprint,
        "tokenizer_size": pieces.size,
        "base_size": len(BASE),
        "gpt_config": asdict(TINY),
        "data_order": "order 7",
        "num_samples": 2000,
        "manifests": [identity("t.jsonl"), identity("v.jsonl")],
        "base": identity("gpt.pth"),
        "settings": parse(Train, [*REQUIRED, *FLAGS]).model_dump(mode="json"),
        "schedule": asdict(STORED),
        "environment": {
            "torch": "2.13.0",
            "python": "3.11.7",
            "device": "cpu",
            "arithmetic": "float32",
            "processes": 1,
        },
        "losses": {"text_loss": 3.0, "mel_loss": 4.0},
        "num_bytes": 0,
        "digest": "",
        "pieces": list(pieces.pieces),
    }
    return CheckpointMeta.model_validate_json(CheckpointMeta(**{**fields, **changes}).model_dump_json())


def checkpoint(pieces: Vocabulary = PIECES, **changes: object) -> CheckpointFacts:
    recorded = meta(pieces)
    facts = {
        "name": "latest.pth",
        "keys": frozenset({*REQUIRED_KEYS, "scheduler", "tokenizer"}),
        "text_rows": pieces.size + 1,
        "step": recorded.step,
        "epoch": recorded.epoch,
        "meta": recorded,
        "trained_shapes": shapes(pieces),
    }
    return CheckpointFacts(**{**facts, **changes})  # type: ignore[arg-type]


def foreign(pieces: Vocabulary = PIECES, **changes: object) -> CheckpointFacts:
    """Return a checkpoint of the predecessor, its moments found by name."""
    return checkpoint(pieces, **{"meta": None, **changes})


def run(pieces: Vocabulary = PIECES, argv: tuple[str, ...] = (), **changes: object) -> RunFacts:
    facts = {
        "vocabulary": pieces,
        "base_size": len(BASE),
        "gpt_config": asdict(TINY),
        "command": parse(Train, [*REQUIRED, "--resume=auto", *argv]),
        "size": EpochSize(2000),
        "data_order": lambda seed: f"order {seed}",
        "manifests": (identity("t.jsonl"), identity("v.jsonl")),
        "base": identity("gpt.pth"),
        "environment": meta().environment,
        "validation_set": meta().validation_set,
        "trained_shapes": shapes(pieces),
    }
    return RunFacts(**{**facts, **changes})  # type: ignore[arg-type]
