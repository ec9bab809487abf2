"""Tests of indextts/training/settings.py: the default validation interval."""

import json

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.runs.directory import read_metrics
from indextts.runs.schedule import EpochSize
from indextts.training import settings
from indextts.training.settings import _with_val_interval
from tests.tiny_run import make_tiny_run

HOURS_200 = EpochSize(120_000, 120_000 * 362, 800)


def command(*flags: str) -> Train:
    return parse(Train, ["--train-manifest=t", "--val-manifest=v", "--tokenizer=m", *flags])


def interval_of(given: Train, validation: EpochSize, world_size: int = 1) -> int:
    return _with_val_interval(given, HOURS_200, validation, world_size).val_interval


@pytest.mark.parametrize("num_val", [500, 6000, 40_000])
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--batch-size=64"],
        ["--grad-accumulation=4", "--ema-decay=0.999"],
        ["--batch-tokens=16384"],
        ["--max-val-batches=50"],
    ],
    ids=lambda flags: " ".join(flags) or "defaults",
)
def test_forward_passes_of_validations_are_at_most_a_twentieth_of_the_operations(
    num_val: int, flags: list[str]
):
    given = command(*flags)
    validation = EpochSize(num_val, num_val * 362, 800)
    chosen = interval_of(given, validation)
    assert chosen >= 1000
    steps_of_epoch = HOURS_200.num_batches(given.batch_size, given.batch_tokens) / given.grad_accumulation
    trained = 3 * 362 * 120_000 / steps_of_epoch * chosen  # forward and backward, in forwards
    pairs = min(num_val, given.max_val_batches * 2 * given.batch_size or num_val)
    validated = pairs * 362 * (2 if given.ema_decay else 1)
    assert validated <= trained / 20 * 1.001
    if chosen > 1000:  # and not rarer than it must be
        assert validated > trained / 20 * 0.99


def test_a_run_stores_the_interval_it_chose_and_a_resume_keeps_it(tmp_path, monkeypatch):
    run = make_tiny_run(tmp_path / "tiny")
    monkeypatch.setattr(settings, "MAX_VALIDATION_SHARE", 0.0004)
    assert run.train(val_interval=None, max_steps=2) == 0
    chosen = json.loads((run.output / "config.json").read_text())["command"]["val_interval"]
    assert chosen > 1000
    assert f"Validating every {chosen} steps instead of every 1000" in run.log
    monkeypatch.undo()
    assert run.train(val_interval=None, max_steps=4, resume="auto") == 0
    assert json.loads((run.output / "config.json").read_text())["command"]["val_interval"] == chosen
    lines = [line for line in read_metrics(run.output / "metrics.jsonl") if line["kind"] == "val"]
    assert [line["step"] for line in lines] == [0, 2, 4]


@pytest.mark.parametrize(
    ("each", "whole"),
    [
        (["--batch-size=8"], ["--batch-size=32"]),
        (["--batch-tokens=4096"], ["--batch-tokens=16384"]),
        (["--batch-size=8", "--max-val-batches=50"], ["--batch-size=32", "--max-val-batches=50"]),
    ],
    ids=str,
)
def test_several_processes_validate_as_often_as_one_with_all_their_batches(each: list[str], whole: list[str]):
    validation = EpochSize(6000, 6000 * 362, 800)
    assert interval_of(command(*each), validation, world_size=4) == interval_of(command(*whole), validation)
