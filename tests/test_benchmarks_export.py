"""Tests of benchmarks/export.py: what an export costs."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.export import NUM_PIECES, measure, write_checkpoint
from benchmarks.speech_models import SIZES
from indextts.models.checkpoint import read_weights


@pytest.mark.slow
def test_an_export_of_random_weights_is_measured(tmp_path: Path):
    num_bytes = write_checkpoint(tmp_path, replace(SIZES["tiny"].gpt, number_text_tokens=NUM_PIECES))
    seconds, gigabytes, difference = map(float, measure(tmp_path, "bfloat16").split(" | "))
    assert seconds > 0
    assert gigabytes > 0
    assert 0 < difference < 0.08
    written = read_weights(tmp_path / "model/gpt.pth")
    assert sum(tensor.nbytes for tensor in written.values()) == num_bytes / 2
