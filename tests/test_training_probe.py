"""Tests of indextts/training/probe.py: losses on fixed samples, and the log lines that compare them."""

import logging
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.models.gpt.model import UnifiedVoice
from indextts.training.batches import PairDataset
from indextts.training.losses import LossMeans
from indextts.training.probe import TOLERANCE, Probe, compare
from indextts.training.run import Inputs, load_inputs
from indextts.training.start import start_from_base
from indextts.training.validate import ValidationSettings, validate
from tests.tiny_run import TinyRun, dataset_of, make_tiny_run, text_ids_of

BEFORE = {"text_loss": 4.0, "mel_loss": 2.0, "texts": "t", "features": "f"}
HERE = {"torch": "2.13.0", "device": "cpu", "arithmetic": "float32", "threads": 1}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("probe") / "tiny")


@pytest.fixture(scope="module", params=["none", "reference"])
def inputs(project: TinyRun, request: pytest.FixtureRequest) -> Inputs:
    return load_inputs(parse(Train, project.flags(padding=request.param)))


@pytest.fixture(scope="module")
def model(inputs: Inputs) -> UnifiedVoice:
    return start_from_base(inputs).model


def losses(inputs: Inputs, model: UnifiedVoice) -> dict[str, float | str]:
    found = Probe(inputs).losses(model)
    assert found is not None
    return found


def means(inputs: Inputs, val_set: PairDataset, model: UnifiedVoice, batch_size: int) -> LossMeans:
    settings = ValidationSettings(inputs, batch_size)
    return validate(model, val_set, settings, should_stop=lambda: False).means


def logged(caplog: pytest.LogCaptureFixture, now: dict | None, here: dict | None = None) -> tuple[str, str]:
    """Return the level and the text of the line that `compare` logs."""
    with caplog.at_level(logging.INFO):
        compare(BEFORE, now, HERE, here or HERE)
    (record,) = caplog.records
    return record.levelname, record.getMessage()


# --- the losses ---


def test_the_same_weights_and_samples_give_the_same_losses_although_dropout_is_on(
    inputs: Inputs, model: UnifiedVoice
):
    model.train()
    first = losses(inputs, model)
    torch.manual_seed(99)
    assert losses(inputs, model) == first
    assert model.training
    assert all(math.isfinite(float(first[name])) for name in ("text_loss", "mel_loss"))


def test_a_moved_row_exceeds_the_tolerance(inputs: Inputs, model: UnifiedVoice):
    before = losses(inputs, model)
    table = model.text_embedding.weight.data
    kept = table.clone()
    table.copy_(table.roll(1, dims=0) + 0.1)
    after = losses(inputs, model)
    table.copy_(kept)
    old, new = float(before["text_loss"]), float(after["text_loss"])
    assert abs(new - old) > TOLERANCE["float32"] * old
    assert losses(inputs, model) == before


def test_texts_and_features_have_separate_digests(inputs: Inputs, model: UnifiedVoice):
    before = losses(inputs, model)
    val_set = inputs.val_set
    other_tokens = dataset_of(val_set, val_set.pairs, [ids[::-1].copy() for ids in text_ids_of(val_set)])
    texts = losses(replace(inputs, val_set=other_tokens), model)
    assert texts["texts"] != before["texts"]
    assert texts["features"] == before["features"]
    other_prompts = [replace(pair, prompt_key=pair.target_key) for pair in val_set.pairs]
    other_features = dataset_of(val_set, other_prompts)
    features = losses(replace(inputs, val_set=other_features), model)
    assert features["texts"] == before["texts"]
    assert features["features"] != before["features"]


# --- unreadable samples ---


def damage_condition(folder: Path, utterance: str) -> None:
    """Overwrite the condition of an utterance with NaN."""
    [path] = folder.glob("*/*/shard_*/condition.npy")
    array = np.load(path, mmap_mode="r+")
    array[int(utterance[1:])] = np.nan
    array.flush()


def test_a_run_saves_although_a_fixed_sample_became_unreadable(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny")
    assert run.train(max_steps=2) == 0
    inputs = load_inputs(parse(Train, run.flags()))
    damage_condition(run.folder / "features", Probe(inputs)._samples.pairs[0].prompt_id)
    assert run.train(max_steps=4, resume="auto") == 0
    [changed] = [line for line in run.log.splitlines() if "text_loss" in line and " -> " in line]
    assert "features" in changed
    assert f"1 of {len(inputs.val_set)} " in run.log
    assert torch.load(run.output / "latest.pth", weights_only=True)["step"] == 4


# --- the log line ---


@pytest.mark.parametrize("name", ["text_loss", "mel_loss"])
@pytest.mark.parametrize("factor", [1.01, 0.99, math.nan, math.inf])
def test_other_losses_are_a_warning(caplog: pytest.LogCaptureFixture, name: str, factor: float):
    level, text = logged(caplog, {**BEFORE, name: BEFORE[name] * factor})
    assert level == "WARNING"
    assert ": text_loss 4.00000 -> " in text
    assert not any(word in text for word in ("texts", "features", "torch", "device"))


@pytest.mark.parametrize(
    ("now", "here", "reasons"),
    [
        ({"texts": "u"}, {}, ["texts"]),
        ({"features": "g"}, {}, ["features"]),
        ({}, {"device": "NVIDIA H200"}, ["device (cpu -> NVIDIA H200)"]),
        (
            {"texts": "u"},
            {"torch": "3.0", "threads": 8},
            ["texts", "torch (2.13.0 -> 3.0)", "threads (1 -> 8)"],
        ),
    ],
    ids=["texts", "features", "device", "several"],
)
def test_each_difference_is_named(caplog, now: dict, here: dict, reasons: list[str]):
    level, text = logged(caplog, {**BEFORE, **now, "mel_loss": 9.0}, {**HERE, **here})
    assert level == "WARNING"
    names = ["texts", "features", *HERE]
    assert [name for name in names if name in text] == [reason.split()[0] for reason in reasons]
    assert all(reason in text for reason in reasons)


@pytest.mark.parametrize(
    ("here", "factor", "level"),
    [
        ({}, 1 + 1e-7, "WARNING"),
        ({"threads": 2}, 1 + 1e-7, "INFO"),
        ({"threads": 2}, 1 + 1e-2, "WARNING"),
        ({"arithmetic": "bfloat16"}, 1 + 1e-2, "INFO"),
    ],
    ids=["same", "threads", "threads, too much", "precision"],
)
def test_on_the_same_cpu_the_last_bit_counts(caplog, here: dict, factor: float, level: str):
    now = {**BEFORE, "mel_loss": BEFORE["mel_loss"] * factor}
    assert logged(caplog, now, {**HERE, **here})[0] == level


# --- in a run ---


def test_a_resume_logs_that_the_losses_are_unchanged(project: TinyRun):
    output = project.folder / "resumed"
    assert project.train(output_dir=output, max_steps=3) == 0
    assert project.train(output_dir=output, max_steps=4, resume="auto") == 0
    log = (output / "train.log").read_text()
    assert re.search(r"\[Info\] .*: text_loss ([\d.]+) -> \1, mel_loss ([\d.]+) -> \2", log)
