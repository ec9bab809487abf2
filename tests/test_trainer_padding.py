"""Tests of --padding and --grad-checkpointing: their effect on training."""

from pathlib import Path

import pytest

from indextts.runs.directory import read_metrics
from tests.tiny_run import TinyRun, make_tiny_run

# a validation, one step over all pairs, a validation: the first two lines have the losses of the base weights
ONE_STEP = {"max_steps": 1, "log_interval": 1, "val_interval": 1, "batch_size": 22, "grad_accumulation": 1}


@pytest.fixture
def tiny(tmp_path: Path) -> TinyRun:
    return make_tiny_run(tmp_path / "tiny", dropout=0.0)


def losses_with(run: TinyRun, name: str, **flags: object) -> list[float]:
    """The loss of the codes in each line of the metrics that has one."""
    assert run.train(**{**ONE_STEP, **flags, "output_dir": run.folder / name}) == 0
    lines = read_metrics(run.folder / name / "metrics.jsonl")
    return [line["mel_loss"] for line in lines if "mel_loss" in line]


def test_without_padding_the_losses_do_not_depend_on_the_batches(tiny: TinyRun):
    whole = losses_with(tiny, "whole")
    parts = losses_with(tiny, "parts", batch_size=4, grad_accumulation=6)
    assert len(whole) == len(parts) == 3
    assert parts[:2] == pytest.approx(whole[:2], abs=1e-5)


def test_with_reference_padding_the_losses_of_a_sample_depend_on_its_batch(tiny: TinyRun):
    none = losses_with(tiny, "none")
    whole = losses_with(tiny, "whole", padding="reference")
    single = losses_with(
        tiny, "single", padding="reference", batch_size=1, grad_accumulation=22, val_batch_size=1
    )
    assert all(abs(a - b) > 1e-4 for a, b in zip(whole[:2], none[:2], strict=True))
    assert single[:2] == pytest.approx(none[:2], abs=1e-5)


def test_the_log_names_the_attention_and_its_dropout(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny", dropout=0.1)
    assert run.train(**ONE_STEP) == 0
    assert "blocks attention, dropout 0.1" in run.log


def test_gradient_checkpointing_does_not_change_the_losses(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny", dropout=0.1)
    flags = {"max_steps": 2, "log_interval": 1}
    plain = losses_with(run, "plain", **flags)
    assert losses_with(run, "checkpointing", grad_checkpointing="", **flags) == plain
