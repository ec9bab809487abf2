"""Tests of trainers/train_gpt_v2.py on bad input: a one-line error, status 2, no partial files."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from demo.make_base_checkpoint import random_model
from indextts.text.bases import base_tokenizer
from indextts.text.tokenizer import parse_model
from tests.tiny_run import TinyRun, make_tiny_run, write_features


def append_line(path: Path, line: str) -> None:
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")


def replace_features(run: TinyRun) -> None:
    shutil.rmtree(run.folder / "features")
    write_features(run.folder / "features", count=5, config=run.config)


def reorder_base_tokenizer(run: TinyRun) -> None:
    path = base_tokenizer(run.folder / "base/gpt.pth")
    if path.suffix == ".tiktoken":  # lines of a piece and its number
        lines = [line.split() for line in path.read_bytes().splitlines()]
        lines[10][0], lines[11][0] = lines[11][0], lines[10][0]
        path.write_bytes(b"".join(b" ".join(line) + b"\n" for line in lines))
        return
    model = parse_model(path.read_bytes())
    model.pieces[10].piece, model.pieces[11].piece = model.pieces[11].piece, model.pieces[10].piece
    path.write_bytes(model.SerializeToString())


def take_other_base_weights(run: TinyRun) -> None:
    torch.save(random_model(run.config, seed=1).state_dict(), run.folder / "base/gpt.pth")


def as_plain_manifest(run: TinyRun) -> None:
    line = '{"id": "a", "audio": "a.wav", "text": "ሰላም", "speaker": "s", "duration": 1.0}\n'
    (run.folder / "train_pairs.jsonl").write_text(line, encoding="utf-8")


BAD: dict[str, tuple[Callable[[TinyRun], object], str]] = {
    "a line that is not JSON": (
        lambda run: append_line(run.folder / "train_pairs.jsonl", "{no json"),
        r"train_pairs\.jsonl:23: ",
    ),
    "a pairs file that is a plain manifest": (as_plain_manifest, r"build_gpt_prompt_pairs\.py"),
    "no pairs file": (lambda run: (run.folder / "val_pairs.jsonl").unlink(), r"val_pairs\.jsonl"),
    "an empty pairs file": (lambda run: (run.folder / "val_pairs.jsonl").write_text(""), r"val_pairs\.jsonl"),
    "a tokenizer that is no model": (
        lambda run: (run.folder / "tokenizer.model").write_bytes(b"junk" * 100),
        r"tokenizer\.model: ",
    ),
    "a tokenizer that does not extend the base's": (
        lambda run: base_tokenizer(run.folder / "base/gpt.pth").write_bytes(
            (run.folder / "tokenizer.model").read_bytes()
        ),
        r"(bpe\.model|\.tiktoken): \d+ pieces.* \d+ rows",
    ),
    "a tokenizer whose base has other pieces": (reorder_base_tokenizer, r"(bpe\.model|\.tiktoken): id 10 "),
    "features of other utterances": (
        replace_features,
        r"\d+ of \d+ pairs .* u\d+.*tools/build_gpt_prompt_pairs\.py",
    ),
    "features of another base checkpoint": (take_other_base_weights, r"features.*encoders"),
    "no features": (lambda run: shutil.rmtree(run.folder / "features"), r"features"),
    "pairs of the validation set in the training set": (
        lambda run: shutil.copy(run.folder / "train_pairs.jsonl", run.folder / "val_pairs.jsonl"),
        r"--train-manifest .*22 utterances",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.failure(32, 46)
def test_bad_input_is_one_error_line_and_leaves_no_checkpoint(tmp_path: Path, capfd, name: str):
    run = make_tiny_run(tmp_path / "tiny")
    spoil, message = BAD[name]
    spoil(run)
    assert run.train() == 2
    errors = [line for line in run.log.splitlines() if line.startswith("[Error]")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert not list(run.output.glob("*.pth"))
